"""`spark.read.format("commitlog")` over recorded stores: rows, pushed filters, narrow schemas, splits and damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketlet.common.message_flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP, ZLIB, ZSTD
from rocketlet.common.message_record import BatchItem, Record, encode, encode_batch
from rocketlet.store.layout.file_names import offset_name
from tests.spark_jobs.conftest import expected_of
from tests.support.records import with_property_crc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Stores = Callable[[str], Path]


def messages(spark: SparkSession, path: Path, schema: str = "", **options: object) -> DataFrame:
    reader = spark.read.format("commitlog")
    if schema:
        reader = reader.schema(schema)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.log_offset for row in frame.select("log_offset").collect())


@pytest.mark.parametrize("options", [{}, {"split_size": 5000}, {"partitions": 7}, {"partitions": 40}])
def test_rows_do_not_depend_on_the_splits(spark: SparkSession, store_of: Stores, options: dict[str, int]) -> None:
    frame = messages(spark, store_of("clean"), "log_offset long, topic string, body_size int", **options)
    expected = expected_of("clean")["records"]
    found = sorted((row.log_offset, row.topic, row.body_size) for row in frame.collect())
    assert found == [(record["phy"], record["topic"], record["bodyLen"]) for record in expected]
    if "partitions" in options:
        assert frame.rdd.getNumPartitions() == options["partitions"]


def test_all_columns_arrive_typed(spark: SparkSession, store_of: Stores) -> None:
    frame = messages(spark, store_of("mixed"))
    want = expected_of("mixed")["records"][0]
    row = frame.orderBy("log_offset").first()
    assert row is not None
    assert row.properties == want["properties"]
    assert row["keys"] == want["properties"]["KEYS"].split()
    assert row.store_time.replace(tzinfo=UTC) == datetime.fromtimestamp(want["storeTimestamp"] / 1000, UTC)
    assert (row.born_host, row.store_host) == (want["bornHost"], want["storeHost"])
    assert row.crc_state == "good"
    assert len(row.body) == want["bodyLen"]
    assert dict(frame.dtypes)["keys"] == "array<string>"
    assert dict(frame.dtypes)["properties"] == "map<string,string>"


def pushed_away(frame: DataFrame) -> bool:
    """Whether no filter is left to Spark."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return "Filter (" not in plan


@pytest.mark.parametrize(
    ("condition", "keep"),
    [
        ("topic = 'TopicA'", lambda r: r["topic"] == "TopicA"),
        ("topic in ('TopicA', 'x') and queue_id >= 2", lambda r: r["topic"] == "TopicA" and r["queueId"] >= 2),
        ("topic <> 'TopicA'", lambda r: r["topic"] != "TopicA"),
        ("tags = 'TagA'", lambda r: r["properties"].get("TAGS") == "TagA"),
        ("tags is not null and queue_id = 1", lambda r: "TAGS" in r["properties"] and r["queueId"] == 1),
        ("tags like 'Tag%'", lambda r: r["properties"].get("TAGS", "").startswith("Tag")),
        ("log_offset >= 60000 and log_offset < 70000", lambda r: 60000 <= r["phy"] < 70000),
        ("log_offset in (0, 66252)", lambda r: r["phy"] in (0, 66252)),
        ("queue_offset between 3 and 5", lambda r: 3 <= r["queueOffset"] <= 5),
    ],
)  # fmt: skip
def test_filters_are_pushed_down(
    spark: SparkSession, store_of: Stores, condition: str, keep: Callable[[dict[str, Any]], bool]
) -> None:
    frame = messages(spark, store_of("clean"), split_size=20_000).where(condition)
    assert pushed_away(frame)
    expected = [record["phy"] for record in expected_of("clean")["records"] if keep(record)]
    assert offsets(frame) == expected
    assert 0 < len(expected) < 600


def test_a_time_range_is_pushed_down_and_skips_segments(spark: SparkSession, store_of: Stores) -> None:
    records = expected_of("clean")["records"]
    begin, end = records[200]["storeTimestamp"], records[400]["storeTimestamp"]
    moments = [f"timestamp_millis({time})" for time in (begin, end)]
    frame = messages(spark, store_of("clean"), time_margin_s=0)
    frame = frame.where(f"store_time >= {moments[0]} and store_time < {moments[1]}")
    assert pushed_away(frame)
    assert offsets(frame) == [record["phy"] for record in records if begin <= record["storeTimestamp"] < end]
    read_files = frame.rdd.getNumPartitions()
    assert read_files < len(expected_of("clean")["commitLog"]["files"])


def test_other_filters_are_left_to_spark(spark: SparkSession, store_of: Stores) -> None:
    frame = messages(spark, store_of("clean")).where("size(keys) = 1 and topic = 'TopicA' and body_size + 1 > 10")
    assert not pushed_away(frame)
    expected = [
        record["phy"]
        for record in expected_of("clean")["records"]
        if record["topic"] == "TopicA"
        and len(record["properties"].get("KEYS", "").split()) == 1
        and record["bodyLen"] > 9
    ]
    assert offsets(frame) == expected


def test_compressed_bodies_are_inflated_on_request(spark: SparkSession, store_of: Stores) -> None:
    schema = "sys_flag int, body binary, body_size int, compression string"
    stored = messages(spark, store_of("shapes"), schema).where("compression is not null").collect()
    assert stored
    plain = messages(spark, store_of("shapes"), schema, inflate="true").where("sys_flag & 1 = 1").collect()
    assert {row.compression for row in plain} == {None}
    assert {row.compression for row in stored} == {"zlib"}
    assert sorted(row.body_size for row in plain) == sorted(row.body_size for row in stored)
    assert all(len(row.body) > row.body_size for row in plain)


def write_segment(folder: Path, raw: bytes, size: int = 65536) -> None:
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / offset_name(0)).write_bytes(raw.ljust(size, b"\0"))


def test_records_written_by_5x(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa

    squeezed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(squeezed, "zstd") as stream:
        stream.write(b"five" * 100)
    items = [BatchItem(number, b"inner-%d" % number, b"KEYS\x01k%d" % number) for number in range(3)]
    raw = with_property_crc(Record("T", 0, 7, 0, b"guarded", b"TAGS\x01x"))
    broken = bytearray(with_property_crc(Record("T", 0, 8, len(raw), b"guarded", b"TAGS\x01y")))
    broken[12] ^= 1  # the queue id: no body CRC sees that
    raw += broken
    raw += encode(Record("T" * 200, 0, 0, len(raw), b"long topic", store_host=bytes(20)))
    raw += encode(
        Record("B", 0, 40, len(raw), encode_batch(items), b"INNER_NUM\x013", sys_flag=INNER_BATCH | NEED_UNWRAP)
    )
    zstd = squeezed.getvalue().to_pybytes()
    raw += encode(Record("T", 0, 9, len(raw), zstd, b"", sys_flag=COMPRESSED | ZSTD))
    raw += encode(Record("T", 0, 10, len(raw), b"no zlib at all", b"", sys_flag=COMPRESSED | ZLIB))
    write_segment(tmp_path, raw)
    rows = messages(spark, tmp_path, inflate="true").orderBy("log_offset", "queue_offset").collect()
    assert [row.crc_state for row in rows] == ["good", "bad record", "good", "good", "good", "good"]
    assert [row.topic for row in rows] == ["T", "T", "T" * 200, "B", "T", "T"]
    assert rows[2].store_host == "[::]:0"
    assert (rows[4].body, rows[4].compression) == (b"five" * 100, None)
    assert (rows[5].body, rows[5].compression) == (b"no zlib at all", "zlib"), "what does not inflate stays as it is"
    assert rows[3].queue_offset == 40
    inner = messages(spark, tmp_path, unwrap="true").where("topic = 'B'").orderBy("queue_offset").collect()
    assert [(row.queue_offset, row.body, row["keys"], row.flag) for row in inner] == [
        (40 + number, b"inner-%d" % number, [f"k{number}"], number) for number in range(3)
    ]
    damages = messages(spark, tmp_path, table="damage").collect()
    assert [damage.reason for damage in damages] == ["the record does not match its __CRC32# property"]


def test_damage_is_readable_as_a_table(spark: SparkSession, store_of: Stores, tmp_path: Path) -> None:
    shutil.copytree(store_of("clean"), tmp_path / "store")
    records = expected_of("clean")["records"]
    body, magic, last = records[100], records[250], records[-1]
    for phy, inside in ((body["phy"], 90), (magic["phy"], 5), (last["phy"], 6)):
        path = tmp_path / "store/commitlog" / offset_name(phy // 65536 * 65536)
        raw = bytearray(path.read_bytes())
        raw[phy % 65536 + inside] ^= 0x10
        path.write_bytes(raw)
    (tmp_path / "store/commitlog/.DS_Store").write_bytes(b"finder")
    for split_size in (12_000, 1 << 26):
        found = (
            messages(spark, tmp_path / "store", table="damage", split_size=split_size).orderBy("log_offset").collect()
        )
        assert [(row.log_offset, row.size, row.reason) for row in found] == [
            (-1, 6, "a foreign file, which stops a Java broker"),
            (body["phy"], body["size"], "the body does not match its CRC"),
            (magic["phy"], magic["size"], "no record magic"),
            (last["phy"], last["size"], "no record magic"),
        ]
        assert found[1].file.endswith(offset_name(body["phy"] // 65536 * 65536))
        frame = messages(spark, tmp_path / "store", "log_offset long, crc_state string", split_size=split_size)
        rows = frame.orderBy("log_offset").collect()
        assert [row.log_offset for row in rows] == [record["phy"] for record in records if record not in (magic, last)]
        assert [row.log_offset for row in rows if row.crc_state != "good"] == [body["phy"]]


def test_an_open_store_is_read_up_to_its_last_valid_record(
    spark: SparkSession, store_of: Stores, tmp_path: Path
) -> None:
    shutil.copytree(store_of("crash"), tmp_path / "store")
    records = expected_of("crash")["records"]
    cut = records[-8]
    path = tmp_path / "store/commitlog" / offset_name(cut["phy"] // 65536 * 65536)
    raw = bytearray(path.read_bytes())
    raw[cut["phy"] % 65536 + 4] = 0
    path.write_bytes(raw)
    before = [record["phy"] for record in records if record["phy"] < cut["phy"]]
    assert (tmp_path / "store/abort").exists()
    assert offsets(messages(spark, tmp_path / "store")) == before
    (damage,) = messages(spark, tmp_path / "store", table="damage").collect()
    assert damage.log_offset == cut["phy"]
    assert damage.log_offset + damage.size >= records[-1]["phy"] + records[-1]["size"] - 3
    assert damage.reason.startswith("after the valid end of a log that is being written")
    everything = offsets(messages(spark, tmp_path / "store", tail="through"))
    assert everything == [record["phy"] for record in records if record is not cut]
    (tmp_path / "store/abort").unlink()
    assert offsets(messages(spark, tmp_path / "store")) == everything
    assert offsets(messages(spark, tmp_path / "store", tail="stop")) == before


def test_remains_of_an_older_log_are_not_messages(spark: SparkSession, tmp_path: Path) -> None:
    def record(number: int, at: int, time: int) -> bytes:
        return encode(Record("T", 0, number, at, b"x" * 50, store_timestamp=time))

    old = b""
    for number in range(10):
        old += record(number, len(old), 1000 + number)
    new = b""
    while len(new) < 400:  # a broker cut the log at 0 and wrote longer records over the old ones
        new += encode(Record("T", 0, 0, len(new), b"y" * 70, store_timestamp=5000))
    write_segment(tmp_path, new + old[len(new) :])
    assert offsets(messages(spark, tmp_path)) == list(range(0, len(new), len(new) // 3 if len(new) < 500 else 1))
    (damage,) = messages(spark, tmp_path, table="damage").collect()
    assert damage.log_offset == len(new)
    assert damage.reason.startswith("left over from before the log was cut")


def test_a_dledger_log(spark: SparkSession, tmp_path: Path) -> None:
    def entry(index: int, at: int, body: bytes, magic: int = 1) -> bytes:
        head = b"".join(
            number.to_bytes(width, "big")
            for number, width in (
                (magic, 4), (48 + len(body), 4), (index, 8), (1, 8), (at, 8), (0, 4), (0, 4), (0, 4), (len(body), 4),
            )
        )  # fmt: skip
        return head + body

    raw = b""
    for index in range(40):
        if index % 9 == 4:
            raw += entry(index, len(raw), b"", magic=2)
        else:
            raw += entry(index, len(raw), encode(Record("T", 0, index, len(raw) + 48, b"x" * index, b"KEYS\x01k")))
    raw += b"\xff\xff\xff\xff" + (8192 - len(raw)).to_bytes(4, "big")
    folder = tmp_path / "dledger-n0/data"
    folder.mkdir(parents=True)
    (folder / offset_name(0)).write_bytes(raw.ljust(8192, b"\xaa"))
    for split_size in (500, 1 << 20):
        rows = messages(spark, tmp_path, split_size=split_size).orderBy("queue_offset").collect()
        assert [row.queue_offset for row in rows] == [index for index in range(40) if index % 9 != 4]
        assert [row.body_size for row in rows] == [index for index in range(40) if index % 9 != 4]
    assert messages(spark, tmp_path, table="damage").collect() == []


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"table": "rows"}, "", "it may be messages, damage"),
        ({"split_size": "0"}, "", "a number is needed"),
        ({"inflate": "yes"}, "", "true or false"),
        ({}, "colour string", "a message row has topic, queue_id"),
    ],
)
def test_wrong_options_are_named(
    spark: SparkSession, store_of: Stores, options: dict[str, str], schema: str, words: str
) -> None:
    with pytest.raises(Exception, match=words):
        messages(spark, store_of("clean"), schema, **options).collect()


def test_a_path_without_a_store(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=f"there is no store at {tmp_path}.* give the store's root"):
        messages(spark, tmp_path).collect()
    (tmp_path / "commitlog").mkdir()
    assert messages(spark, tmp_path).collect() == []


def test_a_path_with_a_scheme(spark: SparkSession, store_of: Stores) -> None:
    reader = spark.read.format("commitlog").schema("log_offset long")
    found = offsets(reader.load(f"file://{store_of('mixed')}"))
    assert found == [record["phy"] for record in expected_of("mixed")["records"]]
