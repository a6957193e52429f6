from __future__ import annotations

import pytest

from rocketlet.common.host import host_text, pack_host, parse_host, unpack_host


@pytest.mark.parametrize(
    ("ip", "port", "raw", "text"),
    [
        ("10.0.0.5", 10911, "0a00000500002a9f", "10.0.0.5:10911"),
        ("0.0.0.0", 0, "0000000000000000", "0.0.0.0:0"),
        ("2001:db8::1", 53211, "20010db8000000000000000000000001" + "0000cfdb", "[2001:db8::1]:53211"),
    ],
)
def test_both_ways(ip: str, port: int, raw: str, text: str) -> None:
    packed = pack_host(ip, port)
    assert packed.hex() == raw
    assert unpack_host(packed) == (ip, port)
    assert host_text(packed) == text
    assert parse_host(text) == packed


def test_java_prints_a_slash_and_no_brackets() -> None:
    assert parse_host("/10.0.0.5:10911") == pack_host("10.0.0.5", 10911)
    assert parse_host("2001:db8:0:0:0:0:0:1:10911") == pack_host("2001:db8::1", 10911)


def test_invalid_hosts() -> None:
    with pytest.raises(ValueError, match="not appear"):
        pack_host("broker-a", 10911)
    with pytest.raises(ValueError, match="8 or 20 bytes, not 7"):
        unpack_host(bytes(7))
