"""What a pop gets from a queue: first what is due again, then what was never delivered. Read-only.

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
from rocketlet.broker.popping.picking import Found, Run, group_key, next_run, pick, place_of
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import Span

# Of one orderly queue: messages that were read and wait for another of their group.
MOST_HELD: Final = 1024
# And those in flight: each pop examines all of them, 2 ms.
MOST_IN_ORDER: Final = 2048


class Ask(Struct, gc=False):
    """A pop's parameters. `queue_ids` in the order in which they are tried."""

    group: str
    topic: str
    queue_ids: Sequence[int]
    most: int
    invisible_ms: int
    wanted: MessageFilter = EVERYTHING
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
    """What a pop can get from one queue. `again` was delivered before, `new` was not; `held` is skipped for now.
    `same`: `again` is what this attempt got before."""

    state: QueueState
    following: int
    again: list[tuple[Entry, Found]] = field(default_factory=list)
    run: Run | None = None  # new messages without gaps
    new: list[tuple[int, Found]] = field(default_factory=list)  # otherwise (key of the message group, message)
    held: list[tuple[int, Found]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    same: bool = False
    bytes: int = 0

    def __len__(self) -> int:
        return len(self.again) + len(self.new) + (len(self.run.offsets) if self.run is not None else 0)

    @property
    def changes_table(self) -> bool:
        """Whether it changes the table."""
        return bool(len(self) or self.held or self.gone or self.following > self.state.table.next)

    def delivery(self) -> Delivery:
        """The messages to deliver."""
        queue_id, run = self.state.key.queue_id, self.run
        if run is not None and not self.again:
            return Delivery(queue_id, run.offsets, run.spans, run.bytes)
        given = sorted(
            [(found, entry.times - self.same) for entry, found in self.again] + [(found, 0) for _, found in self.new]
        )
        if run is not None:
            given += [(found, 0) for found in run.found()]
        return Delivery(
            queue_id,
            [found.offset for found, _ in given],
            [Span(found.log_offset, found.size) for found, _ in given],
            sum(found.size for found, _ in given),
            [times for _, times in given],
        )


class Sharing:
    """Finds shares in the queues of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def share(
        self,
        ask: Ask,
        state: QueueState,
        queue: ConsumeQueue,
        now: int,
        room: int,
        room_bytes: int,
        *,
        only_again: bool,
    ) -> Share:
        """Up to `room` messages, including a first one larger than `room_bytes`. `only_again`: nothing new, because too
        much is in flight."""
        share = Share(state, state.table.next)
        if ask.order:
            self._in_order(ask, share, queue, now, room, room_bytes, only_again)
        else:
            self._any(ask, share, queue, now, room, room_bytes, only_again)
        return share

    def _any(
        self, ask: Ask, share: Share, queue: ConsumeQueue, now: int, room: int, room_bytes: int, only_again: bool
    ) -> None:
        table = share.state.table
        if table.count:
            self._again(share, queue, table.due(now, room), room_bytes)
            room -= len(share.again)
        if only_again or room <= 0 or share.bytes >= room_bytes or table.next >= queue.end:
            return
        if ask.wanted is EVERYTHING:
            share.run = run = next_run(self._store, queue, table.next, room, room_bytes - share.bytes)
            if run is not None:
                share.following = run.offsets.stop
                share.bytes += run.bytes
                return
        picked = pick(self._store, queue, table.next, room, ask.wanted, room_bytes - share.bytes, ask.budget)
        ask.budget -= picked.spent
        share.new = [(0, found) for found in picked.messages]
        share.following = picked.following
        share.bytes += picked.bytes

    def _in_order(
        self, ask: Ask, share: Share, queue: ConsumeQueue, now: int, room: int, room_bytes: int, only_again: bool
    ) -> None:
        state = share.state
        table = state.table
        if ask.attempt and ask.attempt == state.attempt:
            mine = [entry for entry in table if entry.popped == state.attempt_time and entry.due > now]
            if mine:
                share.same = True
                self._again(share, queue, mine, room_bytes)
                return
        ready = in_order(table, now, room)
        self._again(share, queue, ready.entries, room_bytes)
        room -= len(share.again)
        held = sum(entry.times == 0 for entry in table)
        if room <= 0 or share.bytes >= room_bytes or held >= MOST_HELD or table.count - held >= MOST_IN_ORDER:
            return
        if only_again:
            return
        # Messages of a busy group may come first, and are read and held: read some more than there is room for.
        most = min(4 * room, MOST_HELD - held)
        picked = pick(self._store, queue, table.next, most, ask.wanted, room_bytes - share.bytes, ask.budget)
        ask.budget -= picked.spent
        waiting = ready.busy | {entry.key for entry in table if entry.due <= now} - {
            entry.key for entry, _ in share.again
        }
        for found in picked.messages:
            if len(share.new) == room:
                share.following = found.offset
                return
            key = group_key(self._store, found)
            if key in waiting:
                share.held.append((key, found))
            else:
                share.new.append((key, found))
                share.bytes += found.size
        share.following = picked.following

    def _again(self, share: Share, queue: ConsumeQueue, entries: Sequence[Entry], room_bytes: int) -> None:
        for entry in entries:
            found = place_of(self._store, queue, entry.offset)
            if found is None:
                share.gone.append(entry.offset)
                continue
            if share.bytes and share.bytes + found.size > room_bytes:
                break
            share.again.append((entry, found))
            share.bytes += found.size
