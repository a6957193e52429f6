"""Finding one message: by its log offset, its queue offset, its time, its key.

Pulls in order are in `reading.py`. A look-up may touch pages that are not in memory. Callers that make many, or that
any client may ask, use `with_cold_reads`: a worker thread reads what is missing, and the look-up begins again.
Otherwise the loop would stand still for each page, 5 ms on a slow disk. `at_once` is for callers that mostly find it in
memory.

Java: store/DefaultMessageStore.java#lookMessageByOffset, #getOffsetInQueueByTime, #queryMessage
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rocketlet.common.message_properties import index_keys
from rocketlet.common.message_record import Outline, check, decode, outline
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.disk import PAGE, Disk, Region
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.message import FoundByKey
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.offload import offload

Result = TypeVar("Result")


class NotInMemory(Exception):
    """A look-up that must not wait has come to something that only the disk has."""

    def __init__(self, region: Region, at: int, size: int) -> None:
        self.region = region
        self.at = at
        self.size = size


class Lookup:
    """Look-ups over log, queues and index."""

    config: StoreConfig

    def __init__(self, disk: Disk, log: CommitLog, queues: ConsumeQueueTable, index: MessageIndex) -> None:
        self._disk = disk
        self.log = log
        self.queues = queues
        self.index = index
        # What the present look-up has had read for it; None where it may wait.
        self._read: set[tuple[int, int, int]] | None = None

    def at_once(self, look_up: Callable[[], Result]) -> Result:
        """Make a look-up without waiting for the disk. Raises NotInMemory; `with_cold_reads` then has it read."""
        self._read = set()
        try:
            return look_up()
        finally:
            self._read = None

    async def with_cold_reads(self, look_up: Callable[[], Result]) -> Result:
        """Make a look-up; what it needs from the disk is read in a worker thread, and then it is made again."""
        read: set[tuple[int, int, int]] = set()
        while True:
            self._read = read
            try:
                return look_up()
            except NotInMemory as missing:
                region, at, size = missing.region, missing.at, missing.size
            finally:
                self._read = None
            await offload(self._disk, partial(region.read, at, size))
            read.add((id(region), at, size))

    def _need(self, file: MappedFile, at: int, size: int) -> None:
        """Have this part of a file in memory, if this look-up must not wait. It is one page or a record."""
        if self._read is None:
            return
        region = file.region
        size = min(size, file.size - at)
        if (id(region), at, size) not in self._read and region.read_now(at, size) is None:
            raise NotInMemory(region, at, size)

    def record_at(self, log_offset: int, size: int = 0) -> bytes | None:
        """The record that begins at an offset, byte for byte; None where none does, or none of the given size."""
        place = self._place(log_offset)
        if place is None:
            return None
        file, at, end = place
        buffer = file.buffer
        if self._read is not None:
            self._need(file, at, PAGE)
            self._need(file, at, min(max(int.from_bytes(buffer[at : at + 4], "big"), 0), end - at))
        record_size = check(buffer, at, end, False, log_offset)
        if not isinstance(record_size, int) or record_size != (size or record_size):
            return None
        return bytes(buffer[at : at + record_size])

    def store_time_of(self, log_offset: int) -> int:
        """When the record at an offset was stored; -1 where there is none."""
        place = self._place(log_offset)
        if place is None:
            return -1
        file, at, end = place
        self._need(file, at, PAGE)
        record = outline(file.buffer, at, end, False, log_offset)
        return record.store_timestamp if isinstance(record, Outline) else -1

    def _place(self, log_offset: int) -> tuple[MappedFile, int, int] | None:
        """(file, place in it, where the log ends in it)."""
        file = self.log.files.find(log_offset)
        if file is None or not self.log.begin <= log_offset < self.log.end:
            return None
        return file, log_offset - file.begin, min(self.log.end, file.end) - file.begin

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message of a queue offset was stored; -1 where there is none."""
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return -1
        entry = self.entry_at(queue, offset)
        return self.store_time_of(entry[0]) if entry is not None else -1

    def entry_at(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tags code) of an offset of a queue; None where there is none."""
        self.need_entry(queue, offset)
        return queue.entry(offset)

    def need_entry(self, queue: ConsumeQueue, offset: int) -> None:
        """Have the entry of an offset in memory, if this look-up must not wait."""
        if self._read is None:
            return
        file = queue.files.find(offset * ENTRY_SIZE)
        if file is not None:
            self._need(file, offset * ENTRY_SIZE - file.begin, ENTRY_SIZE)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 where there is none."""
        queue = self.queues.find(topic, queue_id)
        return self.store_time_at(topic, queue_id, queue.begin) if queue is not None else -1

    def offset_at_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first offset stored at or after a time; the end of the queue where all are older."""
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.search_time(timestamp, self.store_time_of, partial(self.need_entry, queue))

    def nearest_offset(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset stored nearest to a time, the earlier of two as near, as RocketMQ 4.9 answers."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or queue.begin == queue.end:
            return queue.end if queue is not None else 0
        following = queue.search_time(timestamp, self.store_time_of, partial(self.need_entry, queue))
        if following in (queue.begin, queue.end):
            return min(following, queue.end - 1)
        later, earlier = (
            self.store_time_at(topic, queue_id, following),
            self.store_time_at(topic, queue_id, following - 1),
        )
        return following if timestamp - earlier > later - timestamp else following - 1

    def find_by_key(self, topic: str, key: str, max_count: int, begin: int, end: int) -> FoundByKey:
        """Messages of a topic that carry a key, unique or not, stored within [begin, end] ms; oldest first."""
        statistics = self.index.statistics()
        result = FoundByKey([], statistics.end_timestamp, statistics.end_log_offset)
        limit = min(max_count, self.config.max_msgs_num_batch)
        for offset in sorted(set(self.index.find(topic, key, limit, begin, end))):
            record = self.record_at(offset)
            if record is not None and _has_key(record, topic, key):
                result.records.append((offset, record))
        return result


def _has_key(record: bytes, topic: str, key: str) -> bool:
    """Whether a record has this key: its hash alone may be that of another key."""
    message = decode(record)
    return message.topic == topic and key.encode() in index_keys(message.properties)
