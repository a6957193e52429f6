"""Filing records that were appended elsewhere: a slave's log comes as bytes, and queues and index are made from it.

A record names its queue and its offset, so this is dispatch without a put before it. What a master may do to its queues
is repeated here: a topic that was deleted and recreated starts at 0 again; a queue of which the log has lost messages
continues after a gap whose entries are `LOST`, so that offsets stay.

Java: store/DefaultMessageStore.java (ReputMessageService), store/CommitLog.java#checkMessageAndReturnSize
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketlet.common.message_flags import gets_index_entry, gets_queue_entry
from rocketlet.common.message_properties import tags_and_keys
from rocketlet.common.message_record import Outline
from rocketlet.common.topic import is_legal_name
from rocketlet.store.consume_queue import LOST, ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.dispatch import Dispatch
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE
from rocketlet.store.layout.queue_rules import entry_code

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
        self._nowhere = queues.detached()  # for records whose names are no names

    def note(self, log_offset: int, record: Outline) -> None:
        """One record; `Dispatch.settle` files it. Raises OSError where a queue that starts again cannot be cut."""
        size, queue_id, queue_offset, sys_flag, timestamp, _, topic, properties = record
        queue = self._by_name.get((topic, queue_id))
        if queue is None or self._queues.queues.get((queue.topic, queue_id)) is not queue:
            queue = self._queue_of(topic, queue_id)
        tags, keys = tags_and_keys(properties)
        if queue is None:
            # Java files no queue for it either; it still moves the end of what is dispatched.
            queue, queue_offset, keys = self._nowhere, -1, []
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
        again = self._queues.find_or_make(topic, queue_id)
        self._by_name[topic.encode(), queue_id] = again
        return again
