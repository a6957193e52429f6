"""The SQL92 filters of consumer groups: topic -> group -> expression, compiled once.

Heartbeats bring them, each with a version; a newer version replaces, an equal one revives, an older one is ignored. The
filter of a group that left is kept for a day, marked with that time: messages stored meanwhile still get its bits in
the queue's extension. On disk this is consumerFilter.json; loaded filters count as left until the next heartbeat, and a
different shape of the bit maps invalidates the file. Pure: the time is an argument.

A heartbeat may bring a megabyte of expressions, which take half a second to compile: `register` compiles what an
Allowance permits, and returns the rest to be taken one by one.

Invariants: at most MAX_FILTERS expressions are kept; every one of them compiles; `version` grows with every change.

Java: broker/filter/ConsumerFilterManager.java, ConsumerFilterData.java
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rocketlet.broker.filter.bloom import Bloom
from rocketlet.broker.filter.lexer import FilterSyntaxError
from rocketlet.broker.filter.selector import Selector, compiled
from rocketlet.common.json_pieces import object_pieces
from rocketlet.common.subscription import SQL92, Subscription
from rocketlet.common.topic import RETRY_TOPIC_MAX_LENGTH, is_legal_name

log = logging.getLogger("rocketlet.broker.filter.consumer_filters")

MAX_FILTERS: Final = 10_000
MAX_CHARACTERS: Final = 1 << 20  # of all expressions; compiled they take 60 bytes per character
AT_ONCE: Final = 8 << 10  # characters compiled in one go, in 5 ms
DAY_MS: Final = 86_400_000
_LOADED_DEAD_MS: Final = 30_000


@dataclass(slots=True, eq=False)
class ConsumerFilter:
    """One group's filter on one topic. `born` is when this expression became known, `left_at` when its group left."""

    topic: str
    group: str
    selector: Selector
    client_version: int
    positions: tuple[int, ...]
    born: int
    left_at: int = 0

    @property
    def dead(self) -> bool:
        return self.left_at >= self.born

    def sees_bits_of(self, store_timestamp: int) -> bool:
        """Whether the bit map of a message stored at that time covers this filter."""
        return store_timestamp > self.born


@dataclass(slots=True)
class Allowance:
    """How many characters of new expressions may be compiled in one go: more only if they are one expression."""

    characters: int = AT_ONCE

    def permits(self, expression: str) -> bool:
        """Whether one more may be compiled, which is counted."""
        if self.characters < min(len(expression), AT_ONCE):
            return False
        self.characters -= len(expression)
        return True


class ConsumerFilters:
    """All filters of one broker."""

    def __init__(self, bloom: Bloom) -> None:
        self.bloom = bloom
        self.version = 0
        self._topics: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, set[str]] = {}  # by group
        self._count = 0
        self._characters = 0

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        return self._topics.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> Iterable[ConsumerFilter]:
        return self._topics.get(topic, {}).values()

    def of_group(self, group: str) -> list[ConsumerFilter]:
        return [self._topics[topic][group] for topic in self._topics_of.get(group, ())]

    def register(
        self, group: str, subscriptions: Iterable[Subscription], now: int, allowance: Allowance | None = None
    ) -> list[Subscription]:
        """Apply a heartbeat: all subscriptions of the group, with tags or without. Returns those for `take`, whose
        expressions exceed the allowance."""
        topics = set()
        remaining = []
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if subscription.expression_type != SQL92 or not subscription.expression:
                continue
            if not self._is_new(group, subscription):
                continue
            if allowance is None or allowance.permits(subscription.expression):
                self._compile(group, subscription, now)
            else:
                remaining.append(subscription)
        for old in self.of_group(group):
            if old.topic not in topics:
                self._mark_dead(old, now)
        return remaining

    def take(self, group: str, subscription: Subscription, now: int) -> None:
        """Apply one of the subscriptions that `register` has returned."""
        if self._is_new(group, subscription):
            self._compile(group, subscription, now)

    def group_left(self, group: str, now: int) -> None:
        """The group's last member has left."""
        for known in self.of_group(group):
            self._mark_dead(known, now)

    def bit_map(self, topic: str, properties: bytes) -> bytes:
        """The bits of all groups that a message matches; empty if the topic has no filter."""
        filters = self._topics.get(topic)
        if not filters:
            return b""
        matching = [known.positions for known in filters.values() if known.selector.matches(properties)]
        return self.bloom.map_of(position for positions in matching for position in positions)

    def forget_old(self, now: int, kept_ms: int = DAY_MS) -> None:
        """Drop filters that left longer ago."""
        for known in list(self._all()):
            if known.dead and now - known.left_at >= kept_ms:
                self._remove(known)

    def to_body(self) -> dict[str, Any]:
        """All of them, as slaves get them."""
        return {"filterDataByTopic": {topic: self._of_topic(topic) for topic in self._topics}}

    def pieces(self, between: bytes = b",") -> Iterator[bytes]:
        """The JSON of `to_body`, for consumerFilter.json."""
        yield b'{"filterDataByTopic":'
        yield from object_pieces(((topic, self._of_topic(topic)) for topic in list(self._topics)), between)
        yield b"}"

    def text(self, topic: str, group: str) -> str:
        """A group's record as it stands in RocketMQ's consumerFilter.json; "null" if it has none."""
        known = self.get(topic, group)
        if known is None:
            return "null"
        record = _to_json(known, self.bloom)
        positions, record["bloomFilterData"]["bitPos"] = record["bloomFilterData"]["bitPos"], None
        text = json.dumps(record, indent="\t", separators=(",", ":"), ensure_ascii=False)
        # fastjson keeps numbers in one line, which json does not.
        return text.replace('"bitPos":null', f'"bitPos":{json.dumps(positions, separators=(",", ":"))}', 1)

    def _of_topic(self, topic: str) -> dict[str, Any]:
        groups = {known.group: _to_json(known, self.bloom) for known in self.of_topic(topic)}
        return {"groupFilterData": groups, "topic": topic}

    def load(self, body: Any, now: int) -> None:
        """Load consumerFilter.json; invalid entries are logged and skipped."""
        table = body.get("filterDataByTopic") if isinstance(body, dict) else None
        entries = [
            entry
            for groups in (table.values() if isinstance(table, dict) else ())
            if isinstance(groups, dict) and isinstance(groups.get("groupFilterData"), dict)
            for entry in groups["groupFilterData"].values()
        ]
        loaded = []
        for entry in entries:
            try:
                loaded.append(self._from_json(entry, now))
            except (KeyError, TypeError, ValueError, FilterSyntaxError) as error:
                log.warning("a filter in consumerFilter.json is left out: %s", error)
        if any(positions != known.positions for known, positions in loaded):
            log.warning(
                "consumerFilter.json was written for other bit maps; its %d filters wait for their groups' next "
                "heartbeat (expectConsumerNumUseFilter and maxErrorRateOfBloomFilter decide the maps)",
                len(loaded),
            )
            return
        for known, _ in loaded[:MAX_FILTERS]:
            self._put(known)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<ConsumerFilters: {self._count} of {len(self._topics)} topics>"

    def _is_new(self, group: str, subscription: Subscription) -> bool:
        """Whether the expression has to be compiled. If not, its filter is up to date now."""
        topic = subscription.topic
        if not is_legal_name(topic) or len(topic) > RETRY_TOPIC_MAX_LENGTH:
            return False  # no message ever has this topic
        old = self.get(topic, group)
        if old is not None and subscription.version <= old.client_version:
            if subscription.version == old.client_version and old.dead:
                old.left_at = 0
                self.version += 1
            return False
        if old is not None and old.selector.expression == subscription.expression:
            old.client_version, old.left_at = subscription.version, 0
            self.version += 1
            return False
        grown = self._characters + len(subscription.expression) - (len(old.selector.expression) if old else 0)
        if (old is None and self._count >= MAX_FILTERS) or grown > MAX_CHARACTERS:
            log.warning(
                "group %s gets no filter for topic %s: the table is full (%d filters, %d characters)",
                group,
                topic,
                self._count,
                self._characters,
            )
            return False
        return True

    def _compile(self, group: str, subscription: Subscription, now: int) -> None:
        topic = subscription.topic
        old = self.get(topic, group)
        try:
            selector = compiled(subscription.expression)
        except FilterSyntaxError as error:
            log.warning("group %s has a filter for topic %s that does not compile: %s", group, topic, error)
            if old is not None:
                self._remove(old)
            return
        self._put(ConsumerFilter(topic, group, selector, subscription.version, self.bloom.positions(group, topic), now))

    def _mark_dead(self, known: ConsumerFilter, now: int) -> None:
        if not known.dead:
            known.left_at = now
            self.version += 1

    def _put(self, known: ConsumerFilter) -> None:
        groups = self._topics.setdefault(known.topic, {})
        old = groups.get(known.group)
        self._count += old is None
        self._characters += len(known.selector.expression) - (len(old.selector.expression) if old else 0)
        groups[known.group] = known
        self._topics_of.setdefault(known.group, set()).add(known.topic)
        self.version += 1

    def _remove(self, known: ConsumerFilter) -> None:
        groups = self._topics[known.topic]
        del groups[known.group]
        if not groups:
            del self._topics[known.topic]
        topics = self._topics_of[known.group]
        topics.discard(known.topic)
        if not topics:
            del self._topics_of[known.group]
        self._count -= 1
        self._characters -= len(known.selector.expression)
        self.version += 1

    def _all(self) -> Iterator[ConsumerFilter]:
        for groups in self._topics.values():
            yield from groups.values()

    def _from_json(self, entry: Any, now: int) -> tuple[ConsumerFilter, tuple[int, ...]]:
        """The filter, and its positions in the file."""
        topic, group, born = entry["topic"], entry["consumerGroup"], int(entry["bornTime"])
        if not is_legal_name(topic) or not is_legal_name(group):
            raise ValueError(f"topic {topic!r} or group {group!r} is not a legal name")
        data, old = entry["bloomFilterData"], self.get(topic, group)
        # A slave gets the whole table whenever one filter has changed; compiling a megabyte takes a second.
        if old is not None and old.selector.expression == entry["expression"]:
            selector = old.selector
        else:
            selector = compiled(entry["expression"])
        known = ConsumerFilter(
            topic,
            group,
            selector,
            int(entry["clientVersion"]),
            self.bloom.positions(group, topic),
            born,
            int(entry.get("deadTime") or 0) or max(born, now - _LOADED_DEAD_MS),
        )
        positions = tuple(data["bitPos"]) if data["bitNum"] == self.bloom.bits else ()
        return known, positions


def _to_json(known: ConsumerFilter, bloom: Bloom) -> dict[str, Any]:
    return {
        "bloomFilterData": {"bitNum": bloom.bits, "bitPos": list(known.positions)},
        "bornTime": known.born,
        "clientVersion": known.client_version,
        "consumerGroup": known.group,
        "dead": known.dead,
        "deadTime": known.left_at,
        "expression": known.selector.expression,
        "expressionType": SQL92,
        "topic": known.topic,
    }
