"""Log lines: their destination and format."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketlet.common.errors import RocketletError
from rocketlet.common.logging_setup import LogConfig, LogFormat, LogLevel, set_up
from rocketlet.common.settings import SettingsError


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, restored afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    for handler in [one for one in root.handlers if one not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_line_for_people() -> None:
    stream = io.StringIO()
    set_up(LogConfig(), stream)
    logging.getLogger("rocketlet.broker.registration").info("registered with %s", "127.0.0.1:9876")
    logging.getLogger("rocketlet.broker.registration").debug("not shown")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    rocketlet\.broker\.registration"
        r"  registered with 127\.0\.0\.1:9876\n",
        stream.getvalue(),
    )


def test_stderr_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    set_up(LogConfig())
    logging.getLogger("rocketlet.store.flush").warning("slow")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("WARNING rocketlet.store.flush  slow\n")


def test_json_lines_hold_one_object_each() -> None:
    stream = io.StringIO()
    set_up(LogConfig(log_format=LogFormat.JSON), stream)
    try:
        raise RocketletError("disk\nfull")
    except RocketletError:
        logging.getLogger("rocketlet.store.flush").exception(
            "höchst\nbedenklich", extra={"topic": "T", "path": Path("/x")}
        )
    assert stream.getvalue().count("\n") == 1
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    assert line.pop("error").startswith("Traceback")
    assert line == {
        "level": "ERROR",
        "logger": "rocketlet.store.flush",
        "message": "höchst\\nbedenklich",
        "topic": "T",
        "path": "/x",
    }


def test_the_level_is_a_setting() -> None:
    stream = io.StringIO()
    set_up(LogConfig(log_level=LogLevel.ERROR), stream)
    logging.getLogger("x").warning("quiet")
    assert stream.getvalue() == ""


def test_a_second_setup_replaces_the_first_and_nothing_else(root_logger: logging.Logger) -> None:
    others = list(root_logger.handlers)
    first, second = io.StringIO(), io.StringIO()
    set_up(LogConfig(), first)
    set_up(LogConfig(), second)
    logging.getLogger("x").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
    assert all(handler in root_logger.handlers for handler in others)


def test_pythons_warnings_are_log_lines() -> None:
    stream = io.StringIO()
    set_up(LogConfig(), stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert "py.warnings" in stream.getvalue()


def test_a_log_file_on_request(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    set_up(LogConfig(log_file=str(path)))
    logging.getLogger("x").info("grüß dich")
    assert path.read_text("utf-8").endswith("x  grüß dich\n")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"logFile=.*Is a directory"):
        set_up(LogConfig(log_file=str(tmp_path)))
