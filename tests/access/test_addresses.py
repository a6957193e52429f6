"""Patterns of addresses: RocketMQ's forms."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.access.addresses import AddressError, addresses


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["10.1.2.3", "::1", "no address at all"], []),
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.4", "110.1.2.3", "::1"]),
        ("10.1.2.3,10.1.2.5", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.2.*", ["10.1.2.0", "10.1.2.255"], ["10.1.3.0", "10.11.2.0"]),
        ("10.1.*.*", ["10.1.9.9"], ["10.2.9.9"]),
        ("10.1.2.3-9", ["10.1.2.3", "10.1.2.9"], ["10.1.2.2", "10.1.2.10", "10.1.2.30"]),
        ("10.1.2-3.*", ["10.1.2.7", "10.1.3.7"], ["10.1.4.7"]),
        ("10.1.2.{3,5}", ["10.1.2.3", "10.1.2.5"], ["10.1.2.4"]),
        ("10.1.{2,3}.{4,5},192.168.0.1", ["10.1.2.5", "192.168.0.1"], ["10.1.4.5"]),
        ("2001:db8::7", ["2001:db8::7", "2001:0DB8:0:0:0:0:0:7"], ["2001:db8::8", "10.1.2.3"]),
        ("2001:db8:*:*:*:*:*:1-ff", ["2001:db8::ff", "2001:db8:1::1"], ["2001:db8::100", "2001:db9::1"]),
        ("2001:db8::{1,a}", ["2001:db8::a"], ["2001:db8::b"]),
        ("", [], ["10.1.2.3", "::1"]),
        ("  ", [], ["127.0.0.1"]),
    ],
)
def test_forms(pattern: str, inside: list[str], outside: list[str]) -> None:
    found = addresses(pattern)
    assert [host for host in inside if not found.match(host)] == []
    assert [host for host in outside if found.match(host)] == []
    assert bool(found) == bool(pattern.strip())


@pytest.mark.parametrize(
    "pattern",
    [
        "10.1.2",
        "10.1.2.3.4",
        "10.1.2.256",
        "10.1.2.-1",
        "10.1.2.9-3",
        "10.1.2.{}",
        "10.1.2.x",
        "localhost",
        "1:2",
        "::1::",
    ],
)
def test_invalid_address_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(AddressError, match="is no "):
        addresses(pattern)


def test_address_lists_are_bounded() -> None:
    with pytest.raises(AddressError, match="characters"):
        addresses("10.0.0.1," * 1000)


@given(st.ip_addresses(), st.ip_addresses())
def test_an_address_matches_only_itself(one: ipaddress.IPv4Address, other: ipaddress.IPv4Address) -> None:
    found = addresses(str(one))
    assert found.match(str(one))
    same = getattr(other, "ipv4_mapped", None) or other
    assert found.match(str(other)) == ((getattr(one, "ipv4_mapped", None) or one) == same)


@given(st.text(alphabet="0123456789abcdef.:*-{},", max_size=40))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        found = addresses(text)
    except AddressError:
        return
    assert found.match("10.1.2.3") in (True, False)
