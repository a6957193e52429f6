"""What a pop gets from a queue: first messages due for redelivery, then new ones. Read-only.

Without order, anything due goes to the next pop. In order, a message group with a message in flight is busy: the
group's others are *held*, and messages without a group form one.

Java: broker/processor/PopMessageProcessor.java#popMsgFromQueue; broker/offset/ConsumerOrderInfoManager.java
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field

from rocketlet.broker.filter.message_filter import EVERYTHING, MessageFilter
from rocketlet.broker.popping.in_flight import Entry, in_order
from rocketlet.broker.popping.ledger import QueueState
from rocketlet.broker.popping.picking import Candidate, Run, group_key, next_run, pick, place_of
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import Span

# Of one orderly queue: messages that were read and wait for another of their group.
MAX_HELD: Final = 1024
# And those in flight: each pop examines all of them, 2 ms.
MAX_IN_ORDER: Final = 2048


class PopRequest(Struct, gc=False):
    """A pop's parameters. `queue_ids` in the order in which they are tried."""

    group: str
    topic: str
    queue_ids: Sequence[int]
    max_count: int
    invisible_ms: int
    filter: MessageFilter = EVERYTHING
    order: bool = False
    attempt: str = ""
    from_max: bool = False
    budget: int = 0
    """What its filter may still spend, of the FILTER_BUDGET of each try."""


class Delivery(Struct, gc=False):
    """Messages of one queue, in the order of their offsets, and the parts of the log that hold them.

    `before` is how often each was delivered before; None means never. If one was, each part is one message.
    """

    queue_id: int
    offsets: Sequence[int]
    spans: list[Span]
    bytes: int
    before: list[int] | None = None

    @property
    def times(self) -> Sequence[int]:
        """`before`, in full."""
        return self.before if self.before is not None else [0] * len(self.offsets)


class Share(Struct, gc=False):
    """What a pop can get from one queue. `redelivered` was delivered before, `new` was not; `skipped` has to wait.
    `is_retry`: `redelivered` is what this attempt got before."""

    state: QueueState
    following: int
    redelivered: list[tuple[Entry, Candidate]] = field(default_factory=list)
    run: Run | None = None  # new messages without gaps
    new: list[tuple[int, Candidate]] = field(default_factory=list)  # otherwise (key of the message group, message)
    skipped: list[tuple[int, Candidate]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    is_retry: bool = False
    bytes: int = 0

    def __len__(self) -> int:
        return len(self.redelivered) + len(self.new) + (len(self.run.offsets) if self.run is not None else 0)

    @property
    def changes_table(self) -> bool:
        """Whether it changes the table."""
        return bool(len(self) or self.skipped or self.missing or self.following > self.state.table.next)

    def delivery(self) -> Delivery:
        """The messages to deliver."""
        queue_id, run = self.state.key.queue_id, self.run
        if run is not None and not self.redelivered:
            return Delivery(queue_id, run.offsets, run.spans, run.bytes)
        delivered = sorted(
            [(candidate, entry.times - self.is_retry) for entry, candidate in self.redelivered]
            + [(candidate, 0) for _, candidate in self.new]
        )
        if run is not None:
            delivered += [(candidate, 0) for candidate in run.candidates()]
        return Delivery(
            queue_id,
            [candidate.offset for candidate, _ in delivered],
            [Span(candidate.log_offset, candidate.size) for candidate, _ in delivered],
            sum(candidate.size for candidate, _ in delivered),
            [times for _, times in delivered],
        )


class Sharing:
    """Finds shares in the queues of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def share(
        self,
        ask: PopRequest,
        state: QueueState,
        queue: ConsumeQueue,
        now: int,
        room: int,
        room_bytes: int,
        *,
        only_redelivered: bool,
    ) -> Share:
        """Up to `room` messages, including a first one larger than `room_bytes`. `only_redelivered`: nothing new,
        because too much is in flight."""
        share = Share(state, state.table.next)
        if ask.order:
            self._in_order(ask, share, queue, now, room, room_bytes, only_redelivered)
        else:
            self._unordered(ask, share, queue, now, room, room_bytes, only_redelivered)
        return share

    def _unordered(
        self,
        ask: PopRequest,
        share: Share,
        queue: ConsumeQueue,
        now: int,
        room: int,
        room_bytes: int,
        only_redelivered: bool,
    ) -> None:
        table = share.state.table
        if table.count:
            self._redeliver(share, queue, table.due(now, room), room_bytes)
            room -= len(share.redelivered)
        if only_redelivered or room <= 0 or share.bytes >= room_bytes or table.next >= queue.end:
            return
        if ask.filter is EVERYTHING:
            share.run = run = next_run(self._store, queue, table.next, room, room_bytes - share.bytes)
            if run is not None:
                share.following = run.offsets.stop
                share.bytes += run.bytes
                return
        result = pick(self._store, queue, table.next, room, ask.filter, room_bytes - share.bytes, ask.budget)
        ask.budget -= result.spent
        share.new = [(0, candidate) for candidate in result.messages]
        share.following = result.following
        share.bytes += result.bytes

    def _in_order(
        self,
        ask: PopRequest,
        share: Share,
        queue: ConsumeQueue,
        now: int,
        room: int,
        room_bytes: int,
        only_redelivered: bool,
    ) -> None:
        state = share.state
        table = state.table
        if ask.attempt and ask.attempt == state.attempt:
            in_flight = [entry for entry in table if entry.popped == state.attempt_time and entry.due > now]
            if in_flight:
                share.is_retry = True
                self._redeliver(share, queue, in_flight, room_bytes)
                return
        ready = in_order(table, now, room)
        self._redeliver(share, queue, ready.entries, room_bytes)
        room -= len(share.redelivered)
        held_count = sum(entry.times == 0 for entry in table)
        if room <= 0 or share.bytes >= room_bytes or held_count >= MAX_HELD or table.count - held_count >= MAX_IN_ORDER:
            return
        if only_redelivered:
            return
        # Messages of a busy group may come first, and are read and held: read some more than there is room for.
        limit = min(4 * room, MAX_HELD - held_count)
        result = pick(self._store, queue, table.next, limit, ask.filter, room_bytes - share.bytes, ask.budget)
        ask.budget -= result.spent
        waiting = ready.busy | {entry.key for entry in table if entry.due <= now} - {
            entry.key for entry, _ in share.redelivered
        }
        for candidate in result.messages:
            if len(share.new) == room:
                share.following = candidate.offset
                return
            key = group_key(self._store, candidate)
            if key in waiting:
                share.skipped.append((key, candidate))
            else:
                share.new.append((key, candidate))
                share.bytes += candidate.size
        share.following = result.following

    def _redeliver(self, share: Share, queue: ConsumeQueue, entries: Sequence[Entry], room_bytes: int) -> None:
        for entry in entries:
            candidate = place_of(self._store, queue, entry.offset)
            if candidate is None:
                share.missing.append(entry.offset)
                continue
            if share.bytes and share.bytes + candidate.size > room_bytes:
                break
            share.redelivered.append((entry, candidate))
            share.bytes += candidate.size
