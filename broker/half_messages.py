"""Half messages and their outcomes: commit, rollback, another copy, given up. The first end of each wins.

A transactional message waits in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with its origin in REAL_TOPIC and REAL_QID. Its end
is an entry in RMQ_SYS_TRANS_OP_HALF_TOPIC that names its offset in the half queue; on commit the message is stored a
second time, at its destination, just before that entry. Both are appended together, so a crash can separate them only
at the very end of the log: then the message exists without the entry, and `recover` writes it. The files are those of
RocketMQ 4.9.8; the offsets of CID_RMQ_SYS_TRANS record how far both queues are done.

Unlike RocketMQ, a second end is refused, even through an older copy of the message, even after a restart.

Everything here is a plain `def`, so nothing happens between reading a state and changing it.

Java: broker/transaction/queue/TransactionalMessageBridge.java, broker/processor/EndTransactionProcessor.java
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rocketlet.broker.at_once import at_once
from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.broker.delay_levels import InvalidDelay, delay, delay_level
from rocketlet.broker.durability import AfterFlush
from rocketlet.broker.identity import Identity
from rocketlet.broker.property_text import rewritten
from rocketlet.broker.put_again import FilterBits, put_again, queue_id_of
from rocketlet.broker.topic_table import TopicTable
from rocketlet.broker.transaction_states import Place, TransactionStates, TransactionStatistics
from rocketlet.common.clock import WallClock
from rocketlet.common.errors import RocketletError
from rocketlet.common.java_numbers import INT64_MAX
from rocketlet.common.message_flags import COMMIT, TRANSACTION_MASK
from rocketlet.common.message_properties import (
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    decode_bytes,
)
from rocketlet.common.message_record import Record, decode
from rocketlet.common.topic import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
    TRANSACTION_GROUP,
    is_topic_name,
)
from rocketlet.store.message import Appended, Put
from rocketlet.store.message_store import MessageStore

_LONGEST_NUMBER = 20  # characters of a Java long

log = logging.getLogger("rocketlet.broker.half_messages")

QUEUE: Final = 0
OP_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d"
OP_TAGS_CODE: Final = ord("d")
_SAME_KEY: Final = 64  # copies and retries of a message share its unique key
_FOREVER: Final = (1 << 63) - 1


class EndRefused(RocketletError):
    """The transaction is not this broker's, not this producer's, or already over. Nothing changed."""


@dataclass(frozen=True, slots=True)
class Half:
    """A half message, read and checked. `key` is the same for all copies of one transaction."""

    record: Record
    properties: dict[str, str]
    topic: str
    queue_id: int
    group: str
    key: bytes

    @property
    def offset(self) -> int:
        """The offset in the half queue, under which its end is recorded."""
        return self.record.queue_offset

    @property
    def checks(self) -> int:
        """How often its producer has been checked."""
        return number_of(self.properties.get(TRANSACTION_CHECK_TIMES), 0)


def prepare(message: Put, properties: MutableMapping[str, str]) -> None:
    """Convert a message to be stored into its half. A DELAY among its properties counts from the commit."""
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.topic = HALF_TOPIC
    message.queue_id = QUEUE
    message.sys_flag &= ~TRANSACTION_MASK
    message.properties = rewritten(properties)


class HalfMessages:
    """The half queue and the op queue of one broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        identity: Identity,
        clock: WallClock,
        filter_bits: FilterBits,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._identity = identity
        self._clock = clock
        self._filter_bits = filter_bits
        self._levels = store.config.delay_level_count
        self._states = TransactionStates(0, 0)
        self._safe = AfterFlush(store, self._take_offsets)

    # ---- the end of a transaction

    def commit(self, log_offset: int, offset: int, group: str) -> Appended:
        """Store the message at its destination. Raises EndRefused, StoreError or Later; nothing has changed then."""
        half = at_once(self._store, partial(self._current, log_offset, offset, group))
        message = put_again(half.record, half.topic, half.queue_id)
        message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | COMMIT
        message.prepared_offset = half.record.log_offset
        level = self._delay_of(half)
        if level > 0:
            delay(message, dict(half.properties), level, self._levels)
        message.filter_bits = self._filter_bits(message.topic, message.properties)
        return self._end(half, message)

    def roll_back(self, log_offset: int, offset: int, group: str) -> Appended:
        """End a transaction whose message is never delivered. Raises as `commit`."""
        return self._end(at_once(self._store, partial(self._current, log_offset, offset, group)))

    def _end(self, half: Half, *messages: Put) -> Appended:
        self._topics.create(OP_HALF_TOPIC, 1, reason="for transactions")
        *_, op = self._store.put_batch([*messages, self._op_of(half.offset)])
        self._states.ended(half.offset, half.key)
        self._states.op_written(op.queue_offset, [half.offset])
        self._save()
        return op

    def _current(self, log_offset: int, offset: int, group: str) -> Half:
        """The half message that currently represents a transaction. Raises EndRefused."""
        half = self._read_at(log_offset)
        if half is None:
            raise EndRefused("Find prepared transaction message failed")
        if half.group != group:
            raise EndRefused("The producer group wrong")
        if half.offset != offset:
            raise EndRefused("The transaction state table offset wrong")
        if not self._states.is_over(offset):
            return half
        copy = self._states.copy_of(half.key)
        current = self._read_at(copy.log_offset) if copy is not None else None
        if current is None:
            raise EndRefused("the transaction is over already; its first end counts")
        return current

    def _delay_of(self, half: Half) -> int:
        try:
            return delay_level(half.properties)
        except InvalidDelay as error:
            log.warning("the half message at %d is not delayed: %s", half.offset, error)
            return 0

    def _op_of(self, offset: int) -> Put:
        host = self._identity.store_host
        return Put(
            OP_HALF_TOPIC,
            QUEUE,
            str(offset).encode(),
            OP_PROPERTIES,
            OP_TAGS_CODE,
            born_timestamp=self._clock(),
            born_host=host,
            store_host=host,
        )

    # ---- while it has not ended

    def next_open(self) -> int:
        """The offset of the first half message that is not over; the queue's end if all are."""
        begin = self._store.queue_begin(HALF_TOPIC, QUEUE)
        if self._states.done < begin:
            log.error("half messages %d to %d are past their time in the log, undecided", self._states.done, begin - 1)
            self._states.skip_to(begin, self._store.queue_begin(OP_HALF_TOPIC, QUEUE))
            self._save()
        return self._states.done

    def is_over(self, offset: int) -> bool:
        return self._states.is_over(offset)

    def end(self) -> int:
        return self._store.queue_end(HALF_TOPIC, QUEUE)

    def put_back(self, half: Half, properties: dict[str, str]) -> Half:
        """Store it in the half queue again, with other properties; the copy then represents it.

        Raises the store's errors.
        """
        text = rewritten(properties)
        message = put_again(half.record, HALF_TOPIC, QUEUE, text)
        appended = self._store.put(message)
        self._states.put_back(half.offset, Place(appended.queue_offset, appended.log_offset), half.key)
        self._save()
        record = replace(
            half.record, properties=text, queue_offset=appended.queue_offset, log_offset=appended.log_offset
        )
        return replace(half, record=record, properties=properties)

    def give_up(self, half: Half) -> None:
        """Move it to TRANS_CHECK_MAX_TIME_TOPIC: it was not ended in time. Raises the store's errors."""
        self._topics.create(TRANS_CHECK_MAX_TOPIC, 1, reason="for transactions that nobody ends")
        self._store.put(put_again(half.record, TRANS_CHECK_MAX_TOPIC, QUEUE, rewritten(half.properties)))
        self._states.ended(half.offset, half.key)
        self._save()

    def skip(self, offset: int) -> None:
        """There is no readable message at this offset of the half queue."""
        self._states.ended(offset, b"")
        self._save()

    def resume(self, log_offset: int) -> Appended | None:
        """Restart the checks of a message; None if its checks continue anyway.

        Raises EndRefused or Later.
        """
        half = at_once(self._store, partial(self._half_to_resume, log_offset))
        if half is None:
            return None
        properties = half.properties | {TRANSACTION_CHECK_TIMES: "0"}
        appended = self._store.put(put_again(half.record, HALF_TOPIC, QUEUE, rewritten(properties)))
        self._states.resumed(Place(appended.queue_offset, appended.log_offset), half.key)
        return appended

    def _half_to_resume(self, log_offset: int) -> Half | None:
        """None where its checks continue anyway. Raises EndRefused."""
        half = self._read_at(log_offset, HALF_TOPIC, TRANS_CHECK_MAX_TOPIC)
        if half is None:
            raise EndRefused("there is no half message at this offset, nor one that was given up")
        is_half = half.record.topic == HALF_TOPIC
        if self._states.copy_of(half.key) is not None or (is_half and not self._states.is_over(half.offset)):
            return None
        if self._was_committed(half):
            raise EndRefused("the transaction was committed; its first end counts")
        return half

    # ---- reading

    async def read_off_loop(self, offset: int) -> Half | None:
        """`read` for messages that may not be in memory."""
        return await self._store.with_cold_reads(partial(self.read, offset))

    def read(self, offset: int) -> Half | None:
        """The half message at an offset of the half queue; None if there is no valid one."""
        queue = self._store.queue(HALF_TOPIC, QUEUE)
        entry = self._store.entry_at(queue, offset) if queue is not None else None
        return self._read_at(entry[0]) if entry is not None else None

    def topic_at(self, log_offset: int) -> str | None:
        """The destination topic of the half message at this log offset; None if none begins there.

        Raises Later.
        """
        half = at_once(self._store, partial(self._read_at, log_offset))
        return half.topic if half is not None else None

    def _read_at(self, log_offset: int, *topics: str) -> Half | None:
        raw = self._store.record_at(log_offset)
        if raw is None:
            return None
        record = decode(raw)
        return half_of(record) if record.topic in (topics or (HALF_TOPIC,)) else None

    # ---- after a restart

    def recover(self) -> None:
        """Learn from the two queues which transactions are over. REQUIRES an open store; call it before anything else.

        A slave has nothing to do: it ends no transactions, and receives its master's offsets.
        """
        if self._identity.slave:
            return
        halves, ops = self._store.queue(HALF_TOPIC, QUEUE), self._store.queue(OP_HALF_TOPIC, QUEUE)
        begin, end = (halves.begin, halves.end) if halves is not None else (0, 0)
        op_begin, op_end = (ops.begin, ops.end) if ops is not None else (0, 0)
        half_done, op_done = max(self._offset_of(HALF_TOPIC), begin), max(self._offset_of(OP_HALF_TOPIC), op_begin)
        if half_done > end or op_done > op_end:
            # Not written by us: ours are never ahead of the disk. Then nothing in them can be trusted.
            log.warning(
                "the offsets of transactions, %d and %d, lie beyond their queues: they are not used", half_done, op_done
            )
            half_done, op_done = begin, op_begin
        states = self._states = TransactionStates(half_done, op_done)
        ended: set[int] = set()
        for op_offset in range(op_done, op_end):
            named = self._named_by(op_offset)
            ended.update(named)
            states.op_written(op_offset, named)
        for offset in range(half_done, end):
            self._learn(offset, ended)
        states.finish_learning()
        for offset in range(states.done, end):
            if not states.is_over(offset):
                self._repair(offset)
        self._store.settle()
        self._save()
        log.info("half messages: %r", states)

    def _learn(self, offset: int, ended: set[int]) -> None:
        """Learn one half message, in the order of the queue."""
        half = self.read(offset)
        if half is None:
            self._states.ended(offset, b"")
            return
        first = number_of(half.properties.get(TRAN_PREPARED_QUEUE_OFFSET), -1)
        if {TRANSACTION_CHECK_TIMES, TRAN_PREPARED_QUEUE_OFFSET} & half.properties.keys():
            self._states.learn_copy(Place(offset, half.record.log_offset), half.key)
        else:
            self._states.learn(offset, half.key)
        if offset in ended or first in ended:
            self._states.ended(offset, half.key)

    def _repair(self, offset: int) -> None:
        """Record the end of a committed message, if the process ended between the two records."""
        half = self.read(offset)
        if half is not None and self._was_committed(half):
            log.warning("the half message at %d was committed before the crash", offset)
            self._end(half)

    def _was_committed(self, half: Half) -> bool:
        """Whether the committed message is in the log: as the newest of its queue, or by its unique key."""
        level = min(self._delay_of(half), self._levels)
        topic, queue_id = (half.topic, half.queue_id) if level <= 0 else (SCHEDULE_TOPIC, level - 1)
        queue = self._store.queue(topic, queue_id)
        last = queue.entry(queue.end - 1) if queue is not None else None
        raw = self._store.record_at(last[0]) if last is not None else None
        candidates = [raw] if raw is not None else []
        unique = half.properties.get(UNIQ_KEY)
        if unique:
            result = self._store.find_by_key(topic, unique, _SAME_KEY, 0, _FOREVER)
            candidates += [record for _, record in result.records]
        return any(_is_commit_of(half, decode(raw)) for raw in candidates)

    def _named_by(self, op_offset: int) -> list[int]:
        """The half offsets that an entry of the op queue declares over: `17` in 4.9, `17,18,` in 5.x."""
        queue = self._store.queue(OP_HALF_TOPIC, QUEUE)
        entry = queue.entry(op_offset) if queue is not None else None
        raw = self._store.record_at(entry[0]) if entry is not None else None
        words = decode(raw).body.split(b",") if raw is not None else []
        return [int(word) for word in words if word.isdigit() and len(word) <= _LONGEST_NUMBER]

    def _offset_of(self, topic: str) -> int:
        return self._offsets.get(TRANSACTION_GROUP, topic, QUEUE) or 0

    def _save(self) -> None:
        """Into the table of consumer offsets, as in RocketMQ, once the disk has the records they refer to."""
        self._safe.note((self._states.done, self._states.op_done))

    def _take_offsets(self, offsets: tuple[int, int]) -> None:
        for topic, offset in zip((HALF_TOPIC, OP_HALF_TOPIC), offsets, strict=True):
            if self._offset_of(topic) == offset:
                continue
            try:
                self._offsets.commit(TRANSACTION_GROUP, topic, QUEUE, offset)
            except OffsetRefused as error:
                # After a restart everything is relearned from the queues, only more slowly.
                log.error("the progress of transactions is not kept: %s", error)

    def statistics(self) -> TransactionStatistics:
        return self._states.statistics()

    def __repr__(self) -> str:
        return f"<HalfMessages {self._states!r}>"


def half_of(record: Record) -> Half | None:
    """The half message of a record; None if its properties are invalid."""
    properties = decode_bytes(record.properties)
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QID, "")
    group = properties.get(PGROUP, "")
    queue = queue_id_of(queue_id)
    if not is_topic_name(topic) or queue is None:
        return None
    parts = (group, properties.get(UNIQ_KEY, ""), record.born_timestamp, record.born_host.hex(), record.body_crc)
    return Half(record, properties, topic, queue, group, "\0".join(map(str, parts)).encode())


def _is_commit_of(half: Half, record: Record) -> bool:
    """Whether a record is the committed message of this half message, or of an older copy of it."""
    return record.sys_flag & TRANSACTION_MASK == COMMIT and (
        record.born_timestamp,
        record.born_host,
        record.body_crc,
    ) == (half.record.born_timestamp, half.record.born_host, half.record.body_crc)


def number_of(text: str | None, otherwise: int) -> int:
    """A property as a Java number, or the given default."""
    if text is None or len(text) > _LONGEST_NUMBER:
        return otherwise
    try:
        number = int(text)
    except ValueError:
        return otherwise
    return number if -INT64_MAX <= number <= INT64_MAX else otherwise
