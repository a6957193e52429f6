"""Decides whether a stored message matches a consumer's filter: up to three tests, the cheapest first.

`by_code` tests the tags code in the queue entry, `by_unit` the bit map in the queue's extension, `by_record` the
properties in the log. None means that the test is not needed. A message that passes all of them is delivered; the first
two may have false positives (hashes collide), but no false negatives.

Java: broker/filter/ExpressionMessageFilter.java, ExpressionForRetryMessageFilter.java
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rocketlet.broker.filter.bloom import Bloom, is_hit
from rocketlet.broker.filter.consumer_filters import ConsumerFilter, ConsumerFilters
from rocketlet.broker.filter.selector import Selector
from rocketlet.common.message_properties import find
from rocketlet.common.message_record import Buffer, properties_of
from rocketlet.common.subscription import TAG, Subscription
from rocketlet.common.topic import RETRY_PREFIX
from rocketlet.store.layout.queue_ext_layout import ExtUnit

ByCode: TypeAlias = Callable[[int], bool]
ByUnit: TypeAlias = Callable[[ExtUnit], bool]
ByRecord: TypeAlias = Callable[[Buffer], bool]


@dataclass(frozen=True, slots=True)
class MessageFilter:
    by_code: ByCode | None = None
    by_unit: ByUnit | None = None
    by_record: ByRecord | None = None
    record_cost: int = 1  # of `by_record`: terms and names to look up


EVERYTHING = MessageFilter()


def by_tags(subscription: Subscription) -> MessageFilter:
    """For a tag subscription, and for any whose expression cannot be applied here."""
    if subscription.expression_type == TAG and subscription.codes:
        return MessageFilter(by_code=subscription.matches_code)
    return EVERYTHING


def by_selector(selector: Selector) -> MessageFilter:
    """For an SQL92 expression sent with the pull itself."""
    return MessageFilter(by_record=lambda record: selector.matches(properties_of(record)), record_cost=selector.cost)


def by_consumer_filter(consumer_filter: ConsumerFilter, bloom: Bloom) -> MessageFilter:
    """For an SQL92 expression from the group's heartbeat: stored bits may decide."""

    def by_unit(unit: ExtUnit) -> bool:
        if len(unit.bit_map) != bloom.size or not consumer_filter.sees_bits_of(unit.store_timestamp):
            return True
        return is_hit(consumer_filter.positions, unit.bit_map)

    def by_record(record: Buffer) -> bool:
        return consumer_filter.selector.matches(properties_of(record))

    return MessageFilter(_any_tags, by_unit, by_record, consumer_filter.selector.cost)


def _any_tags(code: int) -> bool:
    """The store reads a unit only if the code passed."""
    return True


def by_origin(retry_topic: str, filters: ConsumerFilters) -> MessageFilter:
    """For a group's retry topic with `filterSupportRetry`: the filter of the topic that a message came from."""
    group = retry_topic.removeprefix(RETRY_PREFIX)

    def by_record(record: Buffer) -> bool:
        properties = properties_of(record)
        origin = find(properties, b"RETRY_TOPIC")
        consumer_filter = filters.get(origin.decode("utf-8", "replace"), group) if origin else None
        return consumer_filter is None or consumer_filter.selector.matches(properties)

    return MessageFilter(by_record=by_record)
