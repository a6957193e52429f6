"""Pops compared with a model, across crashes: which messages are in flight until when, done, or dead.

A step is one of two consumers popping, acknowledging (even late or twice) or changing; or a send, passing time, a
sweep, a snapshot. At any step the process may be killed after any of its writes, or the machine may lose power.
Answered steps hold; after an unanswered one each message is as before it or as after it.

    POP_CRASHES=10000 pytest tests/broker/popping/test_pop_model.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
import trio

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.popping import in_flight
from rocketlet.broker.popping.dead_letters import DeadLetters
from rocketlet.broker.popping.facts import Key
from rocketlet.broker.popping.pops import Pops
from rocketlet.broker.popping.sharing import PopRequest
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common import message_properties
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import decode
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Appended, Put
from rocketlet.store.message_store import MessageStore
from tests.support.waiting_parts import HOST, no_bits, small_config

CRASHES = int(os.environ.get("POP_CRASHES", "40"))
QUEUES = 2
MAX_TRIES = 3  # deliveries
GROUP, TOPIC = "G", "T"


class Killed(BaseException):
    """The process is killed here."""


@dataclass(frozen=True)
class Message:
    """The model's view of a message: `due` -1 done, -2 dead."""

    queue_id: int
    offset: int
    group: str = ""
    times: int = 0
    due: int = 0

    @property
    def over(self) -> bool:
        return self.due < 0


def log_offset_of(message_id: str) -> int:
    """The last sixteen digits of an offset id."""
    return int(message_id[-16:], 16)


@dataclass
class Handle:
    queue_id: int
    offset: int
    pop_time: int


@dataclass
class World:
    """A broker's pops, and the model of them."""

    random: Random
    order: bool
    disk: MemoryDisk = field(default_factory=lambda: MemoryDisk(page_size=256))
    now: int = 1_000_000
    messages: dict[tuple[int, int], Message] = field(default_factory=dict)
    handles: list[Handle] = field(default_factory=list)
    saved: dict[int, int] = field(default_factory=dict)  # the file of offsets
    asked: set[tuple[int, int]] = field(default_factory=set)  # to be acknowledged by a step that may stay unanswered
    touched: set[tuple[int, int]] = field(default_factory=set)  # popped or changed by such a step
    crashes: int = 0

    async def open(self) -> None:
        self.store = MessageStore(self.disk, small_config(), lambda: self.now, on_progress=lambda line: None)
        await self.store.open()
        settings = Settings(BrokerConfig())
        topics = TopicTable(settings, lambda: self.now, lambda: None)
        topics.update(Topic(TOPIC, QUEUES, QUEUES))
        groups = SubscriptionGroups(settings, lambda: self.now, lambda: None)
        groups.update(SubscriptionGroupConfig(groupName=GROUP, retryMaxTimes=MAX_TRIES - 1))
        self.offsets = ConsumerOffsets()
        for queue_id, offset in self.saved.items():
            self.offsets.commit(GROUP, TOPIC, queue_id, offset)
        self.pops = Pops(
            self.store, topics, groups, self.offsets, lambda: self.now, lambda: 1 << 40,
            DeadLetters(self.store, topics, no_bits), self.store.settle,
        )  # fmt: skip
        await self.pops._recover()
        self.pops.is_open = True
        self.store.settle()

    # ---- steps; each returns the messages as they are when it is answered

    def send(self) -> None:
        queue_id = self.random.randrange(QUEUES)
        group = self.random.choice(["", "a", "b"]) if self.order else ""
        raw = message_properties.encode({"__SHARDINGKEY": group} if group else {}).encode()
        appended = self.store.put(Put(TOPIC, queue_id, b"x", raw, born_host=HOST, store_host=HOST))
        self.store.settle()
        self.messages[queue_id, appended.queue_offset] = Message(queue_id, appended.queue_offset, group)

    def pop(self) -> None:
        most = self.random.choice([1, 2, 3, 32])
        invisible = self.random.choice([0, 10, 50, 1000])
        queues = self.random.choice([[0, 1], [1, 0], [0], [1]])
        self.touched = expected = self._deliverable(queues)
        turn = self.random.choice([1, 1, 2]) if invisible else 1  # pops of one turn, which become one record
        got: list[tuple[int, int, int, int]] = []
        for _ in range(100):  # a dead one or two at each
            all_taken = [
                self.pops.take(PopRequest(GROUP, TOPIC, queues, most, invisible, order=self.order)) for _ in range(turn)
            ]
            self.pops.write()
            got = [
                (one.queue_id, offset, before, taken.pop_time)
                for taken in all_taken
                for one in taken.deliveries
                for offset, before in zip(one.offsets, one.times, strict=True)
            ]
            if got or not any(taken.progress for taken in all_taken):
                break
        self.store.settle()
        self._learn_dead(queues)
        for queue_id, offset, before, pop_time in got:
            message = self.messages[queue_id, offset]
            assert (queue_id, offset) in expected, f"{message} was given to two, or comes after its ack"
            assert before == message.times
            self.messages[queue_id, offset] = replace(message, times=before + 1, due=pop_time + invisible)
            self.handles.append(Handle(queue_id, offset, pop_time))
        alive = [key for key in expected if not self.messages[key].over]
        assert len(got) <= most * turn, "more than was asked for"
        assert got or not alive, f"nothing was given, though there is {alive}"

    def ack(self) -> None:
        if not self.handles:
            return
        chosen = self.random.choices(self.handles, k=self.random.choice([1, 1, 3]))
        rows = [self._row(handle) if self.random.random() < 0.5 else [handle.offset] for handle in chosen]
        self.asked = {(one.queue_id, offset) for one, row in zip(chosen, rows, strict=True) for offset in row}
        for handle, row in zip(chosen, rows, strict=True):
            self.pops.acknowledge(Key(GROUP, TOPIC, handle.queue_id), row)
        self.pops.write()
        self.store.settle()
        for key in self.asked:
            if not self.messages[key].over:
                self.messages[key] = replace(self.messages[key], due=-1)

    def _row(self, one: Handle) -> range:
        """What was delivered with it, and follows one another."""
        together = {
            handle.offset
            for handle in self.handles
            if (handle.queue_id, handle.pop_time) == (one.queue_id, one.pop_time)
        }
        begin = end = one.offset
        while begin - 1 in together:
            begin -= 1
        while end in together:
            end += 1
        return range(begin, end)

    def change(self) -> None:
        if not self.handles:
            return
        handle = self.random.choice(self.handles)
        message = self.messages[handle.queue_id, handle.offset]
        invisible = self.random.choice([0, 20, 500])
        self.touched = {(handle.queue_id, handle.offset)}
        newest = max(
            one.pop_time for one in self.handles if (one.queue_id, one.offset) == (handle.queue_id, handle.offset)
        )
        try:
            pop_time, _ = self.pops.change(
                Key(GROUP, TOPIC, handle.queue_id), handle.offset, handle.pop_time, invisible
            )
        except Refused:
            assert handle.pop_time != newest, "the newest handle was refused"
            return
        self.pops.write()
        self.store.settle()
        if not message.over:
            assert handle.pop_time == newest
            self.messages[handle.queue_id, handle.offset] = replace(message, due=self.now + invisible)
            handle.pop_time = pop_time

    async def sweep(self) -> None:
        await self.pops._sweep()
        self._learn_dead(range(QUEUES))
        for queue_id in range(QUEUES):
            open_ones = [one.offset for one in self.messages.values() if one.queue_id == queue_id and not one.over]
            floor = self.offsets.get(GROUP, TOPIC, queue_id)
            if floor is not None:
                end = self.store.queue_end(TOPIC, queue_id)
                assert floor == min(open_ones, default=end), "the committed offset passes over a message"

    async def snapshot(self) -> None:
        if not self.pops._ledger.is_empty:
            await self.pops._ledger.snapshot(self.store.settle)

    def wait(self) -> None:
        self.now += self.random.choice([1, 9, 60, 2000])

    def save(self) -> None:
        self.saved = dict(self.offsets.of(GROUP, TOPIC))

    # ---- the model's view

    def _deliverable(self, queues: list[int]) -> set[tuple[int, int]]:
        found = set()
        for queue_id in queues:
            mine = [one for one in self.messages.values() if one.queue_id == queue_id and not one.over]
            busy = {one.group for one in mine if one.due > self.now} if self.order else set()
            found |= {(queue_id, one.offset) for one in mine if one.due <= self.now and one.group not in busy}
        return found

    def _dead_ones(self) -> list[tuple[int, int]]:
        """The messages in the dead letters, each once."""
        queue = self.store.queue(f"%DLQ%{GROUP}", 0)
        found = []
        for place in range(queue.end if queue is not None else 0):
            assert queue is not None
            entry = queue.entry(place)
            raw = self.store.record_at(entry[0]) if entry is not None else None
            assert raw is not None
            origin = log_offset_of(decode_bytes(decode(raw).properties)["ORIGIN_MESSAGE_ID"])
            found.append(self._place_of(origin))
        assert len(found) == len(set(found)), "a dead letter is doubled"
        return found

    def _place_of(self, log_offset: int) -> tuple[int, int]:
        raw = self.store.record_at(log_offset)
        assert raw is not None
        record = decode(raw)
        return record.queue_id, record.queue_offset

    def _learn_dead(self, queues: object) -> None:
        """A message dies when it is examined, never before its time, and is then in the dead letters."""
        for key, message in self.messages.items():
            if message.times >= MAX_TRIES and not message.over and message.due <= self.now and self._is_over(message):
                self.messages[key] = replace(message, due=-2)
        there = set(self._dead_ones())
        dead = {key for key, one in self.messages.items() if one.due == -2}
        assert dead <= there, "a dead letter is missing"
        # A crash may come between the dead letter and the fact; it is not written again then.
        assert all(self.messages[key].times >= MAX_TRIES for key in there - dead)

    def _entry(self, message: Message) -> tuple[int, int] | None:
        """The broker's (times, due) of a message; None if it is over."""
        state = self.pops._ledger.of(GROUP, TOPIC).get(message.queue_id)
        if state is None:
            floor = self.offsets.get(GROUP, TOPIC, message.queue_id) or 0
            return None if message.offset < floor else (0, 0)
        if message.offset >= state.table.next:
            return 0, 0
        entry = state.table.get(message.offset)
        return (entry.times, entry.due) if entry is not None else None

    def _is_over(self, message: Message) -> bool:
        return self._entry(message) is None

    def agree(self) -> None:
        """The broker's tables agree with the model."""
        for message in self.messages.values():
            entry = self._entry(message)
            assert entry == (None if message.over else (message.times, message.due)), message

    # ---- crashes

    async def crash_in(self, step: Callable[[], object], power: bool) -> None:
        """Take a step that is never answered, and restart."""
        before = dict(self.messages)
        handles = [replace(one) for one in self.handles]
        self.flush_all()
        append, left = self.store._writing._append, self.random.choice([1, 1, 2, 3])

        def append_and_die(*given: object) -> Appended:
            nonlocal left
            appended: Appended = append(*given)  # type: ignore[arg-type]
            left -= 1
            if left == 0:
                raise Killed
            return appended

        self.store._writing._append = append_and_die  # type: ignore[method-assign, assignment]
        self.asked, self.touched = set(), set()
        try:
            result = step()
            if hasattr(result, "__await__"):
                await result  # type: ignore[misc]
        except Killed:
            pass
        self.handles = handles
        after = dict(self.messages)
        self.disk = self.disk.crash(self.random) if power else self.disk.copy()
        self.crashes += 1
        await self.open()
        self.messages = {}
        for key in before.keys() | after.keys():
            self._adopt(key, before.get(key), after.get(key), key in self.asked)
        self._adopt_sent()
        self.agree()

    def flush_all(self) -> None:
        """Everything answered is on disk, as with SYNC_FLUSH."""
        self.store.log.flush_to(self.store.flushed.value, self.store.log.end)()

    def _adopt(self, key: tuple[int, int], before: Message | None, after: Message | None, may_be_done: bool) -> None:
        queue_id, offset = key
        if offset >= self.store.queue_end(TOPIC, queue_id):
            assert before is None, f"{key} was acknowledged and is gone"
            return
        known = before or after
        assert known is not None
        entry = self._entry(known)
        if entry is None:
            dying = known.times >= MAX_TRIES and known.due <= self.now
            assert known.over or (after is not None and after.over) or may_be_done or dying, f"{known} was lost"
            dead = key in self._dead_ones()
            self.messages[key] = replace(known, due=known.due if known.over else (-2 if dying and dead else -1))
            return
        assert not known.over, f"the ack of {known} was forgotten"
        as_it_was = {(one.times, one.due) for one in (before, after) if one is not None}
        assert entry in as_it_was or (key in self.touched and entry[0] - known.times in (0, 1)), (entry, before, after)
        self.messages[key] = replace(known, times=entry[0], due=entry[1])
        state = self.pops._ledger.of(GROUP, TOPIC).get(queue_id)
        found = state.table.get(offset) if state is not None else None
        if found is not None and found.times:
            self.handles.append(Handle(queue_id, offset, found.popped))

    def _adopt_sent(self) -> None:
        for queue_id in range(QUEUES):
            for offset in range(self.store.queue_end(TOPIC, queue_id)):
                if (queue_id, offset) not in self.messages:
                    entry = self.store.queue(TOPIC, queue_id)
                    assert entry is not None
                    raw = self.store.record_at(entry.entry(offset)[0])  # type: ignore[index]
                    assert raw is not None
                    group = "a" if b"\x01a" in raw else "b" if b"\x01b" in raw else ""
                    self.messages[queue_id, offset] = Message(queue_id, offset, group)


async def live(seed: int, crashes: int) -> int:
    random = Random(seed)
    world = World(random, order=bool(seed % 2))
    await world.open()
    steps = [world.send] * 4 + [world.pop] * 6 + [world.ack] * 4 + [world.change] * 2 + [world.wait] * 3
    steps += [world.sweep, world.save, world.snapshot]  # type: ignore[list-item]
    while world.crashes < crashes:
        step = random.choice(steps)
        if random.random() < 0.15:
            await world.crash_in(step, power=random.random() < 0.3)
            continue
        result = step()  # type: ignore[func-returns-value]
        if hasattr(result, "__await__"):
            await result
        world.agree()
    return world.crashes


@pytest.mark.parametrize("seed", range(max(2, min(CRASHES // 20, 500))))
def test_pops_agree_with_their_model_over_crashes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 4 > 1:
        monkeypatch.setattr(in_flight, "_BLOCK", 3)  # a snapshot has many records, and is cut short by crashes
    if seed % 2:
        monkeypatch.setattr(in_flight, "_SHORTEST_RUN", 1)
        monkeypatch.setattr(in_flight, "_MAX_RUNS", 2)
    each = -(-CRASHES // max(2, min(CRASHES // 20, 500)))
    assert trio.run(live, seed, each) >= each
