"""Which address of a broker a client gets."""

from __future__ import annotations

import pytest

from rocketlet.namesrv.advertised import is_loopback, second_address, shares_host


@pytest.mark.parametrize("address", ["127.0.0.1:5", "127.8.8.8:5", "[::1]:5", "[::ffff:127.0.0.1]:5", "localhost:5"])
def test_loopback(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.1:5", "[2001:db8::1]:5", "[::ffff:10.0.0.1]:5", "1.127.0.0:5", ""])
def test_not_loopback(address: str) -> None:
    assert not is_loopback(address)


def test_same_host_is_recognised_by_the_ends_of_a_connection() -> None:
    assert shares_host("127.0.0.1:9876", "127.0.0.1:40000")
    assert shares_host("10.0.0.5:9876", "10.0.0.5:40000")
    assert shares_host("[2001:db8::1]:9876", "[2001:db8::1]:40000")
    assert not shares_host("10.0.0.5:9876", "10.0.0.6:40000")


def test_a_second_address_counts_only_if_loopback_and_from_the_same_host() -> None:
    assert second_address("127.0.0.1:10911", "10.0.0.5:9876", "10.0.0.5:4") == "127.0.0.1:10911"
    assert second_address("127.0.0.1:10911", "10.0.0.5:9876", "10.0.0.6:4") is None
    assert second_address("10.0.0.9:10911", "127.0.0.1:9876", "127.0.0.1:4") is None
    assert second_address(None, "127.0.0.1:9876", "127.0.0.1:4") is None
