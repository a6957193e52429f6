"""Whole brokers in virtual time, on memory disk and network, under all kinds of failures.

A seed is a run of 30 seconds with two failures at a time on two or three replicas under producers and consumers:
partitions, pauses (a partition from everybody), loss of the coordinator, master switches, clean restarts, `kill -9` and
power cuts, the last two also at any disk call that changes something, even during a start. Throughout, a message seen
by a consumer, at any replica, equals what was seen or acknowledged at that offset before. Then everything is healed,
and:

- acknowledged messages exist, at their offsets;
- messages seen by a consumer exist, at their offsets;
- the logs of all replicas are identical;
- the checker finds nothing wrong in any store.

`ROCKETLET_FAILOVER_SEEDS` runs more seeds than the suite has time for, from `ROCKETLET_FAILOVER_SEED` on; thousands
are run by `python -m benchmarks.failover_seeds`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from random import Random

import pytest
import trio
from trio._core import _run
from trio.testing import MockClock

from rocketlet.failover.leader import NotNow
from rocketlet.remoting.errors import RemotingError
from rocketlet.store.check import NOTE, check
from tests.support.replicas import Member, Replicas, replicas

SEEDS = int(os.environ.get("ROCKETLET_FAILOVER_SEEDS", "3"))
FIRST = int(os.environ.get("ROCKETLET_FAILOVER_SEED", "1"))
QUEUES = 2
SECONDS = 30


class Run:
    """One seed."""

    def __init__(self, cluster: Replicas, random: Random, *, power_cuts: bool) -> None:
        self.cluster = cluster
        self.random = random
        self.power_cuts = power_cuts
        self.acked: dict[tuple[int, int], bytes] = {}
        self.seen: dict[tuple[int, int], bytes] = {}
        self.refused = 0
        self.busy: set[int] = set()  # members being stopped or started now

    async def produce(self, number: int) -> None:
        """Send to whichever replica accepts: a producer asks the last master it knew."""
        count = 0
        while True:
            count += 1
            body = b"%d-%d " % (number, count) * self.random.choice((1, 1, 8, 40))
            queue = self.random.randrange(QUEUES)
            leading = self.cluster.leading()
            member = self.random.choice(leading if leading and self.random.random() < 0.8 else self.members)
            try:
                with trio.move_on_after(4):
                    answer = await member.send("T", body, queue)
                    if answer.code == 0 and answer.ext is not None:
                        place = (queue, int(answer.ext["queueOffset"]))
                        assert self.acked.setdefault(place, body) == body, "two messages were acknowledged at one place"
                        assert self.seen.get(place, body) == body, "what was acknowledged is not what was seen there"
                    else:
                        self.refused += 1
            except RemotingError:
                self.refused += 1
            await trio.sleep(self.random.uniform(0.02, 0.3))

    async def consume(self) -> None:
        """Pull from whichever replica answers, including followers."""
        at = {member.number: [0] * QUEUES for member in self.members}
        while True:
            member, queue = self.random.choice(self.members), self.random.randrange(QUEUES)
            mine = at[member.number]
            with trio.move_on_after(2), suppress(RemotingError):
                for record in (await member.pull("T", queue, mine[queue])).records:
                    place = (queue, record.queue_offset)
                    assert self.seen.setdefault(place, record.body) == record.body, "a message has changed"
                    assert self.acked.get(place, record.body) == record.body, "this is not what was acknowledged"
                    mine[queue] = record.queue_offset + 1
            await trio.sleep(0.1)

    @property
    def members(self) -> list[Member]:
        return list(self.cluster.members.values())

    async def trouble(self) -> None:
        end = trio.current_time() + SECONDS
        steps = [
            self.part,
            self.pause,
            self.crash,
            self.doom,
            self.doom,
            self.restart,
            self.no_coordinator,
            self.switch,
        ]
        while trio.current_time() < end:
            await trio.sleep(self.random.uniform(0.1, 3))
            await self.random.choice(steps)()

    def any(self) -> Member:
        leading = self.cluster.leading()
        if leading and self.random.random() < 0.6:
            return self.random.choice(leading)
        return self.random.choice(self.members)

    async def part(self) -> None:
        member, other = self.any(), self.any()
        if member is other:
            return
        self.cluster.network.separate(member.host, other.host)
        await trio.sleep(self.random.uniform(0.1, 8))
        self.cluster.network.unite(member.host, other.host)

    async def pause(self) -> None:
        """Nothing in or out, and no contact with the coordinator."""
        member = self.any()
        name = str(member.number)
        self.cluster.coordination.cut_off.add(name)
        if self.random.random() < 0.7:
            self.cluster.network.separate(member.host, "*")
        await trio.sleep(self.random.uniform(0.1, 10))
        self.cluster.coordination.cut_off.discard(name)
        if member.broker is not None:  # otherwise it has died meanwhile, and nothing of it may get out
            self.cluster.network.unite(member.host, "*")

    async def crash(self) -> None:
        member = self.any()
        if member.broker is None or member.number in self.busy:
            return
        self.busy.add(member.number)
        power_cut = self.power_cuts and self.random.random() < 0.6
        await self.cluster.kill(member.number, power_cut=power_cut, seconds=self.random.choice((0.1, 1, 5)))
        await self.revive(member)

    async def doom(self) -> None:
        """Make it die at a disk call."""
        member = self.any()
        if member.broker is None or member.number in self.busy:
            return
        self.busy.add(member.number)
        power_cut = self.power_cuts and self.random.random() < 0.6
        self.cluster.doom(member.number, self.random.randrange(self.random.choice((3, 12, 60))), power_cut=power_cut)
        with trio.move_on_after(self.random.uniform(1, 6)):
            await member.ended.wait()
        if member.broker is not None:
            member.disk.power_cut_in = None
        await trio.sleep(self.random.choice((0.05, 0.5, 4)))
        await self.revive(member)

    async def restart(self) -> None:
        member = self.any()
        if member.broker is None or member.number in self.busy:
            return
        self.busy.add(member.number)
        await self.cluster.stop(member.number)
        await self.revive(member)

    async def revive(self, member: Member) -> None:
        """Start it, which may take several attempts."""
        while member.broker is None:
            if self.random.random() < 0.3:
                power_cut = self.power_cuts and self.random.random() < 0.6
                self.cluster.doom(member.number, self.random.randrange(30), power_cut=power_cut)
            await self.cluster.start(member.number)
        self.busy.discard(member.number)

    async def no_coordinator(self) -> None:
        self.cluster.coordination.stop()
        await trio.sleep(self.random.uniform(0.1, 10))
        self.cluster.coordination.resume()

    async def switch(self) -> None:
        for member in self.cluster.leading():
            if member.driver is not None:
                try:
                    with trio.move_on_after(10):
                        await member.driver.resign("")
                except NotNow:
                    pass  # nobody else is in sync at this moment

    async def heal(self) -> None:
        self.cluster.coordination.cut_off.clear()
        self.cluster.coordination.resume()
        for member in self.members:
            self.cluster.network.unite(member.host, "*")
            for other in self.members:
                self.cluster.network.unite(member.host, other.host)
            member.disk.power_cut_in = None
            if member.broker is None:
                await self.cluster.start(member.number)

    async def check(self) -> None:
        await self.heal()
        leader = await self.cluster.all_in_sync(120)
        self.cluster.same_log()
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
        for member in self.members:
            config = member.store.config
            await self.cluster.stop(member.number)
            report = check(member.disk, config)
            wrong = [member for member in report.findings if member.severity != NOTE]
            assert not wrong, f"replica {member.number}: " + "; ".join(report.lines())


async def run_seed(seed: int) -> Run:
    random = Random(seed)
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True  # as trio's own plug-ins for pytest and hypothesis do
    _run._r.seed(seed)
    size = random.choice((2, 3, 3))
    flush = random.choice(("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH"))
    async with replicas(size, seed=seed, flush_disk_type=flush) as cluster:
        await cluster.leader()
        run = Run(cluster, random, power_cuts=flush == "SYNC_FLUSH")
        async with trio.open_nursery() as load:
            for number in range(2):
                load.start_soon(run.produce, number)
            load.start_soon(run.consume)
            async with trio.open_nursery() as troubles:
                troubles.start_soon(run.trouble)
                troubles.start_soon(run.trouble)
            load.cancel_scope.cancel()
        await run.check()
        return run


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_nothing_acknowledged_is_lost_whatever_happens(seed: int, autojump_clock: MockClock) -> None:
    run = await run_seed(seed)
    assert run.acked
