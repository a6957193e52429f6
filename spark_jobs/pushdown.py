"""Filters that a reader applies itself: Spark's on topic, queue, offsets, times, tag and unique key.

Cheap ones go first, so that the properties of a record are not read where its queue is excluded already. What is
outside the wanted log offsets or times is not even read: whole splits and whole segments are skipped.

Times prune a segment only with a margin, because a broker's clock may have been set back while it wrote.

Java: store/MessageFilter.java
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketlet.spark_jobs.commit_log import Split
from rocketlet.spark_jobs.message_columns import MessageBatch
from rocketlet.spark_jobs.segment_rows import Array

_NUMBERS = {
    "queue_id", "queue_offset", "log_offset", "size", "flag", "sys_flag", "reconsume_times", "prepared_offset",
    "body_size",
}  # fmt: skip
_TIMES = {"store_time": "store_timestamp", "born_time": "born_timestamp"}
_PROPERTIES = {"tags": b"TAGS", "unique_key": b"UNIQ_KEY"}
_COMPARISONS = {
    "EqualTo": np.equal,
    "EqualNullSafe": np.equal,
    "GreaterThan": np.greater,
    "GreaterThanOrEqual": np.greater_equal,
    "LessThan": np.less,
    "LessThanOrEqual": np.less_equal,
}


@dataclass(slots=True, frozen=True)
class Condition:
    """One filter: the operation is the name of Spark's filter class."""

    column: str
    operation: str
    value: Any
    negated: bool = False

    def mask(self, batch: MessageBatch) -> Array:
        """Which records of a batch pass."""
        if self.column in _PROPERTIES:
            passed = self._text_mask(batch.properties.column(_PROPERTIES[self.column]))
        elif self.column == "topic":
            passed = self._text_mask(batch.topics.dictionary)[batch.topics.indices.to_numpy()]
        elif self.column in _TIMES:
            passed = self._number_mask(getattr(batch.heads, _TIMES[self.column]) * 1000)
        else:
            passed = self._number_mask(getattr(batch.heads, self.column))
        return ~passed if self.negated else passed

    def _number_mask(self, numbers: Array) -> Array:
        if self.operation == "IsNotNull":
            return np.ones(len(numbers), bool)
        if self.operation == "In":
            return np.isin(numbers, np.array(self.value, np.int64))
        passed: Array = _COMPARISONS[self.operation](numbers, self.value)
        return passed

    def _text_mask(self, raw: pa.BinaryArray) -> Array:
        if self.operation == "IsNotNull":
            passed = raw.is_valid()
        elif self.operation == "In":
            passed = pc.is_in(raw, pa.array(self.value, raw.type))
        elif self.operation == "StringStartsWith":
            passed = pc.starts_with(raw, self.value)
        else:
            passed = pc.equal(raw, pa.scalar(self.value, raw.type))
        mask: Array = pc.fill_null(passed, False).to_numpy(zero_copy_only=False)
        return mask

    @property
    def cost(self) -> int:
        return 2 if self.column in _PROPERTIES else 1 if self.column == "topic" else 0


@dataclass(slots=True, frozen=True)
class Range:
    """Inclusive bounds of a number; None where it is open."""

    low: int | None = None
    high: int | None = None

    def misses(self, first: int, last: int) -> bool:
        """Whether no number of [first, last] lies inside."""
        return (self.low is not None and last < self.low) or (self.high is not None and first > self.high)


def condition_of(spark_filter: Any) -> Condition | None:
    """The condition of one of Spark's filters, or None where Spark has to apply it."""
    negated = type(spark_filter).__name__ == "Not"
    inner = spark_filter.child if negated else spark_filter
    operation = type(inner).__name__
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return None
    column = path[0]
    value = getattr(inner, "value", None)
    if column in _NUMBERS or column in _TIMES:
        return _number_condition(column, operation, value, negated)
    if column == "topic" or (column in _PROPERTIES and not negated):
        return _text_condition(column, operation, value, negated)
    return None


def _number_condition(column: str, operation: str, value: Any, negated: bool) -> Condition | None:
    if operation == "IsNotNull":
        return Condition(column, operation, None, negated)
    convert = _microseconds if column in _TIMES else _integer
    if operation == "In":
        values = [convert(item) for item in value]
        return None if None in values else Condition(column, operation, tuple(values), negated)
    number = convert(value)
    if operation not in _COMPARISONS or number is None:
        return None
    return Condition(column, operation, number, negated)


def _text_condition(column: str, operation: str, value: Any, negated: bool) -> Condition | None:
    if operation == "IsNotNull":
        return Condition(column, operation, None, negated)
    if operation == "In" and all(isinstance(item, str) for item in value):
        return Condition(column, operation, tuple(item.encode() for item in value), negated)
    if operation in ("EqualTo", "EqualNullSafe", "StringStartsWith") and isinstance(value, str):
        return Condition(column, operation, value.encode(), negated)
    return None


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: Any) -> int | None:
    """Milliseconds of a time; without a zone it is in UTC, as Spark passes them."""
    if not isinstance(value, datetime):
        return None if isinstance(value, date) else _integer(value)
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    since: timedelta = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def bounds(conditions: list[Condition], column: str) -> Range:
    """The widest range of a column that all conditions together allow."""
    low: int | None = None
    high: int | None = None
    for condition in conditions:
        if condition.column != column or condition.negated or condition.operation == "IsNotNull":
            continue
        values = condition.value if condition.operation == "In" else (condition.value,)
        if condition.operation in ("EqualTo", "EqualNullSafe", "In", "GreaterThan", "GreaterThanOrEqual"):
            low = min(values) if low is None else max(low, min(values))
        if condition.operation in ("EqualTo", "EqualNullSafe", "In", "LessThan", "LessThanOrEqual"):
            high = max(values) if high is None else min(high, max(values))
    return Range(low, high)


def wanted_splits(splits: list[Split], conditions: list[Condition]) -> list[Split]:
    """The splits in which a record of the wanted log offsets can begin."""
    offset_bounds = bounds(conditions, "log_offset")
    return [
        split
        for split in splits
        if not offset_bounds.misses(split.segment.base + split.start, split.segment.base + split.stop - 1)
    ]


def filtered(batch: MessageBatch, conditions: list[Condition]) -> MessageBatch:
    """The records of a batch that pass all conditions."""
    for condition in sorted(conditions, key=lambda condition: condition.cost):
        if not len(batch):
            break
        passed = condition.mask(batch)
        if not passed.all():
            batch = batch.where(np.flatnonzero(passed))
    return batch
