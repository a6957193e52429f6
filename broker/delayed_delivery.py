"""The delivery of delayed messages: each level's queue in order, as each message becomes due.

One task per level. It sleeps until the next message is due, or until the level's queue grows; it never polls. The queue
entry's tags code is the delivery time. A message stored with a longer delay than its level has now is due now, as in
RocketMQ; one of a level that no longer exists keeps its time.

No message gets stuck or is delivered twice: - an offset outside the queue (its file was deleted, or a crash truncated
the queue) moves to the nearest end of the queue;
- an unreadable message is skipped, with a log line, and so is one that can never be stored at its destination (an
  illegal topic, longer than the current maxMessageSize): the log line names its place in the level's queue, where it
  stays readable. One that cannot be stored now is retried, in order, until it can;
- an offset is saved only when everything delivered up to it is on disk (`AfterFlush`); so the offset file may be older
  than the log, and after any crash it is corrected before the first delivery: delivered messages are in the log, with
  the same properties, and are found there (`Delivered`).

Java: broker/schedule/ScheduleMessageService.java
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from rocketlet.broker.delay_offsets import DelayOffsets
from rocketlet.broker.durability import AfterFlush
from rocketlet.broker.put_again import FilterBits, put_again, queue_id_of
from rocketlet.broker.statistics import Statistics
from rocketlet.common.clock import WallClock
from rocketlet.common.message_properties import REAL_QID, REAL_TOPIC, decode_bytes, find
from rocketlet.common.message_record import Record, decode
from rocketlet.common.topic import HALF_TOPIC, SCHEDULE_TOPIC, InvalidName, is_topic_name
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.errors import MessageIllegal, StoreError
from rocketlet.store.layout.consume_queue_entry import LOST, is_pre_blank
from rocketlet.store.layout.queue_ext_layout import is_address
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.delayed_delivery")

# Messages of a level delivered before other tasks run; 64 take about a millisecond.
BATCH: Final = 64
# The wall clock may be set while we sleep by the monotonic one: check it this often.
LONGEST_SLEEP_MS: Final = 10_000
SHORTEST_PAUSE: Final = 0.1  # seconds, after a message could not be stored; doubled each time up to the longest
LONGEST_PAUSE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a delayed message goes."""

    topic: str
    queue_id: int


SCHEDULE_GROUP = "SCHEDULE_CONSUMER"  # the group under which RocketMQ counts messages leaving the delay levels


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    delivered: int
    failed: int
    skipped: int


class DelayedDelivery:
    """The delivery of all levels. `settle` dispatches what was put and wakes waiters, as at the end of a server's
    turn."""

    def __init__(
        self,
        store: MessageStore,
        offsets: DelayOffsets,
        statistics: Statistics,
        clock: WallClock,
        settle: Callable[[], None],
        filter_bits: FilterBits,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._statistics = statistics
        self._clock = clock
        self._settle = settle
        self._filter_bits = filter_bits
        self._levels = store.config.delay_level_count
        self._next: dict[int, int] = {}  # by level; the part known to be on disk is in the offsets
        self._safe: dict[int, AfterFlush[int]] = {}
        self._delivered = self._failed = self._skipped = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled. REQUIRES an open store; call it once."""
        await self._catch_up()
        async with trio.open_nursery() as nursery:
            for level in self.levels():
                nursery.start_soon(self._deliver, level, name=f"delay level {level}")
            task_status.started()

    def levels(self) -> list[int]:
        """The configured levels, and those with messages from an earlier configuration."""
        on_disk = {queue.queue_id + 1 for queue in self._store.queues.of_topic(SCHEDULE_TOPIC)}
        return sorted(on_disk | set(range(1, self._levels + 1)))

    def progress(self) -> Iterator[tuple[int, int, int]]:
        """(level, next offset to deliver, end of its queue)."""
        for level in self.levels():
            yield level, self._offset_of(level), self._store.queue_end(SCHEDULE_TOPIC, level - 1)

    def statistics(self) -> DeliveryStatistics:
        return DeliveryStatistics(self._delivered, self._failed, self._skipped)

    def __repr__(self) -> str:
        return f"<DelayedDelivery {self.statistics()}>"

    # ---- one level

    async def _deliver(self, level: int) -> None:
        pause = SHORTEST_PAUSE
        while True:
            offset = self._place(level)
            queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
            if queue is None or offset >= queue.end:
                await self._store.watch(SCHEDULE_TOPIC, level - 1).reach(offset + 1)
                continue
            wait = self._wait(queue, level, offset)
            if wait > 0:
                await trio.sleep(min(wait, LONGEST_SLEEP_MS) / 1000)
                continue
            await self._store.with_cold_reads(partial(self._read_due, queue, level, offset))
            error = self._deliver_due(queue, level)
            if error is None:
                pause = SHORTEST_PAUSE
                await trio.lowlevel.checkpoint()
                continue
            self._failed += 1
            if pause == SHORTEST_PAUSE:
                log.error("level %d: a delayed message cannot be stored, and is tried again: %s", level, error)
            await trio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _place(self, level: int) -> int:
        """The next offset to deliver, moved into the range of the queue."""
        offset = self._offset_of(level)
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        begin, end = (queue.begin, queue.end) if queue is not None else (0, 0)
        placed = min(max(offset, begin), end)
        if placed != offset:
            log.warning(
                "level %d continues at %d: its offset %d is outside %d to %d", level, placed, offset, begin, end
            )
            self._advance(level, placed)
        return placed

    def _offset_of(self, level: int) -> int:
        return self._next.get(level, self._offsets.get(level))

    def _advance(self, level: int, offset: int) -> None:
        self._next[level] = offset
        safe = self._safe.get(level)
        if safe is None:
            safe = self._safe[level] = AfterFlush(self._store, lambda reached: self._offsets.set(level, reached))
        safe.note(offset)

    def _wait(self, queue: ConsumeQueue, level: int, offset: int) -> int:
        """Milliseconds until that message is due; 0 if it no longer exists."""
        due = self._due(queue, offset)
        if due is None:
            return 0
        wait = due - self._clock()
        if level <= self._levels and queue.delay_ms is not None and wait > queue.delay_ms:
            return 0  # the clock was set back, or the level was longer when the message was stored
        return wait

    def _due(self, queue: ConsumeQueue, offset: int) -> int | None:
        entry = queue.entry(offset)
        if entry is None or entry[2] == LOST:
            return None
        if queue.ext is None or not is_address(entry[2]):
            return entry[2]
        unit = queue.ext.read(entry[2])
        if unit is not None:
            return unit.tags_code
        return self._store.store_time_of(entry[0]) + (queue.delay_ms or 0)

    def _read_due(self, queue: ConsumeQueue, level: int, offset: int) -> None:
        """Read the next batch: two hours old, it may no longer be in memory."""
        for at in range(offset, min(offset + BATCH, queue.end)):
            self._store.need_entry(queue, at)
            if self._wait(queue, level, at) > 0:
                return
            entry = queue.entry(at)
            if entry is not None and not self._store.is_recent(entry[0]):
                self._store.record_at(entry[0], entry[1])

    def _deliver_due(self, queue: ConsumeQueue, level: int) -> StoreError | None:
        """Deliver due messages, up to a batch; stop at the first that cannot be stored, and return why."""
        failure = None
        offset = self._offset_of(level)
        for _ in range(BATCH):
            if offset >= queue.end or self._wait(queue, level, offset) > 0:
                break
            record, origin = self._message(queue, offset)
            if record is None or origin is None:
                self._skipped += 1
            else:
                try:
                    self._put(record, origin)
                except (MessageIllegal, InvalidName) as error:
                    self._skipped += 1
                    log.error(
                        "queue %d of %s: the message at %d can never be delivered to %s, and stays here: %s",
                        queue.queue_id,
                        SCHEDULE_TOPIC,
                        offset,
                        origin.topic,
                        error,
                    )
                except StoreError as error:
                    failure = error
                    break
            offset += 1
            self._next[level] = offset
        self._advance(level, offset)
        self._settle()
        return failure

    def _put(self, record: Record, origin: Origin) -> None:
        message = put_again(record, origin.topic, origin.queue_id)
        message.filter_bits = self._filter_bits(message.topic, message.properties)
        size = self._store.put(message).size
        self._delivered += 1
        # Counted as a send and as a consumption of the delayed message, like RocketMQ's enableScheduleMessageStats.
        self._statistics.put_flow(origin.topic, origin.queue_id).add(1, size)
        self._statistics.put.add(1, size)
        self._statistics.pull_flow(SCHEDULE_GROUP, SCHEDULE_TOPIC, record.queue_id).add(1, size)

    def _message(self, queue: ConsumeQueue, offset: int) -> tuple[Record | None, Origin | None]:
        """The delayed message at an offset and its destination; None if there is none or it has no destination."""
        entry = queue.entry(offset)
        if entry is None or entry[2] == LOST or is_pre_blank(entry[0], entry[1]):
            return None, None
        raw = self._store.record_at(entry[0], entry[1])
        if raw is None:
            log.error("queue %d of %s: the message at %d cannot be read", queue.queue_id, SCHEDULE_TOPIC, offset)
            return None, None
        record = decode(raw)
        origin = origin_of(record)
        if origin is None:
            log.error("queue %d of %s: the message at %d goes nowhere", queue.queue_id, SCHEDULE_TOPIC, offset)
        return record, origin

    # ---- after a restart

    async def _catch_up(self) -> None:
        """Move each level's offset past what was delivered before the process ended."""
        delivered = Delivered(self._store)
        for level in self.levels():
            queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
            offset = first = self._place(level)
            while queue is not None and offset < queue.end and self._wait(queue, level, offset) <= 0:
                record, origin = self._message(queue, offset)
                due = self._due(queue, offset)
                if record is not None and origin is not None and due is not None:  # noqa: SIM102
                    if not await delivered.take(record, origin, due):
                        break
                offset += 1
            if offset > first:
                log.info("level %d: %d messages were delivered already", level, offset - first)
                self._advance(level, offset)


class Delivered:
    """Finds delivered copies of delayed messages in their queues; each copy accounts for one message."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._copies: dict[Origin, Counter[tuple[object, ...]]] = {}
        self._read_from: dict[Origin, int] = {}

    async def take(self, record: Record, origin: Origin, due: int) -> bool:
        """Whether a copy was stored once the message was due. REQUIRES calls in the order of delivery."""
        await self._read(origin, due)
        copies = self._copies[origin]
        name = _name(record)
        if copies[name] <= 0:
            return False
        copies[name] -= 1
        return True

    async def _read(self, origin: Origin, since: int) -> None:
        """Count the copies in a queue stored since that time and not counted already."""
        begin = self._store.offset_at_time(origin.topic, origin.queue_id, since)
        queue = self._store.queue(origin.topic, origin.queue_id)
        copies = self._copies.setdefault(origin, Counter())
        stop = self._read_from.get(origin, queue.end if queue is not None else 0)
        for offset in range(begin, stop):
            assert queue is not None
            if offset % BATCH == 0:
                await trio.lowlevel.checkpoint()
            entry = queue.entry(offset)
            raw = None if entry is None or entry[2] == LOST else self._store.record_at(entry[0], entry[1])
            if raw is None:
                continue
            copy = decode(raw)
            if find(copy.properties, b"REAL_TOPIC") and find(copy.properties, b"DELAY"):
                copies[_name(copy)] += 1
        self._read_from[origin] = min(begin, stop)


def origin_of(record: Record) -> Origin | None:
    """Where a delayed message goes; None if it does not say, or has to stay hidden."""
    properties = decode_bytes(record.properties)
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QID, "")
    queue = queue_id_of(queue_id)
    if topic == HALF_TOPIC or not is_topic_name(topic) or queue is None:
        return None
    return Origin(topic, queue)


def _name(record: Record) -> tuple[object, ...]:
    """The identity shared by a delayed message and its delivered copy, and by no other message."""
    return record.properties, record.body_crc, record.born_timestamp, record.born_host, record.reconsume_times
