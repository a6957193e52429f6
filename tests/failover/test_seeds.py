"""Whole brokers in virtual time, on memory disk and network, while everything happens to them.

A seed is a run of 60 seconds: partitions, pauses (a partition from everybody), crashes with and without power cuts at
any write, loss of the coordinator, master switches, under producers. Then all is healed, and:

- what was acknowledged is there, at its place;
- what a consumer had seen is there, at its place;
- the logs of all replicas are the same bytes.

`ROCKETLET_FAILOVER_SEEDS` runs more seeds than the suite has time for, from `ROCKETLET_FAILOVER_SEED` on.
"""

from __future__ import annotations

import os
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rocketlet.failover.driver import NotNow
from rocketlet.remoting.errors import RemotingError
from tests.support.replicas import Member, Replicas, replicas

SEEDS = int(os.environ.get("ROCKETLET_FAILOVER_SEEDS", "3"))
FIRST = int(os.environ.get("ROCKETLET_FAILOVER_SEED", "1"))
QUEUES = 2


class Run:
    """One seed."""

    def __init__(self, them: Replicas, random: Random, size: int) -> None:
        self.them = them
        self.random = random
        self.size = size
        self.acked: dict[tuple[int, int], bytes] = {}
        self.seen: dict[tuple[int, int], bytes] = {}
        self.refused = 0
        self.down: set[int] = set()

    async def produce(self, number: int) -> None:
        """To whoever takes it: a producer does not know better than to ask the last master it knew."""
        count = 0
        while True:
            count += 1
            body = b"%d-%d" % (number, count)
            queue = self.random.randrange(QUEUES)
            member = self.random.choice(list(self.them.members.values()))
            try:
                with trio.move_on_after(4):
                    answer = await member.send("T", body, queue)
                    if answer.code == 0 and answer.ext is not None:
                        place = (queue, int(answer.ext["queueOffset"]))
                        assert self.acked.setdefault(place, body) == body, "two messages at one place"
                    else:
                        self.refused += 1
            except RemotingError:
                self.refused += 1
            await trio.sleep(self.random.uniform(0.02, 0.3))

    async def consume(self) -> None:
        at = [0] * QUEUES
        while True:
            for member in self.them.leading():
                for queue in range(QUEUES):
                    with trio.move_on_after(2):
                        try:
                            pulled = await member.pull("T", queue, at[queue])
                        except RemotingError:
                            continue
                        for record in pulled.records:
                            place = (queue, record.queue_offset)
                            assert self.seen.setdefault(place, record.body) == record.body, "a message has changed"
                            at[queue] = record.queue_offset + 1
            await trio.sleep(0.2)

    async def trouble(self, seconds: float) -> None:
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            await trio.sleep(self.random.uniform(0.2, 4))
            step = self.random.choice([self.part, self.pause, self.crash, self.crash, self.no_coordinator, self.switch])
            await step()

    def any(self) -> Member:
        leading = self.them.leading()
        if leading and self.random.random() < 0.6:
            return self.random.choice(leading)
        return self.random.choice(list(self.them.members.values()))

    async def part(self) -> None:
        one, other = self.any(), self.any()
        if one is other:
            return
        self.them.network.separate(one.host, other.host)
        await trio.sleep(self.random.uniform(0.1, 8))
        self.them.network.unite(one.host, other.host)

    async def pause(self) -> None:
        """Nothing in or out, and no word from the coordinator."""
        one = self.any()
        name = str(one.number)
        self.them.coordination.cut_off.add(name)
        if self.random.random() < 0.7:
            self.them.network.separate(one.host, "*")
        await trio.sleep(self.random.uniform(0.1, 10))
        self.them.coordination.cut_off.discard(name)
        self.them.network.unite(one.host, "*")

    async def crash(self) -> None:
        one = self.any()
        if one.broker is None:
            return
        power_cut = self.random.random() < 0.5
        await self.them.kill(one.number, power_cut=power_cut)
        await self.them.start(one.number)

    async def no_coordinator(self) -> None:
        self.them.coordination.stop()
        await trio.sleep(self.random.uniform(0.1, 10))
        self.them.coordination.go_on()

    async def switch(self) -> None:
        for member in self.them.leading():
            if member.driver is not None:
                try:
                    with trio.move_on_after(10):
                        await member.driver.resign("")
                except NotNow:
                    pass  # nobody else is in sync at this moment

    async def check(self) -> None:
        leader = await self.them.all_in_sync(120)
        self.them.same_log()
        there: dict[tuple[int, int], bytes] = {}
        for queue in range(QUEUES):
            at = 0
            try:
                await leader.pull("T", queue, at)
            except RemotingError:
                pass  # a connection from before the trouble, which ends now
            while records := (await leader.pull("T", queue, at)).records:
                for record in records:
                    there[queue, record.queue_offset] = record.body
                    at = record.queue_offset + 1
        lost = {place: body for place, body in self.acked.items() if there.get(place) != body}
        assert not lost, f"acknowledged and lost: {lost}"
        vanished = {place: body for place, body in self.seen.items() if there.get(place) != body}
        assert not vanished, f"seen and vanished: {vanished}"


async def run_seed(seed: int) -> Run:
    random = Random(seed)
    size = random.choice((2, 3, 3))
    async with replicas(size, seed=seed, flush_disk_type="SYNC_FLUSH") as them:
        await them.leader()
        run = Run(them, random, size)
        async with trio.open_nursery() as load:
            for number in range(3):
                load.start_soon(run.produce, number)
            load.start_soon(run.consume)
            await run.trouble(60)
            load.cancel_scope.cancel()
        await run.check()
        return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_nothing_acknowledged_is_lost_whatever_happens(seed: int, autojump_clock: MockClock) -> None:
    run = await run_seed(seed)
    assert run.acked
