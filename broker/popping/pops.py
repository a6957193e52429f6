"""Pops of one broker: who has which messages, until when, and what becomes of those that are not acknowledged.

A group takes messages of a queue from its offset on. Each is its consumer's for a while; one that is not acknowledged
by then comes again, from where it stands in the log, with one delivery more, up to `retryMaxTimes` + 1 deliveries, and
then goes to the dead letters. In order (`order`), a message group with a message at a consumer waits; messages without
a group form one.

Each change is written down (`facts.py`, `fact_log.py`) in the turn that makes it, before its answer. The offset that
the group commits is its *floor*, the first message that is not done: a pull consumer, or a broker that knows nothing of
pops, continues there and misses nothing. An offset that another client commits sets the group there, and everything in
flight is forgotten.

Invariants: a message is with at most one consumer until it is due; an ack that was written is never forgotten; what a
table says follows from the facts in the log, in their order.

Java: broker/processor/PopMessageProcessor.java, AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java,
PopReviveService.java; broker/offset/ConsumerOrderInfoManager.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.broker.fact_log import FactLog
from rocketlet.broker.filter.message_filter import EVERYTHING, MessageFilter
from rocketlet.broker.popping import facts
from rocketlet.broker.popping.dead_letters import DeadLetters
from rocketlet.broker.popping.facts import FactError, Key, Kind
from rocketlet.broker.popping.in_flight import MOST_TIMES, NEVER, Counts, Entry, InFlight, in_order
from rocketlet.broker.popping.picking import Found, Run, group_key, next_run, pick, place_of
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.clock import WallClock
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.errors import MessageIllegal, NotWritable, PutRefused
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import Span

log = logging.getLogger("rocketlet.broker.popping.pops")

FACTS_QUEUE: Final = 0
# Messages in flight: 140 MB. Pops that would take more find nothing but what is due again.
MOST_IN_FLIGHT: Final = 4_000_000
# Tables, one for each queue of each group, 700 bytes each. Those that nobody uses are forgotten after a minute.
MOST_TABLES: Final = 200_000
# Of one queue in order, messages that were read and wait for another of their group.
MOST_HELD: Final = 1024
# And those that consumers have of it: each pop looks at all of them, 2 ms.
MOST_IN_ORDER: Final = 2048
MOST_BYTES: Final = 4 << 20  # of one pop, but for a first message that is longer
LONGEST_INVISIBLE_MS: Final = 7 * 86_400_000
LONGEST_ATTEMPT: Final = 128
SWEEP_SECONDS: Final = 1.0
# A table without entries is forgotten after a while: the committed offset says it all.
IDLE_MS: Final = 60_000
_AT_ONCE: Final = 64


@dataclass(slots=True)
class Ask:
    """What a pop wants. `queue_ids` in the order in which they are tried."""

    group: str
    topic: str
    queue_ids: Sequence[int]
    most: int
    invisible_ms: int
    wanted: MessageFilter = EVERYTHING
    order: bool = False
    attempt: str = ""
    from_max: bool = False


@dataclass(slots=True)
class Share:
    """What there is for a pop in one queue. `again` was delivered before, `new` was not; `held` is skipped for now.
    `same` says that `again` is what this attempt was given already."""

    key: Key
    state: QueueState
    again: list[tuple[Entry, Found]] = field(default_factory=list)
    run: Run | None = None  # what is new, where it follows without gaps
    new: list[tuple[int, Found]] = field(default_factory=list)  # else (key of the message group, message)
    held: list[tuple[int, Found]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    following: int = 0
    same: bool = False

    def __len__(self) -> int:
        return len(self.again) + len(self.new) + (len(self.run.offsets) if self.run is not None else 0)

    def as_it_is(self) -> Delivery:
        """What it would deliver."""
        one_by_one = sorted(
            [(found, entry.times) for entry, found in self.again] + [(found, 0) for _, found in self.new]
        )
        run = self.run
        return Delivery(
            self.key.queue_id,
            [found.offset for found, _ in one_by_one] + list(run.offsets if run is not None else ()),
            [before for _, before in one_by_one] + [0] * (len(run.offsets) if run is not None else 0),
            [(Span(found.log_offset, found.size), before) for found, before in one_by_one]
            + [(span, 0) for span in (run.spans if run is not None else ())],
            sum(found.size for found, _ in one_by_one) + (run.bytes if run is not None else 0),
        )


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages of one queue, in the order of their offsets, how often each was delivered before, and where they stand:
    parts of the log, with 0 or how often the one message in it was delivered before."""

    queue_id: int
    offsets: Sequence[int]
    before: Sequence[int]
    parts: list[tuple[Span, int]]
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    pop_time: int
    deliveries: list[Delivery]
    rest: int
    """How many messages are left that were never delivered."""
    progress: bool
    """Whether something else was found, so that it is worth while to ask again."""


class QueueState:
    """One queue of one group. `committed` is the offset that we committed last."""

    __slots__ = ("attempt", "attempt_time", "committed", "in_order", "table", "used_at")

    def __init__(self, next_offset: int, committed: int | None, now: int) -> None:
        self.table = InFlight(next_offset)
        self.committed = committed
        self.attempt = ""
        self.attempt_time = 0
        self.in_order = False
        self.used_at = now


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
        self._facts = FactLog(store, FACTS_QUEUE)
        self._states: dict[tuple[str, str], dict[int, QueueState]] = {}
        self._acked: dict[Key, list[int]] = {}  # not written yet
        self._used = trio.Event()
        self.is_open = False
        self.changed: Callable[[str, str], None] = lambda group, topic: None
        self._tables = 0
        self._popped = self._acknowledged = self._again = self._dead = self._in_flight = 0

    # ---- taking

    def plan(self, ask: Ask) -> list[Share]:
        """What a pop would get; changes nothing but that queues become known. Raises Refused."""
        self._check_open()
        now = self._clock()
        shares = []
        room, room_bytes = ask.most, MOST_BYTES
        for queue_id in ask.queue_ids:
            queue = self._store.queue(ask.topic, queue_id)
            if queue is None:
                continue
            state = self._state(Key(ask.group, ask.topic, queue_id), queue, now, ask.from_max)
            if state.table.next >= queue.end and not state.table.count:
                continue
            share = Share(Key(ask.group, ask.topic, queue_id), state, following=state.table.next)
            if ask.order:
                room_bytes -= self._plan_in_order(ask, share, queue, now, room, room_bytes)
            else:
                room_bytes -= self._plan_any(ask, share, queue, now, room, room_bytes)
            if len(share) or share.held or share.gone or share.following > state.table.next:
                shares.append(share)
                room -= len(share)
            if room <= 0 or room_bytes <= 0:
                break
        return shares

    def _plan_any(self, ask: Ask, share: Share, queue: ConsumeQueue, now: int, room: int, room_bytes: int) -> int:
        table = share.state.table
        size = 0
        if table.count:
            size = self._again_of(share, queue, table.due(now, room), room_bytes)
        room -= len(share.again)
        if room > 0 and size < room_bytes and table.next < queue.end and self._in_flight < MOST_IN_FLIGHT:
            if ask.wanted is EVERYTHING:
                share.run = next_run(self._store, queue, table.next, room, room_bytes - size)
                if share.run is not None:
                    share.following = share.run.offsets.stop
                    return size + share.run.bytes
            picked = pick(self._store, queue, table.next, room, ask.wanted, room_bytes - size)
            share.new = [(0, found) for found in picked.messages]
            share.following = picked.following
            size += picked.bytes
        return size

    def _plan_in_order(self, ask: Ask, share: Share, queue: ConsumeQueue, now: int, room: int, room_bytes: int) -> int:
        state = share.state
        table = state.table
        if ask.attempt and ask.attempt == state.attempt:
            mine = [entry for entry in table if entry.popped == state.attempt_time and entry.due > now]
            if mine:
                share.same = True
                return self._again_of(share, queue, mine, room_bytes)
        ready = in_order(table, now, room)
        size = self._again_of(share, queue, ready.entries, room_bytes)
        room -= len(share.again)
        held = sum(entry.times == 0 for entry in table)
        if room <= 0 or size >= room_bytes or held >= MOST_HELD or table.count - held >= MOST_IN_ORDER:
            return size
        if self._in_flight >= MOST_IN_FLIGHT:
            return size
        # Messages of a busy group may come first, and are read and held: look at some more than there is room for.
        picked = pick(self._store, queue, table.next, min(4 * room, MOST_HELD - held), ask.wanted, room_bytes - size)
        waiting = ready.busy | {entry.key for entry in table if entry.due <= now} - {
            entry.key for entry, _ in share.again
        }
        for found in picked.messages:
            if len(share.new) == room:
                share.following = found.offset
                return size
            key = group_key(self._store, found)
            if key in waiting:
                share.held.append((key, found))
            else:
                share.new.append((key, found))
                size += found.size
        share.following = picked.following
        return size

    def _again_of(self, share: Share, queue: ConsumeQueue, entries: Sequence[Entry], room_bytes: int) -> int:
        size = 0
        for entry in entries:
            found = place_of(self._store, queue, entry.offset)
            if found is None:
                share.gone.append(entry.offset)
                continue
            if size and size + found.size > room_bytes:
                break
            share.again.append((entry, found))
            size += found.size
        return size

    def take(self, ask: Ask) -> Taken:
        """Give messages to a consumer, and write that down. Raises Refused, with nothing given."""
        shares = self.plan(ask)
        now = self._clock()
        pop_time = max([now, *(entry.popped + 1 for share in shares for entry, _ in share.again)])
        due = pop_time + min(ask.invisible_ms, LONGEST_INVISIBLE_MS)
        most_times = self._most_times(ask.group)
        deliveries = []
        self._note_acked()
        buried = False
        for share in shares:
            buried |= self._bury_dead(share, most_times)
            if share.gone:
                self._facts.note(facts.done(share.key, share.gone))
            delivery = self._deliver(share, pop_time, due, ask)
            if delivery.offsets:
                deliveries.append(delivery)
            share.state.used_at = now
        self._write()
        if buried:
            self._settle()
        return Taken(pop_time, deliveries, self._rest(ask), bool(shares))

    def _deliver(self, share: Share, pop_time: int, due: int, ask: Ask) -> Delivery:
        """Put a share into its table, and note that."""
        state, table = share.state, share.state.table
        count = table.count
        delivery = Delivery(share.key.queue_id, [], [], [])
        for offset in share.gone:
            table.done(offset)
        if share.again or share.new or share.held:
            delivery = self._deliver_entries(share, pop_time, due, ask)
        run = share.run
        if run is not None:
            table.append(run.offsets, due, pop_time)
            self._facts.note(facts.popped_first(share.key, pop_time, due, run.offsets))
            delivery = Delivery(
                share.key.queue_id,
                [*delivery.offsets, *run.offsets],
                [*delivery.before, *([0] * len(run.offsets))],
                delivery.parts + [(span, 0) for span in run.spans],
                delivery.bytes + run.bytes,
            )
        table.next = max(table.next, share.following)
        state.in_order = ask.order
        if ask.order and len(share):
            state.attempt, state.attempt_time = ask.attempt, pop_time
        self._in_flight += table.count - count
        self._popped += len(share)
        self._again += len(share.again)
        return delivery

    def _deliver_entries(self, share: Share, pop_time: int, due: int, ask: Ask) -> Delivery:
        """Those that have to be examined one by one."""
        table = share.state.table
        entries, given = [], []
        for entry, found in share.again:
            before = entry.times - 1 if share.same else entry.times
            entries.append(Entry(entry.offset, due, pop_time, min(before + 1, MOST_TIMES), entry.key))
            given.append((found, before))
        for key, found in share.new:
            entries.append(Entry(found.offset, due, pop_time, 1, key))
            given.append((found, 0))
        entries += [Entry(found.offset, 0, 0, 0, key) for key, found in share.held]
        entries.sort()
        for entry in entries:
            table.put(entry)
        following = max(table.next, share.following) if share.run is None else table.next
        attempt = ask.attempt if ask.order else None
        self._facts.note(facts.popped(share.key, pop_time, due, following, entries, attempt))
        return Delivery(
            share.key.queue_id,
            [found.offset for found, _ in given],
            [before for _, before in given],
            [(Span(found.log_offset, found.size), before) for found, before in given],
            sum(found.size for found, _ in given),
        )

    def _rest(self, ask: Ask) -> int:
        states = self._states.get((ask.group, ask.topic), {})
        rest = 0
        for queue_id in ask.queue_ids:
            state = states.get(queue_id)
            if state is not None:
                rest += max(self._store.queue_end(ask.topic, queue_id) - state.table.next, 0)
        return rest

    # ---- acknowledging

    def acknowledge(self, key: Key, offsets: Sequence[int]) -> None:
        """Note that messages are done. Their answer waits for `write_acked`. Raises Refused.

        With whichever handle: once a message was acknowledged, it is not needed again.
        """
        self._check_open()
        state = self._states.get((key.group, key.topic), {}).get(key.queue_id)
        # Without a table all below the committed offset is done.
        end = state.table.next if state else self._offsets.get(key.group, key.topic, key.queue_id) or 0
        if not offsets:
            return
        if min(offsets) < 0 or max(offsets) >= end:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"group {key.group} was never given message {max(offsets)} of queue {key.queue_id} of {key.topic}",
            )
        if state is None:
            return
        done = state.table.done_all(offsets)
        if done:
            self._acked.setdefault(key, []).extend(done)
            self._in_flight -= len(done)
            self._acknowledged += len(done)
            if state.in_order:  # others of the message group may go now
                self.changed(key.group, key.topic)

    def write_acked(self) -> int:
        """Write down what was acknowledged in this turn; returns where the log ends. Raises Refused."""
        self._note_acked()
        return self._write()

    @property
    def log_end(self) -> int:
        """The end up to which the log has to be safe for everything written here to be safe."""
        return self._store.log.end

    def change(self, key: Key, offset: int, popped: int, invisible_ms: int) -> tuple[int, int]:
        """Let a consumer have a message until then; returns the new popTime and invisible time. Raises Refused."""
        self._check_open()
        state = self._states.get((key.group, key.topic), {}).get(key.queue_id)
        entry = state.table.get(offset) if state is not None else None
        now = self._clock()
        invisible_ms = min(max(invisible_ms, 0), LONGEST_INVISIBLE_MS)
        if state is None or entry is None:
            return now, invisible_ms  # it is done, which is what was asked for
        if entry.popped != popped:
            raise Refused(
                ResponseCode.NO_MESSAGE,
                f"message {offset} of queue {key.queue_id} of {key.topic} was delivered again since {popped}; "
                "use the handle of the newest delivery",
            )
        pop_time = max(now, popped + 1)
        due = now + invisible_ms
        state.table.put(entry._replace(popped=pop_time, due=due))
        self._note_acked()
        self._facts.note(facts.changed(key, pop_time, due, [offset]))
        self._write()
        self.changed(key.group, key.topic)
        return pop_time, invisible_ms

    # ---- what others ask

    def next_due(self, group: str, topic: str) -> int:
        """When a message of theirs is redelivered at the earliest, ms since 1970; NEVER where none is."""
        now = self._clock()
        states = self._states.get((group, topic), {}).values()
        return min((state.table.soonest_after(now) for state in states), default=NEVER)

    def counts(self, group: str = "", topic: str = "") -> Iterator[tuple[Key, Counts, int]]:
        """What each queue of each group has in flight, and the next offset that it will be given. Others may run
        between two of them."""
        now = self._clock()
        for key, state in self._all():
            if group in ("", key.group) and topic in ("", key.topic):
                yield key, state.table.counts(now), state.table.next

    def totals(self) -> Iterator[tuple[str, str, Counts]]:
        """(group, topic, what they have in flight). Others may run between two of them."""
        now = self._clock()
        for (group, topic), states in list(self._states.items()):
            total = Counts()
            for state in states.values():
                counts = state.table.counts(now)
                total.invisible += counts.invisible
                total.due += counts.due
                total.held += counts.held
            yield group, topic, total

    def statistics(self) -> PopStatistics:
        return PopStatistics(self._popped, self._acknowledged, self._again, self._dead, self._in_flight)

    def __repr__(self) -> str:
        return f"<Pops {self.statistics()}>"

    # ---- states

    def _check_open(self) -> None:
        if not self.is_open:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave, or starts or stops: pop from the master"
            )
        if self._store.refusal:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {self._store.refusal}")

    def _most_times(self, group: str) -> int:
        config = self._groups.known(group)
        return min((config.retryMaxTimes if config is not None else 16) + 1, MOST_TIMES)

    def _state(self, key: Key, queue: ConsumeQueue, now: int, from_max: bool) -> QueueState:
        states = self._states.get((key.group, key.topic))
        if states is None:
            states = self._states[key.group, key.topic] = {}
            self._used.set()
        state = states.get(key.queue_id)
        committed = self._offsets.of(key.group, key.topic).get(key.queue_id, -1)
        if state is None:
            if self._tables >= MOST_TABLES:
                raise Refused(
                    ResponseCode.SYSTEM_BUSY, f"{MOST_TABLES} queues of groups are popped from already; wait a minute"
                )
            self._tables += 1
            begin = committed if committed >= 0 else self._first_offset(queue, from_max)
            state = states[key.queue_id] = QueueState(min(begin, queue.end), None, now)
            self._facts.note(facts.start(key, state.table.next))
            self._commit_floor(key, state)
        elif self._was_set(key, state, committed):
            begin = committed if committed >= 0 else self._first_offset(queue, from_max)
            self._reset(key, state, min(begin, queue.end))
        elif state.table.next > queue.end:
            self._note_acked()
            self._facts.note(facts.start(key, queue.end))
            self._in_flight -= state.table.count
            state.table.clear(queue.end)
        return state

    def _was_set(self, key: Key, state: QueueState, committed: int) -> bool:
        """Whether somebody else has set the group to another offset. What came from another broker is older than what
        the log says, and is replaced by our own."""
        if committed == (state.committed if state.committed is not None else -1):
            return False
        if committed >= 0 and not self._offsets.is_own(key.group, key.topic, key.queue_id):
            state.committed = None
            self._commit_floor(key, state)
            return False
        return True

    def _first_offset(self, queue: ConsumeQueue, from_max: bool) -> int:
        """Where a group begins that has no offset: the end only where the queue is not young, as in RocketMQ."""
        if not from_max:
            return queue.begin
        first = queue.entry(0) if queue.begin == 0 and queue.end else None
        young = queue.end == 0 or (first is not None and self._store.log.end - first[0] <= self._recent_bytes())
        return 0 if young else queue.end

    def _reset(self, key: Key, state: QueueState, offset: int) -> None:
        log.info("group %s was set to %d in queue %d of %s", key.group, offset, key.queue_id, key.topic)
        self._note_acked()
        self._in_flight -= state.table.count
        state.table.clear(offset)
        state.attempt, state.attempt_time = "", 0
        self._facts.note(facts.start(key, offset))
        self._commit_floor(key, state)

    def _commit_floor(self, key: Key, state: QueueState) -> None:
        floor = state.table.floor
        if floor == state.committed:
            return
        try:
            self._offsets.commit(key.group, key.topic, key.queue_id, floor)
            state.committed = floor
        except OffsetRefused as refused:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(refused)) from None

    # ---- writing

    def _note_acked(self) -> None:
        acked, self._acked = self._acked, {}
        for key, offsets in acked.items():
            self._facts.note(facts.done(key, offsets))

    def _write(self) -> int:
        try:
            return self._facts.write()
        except PutRefused as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}") from error

    def _bury_dead(self, share: Share, most_times: int) -> bool:
        """Take those out of a share that were delivered often enough, and send them to the dead letters."""
        if share.same:
            return False
        dead = [(entry, found) for entry, found in share.again if entry.times >= most_times]
        for entry, found in dead:
            self._bury(share.key, share.state, entry, found)
        if dead:
            share.again = [one for one in share.again if one[0].times < most_times]
        return bool(dead)

    def _bury(self, key: Key, state: QueueState, entry: Entry, found: Found | None) -> None:
        try:
            if found is not None:
                self._dead_letters.bury(key.group, found.log_offset, entry.times)
        except MessageIllegal as error:
            log.error("group %s: a dead letter cannot be stored: %s", key.group, error)
        except NotWritable as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}") from error
        state.table.done(entry.offset)
        self._in_flight -= 1
        self._dead += 1
        self._facts.note(facts.done(key, [entry.offset]))
        self._write()

    # ---- meanwhile

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, as a master. REQUIRES an open store that takes messages."""
        await self._recover()
        self.is_open = True
        task_status.started()
        try:
            while True:
                if not self._states:
                    self._used = trio.Event()
                    await self._used.wait()
                await trio.sleep(SWEEP_SECONDS)
                await self._sweep()
        finally:
            self.is_open = False
            self._commit_floors()

    async def _sweep(self) -> None:
        for number, (key, state) in enumerate(self._all()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            try:
                self._look_at(key, state)
            except Refused as refused:
                log.warning("pops of group %s: %s", key.group, refused)
                break
        self._settle()
        if self._facts.wants_snapshot and self._states:
            await self._snapshot()

    def _look_at(self, key: Key, state: QueueState) -> None:
        """Everything that is due now and then: dead letters, offsets, tables that are no longer needed."""
        states = self._states.get((key.group, key.topic))
        if states is None or states.get(key.queue_id) is not state:
            return
        now = self._clock()
        queue = self._store.queue(key.topic, key.queue_id)
        if queue is None or self._topics.get(key.topic) is None or self._groups.known(key.group) is None:
            self._forget(key, state)
            return
        committed = self._offsets.of(key.group, key.topic).get(key.queue_id, -1)
        if self._was_set(key, state, committed):
            self._reset(key, state, min(committed if committed >= 0 else queue.begin, queue.end))
        elif state.table.count:
            most = self._most_times(key.group)
            for entry in state.table.dead(now, most, _AT_ONCE):
                self._bury(key, state, entry, place_of(self._store, queue, entry.offset))
        elif now - state.used_at > IDLE_MS:
            self._commit_floor(key, state)
            self._forget(key, state)
            return
        self._commit_floor(key, state)
        self._note_acked()
        self._write()

    def _forget(self, key: Key, state: QueueState) -> None:
        self._note_acked()
        self._facts.note(facts.dropped(key))
        self._write()
        self._in_flight -= state.table.count
        states = self._states[key.group, key.topic]
        del states[key.queue_id]
        self._tables -= 1
        if not states:
            del self._states[key.group, key.topic]

    def _all(self) -> list[tuple[Key, QueueState]]:
        return [
            (Key(group, topic, queue_id), state)
            for (group, topic), states in self._states.items()
            for queue_id, state in states.items()
        ]

    def _commit_floors(self) -> None:
        for key, state in self._all():
            committed = self._offsets.of(key.group, key.topic).get(key.queue_id, -1)
            if committed == state.committed:
                try:
                    self._commit_floor(key, state)
                except Refused as refused:
                    log.warning("pops of group %s: %s", key.group, refused)

    async def _snapshot(self) -> None:
        """Write down all tables, a piece at a time, while pops continue."""
        try:
            self._note_acked()
            self._facts.begin_snapshot()
            for key, state in self._all():
                self._note_acked()
                self._facts.note(facts.start(key, state.table.next))
                for number, piece in enumerate(state.table.pieces()):
                    for at in range(0, len(piece), _PIECE):
                        self._facts.note(facts.part(key, piece[at : at + _PIECE]))
                    self._facts.write()
                    if number % 4 == 3:
                        self._settle()
                        await trio.lowlevel.checkpoint()
                        self._note_acked()
                self._facts.write()
                self._settle()
                await trio.lowlevel.checkpoint()
            self._note_acked()
            self._facts.end_snapshot()
            self._settle()
        except PutRefused as error:
            log.warning("no snapshot of pops can be written: %s", error)

    async def _recover(self) -> None:
        self._states, self._acked, self._in_flight = {}, {}, 0
        now = self._clock()
        records = await self._facts.read(lambda body: self._replay(body, now))
        for key, state in self._all():
            queue = self._store.queue(key.topic, key.queue_id)
            state.table.keep_between(queue.begin if queue is not None else 0, queue.end if queue is not None else 0)
            try:
                self._commit_floor(key, state)
            except Refused as refused:
                log.warning("%s", refused)
            self._in_flight += state.table.count
        self._settle_dead()
        self._tables = len(self._all())
        if records:
            log.info("pops: %d messages are in flight, after %d records", self._in_flight, records)

    def _settle_dead(self) -> None:
        """Take note of a dead letter that was stored when the process ended before it could say so."""
        for group in {key.group for key, _ in self._all()}:
            record = self._dead_letters.newest(group)
            if record is None:
                continue
            key = Key(group, record.topic, record.queue_id)
            state = self._states.get((group, record.topic), {}).get(record.queue_id)
            entry = state.table.get(record.queue_offset) if state is not None else None
            if state is not None and entry is not None and entry.times >= self._most_times(group):
                state.table.done(entry.offset)
                self._in_flight -= 1
                self._facts.note(facts.done(key, [entry.offset]))
        try:
            # At once: with the next dead letter of the group, this one would not be the newest any more.
            self._facts.write()
        except PutRefused as error:
            log.warning("pops: %s", error)

    def _replay(self, body: bytes, now: int) -> None:
        try:
            for fact in facts.read(body):
                self._apply(fact, now)
        except FactError as error:
            log.error("pops: %s", error)

    def _apply(self, fact: facts.Fact, now: int) -> None:
        key = fact.key
        states = self._states.setdefault((key.group, key.topic), {})
        state = states.get(key.queue_id)
        if fact.kind is Kind.DROPPED:
            states.pop(key.queue_id, None)
        elif state is None and fact.kind is not Kind.START:
            # Its beginning has left the log, or comes with the snapshot that is being read; if never, the group goes on
            # at its committed offset, which is a floor.
            pass
        else:
            if state is None:
                state = states[key.queue_id] = QueueState(0, None, now)
            facts.apply(fact, state.table)
            if fact.kind is Kind.POPPED:
                state.in_order = fact.order
                if fact.order and any(entry.times for entry in fact.entries):
                    state.attempt, state.attempt_time = fact.attempt, fact.pop_time
        if not states:
            del self._states[key.group, key.topic]


_PIECE = 1024  # entries of one fact of a snapshot: 35 KB
