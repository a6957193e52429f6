"""Messages with any delivery time: they wait in the timer's topic, and a copy is stored at the destination when due.

None is lost or duplicated, however the process ends: a batch of copies follows the fact that names them, in the same
turn and order, so after a crash the log itself shows which copies exist (`facts.py`). Facts are in the
log too, so a slave that becomes the master continues where the old one ended.

A message may wait longer than the log keeps it (`fileReservedTime`): one of half that age is stored again, by the same
rule, and the copy takes its place.

Java: store/timer/TimerMessageStore.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from rocketlet.broker.delayed_delivery import origin_of
from rocketlet.broker.fact_log import FactLog
from rocketlet.broker.put_again import FilterBits, put_again
from rocketlet.broker.timing import facts
from rocketlet.broker.timing.deliver_at import QUEUE
from rocketlet.broker.timing.facts import FactError, Gathered
from rocketlet.broker.timing.pending import NEVER, Pending
from rocketlet.common.clock import WallClock
from rocketlet.common.message_properties import REAL_TOPIC, UNIQ_KEY, decode_bytes, find
from rocketlet.common.message_record import Record, decode, properties_of
from rocketlet.common.topic import TIMER_TOPIC, InvalidName
from rocketlet.store.errors import MessageIllegal, PutRefused
from rocketlet.store.layout.consume_queue_entry import LOST
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

log = logging.getLogger("rocketlet.broker.timing.timers")

FACTS_QUEUE: Final = 1
BATCH: Final = 64  # delivered before other tasks run: 2 ms
READ_AT_ONCE: Final = 256
LONGEST_SLEEP: Final = 5.0  # the wall clock may be set meanwhile
ROLL_SECONDS: Final = 60.0
SHORTEST_PAUSE: Final = 0.1  # seconds, after a copy could not be stored
LONGEST_PAUSE: Final = 5.0
_PIECE: Final = 4096  # rows of one fact of a snapshot: 64 KB
# Messages of the same ms that a recall examines; beyond that the index is used.
_SAME_MOMENT: Final = 256
_SNAPSHOT_ARRIVALS: Final = 20_000


@dataclass(frozen=True, slots=True)
class TimerStatistics:
    pending: int
    delivered: int
    recalled: int
    skipped: int
    next_due: int
    late_ms: int
    """Of all that were delivered, added up."""


@dataclass(slots=True)
class Copy:
    """A due message, and the copy to be stored."""

    due: int
    place: int
    put: Put


class Timers:
    """One object per broker; it delivers while `run` runs."""

    def __init__(
        self, store: MessageStore, clock: WallClock, settle: Callable[[], None], filter_bits: FilterBits
    ) -> None:
        self._store = store
        self._clock = clock
        self._settle = settle
        self._filter_bits = filter_bits
        self._facts = FactLog(store, FACTS_QUEUE)
        self._pending = Pending()
        self._read_to = 0
        self._arrivals = 0  # since the last snapshot
        self._undecided: int | None = None  # copies of the last batch, until their number is written
        self._useless: list[int] = []  # undeliverable, and not recorded yet
        self._delivered = self._recalled = self._skipped = self._late_ms = 0
        self.is_open = False
        self._changed = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled, as a master. REQUIRES an open, writable store."""
        await self._recover()
        self.is_open = True
        task_status.started()
        rolled = trio.current_time()
        pause = SHORTEST_PAUSE
        try:
            while True:
                await self._read_new()
                if self._deliver_due():
                    pause = SHORTEST_PAUSE
                elif self._pending.next_due() <= self._clock():
                    await trio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
                if self._wants_snapshot():
                    await self._snapshot()
                if trio.current_time() - rolled > ROLL_SECONDS:
                    await self._roll()
                    rolled = trio.current_time()
                await self._wait()
        finally:
            self.is_open = False

    async def _wait(self) -> None:
        """Wait until the next one is due or a new one arrives."""
        queue_end = self._store.watch(TIMER_TOPIC, QUEUE)
        if queue_end.value > self._read_to:
            await trio.lowlevel.checkpoint()
            return
        self._changed = changed = trio.Event()
        waiter = queue_end.call_at(self._read_to + 1, changed.set)
        due = self._pending.next_due()
        seconds = float("inf") if due == NEVER else min(max(due - self._clock(), 0) / 1000, LONGEST_SLEEP)
        with trio.move_on_after(seconds):
            await changed.wait()
        waiter.cancel()

    # ---- delivering

    def _deliver_due(self) -> bool:
        """Deliver a batch of due messages. False if something is due but nothing could be stored."""
        due_messages = self._pending.take(self._clock(), BATCH)
        if not due_messages:
            return True
        copies = []
        for due, place in due_messages:
            put = self._copy_of(place)
            if put is None:
                self._useless.append(place)
            else:
                copies.append(Copy(due, place, put))
        count = self._store_copies(copies)
        now = self._clock()
        self._late_ms += sum(max(now - copy.due, 0) for copy in copies[:count])
        self._delivered += count
        for copy in copies[count:]:
            self._pending.add(copy.due, copy.place)
        self._settle()
        return count == len(copies)

    def _store_copies(self, copies: list[Copy]) -> int:
        """The rule in the module's docstring. Returns how many of `copies` were stored, and removes one that never can
        be."""
        count = 0
        try:
            if copies or self._useless:
                self._write_facts(facts.delivering([copy.place for copy in copies]) if copies else b"")
            for copy in copies:
                self._undecided = count
                self._store.put(copy.put)
                count += 1
            if copies:
                self._undecided = count
        except (MessageIllegal, InvalidName) as error:
            illegal = copies.pop(count)
            log.error("the delayed message at %d can never go to %s: %s", illegal.place, illegal.put.topic, error)
            self._useless.append(illegal.place)
        except PutRefused as error:
            log.error("a delayed message cannot be stored, and is tried again: %s", error)
        return count

    def _write_facts(self, fact: bytes) -> None:
        """Write a fact, after those not written yet. Raises PutRefused, with nothing written."""
        if self._undecided is not None:
            self._facts.note(facts.delivered(self._undecided))
        if self._useless:
            self._facts.note(facts.removed(self._useless))
        if fact:
            self._facts.note(fact)
        try:
            self._facts.write()
        except PutRefused:
            self._facts.forget()
            raise
        self._skipped += len(self._useless)
        self._undecided, self._useless = None, []

    def _copy_of(self, place: int) -> Put | None:
        record = self._record(place)
        origin = origin_of(record) if record is not None else None
        if record is None or origin is None:
            log.error("the delayed message at %d cannot be read, or goes nowhere", place)
            return None
        put = put_again(record, origin.topic, origin.queue_id)
        put.filter_bits = self._filter_bits(put.topic, put.properties)
        return put

    def _record(self, place: int) -> Record | None:
        queue = self._store.queue(TIMER_TOPIC, QUEUE)
        entry = queue.entry(place) if queue is not None else None
        raw = self._store.record_at(entry[0], entry[1]) if entry is not None and entry[2] != LOST else None
        return decode(raw) if raw is not None else None

    # ---- arriving

    async def _read_new(self) -> None:
        queue = self._store.queue(TIMER_TOPIC, QUEUE)
        while queue is not None and self._read_to < queue.end:
            self._take_new(min(queue.end, self._read_to + READ_AT_ONCE))
            if self._read_to < queue.end:
                await trio.lowlevel.checkpoint()

    def _take_new(self, end: int) -> None:
        queue = self._store.queue(TIMER_TOPIC, QUEUE)
        assert queue is not None
        for place in range(max(self._read_to, queue.begin), end):
            due = self._due_of(place)
            if due is not None:
                self._pending.add(due, place)
                self._arrivals += 1
        self._read_to = end

    def _due_of(self, place: int) -> int | None:
        queue = self._store.queue(TIMER_TOPIC, QUEUE)
        entry = queue.entry(place) if queue is not None else None
        record = self._store.log.read(entry[0], entry[1]) if entry is not None and entry[2] != LOST else None
        text = find(properties_of(record), b"TIMER_OUT_MS") if record is not None else None
        if text is None or not text.isdigit() or len(text) > 18:
            log.error("the message at %d of the timer's queue has no delivery time, and stays there", place)
            return None
        return int(text)

    # ---- recalling

    def recall(self, topic: str, due: int, message_id: str) -> bool:
        """Cancel a message; False if it is not waiting (any more). Raises PutRefused."""
        queue = self._store.queue(TIMER_TOPIC, QUEUE)
        if queue is not None and self._read_to < queue.end <= self._read_to + READ_AT_ONCE:
            self._take_new(queue.end)
        for place in self._candidates(due, message_id):
            record = self._record(place)
            properties = decode_bytes(record.properties) if record is not None else {}
            if properties.get(UNIQ_KEY) == message_id and properties.get(REAL_TOPIC) == topic:
                self._write_facts(facts.removed([place]))
                self._pending.remove(due, place)
                self._recalled += 1
                return True
        return False

    def _candidates(self, due: int, message_id: str) -> list[int]:
        places = self._pending.at(due, _SAME_MOMENT + 1)
        if len(places) <= _SAME_MOMENT:
            return places
        result = self._store.find_by_key(TIMER_TOPIC, message_id, _SAME_MOMENT, 0, NEVER)
        return [place for _, raw in result.records if self._pending.has(due, place := decode(raw).queue_offset)]

    @property
    def log_end(self) -> int:
        """The end up to which the log has to be safe for everything written here to be safe."""
        return self._store.log.end

    # ---- queries

    def statistics(self) -> TimerStatistics:
        return TimerStatistics(
            len(self._pending), self._delivered, self._recalled, self._skipped, self._pending.next_due(), self._late_ms
        )

    def __repr__(self) -> str:
        return f"<Timers {self.statistics()}>"

    # ---- staying in the log

    async def _roll(self) -> None:
        """Store messages again that are about to leave the log."""
        oldest = self._clock() - self._store.config.file_reserved_time * 3_600_000 // 2
        limit = self._store.offset_at_time(TIMER_TOPIC, QUEUE, oldest)
        old = [(due, place) for due, place in self._pending.before(limit) if due > self._clock() + LONGEST_SLEEP * 1000]
        for at in range(0, len(old), BATCH):
            await trio.lowlevel.checkpoint()
            copies = []
            for due, place in old[at : at + BATCH]:
                record = self._record(place)
                if record is not None and self._pending.has(due, place):
                    copies.append(Copy(due, place, put_again(record, TIMER_TOPIC, QUEUE)))
            copy_count = len(copies)
            stored_count = self._store_copies(copies)
            for copy in copies[:stored_count]:
                self._pending.remove(copy.due, copy.place)
            self._settle()
            if stored_count < copy_count:
                return
        if old:
            log.info("%d delayed messages were stored again, to stay in the log", len(old))

    # ---- snapshots

    def _wants_snapshot(self) -> bool:
        return self._arrivals > max(_SNAPSHOT_ARRIVALS, len(self._pending) // 4) or self._facts.wants_snapshot

    async def _snapshot(self) -> None:
        try:
            self._write_facts(b"")
            self._facts.begin_snapshot()
            self._facts.note(facts.start(self._read_to))
            rows = self._pending.rows()
            self._arrivals = 0
            for at in range(0, len(rows), _PIECE):
                self._write_facts(facts.entries(rows[at : at + _PIECE]))
                self._settle()
                await trio.lowlevel.checkpoint()
                await self._read_new()
                while self._pending.next_due() <= self._clock() and self._deliver_due():
                    await trio.lowlevel.checkpoint()
            self._write_facts(b"")
            self._facts.end_snapshot()
            self._settle()
        except PutRefused as error:
            self._facts.forget()
            log.warning("no snapshot of delayed messages can be written: %s", error)

    # ---- after a restart

    async def _recover(self) -> None:
        gathered = Gathered()
        self._pending, self._undecided, self._useless, self._arrivals = Pending(), None, [], 0

        def take(body: bytes, of_snapshot: bool) -> None:
            try:
                for fact in facts.read(body):
                    # Another START belongs to a snapshot cut short by a crash.
                    if of_snapshot or fact.kind is not facts.Kind.START:
                        gathered.take(fact)
            except FactError as error:
                log.error("delayed messages: %s", error)

        await self._facts.read(take)
        if gathered.unresolved is not None:
            copied = self._copies_behind(gathered.unresolved.tolist())
            gathered.resolve(copied)
            self._undecided = copied
        queue = self._store.queue(TIMER_TOPIC, QUEUE)
        begin, end = (queue.begin, queue.end) if queue is not None else (0, 0)
        self._read_to = max(min(gathered.read_to, end), begin)
        if begin == end:
            return  # nothing was ever delayed, or everything is gone
        rows = gathered.pending()
        self._pending.add_many(rows[(rows[:, 1] >= begin) & (rows[:, 1] < self._read_to)])
        await self._read_again(end, gathered.all_gone())
        if len(self._pending):
            log.info("%d delayed messages wait", len(self._pending))

    async def _read_again(self, end: int, delivered: NDArray[numpy.int64]) -> None:
        """Arrivals since the snapshot, without those gone since."""
        left_out = set(delivered[delivered >= self._read_to].tolist())
        for place in range(self._read_to, end):
            if place % READ_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if place not in left_out:
                due = self._due_of(place)
                if due is not None:
                    self._pending.add(due, place)
                    self._arrivals += 1
        self._read_to = end

    def _copies_behind(self, places: list[int]) -> int:
        """How many of the copies announced by the last fact exist."""
        end = self._facts.last_end
        for number, place in enumerate(places):
            original = self._record(place)
            raw = self._next_record(end)
            copy = decode(raw[1]) if raw is not None else None
            if raw is None or copy is None or original is None or _name(copy) != _name(original):
                return number
            end = raw[0] + copy.size
        return len(places)

    def _next_record(self, log_offset: int) -> tuple[int, bytes] | None:
        """The record at that log offset, or at the beginning of the next file."""
        raw = self._store.record_at(log_offset)
        if raw is None:
            size = self._store.log.file_size
            log_offset += size - log_offset % size
            raw = self._store.record_at(log_offset)
        return (log_offset, raw) if raw is not None else None


def _name(record: Record) -> tuple[object, ...]:
    """The identity shared by a message and its copy."""
    return record.properties, record.body_crc, record.born_timestamp, record.born_host
