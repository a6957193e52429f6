"""`verify`: intact stores pass, and exactly the planted faults are reported, with their places."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketlet.store.layout.consume_queue_entry import ENTRY
from rocketlet.store.layout.file_names import offset_name
from tests.spark_jobs.conftest import expected_of
from tests.spark_jobs.test_index_writer import rules_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.verify_segments import VerifyReport

pytestmark = pytest.mark.spark
Stores = Callable[[str], Path]


def check(spark: SparkSession, path: Path, case: str = "clean", partitions: int = 3) -> VerifyReport:
    from rocketlet.spark_jobs.verify_segments import verify

    return verify(spark, str(path), rules_of(case), partitions=partitions)


@pytest.mark.parametrize("case", ["clean", "mixed", "shapes", "ext", "ipv6", "retained", "slave"])
def test_what_rocketmq_left_is_intact(spark: SparkSession, store_of: Stores, case: str) -> None:
    report = check(spark, store_of(case), case)
    assert [str(finding) for finding in report.findings] == []
    assert report.damages == []
    assert report.notes == []
    assert report.is_good
    expected = expected_of(case)
    assert sum(topic.messages for topic in report.topics) == len(expected["records"])
    files = [file for file in expected["commitLog"]["files"] if file["records"]]
    assert [segment.records for segment in report.segments] == [file["records"] for file in files]


def test_an_emptied_log_is_no_store_without_messages(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(store_of("clean"), store)
    (store / "abort").touch()
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()
    (store / "commitlog" / offset_name(0)).touch()
    report = check(spark, store)
    assert report.damages == []
    assert not report.is_good
    told = [str(finding) for finding in report.findings]
    assert f"{store}/consumequeue/TopicA: 9 queue files have entries, and the log has no record" in told


def test_each_fault_is_found_at_its_place(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(store_of("clean"), store)
    records = expected_of("clean")["records"]
    victim = records[50]
    log = store / "commitlog" / offset_name(0)
    raw = bytearray(log.read_bytes())
    raw[victim["phy"] + 89] ^= 4
    log.write_bytes(raw)
    queue = store / "consumequeue/TopicB/0" / offset_name(0)
    entries = bytearray(queue.read_bytes())
    entries[20 * 7 : 20 * 8] = ENTRY.pack(5, 100, 1)
    entries[20 * 9 : 20 * 10] = bytes(20)
    queue.write_bytes(entries)
    extra = store / "consumequeue/TopicA/9" / offset_name(0)
    extra.parent.mkdir()
    extra.write_bytes(ENTRY.pack(77, 100, 1).ljust(1000, b"\0"))
    first, second = sorted((store / "index").iterdir())[:2]
    index = bytearray(first.read_bytes())
    at = 40 + 400 + 20 * 3
    index[at + 11] ^= 1  # the log offset of the third entry
    first.write_bytes(index)
    index = bytearray(second.read_bytes())
    index[40 + 4 * 5 + 3] ^= 1  # a slot
    second.write_bytes(index)
    report = check(spark, store)
    assert not report.is_good
    (damage,) = report.damages
    assert (damage.log_offset, damage.reason) == (victim["phy"], "the body does not match its CRC")
    said = sorted(str(finding).replace(str(store), "") for finding in report.findings)
    assert said == sorted(
        [
            "TopicB:0: 1 entries missing in the queue, first at 7",
            "TopicB:0: 1 entries of the queue say something else than the log, first at 7",
            "TopicA:9: 1 entries of the queue are of no message of the log, first at 0",
            f"/index/{first.name}: 1 keys of the log are missing",
            f"/index/{first.name}: 1 keys are of no message of the log",
            f"/index/{second.name}: 1 links of chains lead elsewhere",
        ]
    )
    topics = {topic.topic: topic for topic in report.topics}
    assert topics[victim["topic"]].untrusted == 1
    assert topics["TopicB"].findings == 2
    assert report.segments[0].damages == 1
    assert any("NOT" not in line and "1 damages" in line for line in report.lines())


def test_a_seal_detects_what_no_record_shows(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    from rocketlet.store.layout import seal_layout

    store = tmp_path / "store"
    shutil.copytree(store_of("clean"), store)
    seals = store / "rocketlet/seals"
    seals.mkdir(parents=True)
    for base in (0, 65536):
        raw = bytearray((store / "commitlog" / offset_name(base)).read_bytes())
        seal = seal_layout.seal_of(base, len(raw), lambda at, size, raw=raw: bytes(raw[at : at + size]), 4096)
        (seals / offset_name(base)).write_bytes(seal_layout.encode(seal))
    report = check(spark, store)
    assert (report.is_good, report.sealed) == (True, 2)
    victim = next(record for record in expected_of("clean")["records"] if record["phy"] > 70_000)
    log = store / "commitlog" / offset_name(65536)
    raw = bytearray(log.read_bytes())
    raw[victim["phy"] - 65536 + 16] ^= 1  # the user's flag: no CRC of a record covers it
    log.write_bytes(raw)
    (seals / offset_name(0)).write_bytes(b"no seal")
    report = check(spark, store)
    assert report.damages == []
    assert sorted(str(finding).replace(str(store), "") for finding in report.findings) == [
        f"/commitlog/{offset_name(65536)}: 1 blocks of 4096 bytes do not match the file's seal, "
        f"first at {victim['phy'] // 4096 * 4096}",
        f"/rocketlet/seals/{offset_name(0)}: 1 seal that cannot be read",
    ]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("clean-control", []),
        ("clean-body-bit-old-file", ["D 1316 374 the body does not match its CRC"]),
        ("clean-empty-last-file", ["D 262144 65536 the file is 65536 bytes too short"]),
        ("clean-first-file-gone", []),  # as after retention
        ("clean-foreign-file", ["D -1 1 a foreign file, which stops a Java broker"]),
        (
            "clean-index-last-cut",
            [
                "F /index/20261118125108535: 8420 bytes are missing at the end of the file",
                "F /index/20261118125108535: 3 keys of the log are missing",
            ],
        ),
        ("clean-log-behind", ["F TopicA:0: 5 entries of the queue are of no message of the log, first at 115"]),
        ("clean-one-queue-behind", ["F TopicA:1: 5 entries missing in the queue, first at 115"]),
        ("clean-short-last-file", ["D 226608 35536 the file is 35536 bytes too short"]),
        ("clean-zero-last-file", []),
        (
            "crash-garbage-tail",
            ["D 136485 300 after the valid end of a log that is being written or was not closed (no record magic)"],
        ),
        (
            "crash-torn-tail-size-only",
            ["D 136182 4 after the valid end of a log that is being written or was not closed (no record magic)"],
        ),
        (
            "crash-property-bit",
            ["F TopicA:2: 1 entries of the queue say something else than the log, first at 79"],
        ),
    ],
)
def test_damaged_stores_give_exact_reports(spark: SparkSession, store_of: Stores, case: str, said: list[str]) -> None:
    store = store_of(f"damaged/{case}")
    report = check(spark, store, partitions=2)
    found = [f"D {damage.log_offset} {damage.size} {damage.reason}" for damage in report.damages]
    found += [f"F {finding}".replace(str(store), "") for finding in report.findings]
    if case == "clean-log-behind":  # one line for each of six queues and of two index files
        assert len(found) == 8
        assert [line.split(": ")[1] for line in found if "index" in line] == [
            "45 keys are of no message of the log",
            "5 keys are of no message of the log",
        ]
        found = found[:1]
    assert found == said


def test_duplicate_and_missing_offsets(spark: SparkSession, tmp_path: Path) -> None:
    from rocketlet.common.message_record import Record, encode

    raw = b""
    for offset in (0, 1, 2, 1, 2, 3, 9, 10):
        raw += encode(Record("T", 0, offset, len(raw), b"x", store_timestamp=5))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / offset_name(0)).write_bytes(raw.ljust(65536, b"\0"))
    (tmp_path / "consumequeue/T/0").mkdir(parents=True)
    (tmp_path / "consumequeue/T/0" / offset_name(0)).write_bytes(bytes(1000))
    size = len(raw) // 8
    said = [str(finding) for finding in check(spark, tmp_path, partitions=2).findings]
    assert f"T:0: 2 queue offsets assigned twice at log offset {3 * size}, first at 1" in said
    assert f"T:0: 5 queue offsets missing before the record at log offset {6 * size}, first at 4" in said


def test_a_store_without_queues_and_index(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    shutil.copytree(store_of("clean") / "commitlog", tmp_path / "commitlog")
    report = check(spark, tmp_path)
    assert report.is_good
    assert [note.split(" below")[0] for note in report.notes] == ["no queues", "no index files"]
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue/CURRENT").write_text("MANIFEST-000005\n")
    assert "the queues are in RocksDB and were not compared" in check(spark, tmp_path).notes
