from __future__ import annotations

import hashlib
import json
import pathlib
import tarfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.host import host_text, pack_host
from rocketlet.common.message_flags import BORN_V6, STORE_V6
from rocketlet.common.message_properties import decode_bytes, find
from rocketlet.common.message_properties import encode as encode_properties
from rocketlet.common.message_record import (
    MAGIC_V2,
    BatchItem,
    Fault,
    Outline,
    Record,
    RecordError,
    blank,
    check,
    decode,
    decode_batch,
    encode,
    encode_batch,
    has_good_property_crc,
    outline,
    property_crc,
    record_size,
    topic_field,
)
from rocketlet.common.subscription import tags_code
from tests.support.records import decode_all, with_property_crc

STORES = pathlib.Path(__file__).parent.parent / "vectors/stores"

PROPERTIES = (
    b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x017F0000010A1B18B4AAC20A1B2C3D0000\x02CLUSTER\x01DefaultCluster\x02"
    b"TAGS\x01TagA\x02KEYS\x01order-1001 user-7\x02WAIT\x01true\x02TRACE_ON\x01true\x02"
)
HEX = (
    "00000105daa320a769c865ed0000000300000000000000000000000500000000000003e8000000000000018bcfe56800c0a8010a0000cfdb"
    "0000018bcfe5687b0a00000500002a9f0000000000000000000000000000000e48656c6c6f20526f636b65744d51"
    "09546f70696354657374" + "0093" + PROPERTIES.hex()
)


def example(**changes: Any) -> Record:
    fields: dict[str, Any] = {
        "topic": "TopicTest", "queue_id": 3, "queue_offset": 5, "log_offset": 1000, "body": b"Hello RocketMQ",
        "properties": PROPERTIES, "born_timestamp": 1700000000000, "born_host": pack_host("192.168.1.10", 53211),
        "store_timestamp": 1700000000123, "store_host": pack_host("10.0.0.5", 10911),
    }  # fmt: skip
    return Record(**(fields | changes))


hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
records = st.builds(
    Record, topic=st.text("abc%-_", min_size=1, max_size=200), queue_id=int32, queue_offset=int64, log_offset=int64,
    body=st.binary(max_size=300), properties=st.binary(max_size=200), flag=int32, sys_flag=int32,
    born_timestamp=int64, born_host=hosts, store_timestamp=int64, store_host=hosts, reconsume_times=int32,
    prepared_offset=int64,
)  # fmt: skip


def test_worked_example() -> None:
    raw = encode(example())
    assert raw.hex() == HEX
    found = decode(raw)
    assert found == example(size=261, body_crc=0x69C865ED)
    assert check(raw, 0, len(raw), True, 1000) == 261


def test_worked_example_with_an_ipv6_born_host() -> None:
    raw = encode(example(born_host=pack_host("2001:db8::1", 53211)))
    assert raw[:4].hex() == "00000111"
    assert raw[36:40].hex() == "00000010"
    assert raw[48:68].hex() == "20010db80000000000000000000000010000cfdb"
    assert decode(raw).body == b"Hello RocketMQ"


def test_worked_example_with_a_long_topic() -> None:
    raw = encode(example(topic="%RETRY%" + "g" * 130))
    assert raw[:8].hex() == "00000186daa320ab"
    assert raw[102:104].hex() == "0089"
    assert decode(raw).magic == MAGIC_V2
    assert decode(raw).topic == "%RETRY%" + "g" * 130


def test_worked_example_with_a_property_crc() -> None:
    raw = with_property_crc(example())
    assert raw[:4].hex() == "00000119"
    assert raw[-20:].hex() == "5f5f435243333223013932393536353031303002"
    assert property_crc(raw) == 10565929
    assert has_good_property_crc(raw) is True
    flipped = bytearray(raw)
    flipped[120] ^= 1
    assert has_good_property_crc(flipped) is False
    assert has_good_property_crc(encode(example())) is None


def test_the_record_on_the_wire_page() -> None:
    raw = bytes.fromhex(
        "0000006EDAA320A73610A686000000010000000000000000000000020000000000000400000000000000018BCFE568000A0000010000C350"
        "0000018BCFE568017F00000100002A9F0000000000000000000000000000000568656C6C6F09546F7069635465737400056B31017631"
    )
    found = decode(raw)
    assert (found.topic, found.body, found.queue_id, found.queue_offset) == ("TopicTest", b"hello", 1, 2)
    assert (found.log_offset, found.body_crc, found.properties) == (1024, 907060870, b"k1\x01v1")
    assert (host_text(found.born_host), host_text(found.store_host)) == ("10.0.0.1:50000", "127.0.0.1:10911")
    assert encode(found) == raw


@given(records)
def test_any_record_round_trips(record: Record) -> None:
    raw = encode(record)
    found = decode(raw)
    assert found.sys_flag & ~(BORN_V6 | STORE_V6) == record.sys_flag & ~(BORN_V6 | STORE_V6)
    assert len(raw) == found.size == check(raw, 0, len(raw), True, record.log_offset)
    record.sys_flag, record.body_crc = found.sys_flag, found.body_crc
    record.magic, record.size = found.magic, found.size
    assert found == record
    assert decode(memoryview(b"x" + raw + b"y"), 1) == record
    assert len(raw) == record_size(
        len(record.body), topic_field(record.topic), len(record.properties), len(record.born_host + record.store_host)
    )


@given(records, st.data())
def test_a_truncated_record_is_torn(record: Record, data: st.DataObject) -> None:
    raw = encode(record)
    end = data.draw(st.integers(1, len(raw) - 1))
    # The first bytes of a size are zeros, indistinguishable from unwritten bytes.
    fault = Fault.TORN if any(raw[:end]) or end >= 8 else Fault.EMPTY
    assert check(raw, 0, end) is fault
    with pytest.raises(RecordError, match=fault.value):
        decode(raw, 0, end)


@given(st.binary(max_size=300), st.sampled_from(["", "0000010cdaa320a7", "00000060daa320ab"]).map(bytes.fromhex))
def test_arbitrary_bytes_raise_only_record_errors(junk: bytes, head: bytes) -> None:
    raw = head + junk
    found = check(raw, 0, len(raw), verify_body=False)
    if isinstance(found, Fault):
        with pytest.raises(RecordError) as caught:
            decode(raw)
        assert caught.value.fault is found
    else:
        assert decode(raw).size == found


def assert_outline_agrees(raw: bytes, verify_body: bool, log_offset: int | None) -> None:
    found = outline(raw, 0, len(raw), verify_body, log_offset)
    expected = check(raw, 0, len(raw), verify_body, log_offset)
    if isinstance(expected, Fault):
        assert found is expected
    else:
        record = decode(raw)
        assert found == Outline(
            expected, record.queue_id, record.queue_offset, record.sys_flag, record.store_timestamp,
            record.prepared_offset, record.topic.encode(), record.properties,
        )  # fmt: skip


@given(records, st.data())
def test_an_outline_agrees_with_check_and_decode(record: Record, data: st.DataObject) -> None:
    raw = bytearray(encode(record))
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        raw[at] ^= data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1, 95]))]
    assert_outline_agrees(bytes(raw), data.draw(st.booleans()), data.draw(st.sampled_from([None, record.log_offset])))


def test_faults_have_names() -> None:
    raw = bytearray(encode(example()))
    assert check(bytes(300), 0, 300) is Fault.EMPTY
    assert check(bytes(5), 0, 5) is Fault.EMPTY
    assert check(b"\0\0\0\1\0", 0, 5) is Fault.TORN
    assert check(blank(251) + b"x" * 243, 0, 251) is Fault.BLANK
    assert check(blank(8), 0, 8) is Fault.BLANK
    assert check(b"x" * 300, 0, 300) is Fault.MAGIC
    assert check(raw, 0, 261, log_offset=999) is Fault.OFFSET
    raw[90] ^= 1
    assert check(raw, 0, 261) is Fault.BODY_CRC
    assert check(raw, 0, 261, verify_body=False) == 261
    raw[84:88] = (10**6).to_bytes(4, "big")
    assert check(raw, 0, 261) is Fault.LENGTHS
    raw[84:88] = b"\xff\xff\xff\xff"
    assert check(raw, 0, 261) is Fault.LENGTHS


def test_a_pull_body_is_a_sequence_of_records() -> None:
    first, second = encode(example()), encode(example(body=b"", properties=b"", queue_offset=6))
    assert [record.queue_offset for record in decode_all(first + second)] == [5, 6]
    assert decode_all(b"") == []
    with pytest.raises(RecordError, match="byte 261: torn"):
        decode_all(first + second[:-1])


def test_batch_vector() -> None:
    raw = bytes.fromhex(
        "000000240000000000000000000000000000000568656C6C6F0009544147530154616741"
        "0000002500000000000000000000000000000006776F726C642100095441475301546167" "42"
    )  # fmt: skip
    items = [BatchItem(0, b"hello", b"TAGS\x01TagA"), BatchItem(0, b"world!", b"TAGS\x01TagB")]
    assert encode_batch(items) == raw
    assert decode_batch(raw) == items
    for end in range(1, len(raw)):
        if end != 36:
            with pytest.raises(RecordError):
                decode_batch(raw[:end])


@given(st.lists(st.builds(BatchItem, int32, st.binary(max_size=20), st.binary(max_size=20)), max_size=5))
def test_any_batch_round_trips(items: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(items)) == items


@pytest.mark.parametrize("case", ["clean", "crash", "mixed", "shapes", "ext", "ipv6", "retained", "slave"])
def test_every_record_java_stored_round_trips(case: str) -> None:
    expected = json.loads((STORES / case / "expected.json").read_text("utf-8"))
    logs: dict[int, bytes] = {}
    with tarfile.open(STORES / case / "store.tar.gz") as archive:
        for member in archive:
            if "/commitlog/" in member.name:
                stream = archive.extractfile(member)
                assert stream is not None
                logs[int(member.name.rpartition("/")[2])] = stream.read()
    file_size = len(next(iter(logs.values())))
    for want in expected["records"]:
        start = want["phy"] // file_size * file_size
        log, at = logs[start], want["phy"] - start
        assert check(log, at, len(log), True, want["phy"]) == want["size"]
        found = decode(log, at)
        compared = {
            "phy": found.log_offset, "size": found.size, "topic": found.topic, "queueId": found.queue_id,
            "queueOffset": found.queue_offset, "flag": found.flag, "sysFlag": found.sys_flag,
            "bornTimestamp": found.born_timestamp, "storeTimestamp": found.store_timestamp,
            "reconsumeTimes": found.reconsume_times, "preparedTransactionOffset": found.prepared_offset,
            "bodyCrc": found.body_crc, "bodyLen": len(found.body),
            "bodySha256": hashlib.sha256(found.body).hexdigest()[:16], "properties": decode_bytes(found.properties),
            "propertiesLen": len(found.properties), "trailingSeparator": found.properties.endswith(b"\x02"),
        }  # fmt: skip
        assert compared == {name: want[name] for name in compared}
        if found.topic != "SCHEDULE_TOPIC_XXXX":
            assert tags_code(find(found.properties, b"TAGS") or b"") == want["tagsCode"]
        assert encode(found) == log[at : at + found.size]
        trailing = "\x02" if want["trailingSeparator"] else ""
        if case in ("clean", "crash", "mixed"):  # the others hold doubled and odd properties
            assert encode_properties(decode_bytes(found.properties)) + trailing == found.properties.decode()
