"""Verifies a whole store: every record, every queue entry, every key of the index, every seal.

    records   size, lengths, own offset, CRC of the body, `__CRC32#` where there is one; each damage with its place
    offsets   queue offsets follow one another: gaps, and offsets assigned twice
    queues    the entries in `consumequeue/` are those that the log implies
    index     each key of the log is in `index/` and no other; the chains lead where they should
    seals     the checksums our broker keeps of full log files

Java: none
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketlet.spark_jobs.commit_log import DEFAULT_SPLIT
from rocketlet.spark_jobs.log_pieces import Scanned, scan_log
from rocketlet.spark_jobs.verify_index import verify_index
from rocketlet.spark_jobs.verify_queues import verify_emptied_log, verify_queues
from rocketlet.spark_jobs.verify_report import Finding, SegmentReport, TopicReport, VerifyReport
from rocketlet.spark_jobs.verify_seals import verify_seals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules


def verify(
    session: SparkSession,
    store: str,
    rules: Rules,
    *,
    partitions: int | None = None,
    split_size: int = DEFAULT_SPLIT,
) -> VerifyReport:
    """The whole job. Raises StoreNotFound. Of several folders all logs are read, but only the first's queues."""
    scanned = scan_log(session, store, rules, partitions=partitions, split_size=split_size)
    root = store.split(",")[0].rstrip("/")
    try:
        report = _of_the_log(scanned)
        verify_emptied_log(scanned, root, report)
        verify_queues(session, scanned, root, rules, report)
        verify_index(session, scanned, root, rules, report)
        verify_seals(session, scanned, root, report)
    finally:
        scanned.pieces.unpersist()
    counts: dict[str, int] = {}
    for finding in report.findings:
        counts[finding.topic] = counts.get(finding.topic, 0) + 1
    for topic in report.topics:
        topic.findings = counts.get(topic.topic, 0)
    return report


def _of_the_log(scanned: Scanned) -> VerifyReport:
    report = VerifyReport(scanned.log.begin_offset, scanned.stitched.end, scanned.log.is_open)
    report.damages = scanned.stitched.damages
    segments: dict[str, SegmentReport] = {}
    topics: dict[str, TopicReport] = {}
    for split, summary in zip(scanned.splits, scanned.summaries, strict=False):
        segment = segments.setdefault(split.segment.path, SegmentReport(split.segment.path))
        segment.records += summary.records
        segment.log_bytes += summary.log_bytes
        for count in summary.topics:
            topic = topics.setdefault(count.topic, TopicReport(count.topic))
            topic.messages += count.messages
            topic.log_bytes += count.bytes
            topic.untrusted += count.untrusted
    for damage in report.damages:
        segment = segments.setdefault(damage.path, SegmentReport(damage.path))
        segment.damages += 1
        segment.damaged_bytes += damage.size
    report.segments = [segments[path] for path in sorted(segments)]
    report.topics = [topics[name] for name in sorted(topics)]
    names = sorted({name for summary in scanned.summaries for name in summary.inner_batches})
    report.notes += [f"topic {name}: inner batches of 5.x, whose batchconsumequeue is not verified" for name in names]
    names = sorted({name for summary in scanned.summaries for name in summary.strange_topics})
    report.findings += [Finding(name, name, "records with a name or numbers that cannot be right", 1) for name in names]
    return report
