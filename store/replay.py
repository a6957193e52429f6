"""Filing records that were appended elsewhere: a slave's log comes as bytes, and queues and index are made from it.

A record names its queue and its offset, so this is dispatch without a put before it. What a master may do to its queues
is repeated here: a topic that was deleted and recreated starts at 0 again; a queue of which the log has lost messages
continues after a gap whose entries are `LOST`, so that offsets stay.

Java: store/DefaultMessageStore.java (ReputMessageService), store/CommitLog.java#checkMessageAndReturnSize
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_flags import (
    COMMIT,
    NOT_TRANSACTION,
    ROLLBACK,
    TRANSACTION_MASK,
    gets_index_entry,
    gets_queue_entry,
)
from rocketlet.common.message_properties import tags_and_keys
from rocketlet.common.message_record import Buffer, Outline
from rocketlet.common.topic import is_legal_name
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.dispatch import Dispatch, NotedEntries, NotedRecords
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, LOST, pack_entries
from rocketlet.store.layout.queue_rules import LOST_MARK, entry_code
from rocketlet.store.record_columns import RecordColumns, record_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

_log = logging.getLogger("rocketlet.store.replay")

# More lost messages than this in one place are not believed: no checksum covers a queue offset.
_LOST_AT_MOST = 1 << 16

FilterBits = Callable[[str, bytes], bytes]


class Replay:
    """Takes records in the order of the log, and notes them for the dispatch. REQUIRES settled queues at the begin."""

    def __init__(self, queues: ConsumeQueueTable, dispatch: Dispatch, filter_bits: FilterBits) -> None:
        self._queues = queues
        self._dispatch = dispatch
        self._filter_bits = filter_bits
        self._by_name: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._unnamed_queue = queues.detached()  # for records whose names are no names

    def note(self, log_offset: int, record: Outline) -> None:
        """One record; `Dispatch.settle` files it. Raises OSError where a queue that starts again cannot be cut."""
        size, queue_id, queue_offset, sys_flag, timestamp, prepared_offset, topic, properties = record
        queue = self._by_name.get((topic, queue_id))
        if queue is None or self._queues.queues.get((queue.topic, queue_id)) is not queue:
            queue = self._queue_of(topic, queue_id)
        tags, keys = tags_and_keys(properties)
        if prepared_offset == LOST_MARK:
            keys = []
        if queue is None:
            # Java files no queue for it either; it still moves the end of what is dispatched.
            queue, queue_offset, keys = self._unnamed_queue, -1, []
        elif not gets_queue_entry(sys_flag):
            queue_offset = -1
            keys = keys if gets_index_entry(sys_flag) else []
        elif queue_offset != queue.next_offset:
            queue = self._jump(queue, queue_offset, log_offset, size, timestamp)
        code = 0
        bits = b""
        if queue_offset >= 0:
            queue.next_offset = queue_offset + 1
            code = entry_code(record, tags, self._queues.delays)
            bits = self._filter_bits(queue.topic, properties) if queue.ext is not None else b""
        self._dispatch.noted.append((queue, queue_offset, log_offset, size, code, timestamp, keys, bits))

    def note_many(self, buffer: Buffer, places: list[int], end: int, base: int) -> bool:
        """`note` of all records at these places of a log file that begins at `base`, together. False, with nothing
        noted, where one of them is no record, or its queue does not simply go on; then they have to come one by one.

        REQUIRES: each is as long as it says, and ends before `end`.
        """
        import numpy

        columns = record_columns(buffer, places, end, base, self._queues.delays)
        if columns is None:
            return False
        is_filed = numpy.array([is_legal_name(topic.decode("utf-8", "replace")) for topic in columns.topics])[
            columns.topic_of
        ] & (columns.queue_ids >= 0)
        kinds = columns.sys_flags & TRANSACTION_MASK
        rows = (is_filed & ((kinds == NOT_TRANSACTION) | (kinds == COMMIT))).nonzero()[0]
        noted: list[NotedEntries] = []
        for group in columns.by_queue(rows):
            queue = self._continuing_queue(columns, group)
            if queue is None:
                return False
            noted.append(
                NotedEntries(
                    queue,
                    int(columns.queue_offsets[group[0]]),
                    pack_entries(columns.log_offsets[group], columns.sizes[group], columns.tags_codes[group]),
                )
            )
        for queue, queue_offset, entries in noted:
            queue.next_offset = queue_offset + len(entries) // ENTRY_SIZE
        keys = columns.keys_of(is_filed & (kinds != ROLLBACK))
        self._dispatch.noted.append(NotedRecords(columns.log_offsets, columns.sizes, columns.timestamps, noted, keys))
        return True

    def _continuing_queue(self, columns: RecordColumns, rows: NDArray[Any]) -> ConsumeQueue | None:
        """The queue of these records; None where their offsets are not the next ones, or entries need more than they
        have."""
        topic, queue_id = columns.topics[columns.topic_of[rows[0]]], int(columns.queue_ids[rows[0]])
        queue = self._by_name.get((topic, queue_id))
        if queue is None or self._queues.queues.get((queue.topic, queue_id)) is not queue:
            queue = self._queue_of(topic, queue_id)
        offsets = columns.queue_offsets[rows]
        first = int(offsets[0])
        if queue is None or queue.ext is not None or first < 0:
            return None
        if first != queue.next_offset and (queue.files.files or queue.next_offset):
            return None
        return queue if bool((offsets[1:] - offsets[:-1] == 1).all()) else None

    def _queue_of(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        name = topic.decode("utf-8", "replace")
        if not is_legal_name(name) or queue_id < 0:
            return None
        queue = self._queues.find_or_make(name, queue_id)
        self._by_name[topic, queue_id] = queue
        return queue

    def _jump(self, queue: ConsumeQueue, offset: int, log_offset: int, size: int, timestamp: int) -> ConsumeQueue:
        """The queue as it has to be for a record whose offset is not the next one."""
        if not queue.files.files and queue.next_offset == 0:
            return queue  # its first record ever: entries before it are pre-blank
        if queue.next_offset < offset <= queue.next_offset + _LOST_AT_MOST:
            _log.warning("%r: the log has lost the messages up to %d", queue, offset)
            note = self._dispatch.noted.append
            for lost in range(queue.next_offset, offset):
                note((queue, lost, log_offset, size, LOST, timestamp, (), b""))
            return queue
        self._dispatch.settle(all_of_it=True)  # a queue is not cut while entries of it wait
        _log.info("%r starts again at %d, as at its master", queue, offset)
        if queue.files.begin // ENTRY_SIZE <= offset < queue.end:
            queue.cut(offset)
            queue.watermark = None
            return queue
        topic, queue_id = queue.topic, queue.queue_id
        self._queues.drop([queue])
        emptied = self._queues.find_or_make(topic, queue_id)
        self._by_name[topic.encode(), queue_id] = emptied
        return emptied
