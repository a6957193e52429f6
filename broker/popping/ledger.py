"""The tables of all queues that groups pop from, and the facts behind them: in memory, and in the log.

Every change of a table is noted here as a fact; `write` puts all facts of a turn into one record, before anything is
answered. Facts that cannot be written, because the disk is full, stay noted and are written first later.

A group's committed offset is the *floor* of its table, the first message that is not done: a pull consumer, or a broker
without pop, continues there and misses nothing. An offset committed by another client resets the group, at once, and
everything in flight is forgotten.

Invariant: a table is determined by the facts in the log, in their order.

Java: store/pop/AckMsg.java, PopCheckPoint.java; broker/processor/PopBufferMergeService.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio

from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.broker.fact_log import FactLog
from rocketlet.broker.popping import facts
from rocketlet.broker.popping.facts import Fact, FactError, Key, Kind
from rocketlet.broker.popping.in_flight import InFlight
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.errors import PutRefused
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.popping.ledger")

FACTS_QUEUE: Final = 0
# Tables, one per queue and group, 800 bytes each. Unused ones are dropped after a minute.
MAX_TABLES: Final = 200_000
_PIECE: Final = 1024  # entries of one fact of a snapshot: 35 KB
_LONGEST_RUN: Final = 1 << 15  # messages of one fact; longer than twice that is not read back
FirstOffset = Callable[[ConsumeQueue], int]
"""Where a group begins that has no offset."""
_NONE: Final[Mapping[int, QueueState]] = {}


class QueueState:
    """One queue of one group. `committed` is our last committed offset."""

    __slots__ = ("attempt", "attempt_time", "committed", "in_order", "key", "table", "used_at")

    def __init__(self, key: Key, next_offset: int, committed: int | None, now: int) -> None:
        self.key = key
        self.table = InFlight(next_offset)
        self.committed = committed
        self.attempt = ""
        self.attempt_time = 0
        self.in_order = False
        self.used_at = now


class Ledger:
    """One object for the whole broker."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, clock: Callable[[], int]) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._facts = FactLog(store, FACTS_QUEUE)
        self._states: dict[tuple[str, str], dict[int, QueueState]] = {}
        # Not noted yet: first deliveries with their popTime and when they are due; acknowledged messages.
        self._delivered: dict[Key, tuple[range, int, int]] = {}
        self._acked: dict[Key, Sequence[int]] = {}
        self._tables = 0
        self.in_flight = 0
        self.is_stuck = False
        """The last write was refused: nothing more may be noted before one succeeds."""
        self.used = trio.Event()
        """A first table was made."""

    # ---- tables

    def find(self, key: Key) -> QueueState | None:
        states = self._states.get((key.group, key.topic))
        return states.get(key.queue_id) if states is not None else None

    def of(self, group: str, topic: str) -> Mapping[int, QueueState]:
        """Tables by queue."""
        return self._states.get((group, topic), _NONE)

    def by_group_and_topic(self) -> list[tuple[tuple[str, str], Mapping[int, QueueState]]]:
        return list(self._states.items())

    def all(self) -> list[QueueState]:
        return [state for states in self._states.values() for state in states.values()]

    @property
    def is_empty(self) -> bool:
        return not self._states

    def make(self, key: Key, queue: ConsumeQueue, first_offset: FirstOffset) -> QueueState:
        """Create the table of a queue. Raises Refused."""
        if self._tables >= MAX_TABLES:
            raise Refused(
                ResponseCode.SYSTEM_BUSY, f"{MAX_TABLES} queues of groups are popped from already; wait a minute"
            )
        committed = self._offsets.of(key.group, key.topic).get(key.queue_id, -1)
        begin = committed if committed >= 0 else first_offset(queue)
        state = QueueState(key, min(begin, queue.end), None, self._clock())
        if not self._states:
            self.used.set()
        self._states.setdefault((key.group, key.topic), {})[key.queue_id] = state
        self._tables += 1
        self.note(facts.start(key, state.table.next))
        self.commit_floor(state)
        return state

    def reset_if_moved(self, state: QueueState, queue: ConsumeQueue, first_offset: FirstOffset) -> bool:
        """Reset a table if the group was set to another offset, or the queue has become shorter. Returns whether that
        was so. Raises Refused."""
        group, topic, queue_id = state.key
        committed = self._offsets.of(group, topic).get(queue_id, -1)
        if committed != state.committed and self._was_reset(state, committed):
            self._reset(state, min(committed if committed >= 0 else first_offset(queue), queue.end))
            return True
        if state.table.next > queue.end:
            self._reset(state, queue.end)
            return True
        return False

    def committed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Somebody commits an offset: record it at once, or after a crash earlier pops would override it."""
        state = self.find(Key(group, topic, queue_id))
        queue = self._store.queue(topic, queue_id)
        if state is None or queue is None or offset < 0 or offset == state.committed or self.is_stuck:
            return
        try:
            self._reset(state, min(offset, queue.end))
            self.write()
        except Refused as refused:
            log.warning("pops of group %s: %s", group, refused)

    def _was_reset(self, state: QueueState, committed: int) -> bool:
        """Whether somebody else has set the group to another offset. An offset from another broker is older than the
        log's facts, and is replaced by our own."""
        if committed == (state.committed if state.committed is not None else -1):
            return False
        if committed >= 0 and not self._offsets.is_own(*state.key):
            state.committed = None
            self.commit_floor(state)
            return False
        return True

    def _reset(self, state: QueueState, offset: int) -> None:
        key = state.key
        log.info("group %s was set to %d in queue %d of %s", key.group, offset, key.queue_id, key.topic)
        self.in_flight -= state.table.count
        state.table.clear(offset)
        state.attempt, state.attempt_time = "", 0
        self.note(facts.start(key, offset))
        self.commit_floor(state)

    def forget(self, state: QueueState) -> None:
        """Drop a table. Raises Refused."""
        key = state.key
        self.note(facts.dropped(key))
        self.write()
        self.in_flight -= state.table.count
        states = self._states[key.group, key.topic]
        del states[key.queue_id]
        self._tables -= 1
        if not states:
            del self._states[key.group, key.topic]

    def commit_floor(self, state: QueueState) -> None:
        """Raises Refused."""
        floor = state.table.floor
        if floor == state.committed:
            return
        previous, state.committed = state.committed, floor
        try:
            self._offsets.commit(*state.key, floor)
        except OffsetRefused as refused:
            state.committed = previous
            raise Refused(ResponseCode.SYSTEM_ERROR, str(refused)) from None

    def commit_floors(self) -> None:
        """Commit the floors of all tables that were not reset."""
        for state in self.all():
            key = state.key
            if self._offsets.of(key.group, key.topic).get(key.queue_id, -1) == state.committed:
                try:
                    self.commit_floor(state)
                except Refused as refused:
                    log.warning("pops of group %s: %s", key.group, refused)

    # ---- facts

    def done(self, state: QueueState, offsets: Sequence[int]) -> int:
        """Remove messages from a table, and note that. Returns their number. Those of a turn become one fact."""
        acknowledged = state.table.done_all(offsets)
        if acknowledged:
            noted = self._acked.get(state.key)
            if noted is None:
                self._acked[state.key] = acknowledged if isinstance(acknowledged, range) else list(acknowledged)
            elif isinstance(noted, range) and isinstance(acknowledged, range) and noted.stop == acknowledged.start:
                self._acked[state.key] = range(noted.start, acknowledged.stop)
            elif isinstance(noted, list):
                noted += acknowledged
            else:
                self._acked[state.key] = [*noted, *acknowledged]
            self.in_flight -= len(acknowledged)
        return len(acknowledged)

    def delivered(self, state: QueueState, offsets: range, pop_time: int, due: int) -> None:
        """Add messages without a message group, delivered for the first time, and note that. Adjacent ones of a turn
        become one fact."""
        state.table.append(offsets, due, pop_time)
        self.in_flight += len(offsets)
        noted = self._delivered.get(state.key)
        if noted is not None:
            previous, popped_before, due_before = noted
            is_same_pop = pop_time == popped_before and due == due_before and previous.stop == offsets.start
            if is_same_pop and len(previous) < _LONGEST_RUN:
                offsets = range(previous.start, offsets.stop)
            else:
                self._note_runs()
        self._delivered[state.key] = offsets, pop_time, due

    def note(self, fact: bytes) -> None:
        """Note a fact, to be written with the others of this turn, in order."""
        if self._delivered or self._acked:
            self._note_runs()
        self._facts.note(fact)

    def _note_runs(self) -> None:
        """First deliveries first: acks of these came later, and earlier acks are of other messages."""
        delivered, self._delivered = self._delivered, {}
        for key, (offsets, pop_time, due) in delivered.items():
            self._facts.note(facts.popped_first(key, pop_time, due, offsets))
        acked, self._acked = self._acked, {}
        for key, acknowledged in acked.items():
            self._facts.note(facts.done(key, acknowledged))

    def write(self) -> None:
        """Write the noted facts. Raises Refused."""
        if self._delivered or self._acked:
            self._note_runs()
        elif not self._facts.has_noted:
            self.is_stuck = False
            return
        self.is_stuck = True
        try:
            self._facts.write()
            self.is_stuck = False
        except PutRefused as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}") from error

    @property
    def wants_snapshot(self) -> bool:
        return bool(self._facts.wants_snapshot and self._states)

    async def snapshot(self, settle: Callable[[], None]) -> None:
        """Write all tables, piece by piece, while pops continue."""
        try:
            self.write()
            self._facts.begin_snapshot()
            for state in self.all():
                if self.find(state.key) is not state:
                    continue
                self.note(facts.table(state.key, state.table.next))
                for number, piece in enumerate(state.table.pieces()):
                    for at in range(0, len(piece), _PIECE):
                        self.note(facts.part(state.key, piece[at : at + _PIECE]))
                    self.write()
                    if number % 4 == 3:
                        settle()
                        await trio.lowlevel.checkpoint()
                self.write()
                settle()
                await trio.lowlevel.checkpoint()
            self._note_runs()
            self._facts.end_snapshot()
            settle()
        except (PutRefused, Refused) as error:
            log.warning("no snapshot of pops can be written: %s", error)

    # ---- after a restart

    async def recover(self) -> int:
        """Rebuild the tables and commit their floors. Returns the number of records read."""
        self._states, self._delivered, self._acked, self.in_flight = {}, {}, {}, 0
        self._facts.forget()
        now = self._clock()
        records = await self._facts.read(lambda body, of_snapshot: self._replay(body, now, of_snapshot))
        for state in self.all():
            queue = self._store.queue(state.key.topic, state.key.queue_id)
            state.table.keep_between(queue.begin if queue is not None else 0, queue.end if queue is not None else 0)
            try:
                self.commit_floor(state)
            except Refused as refused:
                log.warning("%s", refused)
            self.in_flight += state.table.count
        self._tables = len(self.all())
        return records

    def _replay(self, body: bytes, now: int, of_snapshot: bool) -> None:
        try:
            for fact in facts.read(body):
                if of_snapshot or fact.kind is not Kind.TABLE:
                    self._apply(fact, now)
        except FactError as error:
            log.error("pops: %s", error)

    def _apply(self, fact: Fact, now: int) -> None:
        key = fact.key
        states = self._states.setdefault((key.group, key.topic), {})
        state = states.get(key.queue_id)
        if fact.kind is Kind.DROPPED:
            states.pop(key.queue_id, None)
        elif fact.kind is Kind.TABLE:
            if state is None:
                states[key.queue_id] = QueueState(key, fact.next, None, now)
        elif state is None and fact.kind is not Kind.START:
            # Its beginning has left the log, or follows in the snapshot being read; if neither, the group continues at
            # its committed offset, which is a floor.
            pass
        else:
            if state is None:
                state = states[key.queue_id] = QueueState(key, 0, None, now)
            facts.apply(fact, state.table)
            if fact.kind is Kind.FIRST:
                state.in_order = False
            elif fact.kind is Kind.POPPED:
                state.in_order = fact.order
                if fact.order and any(entry.times for entry in fact.entries):
                    state.attempt, state.attempt_time = fact.attempt, fact.pop_time
        if not states:
            del self._states[key.group, key.topic]
