"""Records as columns, without Spark: every recorded store, any split, and deliberately corrupted bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.host import host_text, pack_host
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import Record, blank, decode, encode
from rocketlet.spark_jobs.commit_log import Split, find_commit_log, read_split
from rocketlet.spark_jobs.message_columns import COLUMNS, MessageBatch
from rocketlet.spark_jobs.segment_rows import Stretch, find_records, heads_at, properties_of
from rocketlet.store.layout.log_scan import read_through
from tests.spark_jobs.conftest import CASES, expected_of


def record_batch(batch: MessageBatch, names: list[str]) -> pa.RecordBatch:
    """An Arrow batch of these columns."""
    return pa.RecordBatch.from_arrays([COLUMNS[name].make(batch) for name in names], names)


def rows_of(path: Path, split_size: int) -> list[dict[str, Any]]:
    log = find_commit_log(str(path))
    assert log.damages == []
    rows: list[dict[str, Any]] = []
    for split in log.splits(split_size):
        data, found = read_split(split)
        assert found.damages == []
        rows += record_batch(MessageBatch(data, heads_at(data, found.places)), list(COLUMNS)).to_pylist()
    return rows


def test_the_next_file_of_an_open_store_may_be_empty_while_it_is_made(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    (log / f"{0:020}").write_bytes(encode(Record("T", 0, 0, 0, b"x", store_timestamp=5)).ljust(4096, b"\0"))
    (log / f"{4096:020}").touch()
    assert [damage.size for damage in find_commit_log(str(tmp_path)).damages] == [4096]
    (tmp_path / "abort").touch()
    assert find_commit_log(str(tmp_path)).damages == []
    (log / f"{8192:020}").touch()
    assert [damage.log_offset for damage in find_commit_log(str(tmp_path)).damages] == [4096]


@pytest.mark.parametrize("split_size", [999, 1 << 26])
@pytest.mark.parametrize("case", CASES)
def test_every_recorded_message_is_a_row(store_of: Callable[[str], Path], case: str, split_size: int) -> None:
    rows = rows_of(store_of(case), split_size)
    expected = expected_of(case)["records"]
    assert [row["log_offset"] for row in rows] == [record["phy"] for record in expected]
    for row, want in zip(rows, expected, strict=True):
        assert (row["topic"], row["size"], row["flag"]) == (want["topic"], want["size"], want["flag"])
        assert dict(row["properties"]) == want["properties"]
        assert len(row["properties"]) == len(want["properties"]), "a name that occurs twice is there once"
        assert row["body_size"] == want["bodyLen"]
        assert (row["queue_id"], row["queue_offset"]) == (want["queueId"], want["queueOffset"])
        assert (row["sys_flag"], row["reconsume_times"]) == (want["sysFlag"], want["reconsumeTimes"])
        assert row["prepared_offset"] == want["preparedTransactionOffset"]
        assert row["tags"] == want["properties"].get("TAGS")
        assert row["unique_key"] == want["properties"].get("UNIQ_KEY")
        assert row["keys"] == [key for key in want["properties"].get("KEYS", "").split(" ") if key]
        assert round(row["store_time"].timestamp() * 1000) == want["storeTimestamp"]
        assert round(row["born_time"].timestamp() * 1000) == want["bornTimestamp"]
        assert row["transaction"] == ("none", "prepared", "commit", "rollback")[want["sysFlag"] >> 2 & 3]
        assert (row["compression"] is None) == (want["sysFlag"] & 1 == 0)
        assert row["crc_state"] == "good"
        assert len(row["body"]) == want["bodyLen"]
        if want["topic"] != "SCHEDULE_TOPIC_XXXX":
            assert row["tags_code"] == want["tagsCode"]


def test_only_requested_columns_are_decoded(store_of: Callable[[str], Path]) -> None:
    (split,) = find_commit_log(str(store_of("mixed"))).splits()
    data, found = read_split(split)
    batch = MessageBatch(data, found.heads_in(data))
    rows = record_batch(batch, ["queue_id", "log_offset", "store_time"])
    assert rows.num_rows == 40
    assert not {"topics", "properties", "crc_states", "_bodies"} & vars(batch).keys()
    record_batch(batch, ["tags", "keys"])
    assert "properties" in vars(batch)
    assert "_bodies" not in vars(batch)


def test_hosts_of_both_address_families(store_of: Callable[[str], Path]) -> None:
    rows = rows_of(store_of("ipv6"), 4096)
    log = find_commit_log(str(store_of("ipv6")))
    raw = b"".join(bytes(read_split(Split(segment, 0, segment.end, True))[0]) for segment in log.segments)
    for row in rows:
        record = decode(raw, row["log_offset"])
        assert row["born_host"] == host_text(record.born_host)
        assert row["store_host"] == host_text(record.store_host)
    assert {row["store_host"] for row in rows} == {"[2001:db8::1]:10911"}
    assert len({row["born_host"].rpartition(":")[0] for row in rows}) == 2


tangled = st.lists(st.sampled_from([b"\x01", b"\x02", b"KEYS", b"TAGS", b"v", b"\xc3\xa4", b"\xff"]), max_size=16)


@given(st.lists(tangled.map(b"".join), max_size=8))
def test_properties_follow_the_rules(texts: list[bytes]) -> None:
    data, places = b"", []
    for text in texts:
        places.append(len(data))
        data += encode(Record("T", 0, 0, len(data), b"body", text))
    properties = properties_of(memoryview(data), heads_at(data, places))
    expected = [decode_bytes(text) for text in texts]
    # Two names that differ only in broken UTF-8 are one for Java and two for us: keep them out of the comparison.
    if all(b"\xff" not in text for text in texts):
        assert [dict(row) for row in properties.maps().to_pylist()] == expected
        assert [len(row) for row in properties.maps().to_pylist()] == [len(row) for row in expected]
        for name in ("KEYS", "TAGS"):
            found = properties.column(name.encode()).to_pylist()
            assert [value and value.decode() for value in found] == [row.get(name) for row in expected]
    else:
        properties.maps()


BASE = 1 << 20
FILE = 8192


def file_of(bodies: list[bytes], full: bool) -> tuple[bytearray, list[int]]:
    file = bytearray(FILE)
    at, places = 0, []
    for number, body in enumerate(bodies):
        host = pack_host("::1", 1) if number % 3 == 2 else pack_host("127.0.0.1", 1)
        topic = "T" * 130 if number % 4 == 3 else "Topic"
        raw = encode(Record(topic, 0, number, BASE + at, body, b"KEYS\x01k", born_host=host))
        if at + len(raw) + 8 > FILE:
            break
        file[at : at + len(raw)] = raw
        places.append(at)
        at += len(raw)
    if full:
        file[at : at + 8] = blank(FILE - at)
    return file, places


@given(
    st.lists(st.binary(max_size=300), max_size=12),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, FILE - 1), st.integers(0, 255)), max_size=3),
    st.integers(64, FILE),
    st.integers(0, 700),
)
def test_splits_agree_with_a_whole_read(
    bodies: list[bytes], full: bool, flips: list[tuple[int, int]], split: int, overhang: int
) -> None:
    file, _ = file_of(bodies, full)
    for at, value in flips:
        file[at] = value
    whole = read_through(file, 0, FILE, BASE)
    places, damages = [], []
    for start in range(0, FILE, split):
        have = min(start + split + overhang, FILE)
        while True:
            stretch = Stretch(
                file[start:have], BASE + start, 0, min(split, FILE - start), FILE - start, FILE - start, start == 0
            )
            found = find_records(stretch, verify_body=True)
            if found is not None:
                break
            assert have < FILE, "with all bytes at hand there is always an answer"
            have = min(have + 500, FILE)
        places += [start + int(place) for place in found.places]
        damages += [(start + damage.at, damage.size, damage.fault) for damage in found.damages]
    assert places == whole.places
    assert damages == [(damage.at, damage.size, damage.fault) for damage in whole.damages]


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=6), st.integers(0, 1199), st.integers(0, 255))
def test_garbage_headers_stay_inside_the_data(bodies: list[bytes], at: int, value: int) -> None:
    file, places = file_of(bodies, False)
    file[at] = value
    end = places[-1] + 100
    data = bytes(file[:end])
    heads = heads_at(data, [place for place in places if place + 91 <= end])
    assert len(heads) >= 1
