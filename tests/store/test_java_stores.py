"""Directories left by a Java broker: opened, read, rebuilt byte for byte, and repaired where Java loses messages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from rocketlet.common.host import host_text
from rocketlet.common.message_flags import gets_queue_entry
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import Record, decode
from rocketlet.store.layout.consume_queue_entry import LOST
from rocketlet.store.layout.queue_ext_layout import is_address
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import GetStatus
from tests.support.records import decode_all
from tests.support.stores import (
    CASES,
    DAMAGED,
    STORES,
    expected_of,
    files_of,
    java_of,
    manifest_of,
    remove,
    store_of,
    unpacked,
)

QUEUE_FOLDERS = ("consumequeue", "consumequeue_ext")


def as_expected(record: Record) -> dict[str, Any]:
    """A record in the form of expected.json."""
    return {
        "phy": record.log_offset,
        "size": record.size,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_timestamp,
        "bornHost": host_text(record.born_host),
        "storeTimestamp": record.store_timestamp,
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "bodyCrc": record.body_crc,
        "bodyLen": len(record.body),
        "bodySha256": hashlib.sha256(record.body).hexdigest()[:16],
        "properties": decode_bytes(record.properties),
        "propertiesLen": len(record.properties),
        "offsetMsgId": offset_message_id(record.store_host, record.log_offset),
    }


def assert_queues(store: MessageStore, expected: dict[str, Any], *, least: dict[str, int] | None = None) -> None:
    assert {f"{queue.topic}/{queue.queue_id}" for queue in store.queues} == set(expected)
    for name, queue_expected in expected.items():
        topic, _, queue_id = name.rpartition("/")
        queue = store.queue(topic, int(queue_id))
        assert queue is not None
        assert (queue.begin, queue.end) == (queue_expected["min"], queue_expected["max"]), name
        first = queue_expected["firstUnit"]
        for offset in range(queue.begin, queue.end):
            found = queue.entry(offset)
            assert found is not None
            assert list(found) == queue_expected["units"][offset - first], f"{name} {offset}"


@pytest.mark.parametrize("case", CASES)
async def test_a_java_store_opens_and_everything_is_read(case: str, tmp_path: Path) -> None:
    config = unpacked(case, tmp_path)
    before = files_of(config, "commitlog", *QUEUE_FOLDERS, "index")
    expected = expected_of(case)
    store = store_of(config)
    report = await store.open()
    assert report.was_clean is not expected["abort"]
    assert not report.changed, report.lines()
    assert (store.log.begin, store.log.end) == (expected["commitLog"]["min"], expected["commitLog"]["max"])
    assert report.records == expected["commitLog"]["records"]
    for record in expected["records"]:
        raw = store.record_at(record["phy"])
        assert raw is not None
        found = as_expected(decode(raw))
        assert found == {key: record[key] for key in found}
    assert_queues(store, expected["queues"])
    for name, key in expected["keys"].items():
        topic, _, word = name.partition("#")
        found_offsets = [offset for offset, _ in store.find_by_key(topic, word, 64, 0, 1 << 62).records]
        assert found_offsets == sorted({phy for phy in key["phys"] if phy >= store.log.begin})[-64:]
    await store.close()
    after = files_of(config, "commitlog", *QUEUE_FOLDERS, "index")
    # Files that a crashed broker created ahead are deleted, as by a clean stop.
    assert after == {path: data for path, data in before.items() if path in after}
    assert all(not any(before[path]) for path in before.keys() - after.keys())


@pytest.mark.parametrize("case", CASES)
async def test_every_acknowledged_message_is_pulled(case: str, tmp_path: Path) -> None:
    config = unpacked(case, tmp_path)
    store = store_of(config)
    await store.open()
    pulled: dict[tuple[str, int, int], Record] = {}
    for queue in store.queues:
        offset = queue.begin
        while (result := await store.load(store.get(queue.topic, queue.queue_id, offset, 32))).count:
            assert result.status is GetStatus.FOUND
            for record in decode_all(result.body()):
                pulled[record.topic, record.queue_id, record.queue_offset] = record
            offset = result.next_offset
        assert result.status is GetStatus.OFFSET_OVERFLOW_ONE
    with_entry = [record for record in expected_of(case)["records"] if gets_queue_entry(record["sysFlag"])]
    assert len(pulled) == len(with_entry)
    for expected in with_entry:
        found = as_expected(pulled[expected["topic"], expected["queueId"], expected["queueOffset"]])
        assert found == {key: expected[key] for key in found}
    if case in ("clean", "crash"):
        for sent in manifest_of(case)["sent"]:
            assert pulled[sent["topic"], sent["queueId"], sent["queueOffset"]].body == sent["body"].encode()
    await store.close()


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("retained", "slave")])
async def test_rebuilt_queues_and_index_equal_javas_byte_for_byte(case: str, tmp_path: Path) -> None:
    config = unpacked(case, tmp_path)
    queues, index = files_of(config, "consumequeue"), files_of(config, "index")
    units = expected_of(case)["queues"]
    remove(config, *QUEUE_FOLDERS, "index")
    store = store_of(config)
    report = await store.open()
    assert report.queues
    assert report.index
    await store.close()
    # Names are creation times, known only from the deleted files; the contents and their order are the same.
    assert list(files_of(config, "index").values()) == list(index.values())
    if case == "ext":
        # Bit maps depend on the filters at that time: a rebuilt entry has its plain tags code.
        for queue in store.queues:
            for offset in range(queue.end):
                found = queue.entry(offset)
                assert found is not None
                assert list(found[:2]) == units[f"{queue.topic}/{queue.queue_id}"]["units"][offset][:2]
                assert not is_address(found[2])
    else:
        assert files_of(config, "consumequeue") == queues


async def test_a_slaves_queues_are_rebuilt_with_their_pre_blank_entries(tmp_path: Path) -> None:
    config = unpacked("slave", tmp_path)
    queues = files_of(config, "consumequeue")
    remove(config, "consumequeue")
    store = store_of(config)
    await store.open()
    await store.close()
    assert files_of(config, "consumequeue") == queues


async def test_extension_units_are_read(tmp_path: Path) -> None:
    config = unpacked("ext", tmp_path)
    expected = expected_of("ext")["queues"]
    store = store_of(config)
    await store.open()
    for queue in store.queues:
        assert queue.ext is not None
        units = expected[f"{queue.topic}/{queue.queue_id}"]["ext"]
        found = []
        for offset in range(queue.end):
            entry = queue.entry(offset)
            assert entry is not None
            unit = queue.ext.read(entry[2])
            assert unit is not None
            found.append(unit)
        assert [unit.tags_code for unit in found] == [unit["tagsCode"] for unit in units]
        assert [unit.bit_map.hex() for unit in found] == [unit["bitMap"] for unit in units]
        seen: list[int] = []
        result = store.get(
            queue.topic, queue.queue_id, 0, 32,
            match=lambda code, seen=seen: not seen.append(code), match_unit=lambda unit: len(unit.bit_map) > 14,  # type: ignore[misc]
        )  # fmt: skip
        assert result.status is GetStatus.NO_MATCHED_MESSAGE
        assert seen == [unit["tagsCode"] for unit in units][: len(seen)]
    await store.close()


# What Java keeps of each damaged store is in its java.json; we keep everything except what no longer exists.
LOST_MESSAGES = {
    "clean-log-behind": 25,  # the file with them is gone
    "crash-log-behind": 16,
    "clean-first-file-gone": 193,
    "crash-torn-tail": 1,  # half of it was never written
    "crash-torn-tail-size-only": 1,
}

ONE_DAMAGED = {"clean-body-bit", "clean-body-bit-old-file", "crash-body-bit", "crash-body-bit-middle", "crash-magic"}


@pytest.mark.parametrize("case", DAMAGED)
async def test_damaged_stores_open_without_losing_intact_messages(case: str, tmp_path: Path) -> None:
    java = java_of(case)
    config = unpacked(f"damaged/{case}", tmp_path)
    expected = expected_of(java["base"])
    store = store_of(config)
    report = await store.open()
    # One flipped bit that a checksum sees loses its record, and nothing after it.
    lost = [loss.log_offset for loss in report.losses]
    assert len(lost) == (case in ONE_DAMAGED), report.lines()
    wanted = expected["records"]
    if case == "clean-first-file-gone":
        wanted = [record for record in wanted if record["phy"] >= 65536]
    elif case in LOST_MESSAGES:
        wanted = wanted[: len(wanted) - LOST_MESSAGES[case]]
    assert report.records == len(wanted)
    for record in wanted:
        raw = store.record_at(record["phy"])
        assert raw is not None
        found = as_expected(decode(raw))
        if record["phy"] in lost:
            lost.remove(record["phy"])
            assert found["queueOffset"] == record["queueOffset"]
            continue
        if case != "crash-property-bit":
            assert found == {key: record[key] for key in found}
        queue = store.queue(record["topic"], record["queueId"])
        assert queue is not None
        entry = queue.entry(record["queueOffset"])
        assert entry is not None
        assert entry[:2] == (record["phy"], record["size"])
        assert entry[2] != LOST
    assert not lost
    for queue in store.queues:
        offsets = [record["queueOffset"] for record in wanted if record["topic"] == queue.topic
                   and record["queueId"] == queue.queue_id]  # fmt: skip
        assert (queue.begin, queue.end) == (min(offsets), max(offsets) + 1)
    indexed = [record for record in wanted if "UNIQ_KEY" in record["properties"]]
    for record in indexed[:: max(len(indexed) // 50, 1)]:
        unique = record["properties"]["UNIQ_KEY"]
        if case != "crash-property-bit":
            offsets = [offset for offset, _ in store.find_by_key(record["topic"], unique, 32, 0, 1 << 62).records]
            assert offsets == [record["phy"]]
    await store.close()
    again = store_of(config)
    second = await again.open()
    assert second.was_clean
    assert not second.changed, second.lines()
    await again.close()


def test_java_keeps_no_more_than_we_do() -> None:
    ours = {case: 600 if java_of(case)["base"] == "clean" else 400 for case in DAMAGED if case not in LOST_MESSAGES}
    kept = {
        case: int(java_of(case)["summary"].split("; ")[2].split(" ")[0])
        for case in ours
        if java_of(case)["java"]["started"]
    }
    assert all(kept[case] <= ours[case] for case in kept)
    assert sorted(case for case in kept if kept[case] < ours[case]) == [
        "clean-body-bit", "crash-body-bit", "crash-body-bit-middle", "crash-magic",
    ]  # fmt: skip
    assert sorted(case for case in ours if case not in kept) == [
        "clean-empty-last-file", "clean-foreign-file", "clean-short-last-file", "crash-empty-last-file",
    ]  # fmt: skip


async def test_the_store_continues_where_java_stopped(tmp_path: Path) -> None:
    from tests.support.store_model import message

    config = unpacked("clean", tmp_path)
    store = store_of(config)
    await store.open()
    found = [store.put(message("TopicA", 1, b"ours", (b"our-key",))) for _ in range(100)]
    store.settle()
    assert found[0].queue_offset == 120
    assert store.queue_end("TopicA", 1) == 220
    assert len(store.find_by_key("TopicA", "our-key", 64, 0, 1 << 62).records) == 64
    await store.close()
    again = store_of(config)
    assert not (await again.open()).changed
    assert again.queue_end("TopicA", 1) == 220
    await again.close()


def test_all_vectors_are_present() -> None:
    assert {path.name for path in STORES.iterdir() if path.is_dir()} == {*CASES, "damaged"}
    assert len(DAMAGED) == 32
