"""Where log lines go: to stderr, for people, at INFO, unless configured otherwise.

Modules log through `logging.getLogger("rocketlet.broker.registration")` and never configure logging; only a `__main__`
calls `set_up`, so a program that embeds us keeps its own configuration. No file is written unless `logFile` asks for
one: containers and service managers keep stderr already, and newcomers overlook errors in RocketMQ's ~/logs.

With `logFormat=json` each line is one JSON object: time (UTC, RFC 3339), level, logger, message, what was passed as
`extra`, and error with the stack trace where there is one. In both forms `log_lines.py` bounds what peers can write.

Java: logback_broker.xml, logback_namesrv.xml, logging/
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

from rocketlet.common.log_lines import LONGEST_TRACEBACK, LineRates, cut, message_of, traceback_of
from rocketlet.common.settings import SettingsError, setting


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Logging."""

    log_level: LogLevel = setting(LogLevel.INFO, "Least level that is logged.")
    log_format: LogFormat = setting(LogFormat.TEXT, "Lines for people, or one JSON object a line for machines.")
    log_file: str = setting("", "File that log lines are appended to.", path=True, default_note="stderr")


def set_up(config: LogConfig, stream: TextIO | None = None) -> None:
    """Sends all log records there, Python warnings too. A second call replaces what the first one set up."""
    handler = _handler(config, stream or sys.stderr)
    handler.setFormatter(JsonLines() if config.log_format is LogFormat.JSON else _TextLines())
    rates = LineRates(handler.emit)
    handler.addFilter(rates)
    atexit.register(rates.log_suppressed)
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, JsonLines | _TextLines)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(config.log_level.value)
    logging.captureWarnings(True)


def _handler(config: LogConfig, stream: TextIO) -> logging.Handler:
    if not config.log_file:
        return logging.StreamHandler(stream)
    try:
        return logging.FileHandler(config.log_file, encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"logFile={config.log_file}: {error.strerror}; choose a file that may be written, or leave it empty"
        ) from error


class _TextLines(logging.Formatter):
    """2026-01-31 09:15:02.123 INFO    rocketlet.broker.registration  registered with 127.0.0.1:9876"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s  %(message)s")
        self.default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        record.message = message_of(record)
        record.asctime = self.formatTime(record)
        line = self.formatMessage(record)
        if record.exc_info:
            line += "\n" + traceback_of(self.formatException(record.exc_info))
        return line


class JsonLines(logging.Formatter):
    """One JSON object a line, never more than one line a record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _OF_EVERY_RECORD}
        if record.exc_info:
            line["error"] = cut(self.formatException(record.exc_info), LONGEST_TRACEBACK)
        return json.dumps(line, ensure_ascii=False, default=str)


# What a record has without any `extra`; "message" and "asctime" appear once a formatter has seen it.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
