"""The worked examples in docs/formats are what the codecs write, and decode as the pages say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketlet.common import fastjson
from rocketlet.common.host import pack_host
from rocketlet.common.java_numbers import index_key_hash, string_hash
from rocketlet.common.message_record import BatchItem, Fault, Record, check, decode, encode, encode_batch
from rocketlet.remoting import frame_codec
from rocketlet.remoting.command import Command, HeaderType, Language
from rocketlet.store.layout import checkpoint_layout, flush_mark_layout, queue_ext_layout, seal_layout
from rocketlet.store.layout.consume_queue_entry import ENTRY
from rocketlet.store.layout.index_layout import IndexGeometry, IndexTable

FORMATS = Path(__file__).parent.parent.parent / "docs" / "formats"
BORN, STORED = 1700000000000, 1700000000123


def examples(page: str) -> list[bytes]:
    """The bytes of each example: lines of an offset, bytes, and their meaning. The offsets have to be right."""
    found = []
    for block in re.findall(r"^```text\n(.*?)^```", (FORMATS / page).read_text("utf-8"), re.M | re.S):
        lines = [re.match(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", line) for line in block.splitlines()]
        if not all(lines):
            continue
        data = b""
        for line in lines:
            assert line is not None
            assert int(line[1], 16) == len(data), f"{page}: {line[0]}"
            data += bytes.fromhex(line[2])
        found.append(data)
    return found


def log_record() -> bytes:
    record = Record("T1", 2, 7, 4096, b"hello", b"KEYS\x01k1\x02TAGS\x01A\x02")
    record.born_timestamp, record.born_host = BORN, pack_host("127.0.0.1", 50000)
    record.store_timestamp, record.store_host = STORED, pack_host("127.0.0.1", 10911)
    return encode(record)


def batch_body() -> bytes:
    return encode_batch([BatchItem(0, b"one", b"TAGS\x01A\x02"), BatchItem(0, b"two", b"")])


def consume_queue() -> bytes:
    return ENTRY.pack(4096, len(log_record()), string_hash("A"))


def index_file() -> bytes:
    geometry = IndexGeometry(2, 3)
    buffer = bytearray(geometry.file_size)
    table = IndexTable(buffer, geometry)
    table.put(index_key_hash("T1", "k1"), 4096, STORED)
    table.put(index_key_hash("T1", "k3"), 5000, STORED + 2000)
    table.write_header()
    return bytes(buffer)


def checkpoint() -> bytes:
    return checkpoint_layout.encode(checkpoint_layout.Checkpoint(STORED, 1700000000100, BORN))[:40]


def queue_extension() -> bytes:
    return queue_ext_layout.encode(string_hash("A"), STORED, bytes.fromhex("a001"))


@pytest.mark.parametrize("make", [log_record, batch_body, consume_queue, index_file, checkpoint, queue_extension])
def test_the_example_is_what_we_write(make: Callable[[], bytes]) -> None:
    assert examples(f"{make.__name__}.md") == [make()]


def test_the_record_decodes_as_the_page_says() -> None:
    [raw] = examples("log_record.md")
    assert check(raw, 0, len(raw), True, 4096) == 113
    record = decode(raw)
    assert (record.topic, record.queue_id, record.queue_offset, record.body) == ("T1", 2, 7, b"hello")
    assert check(raw.replace(b"hello", b"hallo"), 0, len(raw)) is Fault.BODY_CRC
    assert isinstance(check(raw.replace(b"KEYS", b"KEYZ"), 0, len(raw)), int)  # the CRC covers the body alone


def test_an_extension_address() -> None:
    assert queue_ext_layout.to_address(0).to_bytes(8, "big", signed=True).hex(" ") == "80 00 00 00 00 00 00 00"


def test_frames_of_three_types() -> None:
    found = examples("remoting_frame.md")
    for kind, raw in zip(HeaderType, found, strict=True):
        body = b"hi" if kind is HeaderType.MSGPACK else b""
        command = Command(105, 7, 0, Language.PYTHON, 409, None, {"topic": "T1"}, body, kind)
        assert raw == frame_codec.encode(command)
        assert frame_codec.FrameDecoder().feed(raw) == [command]
    assert found[0][8:].decode() in (FORMATS / "remoting_frame.md").read_text("utf-8")


def test_quoted_and_bare_numeric_keys_are_read() -> None:
    blocks = re.findall(r"^```json\n(.*?)^```", (FORMATS / "json_tables.md").read_text("utf-8"), re.M | re.S)
    first, second = map(fastjson.loads, blocks)
    assert first == second == {"offsetTable": {"T1@readers": {"0": 5, "1": 7}}}


def test_the_seal() -> None:
    text = (FORMATS / "rocketlet-files.md").read_text("utf-8")
    written = re.search(r"`(524f434b[0-9a-f\s]+)`", text)
    assert written
    data = bytes.fromhex(re.sub(r"\s", "", written[1]))
    assert data == seal_layout.encode(seal_layout.Seal(1 << 30, 5, 4, (0x11223344, 0x55667788)))[:-4]


def test_the_flush_mark() -> None:
    text = (FORMATS / "rocketlet-files.md").read_text("utf-8")
    written = re.search(r"`(524f434b464c[0-9a-f\s]+)`", text)
    assert written
    data = bytes.fromhex(re.sub(r"\s", "", written[1]))
    assert data == flush_mark_layout.encode(flush_mark_layout.FlushMark(1 << 30, 4096, 0x11223344))
