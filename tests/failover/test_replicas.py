"""Three brokers that elect their master, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from rocketlet.metrics.page import Page
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.membership import LockBatchAnswerBody, LockBatchBody
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.memory_broker import Client
from tests.support.replicas import NAME, Member, Replicas, replicas


async def bodies_at(client: Client, topic: str = "T") -> list[bytes]:
    found: list[bytes] = []
    while records := (await client.pull(topic, 0, len(found))).records:
        found += [record.body for record in records]
    return found


async def fill(cluster: Replicas, count: int, word: str = "m") -> list[bytes]:
    bodies = [f"{word} {number}".encode() for number in range(count)]
    leader = await cluster.leader()
    for body in bodies:
        assert (await leader.send("T", body)).code == 0
    return bodies


async def test_one_replica_leads_and_the_others_follow(autojump_clock: MockClock) -> None:
    async with replicas() as cluster:
        leader = await cluster.all_in_sync()
        assert [member.number for member in cluster.leading()] == [leader.number]
        wanted = await fill(cluster, 20)
        await cluster.all_in_sync()
        await trio.sleep(2)  # the tables follow
        cluster.same_log()
        for member in cluster.members.values():
            assert await bodies_at(member) == wanted


async def test_after_kill_9_another_replica_leads_with_everything(autojump_clock: MockClock) -> None:
    async with replicas() as cluster:
        old = await cluster.all_in_sync()
        wanted = await fill(cluster, 20)
        await cluster.kill(old.number)
        new = await cluster.leader()
        assert new.number != old.number
        wanted += await fill(cluster, 20, "later")
        await cluster.start(old.number)
        await cluster.all_in_sync()
        await trio.sleep(2)  # the tables follow
        cluster.same_log()
        assert await bodies_at(old) == wanted == await bodies_at(new)


async def test_a_taken_port_for_slaves_does_not_end_the_new_master(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas() as cluster:
        old = await cluster.all_in_sync()
        strangers = [
            await cluster.network.listen(member.host, 10912) for member in cluster.members.values() if member is not old
        ]
        wanted = await fill(cluster, 20)
        await cluster.kill(old.number)
        new = await cluster.leader()
        wanted += await fill(cluster, 20, "later")
        assert f"cannot listen on {new.host}:10912" in caplog.text
        for stranger in strangers:
            await stranger.aclose()
        await trio.sleep(6)
        await (await cluster.network.dial(f"{new.host}:10912")).aclose()
        assert await bodies_at(new) == wanted


async def test_a_returning_masters_unconfirmed_tail_is_cut_and_kept_aside(autojump_clock: MockClock) -> None:
    async with replicas() as cluster:
        old = await cluster.all_in_sync()
        wanted = await fill(cluster, 20)
        cluster.network.separate(old.host, "*")
        async with trio.open_nursery() as nursery:
            assert old.broker is not None
            cluster.coordination.cut_off.add(old.driver.status().member if old.driver else "")
            cluster.network.unite(old.host, "*")
            for member in cluster.members.values():
                if member is not old:
                    cluster.network.separate(old.host, member.host)
            answers: list[int] = []

            async def send_alone() -> None:
                answers.append((await old.send("T", b"alone")).code)

            nursery.start_soon(send_alone)
            await trio.sleep(1)
            new = await cluster.leader(60)
            while new is old:
                await trio.sleep(1)
                new = await cluster.leader(60)
            wanted += await fill(cluster, 20, "later")
            cluster.coordination.cut_off.clear()
            for member in cluster.members.values():
                cluster.network.unite(old.host, member.host)
        assert answers
        assert answers[0] != 0
        await cluster.all_in_sync()
        await trio.sleep(2)  # the tables follow
        cluster.same_log()
        assert await bodies_at(old) == wanted == await bodies_at(new)
        assert old.driver is not None
        status = old.driver.status()
        assert (status.cut_files, status.cut_bytes > 0) == (1, True)
        kept = [data for path, data in old.disk.files().items() if path.startswith("store/rocketlet/cut/")]
        assert any(b"alone" in data for data in kept)


async def test_metrics_and_runtime_info_describe_the_replica_group(autojump_clock: MockClock) -> None:
    async with replicas() as cluster:
        leader = await cluster.all_in_sync()
        assert leader.broker is not None
        page = Page(100_000)
        for _ in leader.broker.metrics.fill(page):
            pass
        in_sync = page.gauge("rocketlet_failover_in_sync", "", ("cluster", "broker"))
        assert in_sync.samples == {("", ("DefaultCluster", "broker-a")): 3}
        table = KVTable.from_json((await leader.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert (table["failoverState"], table["epoch"]) == ("leading", "1")
        assert table["inSyncReplicas"].count("/") == 3


async def test_a_restarted_replicas_unconfirmed_tail_is_not_readable(autojump_clock: MockClock) -> None:
    async with replicas() as cluster:
        leader = await cluster.all_in_sync()
        wanted = await fill(cluster, 5)
        await trio.sleep(2)
        slave = next(member for member in cluster.members.values() if member is not leader)
        await cluster.kill(slave.number)
        cluster.network.separate(slave.host, "*")
        cluster.coordination.cut_off.add(str(slave.number))
        cluster.network.unite(slave.host, "*")
        cluster.network.separate(slave.host, leader.host)
        await cluster.start(slave.number)
        assert (await slave.pull("T", 0, 0)).code == ResponseCode.SYSTEM_BUSY
        cluster.network.unite(slave.host, leader.host)
        cluster.coordination.cut_off.clear()
        await cluster.all_in_sync()
        assert await bodies_at(slave) == wanted


async def lock(member: Member, client: str, *queues: int) -> list[int]:
    asked = LockBatchBody(client, "CG", [WireQueue(NAME, queue, "T") for queue in queues])
    answer = await member.call(RequestCode.LOCK_BATCH_MQ, body=asked.to_json())
    return sorted(queue.queueId for queue in LockBatchAnswerBody.from_json(answer.body).lockOKMQSet)


async def test_an_orderly_queue_keeps_its_consumer_at_the_new_master(autojump_clock: MockClock) -> None:
    async with replicas() as cluster:
        old = await cluster.all_in_sync()
        await fill(cluster, 1)
        assert await lock(old, "first", 0, 1) == [0, 1]
        await trio.sleep(1)
        await cluster.kill(old.number)
        new = await cluster.leader()
        assert await lock(new, "second", 0, 1, 2) == [], "who held what at the old master is not known of queue 2"
        assert await lock(new, "first", 0, 1) == [0, 1]
        await trio.sleep(30)
        assert await lock(new, "second", 0, 1, 2) == [2]
