"""Records read together equal those read one by one, whatever their properties."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from rocketlet.common.host import UNKNOWN_HOST
from rocketlet.common.java_numbers import index_key_hash
from rocketlet.common.message_properties import tags_and_keys
from rocketlet.common.message_record import Outline, Record, encode, outline
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.layout.log_scan import chain
from rocketlet.store.layout.queue_rules import LOST_MARK, entry_code, parse_delay_levels
from rocketlet.store.record_columns import record_columns

DELAYS = parse_delay_levels("1s 5s 10s")
BASE = 1 << 20

WORDS = st.sampled_from(
    [b"a", b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"\xc3\xa9\xc3\xa8", b"2", b"k k", b" ", b"k\x01", b"\0"]
)
ODD = st.lists(st.one_of(WORDS, st.just(b"\x01"), st.just(b"\x02")), max_size=8).map(b"".join)
USUAL = st.builds(
    lambda unique, key, tag: b"KEYS\x01%b\x02UNIQ_KEY\x01%032d\x02WAIT\x01true\x02TAGS\x01%b" % (key, unique, tag),
    st.integers(0, 99),
    st.sampled_from([b"k1", b"k2", b"a b", b"aab", b" ab"]),
    st.sampled_from([b"TagA", b"TagB", b"T\xc3\xa9g", b"T\x02gC", b"Tag\0"]),
)
RECORDS = st.builds(
    Record,
    topic=st.sampled_from(["TopicA", "TopicB", "T", "", SCHEDULE_TOPIC, "n\u00e4me", "x" * 130, "a\0b"]),
    queue_id=st.integers(-1, 3),
    queue_offset=st.integers(0, 9),
    log_offset=st.just(0),
    body=st.binary(max_size=20),
    properties=st.one_of(USUAL, USUAL, USUAL, ODD),
    sys_flag=st.sampled_from([0, 0, 4, 8, 12]),
    born_host=st.sampled_from([UNKNOWN_HOST, UNKNOWN_HOST, bytes(20)]),
    store_timestamp=st.integers(0, 1 << 40),
    prepared_offset=st.sampled_from([0, 0, 0, LOST_MARK]),
)


def log_of(records: list[Record]) -> bytes:
    log = b""
    for record in records:
        record.log_offset = BASE + len(log)
        log += encode(record)
    return log


@given(st.lists(RECORDS, min_size=1, max_size=12), st.integers(1, 40))
@example([Record("T", 0, 0, 0, b"", b"UNIQ_KEY\x01A\x02KEYS\x01b c")], 200)
@example([Record("", 0, 0, 0, b"")], 1)
@example([Record("T", 0, 0, 0, b"", tags) for tags in (b"TAGS\x01Tag1", b"TAGS\x01Tag\0")], 30)
def test_columns_equal_the_records(records: list[Record], times: int) -> None:
    log = log_of(records * times)
    places, end = chain(log, 0, len(log))
    assert end == len(log)
    found = record_columns(log, places, end, BASE, DELAYS)
    assert found is not None
    keys = []
    has_zeros = False
    for row, at in enumerate(places):
        record = outline(log, at, end, False, BASE + at)
        assert isinstance(record, Outline)
        has_zeros |= b"\0" in record.topic or b"\0" in record.properties
        tags, words = tags_and_keys(record.properties)
        columns = (found.sizes, found.queue_ids, found.queue_offsets, found.sys_flags, found.timestamps)
        assert tuple(int(column[row]) for column in columns) == record[:5]
        assert found.log_offsets[row] == BASE + at
        assert found.topics[found.topic_of[row]] == record.topic
        assert found.tags_codes[row] == entry_code(record, tags, DELAYS)
        if record.prepared_offset != LOST_MARK:
            keys += [(row, index_key_hash(record.topic.decode(), word.decode())) for word in words]
    assert list(zip(found.key_rows.tolist(), found.key_hashes.tolist(), strict=True)) == keys
    assert found.has_zeros == has_zeros


@given(st.lists(RECORDS, min_size=1, max_size=40), st.data())
def test_an_invalid_record_is_found(records: list[Record], data: st.DataObject) -> None:
    log = bytearray(log_of(records * 3))
    places, end = chain(log, 0, len(log))
    broken = data.draw(st.sampled_from(places))
    log[broken + 30] ^= 1  # of its log offset
    assert record_columns(log, places, end, BASE, DELAYS) is None


@given(st.lists(RECORDS, min_size=1, max_size=40), st.data())
def test_a_body_with_another_crc_is_found_if_asked_for(records: list[Record], data: st.DataObject) -> None:
    log = bytearray(log_of(records * 3))
    places, end = chain(log, 0, len(log))
    assert record_columns(log, places, end, BASE, DELAYS, verify_body=True) is not None
    broken = data.draw(st.sampled_from(places))
    log[broken + 11] ^= 1  # of its CRC
    assert record_columns(log, places, end, BASE, DELAYS) is not None
    assert record_columns(log, places, end, BASE, DELAYS, verify_body=True) is None
