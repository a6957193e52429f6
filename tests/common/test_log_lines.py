"""What peers can do to the log: no long, forged or endless lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common import log_lines
from rocketlet.common.log_lines import LONGEST_LINE, LineRates, message_of, traceback_of, visible
from rocketlet.common.logging_setup import LogConfig, LogFormat, set_up

log = logging.getLogger("rocketlet.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    set_up(LogConfig(), stream)
    yield stream
    for handler in [one for one in root.handlers if one not in handlers]:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(False)


def record(message: str, *arguments: object, created: float = 0.0, line: int = 1) -> logging.LogRecord:
    made = logging.LogRecord("rocketlet.test", logging.INFO, "module.py", line, message, arguments, None)
    made.created = created
    return made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("a\r\x1b[31mb", "a\\r\\x1b[31mb"),
        ("a\x85\u2028b", "a\\x85\\u2028b"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("höchst bedenklich 你好", "höchst bedenklich 你好"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(max_size=200))
def test_any_message_is_one_line(text: str) -> None:
    shown = message_of(record("client %s", text))
    assert len((shown + "x").splitlines()) == 1
    shown.encode()


def test_a_client_id_cannot_forge_a_line(stream: io.StringIO) -> None:
    log.info("consumer group G: %s joined", "me\n2026-01-01 00:00:00.000 INFO    rocketlet  all is well")
    assert stream.getvalue().count("\n") == 1


def test_a_traceback_cannot_forge_a_line(stream: io.StringIO) -> None:
    try:
        raise ValueError("me\n2026-01-01 00:00:00.000 INFO    rocketlet  all is well\x1b[2J")
    except ValueError:
        log.exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("failed")
    assert rest
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in stream.getvalue()


def test_long_arguments_are_truncated_and_the_rest_of_the_line_kept() -> None:
    shown = message_of(record("%s joined group %s", "x" * 100_000, "G"))
    assert shown == "x" * 300 + "... (100000 characters) joined group G"


def test_arguments_other_than_text_are_truncated_too() -> None:
    shown = message_of(record("%s at %d: %r", ValueError("y" * 1000), 5, ["z"] * 1000))
    assert len(shown) < 800
    assert " at 5: " in shown
    assert message_of(record("%r", "short")) == "'short'"


def test_long_lines_are_truncated() -> None:
    assert len(message_of(record("x" * 100_000))) < LONGEST_LINE + 50


def test_a_message_without_arguments_may_hold_a_percent_sign() -> None:
    assert message_of(record("90 % full")) == "90 % full"


def test_long_tracebacks_are_truncated() -> None:
    assert len(traceback_of("x" * 1_000_000)) < 30_000


def test_each_kind_of_line_is_rate_limited() -> None:
    told: list[str] = []
    rates = LineRates(lambda one: told.append(message_of(one)))
    assert [rates.filter(record("client %s", number)) for number in range(150)] == [True] * 100 + [False] * 50
    assert rates.filter(record("something else", line=2))
    assert told == []
    assert rates.filter(record("something else", created=11.0, line=2))
    assert told == ["50 more lines like this one were left out: client 149"]
    assert rates.filter(record("client %s", 150, created=11.0))


def test_critical_lines_are_never_suppressed() -> None:
    rates = LineRates(lambda one: None)
    critical = record("down")
    critical.levelno = logging.CRITICAL
    assert all(rates.filter(critical) for _ in range(1000))


def test_suppressed_lines_are_counted_at_the_end() -> None:
    told: list[str] = []
    rates = LineRates(lambda one: told.append(message_of(one)))
    for number in range(103):
        rates.filter(record("client %s", number))
    rates.log_suppressed()
    rates.log_suppressed()
    assert told == ["3 more lines like this one were left out: client 102"]


def test_setting_the_clock_back_suppresses_nothing() -> None:
    rates = LineRates(lambda one: None)
    for _ in range(200):
        rates.filter(record("client", created=1000.0))
    assert rates.filter(record("client", created=500.0))


def test_a_peer_causes_only_a_few_lines_a_second(stream: io.StringIO) -> None:
    for number in range(5000):
        log.warning("%s sent no frame", number)
    assert len(stream.getvalue().splitlines()) == log_lines.LINES


def test_json_lines_are_bounded_too() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    set_up(LogConfig(log_format=LogFormat.JSON), stream)
    try:
        for number in range(500):
            log.info("%s joined", f"{number}" + "x" * 5000)
    finally:
        for handler in [one for one in root.handlers if one not in handlers]:
            root.removeHandler(handler)
        root.setLevel(level)
        logging.captureWarnings(False)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == log_lines.LINES
    assert all(len(line["message"]) < 400 for line in lines)
