"""A store in memory, compared with a plain list of what was put into it.

`StoreModel` drives a real MessageStore on a MemoryDisk, records every appended message, and after each crash requires:
the log is a prefix of the list; no flushed message is missing; each record is identical byte for byte; queues, index
and zeros after the ends agree with the list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import trio

from rocketlet.common.java_numbers import string_hash
from rocketlet.common.message_flags import PREPARED, ROLLBACK, TRANSACTION_MASK
from rocketlet.common.message_record import record_size, topic_field
from rocketlet.store.config import StoreConfig
from rocketlet.store.errors import PutRefused
from rocketlet.store.memory_disk import MemoryDisk, PowerCut
from rocketlet.store.message import Appended, Put
from rocketlet.store.message_store import MessageStore
from rocketlet.store.recovery import RecoveryReport
from tests.support.column_runs import column_run

Result = TypeVar("Result")
ROOT = "/store"
HOST = bytes((10, 0, 0, 5, 0, 0, 0x2A, 0x9F))


def small_config(**changes: Any) -> StoreConfig:
    """Files so small that a few messages fill each kind."""
    settings: dict[str, Any] = {
        "store_path_root_dir": ROOT,
        "mapped_file_size_commit_log": 2048,
        "mapped_file_size_consume_queue": 100,
        "max_hash_slot_num": 7,
        "max_index_num": 12,
        "disk_free_floor": 0,
        "disk_free_enough": 0,
        "max_message_size": 1500,
    }
    return StoreConfig(**{**settings, **changes})


def message(
    topic: str, queue_id: int, body: bytes, keys: tuple[bytes, ...] = (), tags: bytes = b"", **more: Any
) -> Put:
    """A message with these keys and tags in its properties."""
    properties = []
    if keys:
        properties.append(b"UNIQ_KEY\x01" + keys[0])
    if keys[1:]:
        properties.append(b"KEYS\x01" + b" ".join(keys[1:]))
    if tags:
        properties.append(b"TAGS\x01" + tags)
    code = string_hash(tags.decode()) if tags else 0
    return Put(topic, queue_id, body, b"\x02".join(properties), code, keys, born_host=HOST, store_host=HOST, **more)


@dataclass
class Kept:
    """One record as it was appended."""

    put: Put
    at: Appended
    raw: bytes

    @property
    def has_entry(self) -> bool:
        return self.put.sys_flag & TRANSACTION_MASK not in (PREPARED, ROLLBACK)


class StoreModel:
    """See the module's docstring. Times increase by 7 ms per message."""

    def __init__(self, config: StoreConfig, page_size: int = 128) -> None:
        self.config = config
        self.disk = MemoryDisk(page_size=page_size)
        self.now = 1_700_000_000_000
        self.kept: list[Kept] = []
        self.durable = 0  # how many of them are known to be flushed
        self.begin_seen = 0  # the highest begin of the log: before it retention may have deleted queue and index files
        self.crashes = 0
        self.written = False  # since the store was opened
        self.empty_lives = 0  # before this one, in a row: openings that nothing was written after
        self.is_checked = False  # all of it, with nothing done since
        self.store = self._new()
        self.report = self.run(self.store.open)

    def run(self, function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
        self.is_checked = False
        return trio.run(function, *arguments)

    def _new(self) -> MessageStore:
        return MessageStore(self.disk, self.config, lambda: self.now, on_progress=lambda _: None)

    # ---- events

    def put(self, *puts: Put) -> list[Appended]:
        """Append one message, or several as a batch, without dispatch."""
        self.now += 7
        self.written, self.is_checked = True, False
        try:
            appended = [self.store.put(puts[0])] if len(puts) == 1 else self.store.put_batch(puts)
        except PutRefused:
            return []
        self._keep(puts, appended)
        return appended

    def put_alike(self, puts: Sequence[Put]) -> None:
        """Append messages of which a column run can be made; one by one where the store takes none."""
        self.now += 7
        self.written, self.is_checked = True, False
        run = self.store.put_columns(column_run(puts))
        if run is None:
            for put in puts:
                self.put(put)
            return
        columns = run.log_offsets.tolist(), run.sizes.tolist(), run.queue_offsets.tolist()
        self._keep(
            puts, [Appended(at, size, number, self.now, at + size) for at, size, number in zip(*columns, strict=True)]
        )

    def _keep(self, puts: Sequence[Put], appended: Sequence[Appended]) -> None:
        for put, at in zip(puts, appended, strict=True):
            view = self.store.log.read(at.log_offset, at.size)
            assert view is not None
            self.kept.append(Kept(put, at, bytes(view)))

    def put_ending_at(self, topic: str, queue_id: int, inside: int) -> None:
        """Append a message without properties whose record ends at that byte of a page."""
        bare = record_size(0, topic_field(topic), 0)
        self.put(message(topic, queue_id, b"x" * ((inside - self.store.log.end - bare) % self.disk.page_size)))

    def note_flushed(self) -> None:
        while self.durable < len(self.kept) and self.kept[self.durable].at.end <= self.store.flushed.value:
            self.durable += 1

    def close(self) -> None:
        self.run(self.store.close)
        self.note_flushed()

    def open(self) -> RecoveryReport:
        """Open the directory as it is; a power cut meanwhile is a crash."""
        self.empty_lives = 0 if self.written else self.empty_lives + 1
        self.written = False
        self.store = self._new()
        self.report = self.run(self.store.open)
        self.check()
        self.is_checked = True
        self.durable = len(self.kept)
        return self.report

    def crash(self, random: Random) -> None:
        """A power cut; any subset of what was not flushed is lost."""
        self.note_flushed()
        self.crashes += 1
        self.disk = self.disk.crash(random)

    def kill(self) -> None:
        """The process dies; the machine does not."""
        self.disk = self.disk.copy()

    def crash_and_open(self, random: Random, cuts: tuple[int, ...] = ()) -> RecoveryReport:
        """A crash, possibly with more of them during recovery, until a recovery succeeds."""
        self.crash(random)
        for after in cuts:
            self.disk.power_cut_in = after
            self.store = self._new()
            try:
                self.run(self.store.open)
            except PowerCut:
                self.crashes += 1
                self.disk = self.disk.crash(random)
            else:
                self.crashes += 1
                self.disk.power_cut_in = None
                self.disk = self.disk.crash(random)
        return self.open()

    def retain(self) -> bool:
        """Retention deletes the oldest log file, if it may."""
        deleted = self.run(self._tick)
        self.begin_seen = max(self.begin_seen, self.store.log.begin)
        return deleted

    async def _tick(self) -> bool:
        return await self.store._retention.tick(requested=True)

    # ---- invariants

    def check(self) -> None:
        """Compare the store with the list; truncate the list where the store ends."""
        store = self.store
        end = store.log.end
        assert not self.report.losses, self.report.lines()
        survivors = [one for one in self.kept if one.at.end <= end]
        assert len(survivors) >= self.durable, (
            f"{self.durable - len(survivors)} flushed records are lost: {self.report.lines()}"
        )
        self.kept = self.kept[: len(survivors)]
        self._check_end(end)
        for one in self.kept:
            if one.at.log_offset < store.log.begin:
                continue
            assert store.record_at(one.at.log_offset) == one.raw, f"{one.at}: {self.report.lines()}"
        self._check_queues()
        self._check_index()
        self._check_pulls()

    def _check_pulls(self) -> None:
        """Check what a consumer gets when pulling each queue from its beginning."""
        begin = self.store.log.begin
        for queue in self.store.queues:
            offset, pulled = queue.begin, b""
            while (result := self.store.get(queue.topic, queue.queue_id, offset, 32)).count:
                pulled += result.body()
                offset = result.next_offset
            expected = [
                kept.raw for kept in self.kept
                if kept.has_entry and (kept.put.topic, kept.put.queue_id) == (queue.topic, queue.queue_id)
                and kept.at.log_offset >= begin and kept.at.queue_offset >= queue.begin
            ]  # fmt: skip
            assert pulled == b"".join(expected), queue

    def _check_end(self, end: int) -> None:
        last = self.kept[-1].at.end if self.kept else self.store.log.begin
        size = self.config.mapped_file_size_commit_log
        assert end == last or (end % size == 0 and last <= end <= last - last % size + size)
        file = self.store.log.files.find(end)
        if file is not None:
            assert not any(file.buffer[end - file.begin :]), "something is left behind the end of the log"
        assert all(file.begin <= end for file in self.store.log.files.files)

    def _check_queues(self) -> None:
        expected: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
        for kept in self.kept:
            if kept.has_entry:
                entry = (kept.at.queue_offset, kept.at.log_offset, kept.at.size, kept.put.tags_code)
                expected.setdefault((kept.put.topic, kept.put.queue_id), []).append(entry)
        begin = self.store.log.begin
        for queue in self.store.queues:
            entries = expected.pop((queue.topic, queue.queue_id), [])
            assert queue.next_offset == queue.end == (entries[-1][0] + 1 if entries else 0), queue
            first = next((offset for offset, log_offset, _, _ in entries if log_offset >= begin), queue.end)
            # A crash may bring a deleted log file back, whose queue entries are gone for good.
            last = next((offset for offset, log_offset, _, _ in entries if log_offset >= self.begin_seen), queue.end)
            assert first <= queue.begin <= last, queue
            for offset, log_offset, size, code in entries:
                if offset >= queue.begin:
                    assert queue.entry(offset) == (log_offset, size, code)
            for file in queue.files.files:
                inside = max(queue.end * 20 - file.begin, 0)
                assert not any(file.buffer[inside:]), f"something is left behind the end of {queue}"
        assert not [key for key, entries in expected.items() if entries[-1][1] >= begin]

    def _check_index(self) -> None:
        carrying: dict[tuple[str, str], list[int]] = {}
        begin = max(self.store.log.begin, self.begin_seen)
        for kept in self.kept:
            if kept.put.sys_flag & TRANSACTION_MASK != ROLLBACK and kept.at.log_offset >= begin:
                for key in kept.put.keys:
                    carrying.setdefault((kept.put.topic, key.decode()), []).append(kept.at.log_offset)
        for (topic, key), offsets in carrying.items():
            records = self.store.find_by_key(topic, key, 1000, 0, 1 << 62).records
            offsets_found = [offset for offset, _ in records if offset >= begin]
            limit = self.config.max_msgs_num_batch
            assert offsets_found[-limit:] == sorted(set(offsets))[-limit:], f"{topic} {key}"
        entries = sum(len(offsets) for offsets in carrying.values())
        there = sum(
            1 for file in self.store.index.files for number in range(1, file.count + 1)
            if file.table.entry(number)[1] >= begin
        )  # fmt: skip
        assert there == entries, f"{there} index entries where {entries} should be"

    def verify(self) -> None:
        """Compare a running store with the list, after dispatch."""
        self._check_end(self.store.log.end)
        self._check_queues()
        self._check_index()
