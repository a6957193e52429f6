"""Which messages a consumer gets: by code, by bit map, by properties."""

from __future__ import annotations

from rocketlet.broker.filter.bloom import Bloom
from rocketlet.broker.filter.consumer_filters import ConsumerFilters
from rocketlet.broker.filter.message_filter import EVERYTHING, by_consumer_filter, by_origin, by_selector, by_tags
from rocketlet.broker.filter.selector import Selector
from rocketlet.common.java_numbers import string_hash
from rocketlet.common.message_properties import encode as encode_properties
from rocketlet.common.message_record import Record, encode
from rocketlet.common.subscription import SQL92, Subscription, parse_tags
from rocketlet.store.layout.queue_ext_layout import ExtUnit

BLOOM = Bloom.for_groups(32, 20)


def record(**properties: str) -> bytes:
    return encode(Record("t", 0, 0, 0, b"body", encode_properties(properties).encode()))


def filters(expression: str = "a = 1", topic: str = "t", born: int = 1000) -> ConsumerFilters:
    table = ConsumerFilters(BLOOM)
    table.register("g", [Subscription(topic, expression, SQL92, version=1)], born)
    return table


def test_tags_are_matched_by_hash() -> None:
    wanted = by_tags(parse_tags("t", "A || B", 1))
    assert wanted.by_code is not None
    assert wanted.by_code(string_hash("B"))
    assert not wanted.by_code(string_hash("C"))
    assert wanted.by_record is None
    assert by_tags(parse_tags("t", "*", 1)) is EVERYTHING


def test_an_expression_is_evaluated_on_the_record() -> None:
    wanted = by_selector(Selector("a = 1"))
    assert wanted.by_record is not None
    assert wanted.by_record(record(a="1"))
    assert not wanted.by_record(memoryview(record(a="2")))
    v6, long_topic = bytes(20), "t" * 200
    for born, stored in ((v6, bytes(8)), (bytes(8), v6), (v6, v6)):
        assert wanted.by_record(
            encode(Record(long_topic, 0, 0, 0, b"body", b"a\x011", born_host=born, store_host=stored))
        )


def test_the_bit_map_answers_for_messages_stored_with_the_filter() -> None:
    table = filters()
    known = table.get("t", "g")
    assert known is not None
    wanted = by_consumer_filter(known, BLOOM)
    assert wanted.by_unit is not None
    hit, miss = table.bit_map("t", b"a\x011"), table.bit_map("t", b"a\x012")
    assert wanted.by_code is not None
    assert wanted.by_code(65)
    assert wanted.by_unit(ExtUnit(34, 65, 1001, hit))
    assert not wanted.by_unit(ExtUnit(34, 65, 1001, miss))
    assert wanted.by_unit(ExtUnit(34, 65, 1000, miss)), "stored before the filter was born"
    assert wanted.by_unit(ExtUnit(20, 65, 1001, b"")), "no map was made"
    assert wanted.by_unit(ExtUnit(33, 65, 1001, miss[:-1])), "a map of another shape"
    assert wanted.by_record is not None
    assert not wanted.by_record(record(a="2"))


def test_a_retried_message_is_filtered_by_its_original_topic() -> None:
    wanted = by_origin("%RETRY%g", filters(topic="origin")).by_record
    assert wanted is not None
    assert wanted(record(RETRY_TOPIC="origin", a="1"))
    assert not wanted(record(RETRY_TOPIC="origin", a="2"))
    assert wanted(record(RETRY_TOPIC="other", a="2"))
    assert wanted(record(a="2"))
