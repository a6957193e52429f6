"""Delayed messages compared with a model, across crashes: each is delivered once, when due or later, or was recalled.

DELAY_CRASHES=10000 pytest tests/broker/timing/test_delay_model.py
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
import trio

from rocketlet.broker.timing import timers as timers_module
from rocketlet.broker.timing.deliver_at import postpone
from rocketlet.broker.timing.timers import Timers
from rocketlet.common import message_properties
from rocketlet.common.message_record import decode
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Appended, Put
from rocketlet.store.message_store import MessageStore
from tests.support.waiting_parts import HOST, no_bits, small_config

CRASHES = int(os.environ.get("DELAY_CRASHES", "40"))
RUNS = max(2, min(CRASHES // 20, 500))


class Killed(BaseException):
    """The process is killed here."""


@dataclass
class World:
    random: Random
    disk: MemoryDisk = field(default_factory=lambda: MemoryDisk(page_size=256))
    now: int = 10_000_000
    sent: dict[str, int] = field(default_factory=dict)  # moments by unique key
    unsure: set[str] = field(default_factory=set)  # sent or recalled by an unanswered step
    recalled: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)  # delivered
    number: int = 0
    crashes: int = 0

    async def open(self) -> None:
        self.store = MessageStore(self.disk, small_config(), lambda: self.now, on_progress=lambda line: None)
        await self.store.open()
        self.timers = Timers(self.store, lambda: self.now, self.store.settle, no_bits)
        await self.timers._recover()
        self.timers.is_open = True
        self.store.settle()

    def send(self) -> None:
        for _ in range(self.random.choice([1, 1, 5])):
            self.number += 1
            key = f"K{self.number}"
            due = self.now + self.random.choice([1, 5, 300, 5000, 200_000])
            self.unsure.add(key)
            properties = {"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(due)}
            put = Put("T", self.random.randrange(2), key.encode(), born_host=HOST, store_host=HOST)
            put.properties = message_properties.encode(properties).encode()
            postpone(put, properties, due)
            self.store.put(put)
            self.store.settle()
            self.unsure.discard(key)
            self.sent[key] = due

    async def deliver(self) -> None:
        await self.timers._read_new()
        while self.timers._pending.next_due() <= self.now and self.timers._deliver_due():
            pass

    def recall(self) -> None:
        waiting = [key for key, due in self.sent.items() if due > self.now and key not in self.recalled | self.found]
        if not waiting:
            return
        key = self.random.choice(waiting)
        if key in self.unsure:
            return
        self.unsure.add(key)
        assert self.timers.recall("T", self.sent[key], key)
        self.unsure.discard(key)
        self.recalled.add(key)

    async def snapshot(self) -> None:
        await self.timers._read_new()
        await self.timers._snapshot()

    async def roll(self) -> None:
        await self.timers._read_new()
        # As if all of them were old.
        self.now += 40 * 3_600_000 if self.random.random() < 0.05 else 0
        await self.timers._roll()

    def wait(self) -> None:
        self.now += self.random.choice([1, 10, 400, 70_000])

    def step_back(self) -> None:
        self.now -= self.random.choice([1, 1000])

    def agree(self) -> None:
        """Nothing was delivered twice, early, or after its recall."""
        found: Counter[str] = Counter()
        for queue_id in range(2):
            queue = self.store.queue("T", queue_id)
            for offset in range(queue.end if queue is not None else 0):
                assert queue is not None
                entry = queue.entry(offset)
                raw = self.store.record_at(entry[0]) if entry is not None else None
                assert raw is not None
                record = decode(raw)
                key = record.body.decode()
                found[key] += 1
                assert record.store_timestamp >= self.sent.get(key, 0), f"{key} came early"
        assert not [key for key, times in found.items() if times > 1], found
        assert not set(found) & self.recalled - self.unsure
        self.found = set(found)

    async def everything_comes(self) -> None:
        self.now += 1_000_000
        await self.deliver()
        self.agree()
        missing = set(self.sent) - self.recalled - self.unsure - self.found
        assert not missing, f"{missing} never came"

    async def crash_in(self, step: Callable[[], object], power: bool) -> None:
        self.store.log.flush_to(self.store.flushed.value, self.store.log.end)()
        append, left = self.store._writing._append, self.random.choice([1, 1, 2, 3, 4])

        def append_and_die(*given: object) -> Appended:
            nonlocal left
            left -= 1
            if left == 0 and self.random.random() < 0.3:
                raise Killed
            appended: Appended = append(*given)  # type: ignore[arg-type]
            if left == 0:
                raise Killed
            return appended

        self.store._writing._append = append_and_die  # type: ignore[method-assign, assignment]
        before = set(self.sent), set(self.recalled)
        try:
            result = step()
            if hasattr(result, "__await__"):
                await result  # type: ignore[misc]
        except Killed:
            pass
        self.unsure |= (set(self.sent) - before[0]) | (self.recalled - before[1])
        self.disk = self.disk.crash(self.random) if power else self.disk.copy()
        self.crashes += 1
        await self.open()
        self.agree()


async def live(seed: int, crashes: int) -> int:
    world = World(Random(seed))
    await world.open()
    steps: list[Callable[[], object]] = [world.send] * 4 + [world.deliver] * 4 + [world.wait] * 3  # type: ignore[operator, assignment]
    steps += [world.recall, world.snapshot, world.roll, world.step_back]
    while world.crashes < crashes:
        step = world.random.choice(steps)
        if world.random.random() < 0.2:
            await world.crash_in(step, power=world.random.random() < 0.3)
            continue
        result = step()
        if hasattr(result, "__await__"):
            await result
        world.agree()
    await world.everything_comes()
    return world.crashes


@pytest.mark.parametrize("seed", range(RUNS))
def test_delayed_messages_agree_with_their_model_over_crashes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers_module, "BATCH", 3)
    monkeypatch.setattr(timers_module, "_PIECE", 2)  # a snapshot has many records, and is cut short by crashes
    each = -(-CRASHES // RUNS)
    assert trio.run(live, seed, each) >= each
