from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.compression import CannotInflate, compress, inflate
from rocketlet.common import message_flags as flags


@given(st.binary(max_size=5000))
def test_compressed_bodies_are_inflated(body: bytes) -> None:
    assert inflate(compress(body), flags.COMPRESSED) == body
    assert inflate(compress(body), flags.COMPRESSED | flags.ZLIB) == body


def test_a_body_without_the_flag_is_left_alone() -> None:
    packed = compress(b"x" * 100)
    assert inflate(packed, 0) is packed
    assert inflate(packed, flags.ZLIB) is packed


def test_decompression_is_bounded() -> None:
    bomb = zlib.compress(bytes(1_000_000))
    with pytest.raises(CannotInflate, match="more than 65536"):
        inflate(bomb, flags.COMPRESSED, limit=65536)
    assert len(inflate(bomb, flags.COMPRESSED, limit=1_000_000)) == 1_000_000


def test_an_invalid_zlib_body_is_an_error() -> None:
    with pytest.raises(CannotInflate, match="is not zlib"):
        inflate(b"plain", flags.COMPRESSED)


def test_lz4_is_read_where_installed() -> None:
    frame = pytest.importorskip("lz4.frame", reason="the package lz4 is not installed")
    packed = frame.compress(b"abc" * 10_000)
    assert inflate(packed, flags.COMPRESSED | flags.LZ4) == b"abc" * 10_000
    with pytest.raises(CannotInflate, match="more than"):
        inflate(packed, flags.COMPRESSED | flags.LZ4, limit=1000)


def test_zstd_is_read_where_installed() -> None:
    zstandard = pytest.importorskip("zstandard", reason="the package zstandard is not installed")
    packed = zstandard.ZstdCompressor().compress(b"abc" * 10_000)
    assert inflate(packed, flags.COMPRESSED | flags.ZSTD) == b"abc" * 10_000
    with pytest.raises(CannotInflate, match="more than"):
        inflate(packed, flags.COMPRESSED | flags.ZSTD, limit=1000)


@pytest.mark.parametrize(("sign", "package"), [(b"\x04\x22\x4d\x18", "lz4"), (b"\x28\xb5\x2f\xfd", "zstandard")])
def test_a_missing_package_is_named(sign: bytes, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("rocketlet.client.compression.import_module", missing)
    with pytest.raises(CannotInflate, match=f"install the package {package}"):
        inflate(sign + b"...", flags.COMPRESSED)
