"""What a verification found: damages of the log, findings elsewhere, sums by segment and topic.

Java: none
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.commit_log import LogDamage

if TYPE_CHECKING:
    import pyarrow as pa

# How a task reports its findings.
FINDING_SCHEMA = (
    "place string, topic string, what string, count long, first long, missing long, other long, surplus long"
)


@dataclass(slots=True)
class Finding:
    """Something wrong at a place (a file, or topic:queue), with how often it occurs and the first offset."""

    place: str
    topic: str
    what: str
    count: int
    first: int = -1

    def __str__(self) -> str:
        position = "" if self.first < 0 else f", first at {self.first}"
        return f"{self.place}: {self.count} {self.what}{position}"


@dataclass(slots=True)
class SegmentReport:
    path: str
    records: int = 0
    log_bytes: int = 0
    damages: int = 0
    damaged_bytes: int = 0


@dataclass(slots=True)
class TopicReport:
    topic: str
    messages: int = 0
    log_bytes: int = 0
    untrusted: int = 0
    findings: int = 0


@dataclass(slots=True)
class VerifyReport:
    """The whole result. `is_good`: there is neither damage nor finding."""

    log_begin: int = 0
    log_end: int = 0
    is_open: bool = False
    segments: list[SegmentReport] = field(default_factory=list)
    topics: list[TopicReport] = field(default_factory=list)
    damages: list[LogDamage] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    sealed: int = 0  # segments whose seal was compared
    notes: list[str] = field(default_factory=list)

    @property
    def last_known_offset(self) -> int:
        """From here on the log was not read, so that queues and index of a store that is open may know more."""
        return self.log_end if self.is_open else 1 << 62

    @property
    def is_good(self) -> bool:
        return not self.damages and not self.findings

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"is_good": self.is_good}

    def lines(self) -> list[str]:
        result = [
            f"{damage.path}: {damage.size} bytes at {damage.log_offset}: {damage.reason}" for damage in self.damages
        ]
        result += [str(finding) for finding in self.findings] + self.notes
        for segment in self.segments:
            state = "good" if not segment.damages else f"{segment.damages} damages, {segment.damaged_bytes} bytes"
            result.append(f"{segment.path}: {segment.records} records, {segment.log_bytes} bytes, {state}")
        if self.sealed:
            result.append(f"{self.sealed} of {len(self.segments)} segments are sealed, and their seals were compared")
        for topic in self.topics:
            state = "good"
            if topic.untrusted or topic.findings:
                state = f"{topic.untrusted} bodies that fail their CRC, {topic.findings} findings in its queues"
            result.append(f"topic {topic.topic}: {topic.messages} messages, {topic.log_bytes} bytes, {state}")
        return result


def finding_table(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    types = {"string": pa.string(), "long": pa.int64()}
    fields = [part.split() for part in FINDING_SCHEMA.split(", ")]
    schema = pa.schema([pa.field(name, types[kind]) for name, kind in fields])
    empty = {name: "" if kind == "string" else 0 for name, kind in fields}
    return pa.Table.from_pylist([empty | row for row in rows], schema=schema)


def findings_of(rows: list[Any]) -> list[Finding]:
    result = []
    for row in sorted(rows, key=lambda row: (row.place, row.first, row.what)):
        if row.what == "queue":
            for what in ("missing", "other", "surplus"):
                if row[what]:
                    result.append(Finding(row.place, row.topic, f"entries {_WORDS[what]}", row[what], row.first))
        else:
            result.append(Finding(row.place, row.topic, row.what, row["count"], row.first))
    return result


_WORDS = {
    "missing": "missing in the queue",
    "other": "of the queue say something else than the log",
    "surplus": "of the queue are of no message of the log",
}
