"""Queues and index files made by Spark, byte for byte against those of a real RocketMQ and of our own store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketlet.spark_jobs.files import list_folder
from rocketlet.store.layout.consume_queue_entry import ENTRY, LOST, PRE_BLANK, entries_of
from rocketlet.store.layout.file_names import offset_name
from rocketlet.store.layout.index_layout import IndexGeometry
from tests.spark_jobs.conftest import expected_of, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.index_segments import Rules

pytestmark = pytest.mark.spark
Stores = Callable[[str], Path]


def rules_of(case: str) -> Rules:
    from rocketlet.spark_jobs.index_segments import Rules

    settings = settings_of(case)
    geometry = IndexGeometry(int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"]))
    return Rules(int(settings["mappedFileSizeConsumeQueue"]) // 20, geometry)


def files_below(root: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(root)), path.read_bytes()


def index_contents(store: Path) -> list[bytes]:
    return [(store / "index" / entry.name).read_bytes() for entry in list_folder(str(store / "index"))]


@pytest.mark.parametrize(
    ("case", "partitions"),
    [
        ("clean", 1),
        ("clean", 7),
        ("mixed", 1),
        ("mixed", 7),
        ("shapes", 7),
        ("ipv6", 7),
        ("crash", 7),
        ("slave", 7),
        pytest.param("clean", 40, marks=pytest.mark.slow),
        pytest.param("shapes", 40, marks=pytest.mark.slow),
    ],
)
def test_files_equal_rocketmqs(
    spark: SparkSession, store_of: Stores, tmp_path: Path, case: str, partitions: int
) -> None:
    from rocketlet.spark_jobs.index_writer import rebuild_index

    report = rebuild_index(spark, str(store_of(case)), str(tmp_path), rules_of(case), partitions=partitions)
    assert dict(files_below(tmp_path / "consumequeue")) == dict(files_below(store_of(case) / "consumequeue"))
    assert index_contents(tmp_path) == index_contents(store_of(case))
    expected = expected_of(case)
    assert report.records == len(expected["records"])
    assert report.queues.queues == len(expected["queues"])
    assert report.damages == []
    assert report.queues.uneven == []


def test_a_store_whose_older_files_are_gone(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    from rocketlet.spark_jobs.index_writer import rebuild_index

    expected = expected_of("retained")
    log_begin = expected["commitLog"]["min"]
    assert log_begin > 0
    rebuild_index(spark, str(store_of("retained")), str(tmp_path), rules_of("retained"))
    for name, queue in expected["queues"].items():
        topic, _, queue_id = name.rpartition("/")
        left = [unit for unit in queue["units"] if unit[0] >= log_begin]
        folder = tmp_path / "consumequeue" / topic / queue_id
        if not left:
            assert not folder.exists()
            continue
        raw = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        units = [list(unit) for unit in entries_of(raw).tolist() if unit != (0, 0, 0)]
        blank = [list(ENTRY.unpack(PRE_BLANK))]
        assert units == blank * (len(units) - len(left)) + left


def test_a_store_with_extension_files_gets_plain_tags_codes(
    spark: SparkSession, store_of: Stores, tmp_path: Path
) -> None:
    from rocketlet.spark_jobs.index_writer import rebuild_index

    expected = expected_of("ext")
    codes = {record["phy"]: record["tagsCode"] for record in expected["records"]}
    rebuild_index(spark, str(store_of("ext")), str(tmp_path), rules_of("ext"))
    for name, queue in expected["queues"].items():
        folder = tmp_path / "consumequeue" / name
        raw = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        units = [list(unit) for unit in entries_of(raw).tolist() if unit != (0, 0, 0)]
        assert [unit[:2] for unit in units] == [unit[:2] for unit in queue["units"]]
        plain = [unit for unit in units if -(1 << 31) <= unit[2] < 1 << 31]
        assert plain == units
        assert all(codes[unit[0]] in (unit[2], codes[unit[0]]) for unit in units)
    assert index_contents(tmp_path) == index_contents(store_of("ext"))


@pytest.mark.parametrize(
    ("case", "kept"),
    [
        ("crash-body-bit-middle", 250),
        ("crash-torn-tail", 399),
        ("crash-torn-tail-size-only", 399),
        ("crash-garbage-tail", 400),
        ("crash-magic", 390),
        ("clean-body-bit", 450),
    ],
)
def test_stopping_at_damage_keeps_what_rocketmq_would_keep(
    spark: SparkSession, store_of: Stores, tmp_path: Path, case: str, kept: int
) -> None:
    import json

    from rocketlet.spark_jobs.index_writer import rebuild_index
    from tests.spark_jobs.conftest import STORES

    asked = json.loads((STORES / "damaged" / case / "java.json").read_text("utf-8"))["java"]["asked"]
    report = rebuild_index(
        spark, str(store_of(f"damaged/{case}")), str(tmp_path), rules_of("clean"), stop_at_damage=True, partitions=3
    )
    assert report.records == kept == sum(queue["max"] for queue in asked["queues"].values())
    assert report.log_end == asked["commitLogMaxOffset"]
    for name, queue in asked["queues"].items():
        folder = tmp_path / "consumequeue" / name.replace(":", "/")
        raw = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        assert sum(1 for unit in entries_of(raw).tolist() if unit != (0, 0, 0)) == queue["max"]


def test_reading_past_damage_marks_what_is_lost(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    from rocketlet.spark_jobs.index_writer import rebuild_index

    shutil.copytree(store_of("clean") / "commitlog", tmp_path / "store/commitlog")
    records = expected_of("clean")["records"]
    body, magic = records[100], records[300]
    for record, inside in ((body, 90), (magic, 4)):
        path = tmp_path / "store/commitlog" / offset_name(record["phy"] // 65536 * 65536)
        raw = bytearray(path.read_bytes())
        raw[record["phy"] % 65536 + inside] ^= 1
        path.write_bytes(raw)
    report = rebuild_index(spark, str(tmp_path / "store"), str(tmp_path / "out"), rules_of("clean"), partitions=5)
    assert [damage.log_offset for damage in report.damages] == [body["phy"], magic["phy"]]
    assert (report.queues.lost, report.queues.rewound, report.queues.implausible) == (1, 0, 0)
    assert report.queues.uneven == [f"{magic['topic']}:{magic['queueId']}"]
    for record, is_pointed_at in ((body, True), (magic, False)):
        at = record["queueOffset"] * 20
        file = tmp_path / f"out/consumequeue/{record['topic']}/{record['queueId']}/{offset_name(at // 1000 * 1000)}"
        log_offset, _, code = ENTRY.unpack_from(file.read_bytes(), at % 1000)
        assert code == LOST
        assert (log_offset == record["phy"]) == is_pointed_at
    expected = dict(files_below(store_of("clean") / "consumequeue"))
    rebuilt = dict(files_below(tmp_path / "out/consumequeue"))
    assert rebuilt.keys() == expected.keys()
    differing = sum(
        one != other
        for name in expected
        for one, other in zip(entries_of(expected[name]).tolist(), entries_of(rebuilt[name]).tolist(), strict=True)
    )
    assert differing == 2


def test_a_repair_in_place_and_what_is_refused(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    from rocketlet.spark_jobs.index_writer import CannotWrite, rebuild_index

    store = tmp_path / "store"
    shutil.copytree(store_of("clean"), store)
    with pytest.raises(CannotWrite, match="is not empty; move it away, or say --replace"):
        rebuild_index(spark, str(store), str(store), rules_of("clean"))
    shutil.rmtree(store / "consumequeue")
    (store / "index" / sorted(path.name for path in (store / "index").iterdir())[0]).unlink()
    report = rebuild_index(spark, str(store), str(store), rules_of("clean"), replace=True)
    assert report.notes == []
    assert dict(files_below(store / "consumequeue")) == dict(files_below(store_of("clean") / "consumequeue"))
    assert index_contents(store) == index_contents(store_of("clean"))
    assert [path.name for path in store.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(CannotWrite, match="plain paths only"):
        rebuild_index(spark, str(store), f"file://{tmp_path}/x", rules_of("clean"))


def test_a_log_that_stops_in_the_middle_and_one_with_a_hole(
    spark: SparkSession, store_of: Stores, tmp_path: Path
) -> None:
    from rocketlet.spark_jobs.index_writer import rebuild_index

    shutil.copytree(store_of("clean") / "commitlog", tmp_path / "store/commitlog")
    (tmp_path / "store/commitlog" / offset_name(65536)).unlink()
    report = rebuild_index(spark, str(tmp_path / "store"), str(tmp_path / "out"), rules_of("clean"), partitions=4)
    assert [(damage.log_offset, damage.size, damage.reason) for damage in report.damages] == [
        (65536, 65536, "missing segments")
    ]
    lost = [record for record in expected_of("clean")["records"] if 65536 <= record["phy"] < 131072]
    assert report.queues.lost == len(lost)
    cut = rebuild_index(
        spark, str(tmp_path / "store"), str(tmp_path / "cut"), rules_of("clean"), stop_at_damage=True, partitions=4
    )
    assert (cut.is_cut, cut.log_end) == (True, 65536)
    assert cut.records == len([record for record in expected_of("clean")["records"] if record["phy"] < 65536])
    assert cut.queues.lost == 0


def test_an_empty_log(spark: SparkSession, tmp_path: Path) -> None:
    from rocketlet.spark_jobs.index_segments import Rules
    from rocketlet.spark_jobs.index_writer import rebuild_index

    (tmp_path / "store/commitlog").mkdir(parents=True)
    (tmp_path / "store/commitlog" / offset_name(0)).write_bytes(bytes(65536))
    report = rebuild_index(spark, str(tmp_path / "store"), str(tmp_path / "out"), Rules())
    assert report.lines() == ["0 records, 0 MiB from 0 to 0: 0 units in 0 files of 0 queues, 0 keys in 0 index files"]
    assert list((tmp_path / "out/consumequeue").iterdir()) == []
