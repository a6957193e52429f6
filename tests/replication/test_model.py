"""One master and two slaves through cuts, pauses, partitions, crashes at any write and restarts, in virtual time.

Whatever happens, a slave's log is a prefix of its master's, and what a SYNC_MASTER acknowledged is in a slave's log
too, so the master's disk may be lost. At the end either the master is lost and the slave with the longest log is
promoted and has everything acknowledged; or all catch up, and have the same log, queues and index.

40 runs by default; `HYPOTHESIS_PROFILE=thorough REPLICATION_SEEDS=10000` makes that many.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from random import Random

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketlet.common.message_id import parse_offset_message_id
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.protocol.replication import PromoteHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.check import NOTE, check
from tests.support.pair import Member, Pair, pair
from tests.support.properties import examples

NAMES = st.sampled_from(["master", "slave-1", "slave-2"])
SLAVES = st.sampled_from(["slave-1", "slave-2"])
SECONDS = st.sampled_from([0.001, 0.02, 0.5, 3.0, 30.0])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 12), SECONDS),
        st.tuples(st.just("send"), st.integers(1, 60), st.just(0.001)),
        st.tuples(st.just("cut"), NAMES, SECONDS),
        st.tuples(st.just("part"), SLAVES, SECONDS),
        st.tuples(st.just("pause"), NAMES, SECONDS),
        st.tuples(st.just("doom"), NAMES, st.integers(0, 25)),
        st.tuples(st.just("doom"), NAMES, st.integers(0, 4)),
        st.tuples(st.just("kill"), NAMES, st.just(0)),
        st.tuples(st.just("start"), NAMES, st.sampled_from([-1, -1, 2, 5, 12])),
    ),
    min_size=2,
    max_size=14,
)
Step = tuple[str, int | str, float]
RUNS = int(os.environ.get("REPLICATION_SEEDS", 0)) or examples(40)


@dataclass
class Model:
    """The acknowledged messages, and how far every log has been seen."""

    cluster: Pair
    nursery: trio.Nursery
    power_cuts: bool
    random: Random
    sent: int = 0
    acknowledged: dict[bytes, int] = field(default_factory=dict)  # body → log offset

    async def step(self, what: str, who: int | str, number: float) -> None:
        cluster = self.cluster
        if what == "send":
            for _ in range(int(who)):
                self.sent += 1
                self.nursery.start_soon(self.send, b"%d " % self.sent * self.random.randrange(1, 60))
            await trio.sleep(number)
            return
        member = cluster.members[str(who)]
        if what == "start":
            if member.broker is None and number >= 0:
                cluster.doom(member.name, int(number), power_cut=self.power_cuts)
            await self.start(member)
        elif member.broker is None:
            pass
        elif what == "cut":
            cluster.network.cut_host(member.host)
            await trio.sleep(number)
        elif what == "part":
            cluster.network.separate(member.host, cluster.master.host)
            await trio.sleep(number)
            cluster.network.unite(member.host, cluster.master.host)
        elif what == "pause":
            cluster.network.pause(member.host)
            await trio.sleep(number)
            cluster.network.resume(member.host)
        elif what == "doom":
            cluster.doom(member.name, int(number), power_cut=self.power_cuts)
            await self.step("send", 4, 0.02)
        elif what == "kill":
            await cluster.kill(member.name, power_cut=self.power_cuts)

    async def start(self, member: Member) -> None:
        """Start it if it is down."""
        if member.broker is None:
            await self.cluster.start(member.name)

    async def send(self, body: bytes) -> None:
        try:
            answer = await self.cluster.master.send("T", body, len(body) % 3)
        except RemotingError:
            return
        if answer.code == 0:
            self.acknowledged[body] = parse_offset_message_id((answer.ext or {})["msgId"])[2]

    def look(self) -> None:
        """Check the invariants that hold at any moment."""
        cluster = self.cluster
        slaves = [cluster.slave(1), cluster.slave(2)]
        if cluster.master.broker is not None:
            log = cluster.master.log()
            for slave in slaves:
                if slave.broker is not None and slave.store.log.end:
                    found = slave.log()
                    assert log[: len(found)] == found, f"{slave.name}'s log is no begin of the master's"
        if all(slave.broker is not None for slave in slaves) and self.acknowledged:
            furthest = max(slave.store.log.end for slave in slaves)
            assert max(self.acknowledged.values()) < furthest, "no slave has what was acknowledged"

    async def lose_the_master(self) -> None:
        cluster = self.cluster
        if cluster.master.broker is not None:
            await cluster.kill("master")
        slaves = [cluster.slave(1), cluster.slave(2)]
        for slave in slaves:
            slave.disk.power_cut_in = None
            await self.start(slave)
        self.look()
        new = max(slaves, key=lambda slave: slave.store.log.end)
        answer = await new.call(RequestCode.PROMOTE_SLAVE, PromoteHeader(force=True))
        assert answer.code == 0, answer.remark
        await self.is_complete(new)
        assert (await new.send("T", b"goes on")).code in (0, 11)

    async def come_together(self) -> None:
        cluster = self.cluster
        for member in cluster.members.values():
            member.disk.power_cut_in = None
            await self.start(member)
        await trio.sleep(30)
        self.look()
        await cluster.caught_up()
        await trio.sleep(10)  # tables come after the log
        cluster.same_log()
        for member in cluster.members.values():
            await self.is_complete(member)
        config = cluster.master.store.config
        for name, member in cluster.members.items():
            await cluster.stop(name)
            report = check(member.disk, config)
            wrong = [one for one in report.findings if one.severity != NOTE]
            assert not wrong, f"{name}: " + "; ".join(report.lines())

    async def is_complete(self, member: Member) -> None:
        """Every acknowledged message is in its queue."""
        found: set[bytes] = set()
        for queue in range(3):
            offset = 0
            while (answer := await member.pull("T", queue, offset)).code == 0:
                found |= {bytes(record.body) for record in answer.records}
                offset += len(answer.records)
            at_end = answer.code == ResponseCode.PULL_NOT_FOUND or not self.acknowledged  # and no topic perhaps
            assert at_end, f"{member.name}, queue {queue} at {offset}: {answer}"
        lost = self.acknowledged.keys() - found
        assert not lost, f"{member.name} lacks {len(lost)} acknowledged messages"


async def live(steps: list[Step], seed: int, power_cuts: bool, loses_master: bool) -> None:
    flush = {"flush_disk_type": "SYNC_FLUSH"} if power_cuts else {}
    async with (
        pair(
            slaves=2, broker_role="SYNC_MASTER", mapped_file_size_commit_log=1 << 14, max_message_size=4096, **flush
        ) as cluster,
        trio.open_nursery() as nursery,
    ):
        cluster.random.seed(seed)
        model = Model(cluster, nursery, power_cuts, Random(seed))
        await trio.sleep(2)
        for step in steps:
            await model.step(*step)
            model.look()
        await (model.lose_the_master() if loses_master else model.come_together())
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@settings(max_examples=RUNS, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(STEPS, st.integers(0, 1 << 32), st.booleans(), st.booleans())
def test_slaves_hold_a_prefix_of_the_log_with_everything_acknowledged(
    steps: list[Step], seed: int, power_cuts: bool, loses_master: bool
) -> None:
    trio.run(live, steps, seed, power_cuts, loses_master, clock=MockClock(autojump_threshold=0))
