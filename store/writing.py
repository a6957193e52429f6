"""Appending to the log: a message, a batch, or a run of messages that share most of their fields.

Nothing is written of what is refused, and nothing at all while there is a refusal: a store that is not open, that
follows another one's log, or whose disk is full.

Java: store/CommitLog.java (putMessage, putMessages), store/DefaultMessageStore.java (checkStoreStatus, checkMessage)
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from rocketlet.common.clock import WallClock
from rocketlet.common.message_flags import PREPARED, ROLLBACK, TRANSACTION_MASK
from rocketlet.common.message_record import HEAD_SIZE, PROPERTIES_MAX
from rocketlet.common.topic import RETRY_TOPIC_MAX_LENGTH, check_topic_name
from rocketlet.store.column_run import AppendedColumns, ColumnRun
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.dispatch import Dispatch, NotedEntries, NotedRecords
from rocketlet.store.errors import (
    Closed,
    DiskFull,
    MessageIllegal,
    NotWritable,
    PropertiesTooLarge,
    PutRefused,
    SystemRefuses,
)
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, pack_entries
from rocketlet.store.layout.index_layout import IndexColumns
from rocketlet.store.message import Appended, Put
from rocketlet.store.message_run import AppendedRun, Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

_log = logging.getLogger("rocketlet.store.writing")

_SPARE = 65536  # a record may be longer than the longest body by this
_HEAD_AND_LENGTH = HEAD_SIZE + 2


class Writing:
    """Of one store. `refusal` is why nothing is taken, None while messages are; `count`, `failed_count` and `bytes` are
    of all that was put."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueTable,
        dispatch: Dispatch,
        config: StoreConfig,
        clock: WallClock,
        refusal: NotWritable | Closed,
    ) -> None:
        self.config = config
        self.refusal: NotWritable | Closed | None = refusal
        self.count = self.failed_count = self.bytes = 0
        self._log = log
        self._queues = queues
        self._dispatch = dispatch
        self._clock = clock

    def refuse(self, error: NotWritable) -> None:
        """Take nothing from now on, unless there is a reason for that already."""
        if self.refusal is None:
            _log.error("sends are refused from now on: %s", error)
            self.refusal = error

    def put(self, message: Put) -> Appended:
        """Append one message to the log. Raises PutRefused, with nothing written."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        queue = self._queues.queues.get((message.topic, message.queue_id))
        if queue is None:
            queue = self._new_queue(message.topic, message.queue_id)
        try:
            size = self._size_of(message, queue)
            return self._append(message, queue, size)
        except PutRefused:
            # Properties of too many characters RocketMQ refuses before it counts; those of too many bytes after.
            if _characters(message.properties) <= PROPERTIES_MAX:
                self.failed_count += 1
            raise

    def put_batch(self, messages: Sequence[Put]) -> list[Appended]:
        """Append messages one after another in one file: all or none. Raises PutRefused, with nothing written."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        sized = []
        for message in messages:
            queue = self._queues.queues.get((message.topic, message.queue_id))
            if queue is None:
                queue = self._new_queue(message.topic, message.queue_id)
            sized.append((message, queue, self._size_of(message, queue)))
        try:
            for queue, count in Counter(queue for _, queue, _ in sized).items():
                self._prepare(queue, count)
            self._log.make_room(sum(size for _, _, size in sized))
        except PutRefused as error:
            self._has_no_room(error)
            raise
        return [self._append(message, queue, size) for message, queue, size in sized]

    def put_run(self, run: Run) -> AppendedRun:
        """`put_batch` of messages that share all but body, flag, properties and what follows from these.

        Raises PutRefused, with nothing written.
        """
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        topic, queue_id = run.shared.topic, run.shared.queue_id
        queue = self._queues.queues.get((topic, queue_id)) or self._new_queue(topic, queue_id)
        assert queue.delay_ms is None
        if queue.ext is not None and self._queues.writes_ext:
            return AppendedRun.of(self.put_batch(run.puts()))  # each entry refers to a unit of its own
        sizes = run.sizes(queue.topic_field)
        ends = sizes.cumsum()
        size, count = int(ends[-1]), len(sizes)
        # If the longest record is within the limit, so is each message.
        is_long = run.longest_properties > PROPERTIES_MAX or int(sizes.max()) > self.config.max_message_size
        if is_long or run.has_zero_properties():
            for message in run.puts():
                self._size_of(message, queue)
        try:
            if queue.next_offset + count > queue.prepared:
                self._prepare(queue, count)
            begin = self._log.room_for(size)
        except PutRefused as error:
            self._has_no_room(error)
            raise
        now, queue_offset = self._clock(), queue.next_offset
        log_offsets = begin + ends - sizes
        self._log.append_run(run.encode(queue.topic_field, sizes, log_offsets, queue_offset, now))
        queue.next_offset += count
        entries = pack_entries(log_offsets, sizes, run.tags_codes)
        hashes, keys_each = run.key_hashes(queue.hash_prefix)
        keys = IndexColumns(hashes, log_offsets.repeat(keys_each), now)
        self._note(log_offsets, sizes, now, [NotedEntries(queue, queue_offset, entries)], keys)
        self.count += count
        self.bytes += size
        return AppendedRun(log_offsets, size, queue_offset, now, begin + size)

    def put_columns(self, run: ColumnRun) -> AppendedColumns | None:
        """`put` of each message, in one step; or None, with nothing written, where they have to be put one by one: one
        of them may be refused, or is the first of its queue, or they do not fit into one file."""
        if self.refusal is not None:
            return None
        topic = run.shared.topic
        sizes = run.sizes()
        ends = sizes.cumsum()
        size, count = int(ends[-1]), len(sizes)
        # If the longest record is within the limit, so is each message.
        is_long = run.properties_size > PROPERTIES_MAX or int(sizes.max()) > self.config.max_message_size
        if is_long or not self._log.fits_in_file(size):
            return None
        queues = list[tuple[ConsumeQueue, int]]()
        for queue_id, messages in sorted(Counter(run.queue_ids.tolist()).items()):
            queue = self._queues.queues.get((topic, queue_id))
            if queue is None or queue.delay_ms is not None or queue.ext is not None:
                return None
            queues.append((queue, messages))
        try:
            for queue, messages in queues:
                if queue.next_offset + messages > queue.prepared:
                    self._prepare(queue, messages)
            begin = self._log.room_for(size)
        except PutRefused:
            return None
        import numpy

        by_queue = run.queue_ids.argsort(kind="stable")
        offsets = (range(queue.next_offset, queue.next_offset + messages) for queue, messages in queues)
        queue_offsets = numpy.empty(count, numpy.int64)
        queue_offsets[by_queue] = numpy.fromiter(chain.from_iterable(offsets), numpy.int64, count)
        now, log_offsets = self._clock(), begin + ends - sizes
        self._log.append_run(run.encode(sizes, log_offsets, queue_offsets, now))
        sizes_by_queue = sizes[by_queue]
        packed = pack_entries(log_offsets[by_queue], sizes_by_queue, run.tags_codes[by_queue])
        noted, firsts, first = list[NotedEntries](), list[int](), 0
        for queue, messages in queues:
            entries = packed[first * ENTRY_SIZE : (first + messages) * ENTRY_SIZE]
            noted.append(NotedEntries(queue, queue.next_offset, entries))
            queue.next_offset += messages
            firsts.append(first)
            first += messages
        hashes = run.key_hashes
        keys = IndexColumns(hashes.ravel(), log_offsets.repeat(hashes.shape[1]), now)
        self._note(log_offsets, sizes, now, noted, keys)
        self.count += count
        self.bytes += size
        totals = numpy.add.reduceat(sizes_by_queue, firsts).tolist()
        flows = [(queue.queue_id, messages, total) for (queue, messages), total in zip(queues, totals, strict=True)]
        return AppendedColumns(log_offsets, sizes, queue_offsets, flows, begin + size)

    def _note(
        self,
        log_offsets: NDArray[Any],
        sizes: NDArray[Any],
        timestamp: int,
        entries: list[NotedEntries],
        keys: IndexColumns,
    ) -> None:
        import numpy

        timestamps = numpy.empty(len(sizes), numpy.int64)
        timestamps.fill(timestamp)
        self._dispatch.noted.append(NotedRecords(log_offsets, sizes, timestamps, entries, keys))

    def _size_of(self, message: Put, queue: ConsumeQueue) -> int:
        """The size of its record; raises where it breaks a limit."""
        properties_size, body_size = len(message.properties), len(message.body)
        if properties_size > PROPERTIES_MAX:
            raise PropertiesTooLarge(f"{properties_size} bytes of properties; a message holds at most {PROPERTIES_MAX}")
        if 0 in message.properties:
            # No checksum covers properties. That none holds a zero is what tells a record from one whose last sectors
            # never reached the disk; a recovery would have to cut the log there, and all that follows with it.
            raise MessageIllegal("a property holds the character U+0000, which cannot be stored; remove it")
        size = (
            _HEAD_AND_LENGTH - 16 + len(message.born_host) + len(message.store_host)
            + body_size + len(queue.topic_field) + properties_size
        )  # fmt: skip
        limit = self.config.max_message_size
        if body_size > limit or size > limit + _SPARE:
            raise MessageIllegal(f"a message of {body_size} bytes; maxMessageSize allows {limit}")
        return size

    def _append(self, message: Put, queue: ConsumeQueue, size: int) -> Appended:
        now = self._clock()
        kind = message.sys_flag & TRANSACTION_MASK
        if kind != PREPARED and kind != ROLLBACK:
            queue_offset = queue.next_offset
            noted_offset = queue_offset
            if queue_offset >= queue.prepared:
                self._prepare(queue, 1)
        else:
            queue_offset, noted_offset = 0, -1
        try:
            offset = self._log.append(
                size, message.queue_id, message.flag, queue_offset, message.sys_flag, message.born_timestamp,
                message.born_host, now, message.store_host, message.reconsume_times, message.prepared_offset,
                message.body, queue.topic_field, message.properties,
            )  # fmt: skip
        except DiskFull as error:
            self.refuse(error)
            raise
        if noted_offset >= 0:
            queue.next_offset = queue_offset + 1
        tags_code = message.tags_code if queue.delay_ms is None else now + queue.delay_ms
        keys = message.keys if kind != ROLLBACK else ()
        self._dispatch.noted.append((queue, noted_offset, offset, size, tags_code, now, keys, message.filter_bits))
        self.count += 1
        self.bytes += size
        return Appended(offset, size, queue_offset, now, offset + size)

    def _has_no_room(self, error: PutRefused) -> None:
        """A batch cannot be written. RocketMQ counts that, and no batch with an illegal message."""
        self.failed_count += 1
        if isinstance(error, DiskFull):
            self.refuse(error)

    def _prepare(self, queue: ConsumeQueue, count: int) -> None:
        """See that a queue has room for the entries of so many messages. Raises NotWritable; others go on."""
        try:
            queue.prepare(count)
        except OSError as error:
            refusal = refusal_of(error, queue.files.directory)
            if isinstance(refusal, DiskFull):
                self.refuse(refusal)
            else:
                _log.error("a message to %s:%d is refused: %s", queue.topic, queue.queue_id, refusal)
            raise refusal from error

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        check_topic_name(topic)
        if len(topic.encode()) > RETRY_TOPIC_MAX_LENGTH:
            raise MessageIllegal(f"the topic {topic[:40]}... is longer than {RETRY_TOPIC_MAX_LENGTH} bytes")
        return self._queues.find_or_make(topic, queue_id)


# What the system has too little of, and the setting that gives more.
_TOO_LITTLE = {
    errno.EMFILE: "this process may not open more files: raise LimitNOFILE or `ulimit -n`",
    errno.ENFILE: "the system may not open more files: raise fs.file-max",
    errno.ENOMEM: "this process may not map more files: raise vm.max_map_count, or give topics fewer queues",
}


def _characters(properties: bytes) -> int:
    """As Java counts them, two for one beyond U+FFFF."""
    return len(properties.decode("utf-8", "replace").encode("utf-16-le")) // 2


def refusal_of(error: OSError, path: str) -> NotWritable:
    """Why a file could not be made or written, by the right name."""
    place = error.filename or path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{place}: {error.strerror}; free some space. Reads continue")
    reason = _TOO_LITTLE.get(
        error.errno or 0, f"{error.strerror}; look at the permissions and the disk of this directory"
    )
    return SystemRefuses(f"{place}: {reason}. Reads go on")
