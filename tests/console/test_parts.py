"""The parts of pages: charts, bodies, the history of a day, visitors, texts in two languages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("markupsafe", reason="the extra console is not installed")

from rocketlet.console.bodies import SHOWN, shown
from rocketlet.console.charts import Line, chart, round_limit, thinned
from rocketlet.console.history import MAX_SERIES, History
from rocketlet.console.texts import CHINESE
from rocketlet.console.visitors import MAX_GUESSES, Role, Visitors

CONSOLE = Path(__file__).parent.parent.parent / "console"


def visitors(token: str = "", viewer: str = "", *, read_only: bool = False) -> Visitors:
    count = iter(range(1 << 20))
    return Visitors(token, viewer, read_only=read_only, chance=lambda size: next(count).to_bytes(size, "big"))


# ---- bodies


def test_a_body_is_shown_by_its_kind() -> None:
    assert shown(b'{"a": [1]}').kind == "json"
    assert shown("grüße, 你好".encode()).text == "grüße, 你好"
    assert shown(msgspec.msgpack.encode({"a": 1.5})).kind == "msgpack"
    assert shown(bytes(range(256))).kind == "hex"
    assert shown(b"").kind == "empty"
    assert shown(b"plain", "hex").text.startswith("00000000  70 6c 61 69 6e")


@given(st.binary(max_size=300), st.sampled_from(["", "json", "text", "msgpack", "hex", "nonsense"]))
def test_every_body_can_be_shown(body: bytes, wanted: str) -> None:
    assert isinstance(shown(body, wanted).text, str)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\x91" * 100_000, b'"' + b"x" * 3_000_000 + b'"'])
def test_a_hostile_body_is_shown_in_part(body: bytes) -> None:
    assert len(shown(body).text) <= max(SHOWN, 100_000)


# ---- charts


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=3000))
def test_thinning_loses_no_peak(values: list[float]) -> None:
    points = thinned(list(range(len(values))), values)
    assert len(points) <= 320
    assert max(value for _, value in points) == max(values)


@given(st.floats(1e-6, 1e15))
def test_an_axis_ends_at_a_round_number_above_the_highest_value(value: float) -> None:
    assert value <= round_limit(value) <= value * 10


def test_names_in_a_chart_are_text() -> None:
    drawn = chart([Line("<script>x</script>", [1.0, 2.0], [3.0, 4.0])], "<b>", "empty")
    assert "<script>" not in drawn
    assert '<b>"' not in drawn
    assert "empty" in chart([], "t", "empty")


# ---- the last day


def test_history_is_a_ring_of_a_day() -> None:
    history = History(3600.0)
    for hour in range(30):
        history.add(hour * 3600.0, {"in": float(hour)})
    times, values = history.series("in")
    assert (len(times), values[0], values[-1]) == (24, 6.0, 29.0)
    assert history.latest("in") == 29.0
    history.add(30 * 3600.0, {"other": 1.0})
    assert history.latest("in") == 0.0
    assert len(history.series("other")[0]) == 1


def test_history_limits_its_series_and_drops_old_ones() -> None:
    history = History(3600.0)
    history.add(0.0, {f"s{number}": 1.0 for number in range(2 * MAX_SERIES)})
    assert len(history.series(f"s{MAX_SERIES - 1}")[0]) == 1
    assert len(history.series(f"s{MAX_SERIES}")[0]) == 0
    for hour in range(1, 26):
        history.add(hour * 3600.0, {"new": 1.0})
    assert len(history.series("s0")[0]) == 0
    assert len(history.series("new")[0]) > 0


# ---- visitors


def test_without_a_token_everybody_is_an_operator_unless_it_is_read_only() -> None:
    assert visitors().role("anyone", 0) is Role.OPERATOR
    assert visitors(read_only=True).role("anyone", 0) is Role.VIEWER


def test_a_session_ends_by_expiry_and_by_logout() -> None:
    some = visitors("secret", "look")
    assert some.role("stranger", 0) is Role.NOBODY
    visitor = some.log_in("secret", 0.0)
    assert visitor is not None
    assert some.role(visitor, 60.0) is Role.OPERATOR
    assert some.role(visitor, 13 * 3600.0) is Role.NOBODY
    other = some.log_in("look", 0.0)
    assert other is not None
    assert some.role(other, 1.0) is Role.VIEWER
    some.log_out(other)
    assert some.role(other, 1.0) is Role.NOBODY


def test_guessing_is_slow() -> None:
    some = visitors("secret")
    for _ in range(MAX_GUESSES):
        assert some.log_in("guess", 0.0) is None
    assert some.log_in("secret", 30.0) is None
    assert some.log_in("secret", 90.0) is not None


def test_a_token_we_did_not_sign_is_rejected() -> None:
    some = visitors()
    sealed = some.sealed(["done", False])
    assert some.unsealed(sealed) == ["done", False]
    for forged in ("", "x", sealed[:-1] + "0", "." + sealed, "W10=." + sealed.rpartition(".")[2]):
        assert some.unsealed(forged) is None
    assert not some.is_form_code("", some.form_code(""))
    assert not some.is_form_code("a", some.form_code("b"))


# ---- two languages


def asked_texts() -> set[str]:
    """Every text that a template or a page translates."""
    found: set[str] = set()
    for template in (CONSOLE / "templates").glob("*.html"):
        text = template.read_text("utf-8")
        found.update(re.findall(r"\bt\(\"([^\"]+)\"\)", text))
        found.update(re.findall(r"\bt\('([^\']+)'\)", text))
    for module in CONSOLE.rglob("*.py"):
        found.update(re.findall(r"\bt\(\s*\"([^\"]+)\"", module.read_text("utf-8")))
    return found


def test_every_text_has_a_chinese_translation() -> None:
    texts_asked = asked_texts()
    assert len(texts_asked) > 250
    assert sorted(texts_asked - CHINESE.keys()) == []
    menu = re.findall(r'"/[a-z-]*", "([A-Z][a-z ]+)"', (CONSOLE / "templates" / "base.html").read_text("utf-8"))
    assert len(menu) == 10
    assert [name for name in menu if name not in CHINESE] == []


def test_translations_keep_their_placeholders() -> None:
    for english, chinese in CHINESE.items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese)), english


def test_nothing_is_loaded_from_elsewhere() -> None:
    for file in [*(CONSOLE / "templates").glob("*"), *(CONSOLE / "static").glob("*")]:
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, file
        assert "https://" not in text, file
        assert not re.search(r"<script(?! src=\"/static/console.js\" defer)", text), file
        assert " style=" not in text, file
        assert not re.search(r"\son\w+=", text), file


def test_the_audit_line_is_json(tmp_path: Path) -> None:
    from rocketlet.console.audit import Audit

    Audit(str(tmp_path / "a")).write(1_700_000_000_000, "10.0.0.1", "operator", "x", {"topic": "T\n{}"}, "done")
    (line,) = (tmp_path / "a").read_text("utf-8").splitlines()
    assert json.loads(line)["topic"] == "T\n{}"
