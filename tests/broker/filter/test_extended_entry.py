"""Queue entries as 321 shows them. What a Java broker answered is in the texts."""

from __future__ import annotations

from base64 import b64decode

from rocketlet.broker.filter.bloom import Bloom
from rocketlet.broker.filter.consumer_filters import ConsumerFilters
from rocketlet.broker.filter.extended_entry import shown
from rocketlet.broker.filter.message_filter import EVERYTHING, MessageFilter, by_consumer_filter, by_tags
from rocketlet.common.subscription import SQL92, Subscription, parse_tags
from rocketlet.store.layout.queue_ext_layout import ExtUnit, to_address

ADDRESS = to_address(34)
ENTRY = (245, 126, ADDRESS)
BITS = b64decode("ACAAAAAAAAAACAAIAAA=")  # of the group SQL on the topic T


class Units(dict[int, ExtUnit]):
    """An extension."""

    def read(self, address: int) -> ExtUnit | None:
        return self.get(address)


def units(bits: bytes = BITS) -> Units:
    return Units({ADDRESS: ExtUnit(20 + len(bits), 65, 1795097348452, bits)})


def test_a_plain_entry_is_never_evaluated() -> None:
    for extension in (None, Units()):
        found = shown((0, 119, 65), extension, EVERYTHING)
        assert (found.eval, found.msg, found.extendDataJson, found.bitMap) == (False, None, None, None)


def test_an_extended_entry_shows_its_unit() -> None:
    found = shown(ENTRY, units(), None)
    assert (found.tagsCode, found.eval) == (ADDRESS, False)
    assert found.extendDataJson == (
        '{"filterBitMap":"ACAAAAAAAAAACAAIAAA=","msgStoreTime":1795097348452,"size":34,"tagsCode":65}'
    )
    assert found.bitMap == (
        "000000000000000000001000000000000000100000000000\n"
        "0000000000000000000000000000000000000000000000000010000000000000\n"
    )


def test_an_entry_without_bits_shows_none() -> None:
    found = shown(ENTRY, units(b""), None)
    assert found.extendDataJson == '{"msgStoreTime":1795097348452,"size":20,"tagsCode":65}'
    assert found.bitMap is None


def test_an_entry_whose_unit_is_gone_says_so() -> None:
    found = shown(ENTRY, Units(), EVERYTHING)
    assert (found.eval, found.msg) == (False, f"Cq extend not exist!addr: {ADDRESS}")


def test_the_filter_is_applied_to_the_unit() -> None:
    def passes(wanted: MessageFilter, bits: bytes = BITS) -> bool:
        return shown(ENTRY, units(bits), wanted).eval

    assert passes(EVERYTHING)
    assert passes(by_tags(parse_tags("T", "A", 1)))
    assert not passes(by_tags(parse_tags("T", "B", 1)))
    filters = ConsumerFilters(Bloom.for_groups(32, 20))
    filters.register("SQL", [Subscription("T", "a > 5", SQL92, version=1)], now=1000)
    known = filters.get("T", "SQL")
    assert known is not None
    expression = by_consumer_filter(known, filters.bloom)
    assert passes(expression)
    assert not passes(expression, bytes(14))
    assert passes(expression, b""), "nothing is known about a message from before the filter"
