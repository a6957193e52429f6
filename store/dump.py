"""Any file of a store as lines of text: `python -m rocketlet.store.dump FILE`, `rocketlet store dump FILE`.

The path tells the kind of a file: `commitlog/`, `consumequeue/`, `consumequeue_ext/`, `index/`, `rocketlet/seals/`,
`rocketlet/flushed`, `checkpoint`; for a file copied elsewhere `--kind` does. Unreadable parts are printed as such, with
their offset, and the dump continues after them where possible.

Java: tools/command/message/DumpCompactionLogCommand.java (5.x; 4.9 has none)
"""

from __future__ import annotations

import json
import posixpath
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath

from rocketlet.common.host import host_text
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import Fault, Record, RecordError, body_crc, decode
from rocketlet.common.moment import moment_of
from rocketlet.store.disk import Disk, Region
from rocketlet.store.errors import StoreError
from rocketlet.store.layout import checkpoint_layout, flush_mark_layout, queue_ext_layout, seal_layout
from rocketlet.store.layout.consume_queue_entry import ENTRY, ENTRY_SIZE, LOST, is_pre_blank
from rocketlet.store.layout.file_names import (
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    FLUSHED,
    INDEX,
    OWN,
    parse_offset,
)
from rocketlet.store.layout.index_layout import HEADER_SIZE, IndexGeometry, IndexTable, decode_header
from rocketlet.store.layout.log_scan import is_blank_of, last_nonzero, resync
from rocketlet.store.layout.queue_rules import LOST_MARK
from rocketlet.store.real_disk import RealDisk

Lines = Iterator[str]
_SHOWN = 64  # bytes of a body


class UnknownKind(StoreError):
    """The path does not tell the kind of the file; it must be given."""


def kind_of(path: str) -> str:
    """log, queue, ext, index, checkpoint, seal, flushed, json. Raises UnknownKind."""
    parts = PurePath(path).parts
    name = parts[-1] if parts else ""
    if name == CHECKPOINT:
        return "checkpoint"
    if OWN in parts and "seals" in parts:
        return "seal"
    if path.endswith(FLUSHED):
        return "flushed"
    if name.endswith((".json", ".json.bak")):
        return "json"
    for folder, kind in ((COMMIT_LOG, "log"), (CONSUME_QUEUE, "queue"), (CONSUME_QUEUE_EXT, "ext"), (INDEX, "index")):
        if folder in parts:
            return kind
    raise UnknownKind(f"{path}: its path does not tell what it is; give --kind, one of {', '.join(KINDS)}")


def dump(disk: Disk, path: str, kind: str | None = None, geometry: IndexGeometry | None = None) -> Lines:
    """The lines of a file. Raises UnknownKind, OSError."""
    kind = kind or kind_of(path)
    if kind in _SMALL:
        data = disk.read_file(path)
        if data is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return _SMALL[kind](data)
    region = _opened(disk, path)
    if kind == "index":
        return _index(region, geometry)
    return _LARGE[kind](region, parse_offset(PurePath(path).name) or 0)


def _opened(disk: Disk, path: str) -> Region:
    """Mapped read-only: the files may be those of a running broker."""
    folder, name = posixpath.split(path)
    size = next((entry.size for entry in disk.entries(folder or ".") if entry.name == name), None)
    if size is None:
        raise FileNotFoundError(2, "No such file or directory", path)
    return disk.open_private(path, size)


def _log(region: Region, base: int) -> Lines:
    buffer, size, at, count = region.buffer, region.size, 0, 0
    yield f"log file from offset {base}, {size} bytes"
    while at < size:
        try:
            record = decode(buffer, at, size)
        except RecordError as error:
            if error.fault is Fault.BLANK and is_blank_of(buffer, at, size):
                yield f"{base + at:>20}  blank, {size - at} bytes to the end of the file"
                break
            if last_nonzero(buffer, at, size) < at:
                yield f"{base + at:>20}  nothing written from here"
                break
            following = resync(buffer, at + 1, size, base, size)
            stop = following if following is not None else last_nonzero(buffer, at, size) + 1
            yield f"{base + at:>20}  NO RECORD: {error.fault.value}, {stop - at} bytes"
            if following is None:
                break
            at = following
            continue
        yield _record_line(record, base + at)
        count += 1
        at += record.size
    yield f"{count} records"


def _record_line(record: Record, offset: int) -> str:
    parts = [
        f"{offset:>20}  {record.size:>6} {record.topic}:{record.queue_id} offset {record.queue_offset}",
        f"stored {time_text(record.store_timestamp)}",
        f"born {time_text(record.born_timestamp)} at {host_text(record.born_host)}",
        f"id {offset_message_id(record.store_host, offset)}",
    ]
    if record.log_offset != offset:
        parts.append(f"WRITTEN FOR {record.log_offset}")
    if record.prepared_offset == LOST_MARK:
        parts.append("LOST TO DAMAGE")
    elif record.prepared_offset:
        parts.append(f"prepared at {record.prepared_offset}")
    if record.sys_flag:
        parts.append(f"sysFlag {record.sys_flag:#x}")
    if record.flag:
        parts.append(f"flag {record.flag}")
    if record.reconsume_times:
        parts.append(f"reconsumed {record.reconsume_times}")
    if record.body_crc != body_crc(record.body):
        parts.append("BODY DOES NOT MATCH ITS CRC")
    parts.append(" ".join(f"{name}={value}" for name, value in decode_bytes(record.properties).items()))
    suffix = f"... {len(record.body)} bytes" if len(record.body) > _SHOWN else ""
    parts.append(f"{record.body[:_SHOWN]!r}{suffix}")
    return ", ".join(part for part in parts if part)


def _queue(region: Region, base: int) -> Lines:
    end = (last_nonzero(region.buffer, 0, region.size) // ENTRY_SIZE + 1) * ENTRY_SIZE
    yield f"queue file from offset {base // ENTRY_SIZE}, {end // ENTRY_SIZE} of {region.size // ENTRY_SIZE} entries"
    for number, (offset, size, code) in enumerate(ENTRY.iter_unpack(region.buffer[:end])):
        text = f"log offset {offset:>20}, {size:>7} bytes, "
        if is_pre_blank(offset, size):
            text = "pre-blank"
        elif size <= 0 or offset < 0:
            text += "INVALID"
        elif code == LOST:
            text += "lost to damage"
        elif queue_ext_layout.is_address(code):
            text += f"extension unit at {queue_ext_layout.to_offset(code)}"
        elif abs(code) > INT32_MAX + 1:
            text += f"delivered {time_text(code)}"
        else:
            text += f"tags code {code}"
        yield f"{base // ENTRY_SIZE + number:>12}  {text}"


def _ext(region: Region, base: int) -> Lines:
    yield f"extension file from {base}, {region.size} bytes"
    at = 0
    while (unit := queue_ext_layout.decode(region.buffer, at)) is not None:
        stored, bits = time_text(unit.store_timestamp), unit.bit_map.hex() or "none"
        yield f"{base + at:>12}  tags code {unit.tags_code}, stored {stored}, filter bits {bits}"
        at += unit.size
    is_marked = bytes(region.buffer[at : at + 2]) == queue_ext_layout.END_MARK
    yield f"{base + at:>12}  {'end mark' if is_marked else 'end'}"


def _index(region: Region, geometry: IndexGeometry | None) -> Lines:
    header = decode_header(region.buffer)
    geometry = geometry or IndexGeometry()
    yield (
        f"index file, {header.next_entry - 1} entries in {header.slots_used} slots; log offsets"
        f" {header.begin_log_offset} to {header.end_log_offset}, stored {time_text(header.begin_timestamp)} to"
        f" {time_text(header.end_timestamp)}"
    )
    if geometry.file_size != region.size:
        yield f"a file of {region.size} bytes does not have {geometry.slots} slots and {geometry.entries} entries"
        return
    table = IndexTable(region.buffer[: region.size], geometry)
    assert region.size > HEADER_SIZE
    for number in range(1, min(header.next_entry, geometry.entries)):
        key_hash, offset, seconds, previous = table.entry(number)
        text = f"hash {key_hash:>10} slot {key_hash % geometry.slots:>7}, log offset {offset:>20}"
        yield f"{number:>12}  {text}, +{seconds} s, after {previous}"


def _checkpoint(data: bytes) -> Lines:
    checkpoint = checkpoint_layout.decode(data)
    yield f"log flushed up to messages stored {time_text(checkpoint.log_timestamp)} ({checkpoint.log_timestamp})"
    yield f"queues up to {time_text(checkpoint.queue_timestamp)} ({checkpoint.queue_timestamp})"
    yield f"full index files up to {time_text(checkpoint.index_timestamp)} ({checkpoint.index_timestamp})"
    if checkpoint.master_flushed_offset or checkpoint.confirmed_offset:
        yield (
            f"5.x: master flushed offset {checkpoint.master_flushed_offset},"
            f" confirmed offset {checkpoint.confirmed_offset}"
        )


def _seal(data: bytes) -> Lines:
    seal = seal_layout.decode(data)
    if seal is None:
        yield "NO SEAL, or a damaged one"
        return
    yield f"seal of the log file from offset {seal.log_offset}, {seal.file_size} bytes in blocks of {seal.block_size}"
    for number, value in enumerate(seal.sums):
        begin, end = seal.block(number)
        yield f"{begin:>12} to {end:>12}  CRC-32C {value:08x}"


def _flushed(data: bytes) -> Lines:
    marks = list(flush_mark_layout.marks_in(data))
    if not marks:
        yield "NO FLUSH MARK, or damaged ones"
    for mark in marks:
        yield f"flushed up to {mark.log_offset}  CRC-32 {mark.tail_sum:08x} of the {mark.tail_size} bytes before"


def _json(data: bytes) -> Lines:
    from rocketlet.common import fastjson

    yield from json.dumps(fastjson.loads(data), indent=2, ensure_ascii=False).splitlines()


def time_text(ms: int) -> str:
    """Local time to the millisecond; a dash for none."""
    return moment_of(ms).isoformat(" ", "milliseconds") if ms > 0 else "-"


_SMALL: dict[str, Callable[[bytes], Lines]] = {
    "checkpoint": _checkpoint,
    "seal": _seal,
    "flushed": _flushed,
    "json": _json,
}
_LARGE: dict[str, Callable[[Region, int], Lines]] = {"log": _log, "queue": _queue, "ext": _ext}
KINDS = [*_LARGE, "index", *_SMALL]


def main(arguments: list[str]) -> int:
    """`python -m rocketlet.store.dump FILE [KIND]`"""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write(f"usage: python -m rocketlet.store.dump FILE [{'|'.join(KINDS)}]\n")
        return 2
    try:
        for line in dump(RealDisk(), arguments[0], arguments[1] if arguments[1:] else None):
            sys.stdout.write(line + "\n")
    except (StoreError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
