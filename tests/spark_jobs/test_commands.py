"""The command line: its output and exit codes; with lookup, export and stats."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from rocketlet.common.message_record import Record, encode
from rocketlet.spark_jobs.__main__ import main, milliseconds
from rocketlet.store.layout.file_names import offset_name
from tests.spark_jobs.conftest import expected_of
from tests.spark_jobs.test_index_writer import files_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Stores = Callable[[str], Path]
SMALL = ["--queue-file-size", "1000", "--index-slots", "100", "--index-entries", "400"]


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def lookup(spark: SparkSession, store_of: Stores, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lookup") / "table"
    result = run("index", "--store", store_of("clean"), "--lookup", out, "--buckets", 4)
    assert result.exit_code == 0, result.output
    assert f"{out}: keys of the log from 0 to 204949" in result.stdout
    return out


@pytest.mark.spark
def test_index(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    result = run("index", "--store", store_of("mixed"), "--out", tmp_path, "--partitions", 3, *SMALL)
    assert result.exit_code == 0, result.output
    assert "40 records, 0 MiB from 0 to 10809: 40 units in 14 files of 14 queues, 70 keys in 1 index files" in (
        result.stdout
    )
    assert f"a broker on {tmp_path} needs storePathCommitLog={store_of('mixed')}/commitlog" in result.stdout
    assert dict(files_below(tmp_path / "consumequeue")) == dict(files_below(store_of("mixed") / "consumequeue"))
    assert (tmp_path / "config/consumerOffset.json").exists()
    again = run("index", "--store", store_of("mixed"), "--out", tmp_path, *SMALL)
    assert again.exit_code == 2
    assert "is not empty" in again.stderr


@pytest.mark.spark
def test_find_every_key(lookup: Path, store_of: Stores) -> None:
    from rocketlet.spark_jobs.lookup import find

    wanted: dict[str, list[int]] = {}
    for record in expected_of("clean")["records"]:
        properties = record["properties"]
        for key in [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]:
            if key:
                wanted.setdefault(key, []).append(record["phy"])
    assert len(wanted) > 600
    for key in list(wanted)[::37]:
        assert [hit.log_offset for hit in find(str(lookup), key)] == wanted[key]
    assert find(str(lookup), "no such key") == []
    key = max(wanted, key=lambda key: len(wanted[key]))
    times = {record["phy"]: record["storeTimestamp"] for record in expected_of("clean")["records"]}
    begin, end = times[wanted[key][2]], times[wanted[key][5]]
    within = [phy for phy in wanted[key] if begin <= times[phy] <= end]
    assert [hit.log_offset for hit in find(str(lookup), key, begin=begin, end=end)] == within
    assert find(str(lookup), key, topic="elsewhere") == []


@pytest.mark.spark
def test_find_command(lookup: Path, store_of: Stores, tmp_path: Path) -> None:
    record = expected_of("clean")["records"][3]
    key = record["properties"]["UNIQ_KEY"]
    result = run("find", "--lookup", lookup, "--key", key, "--store", store_of("clean"), "--json")
    (found,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (found["topic"], found["queueOffset"]) == (record["topic"], record["queueOffset"])
    assert found["properties"] == record["properties"]
    assert len(found["body"].encode()) == record["bodyLen"]
    plain = run("find", "--lookup", lookup, "--key", key, "--from", "2026-01-01", "--to", "2027-01-01T00:00:00+01:00")
    assert plain.exit_code == 0
    assert f"logOffset={record['phy']}" in plain.stdout
    assert run("find", "--lookup", lookup, "--key", key, "--to", "2020-01-01").exit_code == 1
    gone = run("find", "--lookup", lookup, "--key", key, "--store", tmp_path)
    assert "the log does not have it any more" in gone.stdout
    missing = run("find", "--lookup", tmp_path, "--key", key)
    assert (missing.exit_code, "no lookup index" in missing.stderr) == (2, True)


@pytest.mark.spark
def test_verify_command(spark: SparkSession, store_of: Stores) -> None:
    good = run("verify", "--store", store_of("clean"), "--partitions", 2, *SMALL)
    assert (good.exit_code, good.stdout.splitlines()[-1]) == (0, "good")
    bad = run("verify", "--store", store_of("damaged/clean-body-bit"), "--partitions", 2, "--json", *SMALL)
    assert bad.exit_code == 1
    report = json.loads(bad.stdout)
    assert report["is_good"] is False
    assert [damage["reason"] for damage in report["damages"]] == ["the body does not match its CRC"]


def write_json_bodies(root: Path) -> None:
    raw = b""
    bodies = [b'{"id":1,"name":"a","tags":["x"]}', b'{"id":2,"price":1.5}', b"not json", "ü".encode(), b'{"id":4}']
    for number, body in enumerate(bodies):
        time = 1_700_000_000_000 + number * 40_000_000
        topic = "Orders" if number != 3 else "Other"
        raw += encode(Record(topic, 0, number, len(raw), body, b"TAGS\x01t%d" % number, store_timestamp=time))
    (root / "commitlog").mkdir()
    (root / "commitlog" / offset_name(0)).write_bytes(raw.ljust(65536, b"\0"))


@pytest.mark.spark
def test_export_with_json_bodies(spark: SparkSession, tmp_path: Path) -> None:
    write_json_bodies(tmp_path)
    out = tmp_path / "out"
    result = run("export", "--store", tmp_path, "--out", out, "--topic", "Orders", "--body", "json")
    assert result.stdout == f"4 messages in {out}\n"
    rows = spark.read.parquet(str(out)).orderBy("log_offset").collect()
    assert [row.json_error for row in rows] == [False, False, True, False]
    assert [row.json and row.json.id for row in rows] == [1, 2, None, 4]
    assert rows[1].json.price == 1.5
    assert rows[0].json.tags == ["x"]
    assert [(str(row.day), row.topic) for row in rows] == [
        ("2023-11-14", "Orders"), ("2023-11-15", "Orders"), ("2023-11-15", "Orders"), ("2023-11-16", "Orders")
    ]  # fmt: skip
    given = run(
        "export", "--store", tmp_path, "--out", out, "--topic", "Orders", "--body", "json",
        "--json-schema", "id string", "--from", "2023-11-15", "--to", "2023-11-16",
    )  # fmt: skip
    assert given.stdout.startswith("2 messages")
    assert [row.json.id for row in spark.read.parquet(str(out)).orderBy("log_offset").collect()] == ["2", None]


@pytest.mark.spark
def test_export_as_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    write_json_bodies(tmp_path)
    for body, wanted in (("text", "ü"), ("bytes", "w7w=")):
        out = tmp_path / f"out-{body}"
        run("export", "--store", tmp_path, "--out", out, "--format", "json", "--body", body, "--tag", "t3")
        (path,) = out.glob("day=*/topic=Other/*.json")
        line = json.loads(path.read_text("utf-8"))
        assert (line["body"], line["tags"], line["queue_offset"]) == (wanted, "t3", 3)
    where = run("export", "--store", tmp_path, "--out", tmp_path / "w", "--where", "properties['TAGS'] = 't1'")
    assert where.stdout.startswith("1 messages")


@pytest.mark.spark
def test_stats(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    result = run("stats", "--store", store_of("mixed"), "--json", "--plot", tmp_path / "picture.png")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    records = expected_of("mixed")["records"]
    for topic in found["topics"]:
        of_topic = [record for record in records if record["topic"] == topic["topic"]]
        assert topic["messages"] == len(of_topic)
        assert topic["log_bytes"] == sum(record["size"] for record in of_topic)
        assert topic["body_max"] == max(record["bodyLen"] for record in of_topic)
        assert topic["first_time"] == min(record["storeTimestamp"] for record in of_topic)
    assert {f"{queue['topic']}/{queue['queue_id']}": queue["end"] for queue in found["queues"]} == {
        name: queue["max"] for name, queue in expected_of("mixed")["queues"].items()
    }
    assert sum(point[2] for point in found["series"]) == len(records)
    assert all(lag["lag"] == 0 for lag in found["lags"])
    assert {lag["group"] for lag in found["lags"]} == {"CG_mixed", "CID_RMQ_SYS_TRANS"}
    picture = (tmp_path / "picture.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000


@pytest.mark.spark
def test_stats_of_a_group_that_lags(spark: SparkSession, tmp_path: Path) -> None:
    write_json_bodies(tmp_path)
    without = run("stats", "--store", tmp_path)
    assert "lags are not known" in without.stdout
    (tmp_path / "config").mkdir()
    offsets = '{"offsetTable":{"Orders@late":{0:2\n},"Orders@ahead":{0:9},"Gone@late":{0:1},"Other@x":{"0":1,}}}'
    (tmp_path / "config/consumerOffset.json").write_text(offsets)
    found = json.loads(run("stats", "--store", tmp_path, "--json").stdout)
    assert [(lag["group"], lag["topic"], lag["lag"], lag["worst_queue"]) for lag in found["lags"]] == [
        ("late", "Orders", 3, 0), ("x", "Other", 3, 0), ("ahead", "Orders", 0, 0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["index", "--store", "x"], "say where the result goes"),
        (["index", "--store", "x", "--out", "y", "--delay-levels", "soon"], "is not like '1s 5s 1m 2h'"),
        (["find", "--lookup", "x", "--key", "k", "--from", "yesterday"], "is no time"),
        (["verify"], "Missing option '--store'"),
    ],
)
def test_errors_are_reported_before_spark_starts(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_the_heap_of_a_job_depends_on_its_tasks_unless_a_submit_command_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from rocketlet.spark_jobs.session import job_settings

    settings = job_settings("local[4]", {}, passes_bytes=True)
    assert settings["spark.driver.memory"] == "1536m"
    assert "-Xms1536m" in settings["spark.driver.extraJavaOptions"]
    more = job_settings("local[4]", {"spark.driver.memory": "1g"}, passes_bytes=True)
    assert more["spark.driver.memory"] == "1g"
    assert "-Xms" not in more["spark.driver.extraJavaOptions"]
    assert job_settings("local[4,2]", {}, passes_bytes=False) == {"spark.driver.memory": "1536m"}
    every = 512 + 256 * (os.cpu_count() or 1)
    assert job_settings("local[*]", {"a": "b"}, passes_bytes=False) == {"a": "b", "spark.driver.memory": f"{every}m"}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert job_settings("local[4]", {"a": "b"}, passes_bytes=True) == {"a": "b"}


def test_times() -> None:
    assert milliseconds("1700000000123") == 1700000000123
    assert milliseconds("2023-11-14T22:13:20") == 1700000000000
    assert milliseconds("2023-11-14T23:13:20+01:00") == 1700000000000
    assert milliseconds("2023-11-14") == 1699920000000
    assert milliseconds(None) is None
