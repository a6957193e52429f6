"""Reading batches as a table agrees with reading them message by message, or declines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.alike_batch import FEW, read_alike
from rocketlet.common.message_properties import tags_and_keys
from rocketlet.common.message_record import BatchItem, RecordError, encode_batch, split_batch

NAMES = [b"UNIQ_KEY", b"KEYS", b"TAGS", b"x", b"XUNIQ_KEY", b"KEYS\x01KEYS"]


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([b"%d", b"%d", b"v", b"a %d", b"", b"\xc3%d", b"a b"]))),
    st.integers(0, 9), st.integers(FEW, 30), st.sampled_from([b"\x02", b""]), st.sampled_from([b"", b"a\x01b"]),
    st.integers(0, 40), st.integers(1, 255),
)  # fmt: skip
def test_agrees_with_reading_one_by_one(
    pieces: list[tuple[bytes, bytes]], body: int, count: int, last: bytes, more: bytes, at: int, flip: int
) -> None:
    items = []
    for number in range(count):
        properties = b"\x02".join(name + b"\x01" + (value.replace(b"%d", b"%02d" % number)) for name, value in pieces)
        items.append(BatchItem(4, bytes([number]) * body, properties + last))
    raw = bytearray(encode_batch(items))
    if at < 30:  # one byte of the last message differs
        raw[len(raw) - 1 - at % (len(raw) // count)] ^= flip
    batch = read_alike(bytes(raw), more)
    try:
        flags, bodies, all_properties = split_batch(bytes(raw))
    except RecordError:
        assert batch is None
        return
    if batch is None:
        return
    assert flags == [batch.flag] * count
    rows = [bytes(row) for row in batch.table]
    assert bodies == [row[batch.body_at : batch.body_at + batch.body_size] for row in rows]
    assert all_properties == [row[batch.properties_at :] for row in rows]
    for row, properties in zip(rows, all_properties, strict=True):
        assert tags_and_keys(properties) == (batch.tags, [row[begin:end] for begin, end in batch.key_places])


def item(number: int, **changes: bytes) -> BatchItem:
    given = {"before": b"KEYS\x01k%02d\x02" % number, "unique": b"%08d" % number, "after": b"\x02TAGS\x01A"} | changes
    return BatchItem(0, b"b%02d" % number, given["before"] + b"UNIQ_KEY\x01" + given["unique"] + given["after"])


def test_uniform_batches_are_read() -> None:
    batch = read_alike(encode_batch([item(n) for n in range(FEW)]), b"CLUSTER\x01c")
    assert batch is not None
    assert (batch.tags, len(batch.table), len(batch.key_places)) == (b"A", FEW, 2)
    assert [batch.raw[begin:end] for begin, end in batch.key_places] == [b"00000000", b"k00"]


@pytest.mark.parametrize(
    ("odd", "more"),
    [
        (item(1, unique=b"1234567"), b""),
        (item(1, unique=b"1234 678"), b""),
        (item(1, unique=b"1234\x02678"), b""),
        (item(1, after=b"\x02TAGS\x01B"), b""),
        (item(1, before=b"KEYS\x01k 1\x02"), b""),
        (item(1)._replace(flag=1), b""),
        (item(1)._replace(body=b"b1"), b""),
        (item(1), b"TAGS\x01x"),
        (item(1), b"KEYS\x01x"),
    ],
)
def test_other_batches_are_not(odd: BatchItem, more: bytes) -> None:
    items = [item(n) for n in range(FEW)]
    items[1] = odd
    assert read_alike(encode_batch(items), more) is None


@pytest.mark.parametrize("raw", [b"", b"\0" * 22, b"\0" * 300, b"\xff" * 300, encode_batch([item(0)] * (FEW - 1))])
def test_no_batch_or_too_few_messages(raw: bytes) -> None:
    assert read_alike(raw, b"") is None
