"""Pops of one broker: which messages are in flight, until when, and what happens to unacknowledged ones.

A group pops messages of a queue from its offset on. Each is invisible to others for a while; if it is not acknowledged
by then it is redelivered, from its place in the log, up to `retryMaxTimes` + 1 deliveries, and then goes to the dead
letters. `sharing.py` finds the messages for a pop; the tables are in `ledger.py`.

Each change is noted in the turn that makes it; `write` is called before its answer.

Invariants: a message is in flight at no more than one consumer until it is due; a written ack is never forgotten.

Java: broker/processor/PopMessageProcessor.java, AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java,
PopReviveService.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import trio
from msgspec import Struct

from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.popping import facts
from rocketlet.broker.popping.dead_letters import DeadLetters
from rocketlet.broker.popping.facts import Key
from rocketlet.broker.popping.in_flight import MAX_TIMES, NEVER, Counts, Entry
from rocketlet.broker.popping.ledger import Ledger, QueueState
from rocketlet.broker.popping.picking import FILTER_BUDGET, Candidate, place_of
from rocketlet.broker.popping.sharing import Delivery, PopRequest, Share, Sharing
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.clock import WallClock
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.errors import MessageIllegal, NotWritable
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.popping.pops")

# Messages in flight: 140 MB. Beyond that, pops find only messages that are due again.
MAX_IN_FLIGHT: Final = 4_000_000
MAX_BYTES: Final = 4 << 20  # of one pop, except for a first message that is longer
LONGEST_INVISIBLE_MS: Final = 7 * 86_400_000
SWEEP_SECONDS: Final = 1.0
# A table without entries is dropped after a while: the committed offset suffices.
IDLE_MS: Final = 60_000
_AT_ONCE: Final = 64


class PopResult(Struct, gc=False):
    pop_time: int
    deliveries: list[Delivery]
    rest: int
    """How many messages are left that were never delivered."""
    progress: bool
    """Whether something else was found, so that it is worth while to ask again."""


@dataclass(frozen=True, slots=True)
class PopStatistics:
    popped: int
    acknowledged: int
    again: int
    dead: int
    in_flight: int


class Pops:
    """One object for the whole broker. `changed` is called with (group, topic) when there may be something to pop."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        clock: WallClock,
        recent_bytes: Callable[[], int],
        dead_letters: DeadLetters,
        settle: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clock = clock
        self._recent_bytes = recent_bytes
        self._dead_letters = dead_letters
        self._settle = settle
        self._ledger = Ledger(store, offsets, clock)
        self._sharing = Sharing(store)
        self.is_open = False
        self.changed: Callable[[str, str], None] = lambda group, topic: None
        self._popped = self._acknowledged = self._redelivered_count = self._dead = 0
        offsets.on_commit = self._committed

    # ---- popping

    def plan(self, ask: PopRequest) -> list[Share]:
        """What a pop would get. Changes nothing, except that queues become known. Raises Refused."""
        self._check_open()
        ask.budget = FILTER_BUDGET
        now = self._clock()
        shares = []
        first_offset = self._first_at_end if ask.from_max else self._first
        states = self._ledger.of(ask.group, ask.topic)
        room, room_bytes = ask.max_count, MAX_BYTES
        only_redelivered = self._ledger.in_flight >= MAX_IN_FLIGHT
        for queue_id in ask.queue_ids:
            queue = self._store.queue(ask.topic, queue_id)
            if queue is None:
                continue
            state = states.get(queue_id)
            if state is None:
                state = self._ledger.make(Key(ask.group, ask.topic, queue_id), queue, first_offset)
                states = self._ledger.of(ask.group, ask.topic)
            else:
                self._ledger.reset_if_moved(state, queue, first_offset)
            if state.table.next >= queue.end and not state.table.count:
                continue
            share = self._sharing.share(ask, state, queue, now, room, room_bytes, only_redelivered=only_redelivered)
            if share.changes_table:
                shares.append(share)
                room -= len(share)
                room_bytes -= share.bytes
                if room <= 0 or room_bytes <= 0:
                    break
        return shares

    def take(self, ask: PopRequest) -> PopResult:
        """Deliver messages to a consumer, and note that. Raises Refused, with nothing delivered.

        REQUIRES that the answer waits for `write`.
        """
        shares = self.plan(ask)
        now = self._clock()
        pop_time = now
        for share in shares:
            if share.redelivered:
                pop_time = max(pop_time, max(entry.popped for entry, _ in share.redelivered) + 1)
        due = pop_time + min(ask.invisible_ms, LONGEST_INVISIBLE_MS)
        deliveries = []
        buried = False
        for share in shares:
            if share.redelivered:
                buried |= self._move_dead(share, self._most_times(ask.group))
            self._put(share, pop_time, due, ask)
            if len(share):
                deliveries.append(share.delivery())
            share.state.used_at = now
        if buried:
            self._settle()
        return PopResult(pop_time, deliveries, self._remaining(ask), bool(shares))

    def _put(self, share: Share, pop_time: int, due: int, ask: PopRequest) -> None:
        """Put a share into its table, and note that."""
        state, table, ledger = share.state, share.state.table, self._ledger
        count = table.count
        if share.missing:
            ledger.note(facts.done(state.key, share.missing))
            for offset in share.missing:
                table.done(offset)
        if share.redelivered or share.new or share.skipped:
            self._put_entries(share, pop_time, due, ask)
        run = share.run
        ledger.in_flight += table.count - count
        if run is not None:
            ledger.delivered(state, run.offsets, pop_time, due)
        table.next = max(table.next, share.following)
        state.in_order = ask.order
        if ask.order and len(share):
            state.attempt, state.attempt_time = ask.attempt, pop_time
        self._popped += len(share)
        self._redelivered_count += len(share.redelivered)

    def _put_entries(self, share: Share, pop_time: int, due: int, ask: PopRequest) -> None:
        """Put the entries that have to be examined one by one."""
        table = share.state.table
        entries = []
        for entry, _ in share.redelivered:
            times = min(entry.times + (not share.is_retry), MAX_TIMES)
            entries.append(Entry(entry.offset, due, pop_time, times, entry.key))
        entries += [Entry(candidate.offset, due, pop_time, 1, key) for key, candidate in share.new]
        entries += [Entry(candidate.offset, 0, 0, 0, key) for key, candidate in share.skipped]
        entries.sort()
        for entry in entries:
            table.put(entry)
        following = max(table.next, share.following) if share.run is None else table.next
        attempt = ask.attempt if ask.order else None
        self._ledger.note(facts.popped(share.state.key, pop_time, due, following, entries, attempt))

    def _remaining(self, ask: PopRequest) -> int:
        remaining = 0
        for queue_id, state in self._ledger.of(ask.group, ask.topic).items():
            if queue_id in ask.queue_ids:
                remaining += max(self._store.queue_end(ask.topic, queue_id) - state.table.next, 0)
        return remaining

    def write(self) -> None:
        """Write the noted facts: once per turn, before its answers. Raises Refused."""
        self._ledger.write()

    # ---- acknowledging

    def acknowledge(self, key: Key, offsets: Sequence[int]) -> None:
        """Note acknowledged messages. Their answer waits for `write`. Raises Refused.

        With any handle: once acknowledged, a message is not needed again.
        """
        self._check_open()
        state = self._ledger.find(key)
        # Without a table everything below the committed offset is done.
        end = state.table.next if state else self._offsets.get(*key) or 0
        if not offsets:
            return
        in_a_row = isinstance(offsets, range)
        lowest, highest = (offsets[0], offsets[-1]) if in_a_row else (min(offsets), max(offsets))
        if lowest < 0 or highest >= end:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"group {key.group} was never given message {highest} of queue {key.queue_id} of {key.topic}",
            )
        if state is None:
            return
        count = self._ledger.done(state, offsets)
        self._acknowledged += count
        if count and state.in_order:  # others of the message group may be delivered now
            self.changed(key.group, key.topic)

    @property
    def log_end(self) -> int:
        """The log offset up to which everything written here reaches."""
        return self._store.log.end

    def change(self, key: Key, offset: int, popped: int, invisible_ms: int) -> tuple[int, int]:
        """Keep a message invisible until that time. Returns the new popTime and invisible time. The answer waits for
        `write`. Raises Refused."""
        self._check_open()
        state = self._ledger.find(key)
        entry = state.table.get(offset) if state is not None else None
        now = self._clock()
        invisible_ms = min(max(invisible_ms, 0), LONGEST_INVISIBLE_MS)
        if state is None or entry is None:
            return now, invisible_ms  # already acknowledged, which is at least what was wanted
        if entry.popped != popped:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"message {offset} of queue {key.queue_id} of {key.topic} was delivered again since {popped}; "
                "use the handle of the newest delivery",
            )
        pop_time = max(now, popped + 1)
        due = now + invisible_ms
        state.table.put(entry._replace(popped=pop_time, due=due))
        self._ledger.note(facts.changed(key, pop_time, due, [offset]))
        self.changed(key.group, key.topic)
        return pop_time, invisible_ms

    # ---- queries

    def next_due(self, group: str, topic: str) -> int:
        """The earliest redelivery for a group and topic, ms since 1970; NEVER if there is none."""
        now = self._clock()
        states = self._ledger.of(group, topic).values()
        return min((state.table.soonest_after(now) for state in states), default=NEVER)

    def counts(self, group: str = "", topic: str = "") -> Iterator[tuple[Key, Counts, int]]:
        """The messages in flight of each queue and group, and the next offset. Other tasks may run in between."""
        now = self._clock()
        for state in self._ledger.all():
            if group in ("", state.key.group) and topic in ("", state.key.topic):
                yield state.key, state.table.counts(now), state.table.next

    def totals(self) -> Iterator[tuple[str, str, Counts]]:
        """(group, topic, messages in flight). Other tasks may run in between."""
        now = self._clock()
        for (group, topic), states in self._ledger.by_group_and_topic():
            total = Counts()
            for state in states.values():
                counts = state.table.counts(now)
                total.invisible += counts.invisible
                total.due += counts.due
                total.held += counts.held
            yield group, topic, total

    def statistics(self) -> PopStatistics:
        return PopStatistics(
            self._popped, self._acknowledged, self._redelivered_count, self._dead, self._ledger.in_flight
        )

    def __repr__(self) -> str:
        return f"<Pops {self.statistics()}>"

    # ---- checks

    def _check_open(self) -> None:
        if not self.is_open:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave, or starts or stops: pop from the master"
            )
        if refusal := self._store.refusal:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {refusal}")
        if self._ledger.is_stuck:
            self._ledger.write()

    def _most_times(self, group: str) -> int:
        config = self._groups.get(group)
        return min((config.retryMaxTimes if config is not None else 16) + 1, MAX_TIMES)

    def _first(self, queue: ConsumeQueue) -> int:
        """Where a group without an offset begins."""
        return queue.begin

    def _first_at_end(self, queue: ConsumeQueue) -> int:
        """Where a group that wants new messages begins: at the end only if the queue is not young, as in RocketMQ."""
        first = queue.entry(0) if queue.begin == 0 and queue.end else None
        young = queue.end == 0 or (first is not None and self._store.log.end - first[0] <= self._recent_bytes())
        return 0 if young else queue.end

    def _committed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self.is_open:
            self._ledger.committed(group, topic, queue_id, offset)

    # ---- dead letters

    def _move_dead(self, share: Share, most_times: int) -> bool:
        """Remove messages from a share that were delivered often enough, and move them to the dead letters."""
        if share.is_retry:
            return False
        dead = [(entry, candidate) for entry, candidate in share.redelivered if entry.times >= most_times]
        for entry, candidate in dead:
            self._move_to_dead_letters(share.state, entry, candidate)
        if dead:
            share.redelivered = [pair for pair in share.redelivered if pair[0].times < most_times]
        return bool(dead)

    def _move_to_dead_letters(self, state: QueueState, entry: Entry, candidate: Candidate | None) -> None:
        key = state.key
        try:
            if candidate is not None:
                self._dead_letters.move(key.group, candidate.log_offset, entry.times)
        except MessageIllegal as error:
            log.error("group %s: a dead letter cannot be stored: %s", key.group, error)
        except NotWritable as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}") from error
        self._dead += 1
        self._ledger.done(state, range(entry.offset, entry.offset + 1))
        # At once: after the group's next dead letter, this one would no longer be the newest.
        self._ledger.write()

    def _settle_dead(self) -> None:
        """Note a dead letter that was stored just before the process ended."""
        for group in {state.key.group for state in self._ledger.all()}:
            record = self._dead_letters.newest(group)
            if record is None:
                continue
            state = self._ledger.find(Key(group, record.topic, record.queue_id))
            entry = state.table.get(record.queue_offset) if state is not None else None
            if state is not None and entry is not None and entry.times >= self._most_times(group):
                self._ledger.done(state, range(entry.offset, entry.offset + 1))
        try:
            self._ledger.write()
        except Refused as refused:
            log.warning("pops: %s", refused)

    # ---- meanwhile

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, as a master. REQUIRES an open, writable store."""
        await self._recover()
        self.is_open = True
        task_status.started()
        try:
            while True:
                if self._ledger.is_empty:
                    self._ledger.used = trio.Event()
                    await self._ledger.used.wait()
                await trio.sleep(SWEEP_SECONDS)
                await self._sweep()
        finally:
            self.is_open = False
            self._ledger.commit_floors()

    async def _recover(self) -> None:
        records = await self._ledger.recover()
        self._settle_dead()
        if records:
            log.info("pops: %d messages are in flight, after %d records", self._ledger.in_flight, records)

    async def _sweep(self) -> None:
        for number, state in enumerate(self._ledger.all()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            try:
                self._check_open()
                self._look_at(state)
            except Refused as refused:
                log.warning("pops of group %s: %s", state.key.group, refused)
                break
        self._settle()
        if self._ledger.wants_snapshot:
            await self._ledger.snapshot(self._settle)

    def _look_at(self, state: QueueState) -> None:
        """Periodic work on one queue: dead letters, offsets, dropping unneeded tables."""
        key, ledger = state.key, self._ledger
        if ledger.find(key) is not state:
            return
        now = self._clock()
        queue = self._store.queue(key.topic, key.queue_id)
        if queue is None or self._topics.get(key.topic) is None or self._groups.get(key.group) is None:
            ledger.forget(state)
            return
        if not ledger.reset_if_moved(state, queue, self._first):
            if state.table.count:
                max_times = self._most_times(key.group)
                for entry in state.table.dead(now, max_times, _AT_ONCE):
                    self._move_to_dead_letters(state, entry, place_of(self._store, queue, entry.offset))
            elif now - state.used_at > IDLE_MS:
                ledger.commit_floor(state)
                ledger.forget(state)
                return
        ledger.commit_floor(state)
        ledger.write()
