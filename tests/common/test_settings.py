"""Declared settings: text to value and back, and what may change at run time."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common import settings
from rocketlet.common.settings import (
    LONGEST_TEXT,
    REDACTED,
    SettingsError,
    nearest,
    setting,
    settings_of,
    snake_case,
    to_properties,
    with_updates,
    with_updates_of_all,
)
from rocketlet.tools.settings_table import PROGRAMS


class Flush(StrEnum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Settings of an example."""

    listen_port: int = setting(10911, "Port.", minimum=0, maximum=65535, flag="-l")
    broker_ip1: str = setting("", "Address.", key="brokerIP1", default_note="the host's own", env="MY_IP")
    wait: int = setting(200, "How long.", unit="ms", minimum=1, updatable=True)
    ratio: float = setting(0.75, "How full.", updatable=True, maximum=1)
    warm: bool = setting(
        False, "Warm up.", key="warmMapedFileEnable", old_keys=["warmMappedFileEnable"], updatable=True
    )
    flush: Flush = setting(Flush.ASYNC_FLUSH, "When a send is answered.", updatable=True)
    region: str = setting("east", "Where.", choices=("east", "west"), updatable=True)
    servers: tuple[str, ...] = setting((), "Name servers.", updatable=True)
    root: str = setting("~/store", "Directory.", path=True)
    password: str = setting("", "Password.", secret=True, updatable=True)

    def __post_init__(self) -> None:
        if self.wait > 1000 and self.warm:
            raise SettingsError("wait: at most 1000 when warmMapedFileEnable is true")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Shares a key."""

    wait: int = setting(200, "How long.", updatable=True)


BY_FIELD = {one.field: one for one in settings_of(Example)}


def test_names_are_derived_from_the_key() -> None:
    port = BY_FIELD["listen_port"]
    assert (port.key, port.variables) == ("listenPort", ("ROCKETLET_LISTEN_PORT",))
    assert port.flags == ("-l", "--listen-port", "--listenPort")
    address = BY_FIELD["broker_ip1"]
    assert (address.key, address.variables) == ("brokerIP1", ("ROCKETLET_BROKER_IP1", "MY_IP"))
    assert BY_FIELD["flush"].flags == ("--flush",)
    assert BY_FIELD["warm"].flags == ("--warm-maped-file-enable", "--warmMapedFileEnable")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("listenPort", "listen_port"),
        ("brokerIP1", "broker_ip1"),
        ("useTLS", "use_tls"),
        ("checkCRCOnRecover", "check_crc_on_recover"),
        ("dLegerGroup", "d_leger_group"),
        ("scheduleAsyncDeliverMaxResendNum2Blocked", "schedule_async_deliver_max_resend_num2_blocked"),
        ("tls.server.certPath", "tls_server_cert_path"),
    ],
)
def test_keys_in_words(key: str, name: str) -> None:
    assert snake_case(key) == name


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("listen_port", " 0 ", 0),
        ("listen_port", "+9876", 9876),
        ("ratio", "0.5", 0.5),
        ("ratio", "-1e-3", -0.001),
        ("warm", "TRUE", True),
        ("warm", "false", False),
        ("flush", "sync_flush", Flush.SYNC_FLUSH),
        ("region", "west", "west"),
        ("servers", "a:1; b:2;", ("a:1", "b:2")),
        ("servers", "", ()),
        ("broker_ip1", " 10.0.0.5 ", "10.0.0.5"),
    ],
)
def test_text_becomes_a_value(field: str, text: str, value: Any) -> None:
    parsed = BY_FIELD[field].parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("listen_port", "65536", "listenPort=65536: must be a whole number from 0 to 65535"),
        ("listen_port", "-1", "listenPort=-1: must be a whole number from 0 to 65535"),
        ("listen_port", "1_000", "listenPort=1_000: must be a whole number from 0 to 65535"),
        ("listen_port", "٣", "listenPort=٣: must be a whole number from 0 to 65535"),
        ("listen_port", "", "listenPort=: must be a whole number from 0 to 65535"),
        ("wait", "0", "wait=0: must be a whole number (ms) from 1 to 2147483647"),
        ("ratio", "nan", "ratio=nan: must be a number from -2147483648 to 1"),
        ("ratio", "2", "ratio=2.0: must be a number from -2147483648 to 1"),
        ("warm", "ture", "warmMapedFileEnable=ture: must be true or false"),
        ("warm", "1", "warmMapedFileEnable=1: must be true or false"),
        ("flush", "SYNC", "flush=SYNC: must be one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("region", "north", "region=north: must be one of east, west"),
    ],
)
def test_a_wrong_value_is_refused_in_words(field: str, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        BY_FIELD[field].parse(text)
    assert str(caught.value) == words


@given(
    st.builds(
        Example,
        listen_port=st.integers(0, 65535),
        ratio=st.floats(-10, 1),
        warm=st.booleans(),
        flush=st.sampled_from(Flush),
        servers=st.lists(st.from_regex(r"[a-z]+:[0-9]+", fullmatch=True)).map(tuple),
    )
)
def test_every_value_survives_a_round_trip(example: Example) -> None:
    for one in settings_of(Example):
        value = getattr(example, one.field)
        assert one.parse(one.format(value)) == value


def test_all_settings_are_text_in_order() -> None:
    shown = to_properties(Example(warm=True, servers=("a:1", "b:2")))
    assert list(shown) == [one.key for one in settings_of(Example)]
    assert shown["warmMapedFileEnable"] == "true"
    assert shown["servers"] == "a:1;b:2"
    assert shown["flush"] == "ASYNC_FLUSH"


def test_only_an_empty_secret_is_shown() -> None:
    assert to_properties(Example(password="s3cret"))["password"] == REDACTED
    assert to_properties(Example())["password"] == ""


def test_updates_return_a_new_value_and_keep_the_old() -> None:
    before = Example()
    after = with_updates(before, {"wait": "300", "warmMappedFileEnable": "true", "flush": "SYNC_FLUSH"})
    assert (after.wait, after.warm, after.flush) == (300, True, Flush.SYNC_FLUSH)
    assert before == Example()


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        ({"listenPort": "1"}, "listenPort: is read at start only"),
        ({"root": "/etc"}, "root: is read at start only"),
        ({"wiat": "1"}, "wiat: no such setting; did you mean wait?"),
        ({"zzzzzz": "1"}, "zzzzzz: no such setting"),
        ({"wait": "soon"}, "wait=soon: must be a whole number (ms) from 1 to 2147483647"),
        ({"wait": "2000", "warmMapedFileEnable": "true"}, "wait: at most 1000 when"),
    ],
)
def test_refused_updates(updates: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        with_updates(Example(), updates)
    assert words in str(caught.value)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        with_updates(Example(), {"listenPort": "1", "wait": "300", "region": "north"})
    assert len(caught.value.problems) == 2


def test_the_whole_listing_can_be_sent_back() -> None:
    config = Example(password="s3cret", servers=("a:1",))
    assert with_updates(config, to_properties(config)) == config
    changed = with_updates(config, to_properties(config) | {"wait": "7"})
    assert changed == dataclasses.replace(config, wait=7)


def test_a_key_of_two_dataclasses_updates_both() -> None:
    example, neighbour = with_updates_of_all([Example(), Neighbour()], {"wait": "5"})
    assert (example.wait, neighbour.wait) == (5, 5)


def test_a_path_cannot_be_declared_updatable() -> None:
    with pytest.raises(TypeError, match="never updatable"):
        setting("x", "A directory.", path=True, updatable=True)


def test_an_unsupported_type_is_refused_at_declaration() -> None:
    @dataclass(frozen=True)
    class Wrong:
        numbers: tuple[int, ...] = setting((), "Numbers.")

    with pytest.raises(TypeError, match="a setting is bool, int"):
        settings_of(Wrong)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("listnPort", "listenPort"),
        ("listen_port", "listenPort"),
        ("LISTENPORT", "listenPort"),
        ("brokerip", "brokerIP1"),
        ("somethingElseAltogether", None),
    ],
)
def test_the_nearest_key(typed: str, meant: str | None) -> None:
    assert nearest(typed, to_properties(Example())) == meant


def test_every_number_has_bounds() -> None:
    for config_type in {one for types in PROGRAMS.values() for one in types}:
        for one in settings_of(config_type):
            if one.kind in (int, float):
                assert one.minimum is not None, one.key
                assert one.maximum is not None, one.key
                float(one.maximum), one.maximum * 1000


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_number_of_400_digits_is_refused_by_every_setting(program: str) -> None:
    for config_type in PROGRAMS[program]:
        for one in settings_of(config_type):
            if one.kind in (int, float):
                with pytest.raises(SettingsError, match="must be"):
                    one.parse("9" * 400)


def test_text_has_a_limit_and_no_control_characters() -> None:
    region = next(one for one in settings_of(Example) if one.field == "broker_ip1")
    assert len(region.parse("x" * LONGEST_TEXT)) == LONGEST_TEXT
    with pytest.raises(SettingsError, match="has 4097 characters, at most 4096 are allowed"):
        region.parse("x" * (LONGEST_TEXT + 1))
    for text in ("a\x01b", "a\nb", "a\x85b", "a\u2028b", "a\x00"):
        with pytest.raises(SettingsError, match="control characters"):
            region.parse(text)


def test_an_update_with_a_thousand_unknown_keys_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def nearest_counted(key: str, known: object) -> None:
        looked.append(key)

    monkeypatch.setattr(settings, "nearest", nearest_counted)
    with pytest.raises(SettingsError) as caught:
        with_updates(Example(), {f"key{number}": "1" for number in range(1000)})
    assert len(looked) == 10
    assert caught.value.problems[-1] == "and perhaps more: 990 settings were not checked"


def test_a_default_outside_its_bounds_fails_the_declaration() -> None:
    with pytest.raises(TypeError, match="is not between"):
        setting(1 << 40, "Large.")
