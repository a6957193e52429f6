"""Queue entries, checkpoint and queue extension units: the worked examples, and both ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.layout import checkpoint_layout, queue_ext_layout
from rocketlet.store.layout.checkpoint_layout import Checkpoint
from rocketlet.store.layout.consume_queue_entry import (
    ENTRY,
    PRE_BLANK,
    count_valid,
    entries_of,
    file_size_for,
    is_pre_blank,
)

int64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_entries() -> None:
    assert ENTRY.pack(1000, 261, 2598919).hex() == "00000000000003e800000105000000000027a807"
    assert ENTRY.pack(1000, 261, -934813832).hex()[24:] == "ffffffffc847df78"
    assert ENTRY.pack(1000, 261, 1700000000123 + 10000).hex() == "00000000000003e8000001050000018bcfe58f8b"
    assert PRE_BLANK.hex() == "00000000000000007fffffff0000000000000000"
    assert is_pre_blank(*ENTRY.unpack(PRE_BLANK)[:2])
    assert not is_pre_blank(1000, 0x7FFFFFFF)


def test_file_sizes() -> None:
    assert (file_size_for(1000), file_size_for(1001), file_size_for(6_000_000)) == (1000, 1020, 6_000_000)


def test_many_entries_at_once() -> None:
    raw = PRE_BLANK * 2 + ENTRY.pack(7, 100, -1) + bytes(45)
    entries = entries_of(raw)
    assert entries.tolist() == [(0, 0x7FFFFFFF, 0)] * 2 + [(7, 100, -1)] + [(0, 0, 0)] * 2
    assert count_valid(raw) == 3
    assert count_valid(raw[:60]) == 3
    assert count_valid(b"") == 0
    assert count_valid(ENTRY.pack(-1, 100, 0)) == 0


def test_checkpoint() -> None:
    checkpoint = Checkpoint(1700000000123, 1700000000123, 0, 0, 1000)
    raw = checkpoint_layout.encode(checkpoint)
    assert len(raw) == 4096
    assert raw.rstrip(b"\0").hex() == "0000018bcfe5687b0000018bcfe5687b0000000000000000000000000000000000000000000003e8"
    assert checkpoint_layout.decode(raw) == checkpoint
    assert checkpoint_layout.decode(b"") == Checkpoint()


@given(st.tuples(int64, int64, int64, int64, int64))
def test_any_checkpoint_round_trips(longs: tuple[int, int, int, int, int]) -> None:
    assert checkpoint_layout.decode(checkpoint_layout.encode(Checkpoint(*longs))) == Checkpoint(*longs)


def test_ext_units() -> None:
    bit_map = bytes.fromhex("0000020000000000400000000002")
    raw = queue_ext_layout.encode(2598919, 1700000000123, bit_map)
    assert raw.hex() == "0022000000000027a8070000018bcfe5687b000e0000020000000000400000000002"
    assert queue_ext_layout.decode(raw, 0) == queue_ext_layout.ExtUnit(34, 2598919, 1700000000123, bit_map)
    assert queue_ext_layout.decode(raw[:-1], 0) is None
    assert queue_ext_layout.decode(queue_ext_layout.END_MARK + bytes(40), 0) is None
    assert queue_ext_layout.decode(bytes(40), 0) is None
    assert queue_ext_layout.fits(30, 34, 68)
    assert not queue_ext_layout.fits(31, 34, 68)


def test_ext_addresses() -> None:
    assert queue_ext_layout.to_address(34).to_bytes(8, "big", signed=True).hex() == "8000000000000022"
    assert queue_ext_layout.to_offset(queue_ext_layout.to_address(34)) == 34
    assert queue_ext_layout.is_address(queue_ext_layout.to_address(34))
    assert queue_ext_layout.is_address(-2147483649)
    assert not queue_ext_layout.is_address(-2147483648)
    assert not queue_ext_layout.is_address(0)
