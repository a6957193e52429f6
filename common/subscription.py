"""What a group subscribes to of a topic: a tag expression and the hashes that a broker compares with queue entries.

The broker sees hashes only, so two tags may collide: the client compares the strings again.

Java: common/filter/FilterAPI.java, common/protocol/heartbeat/SubscriptionData.java
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from rocketlet.common.errors import RocketletError
from rocketlet.common.java_numbers import string_hash, to_int32, utf8_hash

ALL_TAGS = "*"
TAG = "TAG"
SQL92 = "SQL92"


class InvalidSubscription(RocketletError):
    """The expression has no tag; use `*`, or tags joined by `||`."""


@lru_cache(1024)  # a TAGS value may have 32 KB, so 32 MB at the most
def tags_code(tags: bytes) -> int:
    """The hash of a whole TAGS value, as a queue entry carries it; 0 where there is none."""
    return utf8_hash(tags)


@dataclass(slots=True)
class Subscription:
    """`codes` are the hashes of `tags`; both are empty for `*` and for SQL92. `version` grows with each change (ms)."""

    topic: str
    expression: str
    expression_type: str = TAG
    tags: set[str] = field(default_factory=set)
    codes: set[int] = field(default_factory=set)
    version: int = 0
    class_filter: bool = False

    def matches_code(self, code: int) -> bool:
        """Whether a queue entry's tags code passes: its low 32 bits are among ours, or we take all."""
        if self.expression == ALL_TAGS or self.expression_type != TAG:
            return True
        return (code if -0x80000000 <= code <= 0x7FFFFFFF else to_int32(code)) in self.codes


def parse_tags(topic: str, expression: str | None, version: int) -> Subscription:
    """The subscription of `*`, `TagA` or `TagA || TagB`. Raises InvalidSubscription where no tag is left."""
    if not expression or expression == ALL_TAGS:
        return Subscription(topic, ALL_TAGS, version=version)
    tags = {tag.strip() for tag in expression.split("||")} - {""}
    if not tags:
        raise InvalidSubscription(f"the subscription {expression!r} of topic {topic} names no tag; use '*' for all")
    return Subscription(topic, expression, tags=tags, codes={string_hash(tag) for tag in tags}, version=version)


def parse_expression(topic: str, expression: str | None, expression_type: str | None, version: int) -> Subscription:
    """The subscription of a tag expression, or of an expression of another kind, which is kept as text."""
    if not expression_type or expression_type == TAG:
        return parse_tags(topic, expression, version)
    if not expression:
        raise InvalidSubscription(f"the {expression_type} subscription of topic {topic} is empty; give an expression")
    return Subscription(topic, expression, expression_type, version=version)
