"""Replicas that elect their master, in one process, as used by an application's tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import MockClock

from rocketlet.client import AsyncProducer, Message, Producer, PullConsumer
from rocketlet.tools.thread_stack import ThreadStack
from rocketlet.tools.virtual_cluster import VirtualCluster

Cluster = Callable[..., ThreadStack]
Virtual = Callable[..., AbstractAsyncContextManager[VirtualCluster]]


@pytest.mark.slow
def test_an_applications_failover_is_rehearsed(rocketmq_cluster: Cluster) -> None:
    stack = rocketmq_cluster(replicas=3)
    with Producer("p", namesrv=stack.namesrv, send_timeout=10.0) as producer:
        for number in range(10):
            assert producer.send(Message("T", b"%d" % number)).status.name == "SEND_OK"
        killed = stack.kill_master()
        for number in range(10, 20):
            assert producer.send(Message("T", b"%d" % number)).status.name == "SEND_OK"
        assert stack.master() not in (killed, None)
        stack.restart(killed)
        stack.etcd_down()
        for number in range(20, 30):
            assert producer.send(Message("T", b"%d" % number)).status.name == "SEND_OK"
        stack.etcd_up()
    with PullConsumer("c", namesrv=stack.namesrv) as consumer:
        found = [message.body for queue in consumer.queues("T") for message in consumer.pull(queue, 0).messages]
    assert set(found) == {b"%d" % number for number in range(30)}


@pytest.mark.slow
async def test_in_virtual_time_a_master_is_parted_from_all_and_another_one_leads(
    rocketmq_virtual: Virtual, autojump_clock: MockClock
) -> None:
    async with rocketmq_virtual(replicas=3) as cluster:
        await trio.sleep(2)
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world(), send_timeout=20.0) as producer:
            assert (await producer.send(Message("T", b"first"))).status.name == "SEND_OK"
            old = await cluster.elected()
            for other in cluster.brokers:
                if other != old:
                    cluster.partition(old, other)
            cluster.partition(old, "etcd")
            with trio.fail_after(60):
                new = await cluster.elected(but=old)
            cluster.heal()
            assert (await producer.send(Message("T", b"second"))).status.name == "SEND_OK"
            await trio.sleep(5)
            assert cluster.brokers[old].identity.slave
            assert not cluster.brokers[new].identity.slave
            cluster.pause(new)
            with trio.fail_after(60):
                await cluster.elected(but=new)
            cluster.resume(new)
            await trio.sleep(10)
            assert (await producer.send(Message("T", b"third"))).status.name == "SEND_OK"
            await trio.sleep(0.1)  # a replica acknowledges before it files
            ends = {broker.store.log.end for broker in cluster.brokers.values()}
            assert len(ends) == 1


def test_replicas_without_election_say_so(rocketmq: ThreadStack) -> None:
    with pytest.raises(RuntimeError, match="replicas=3"):
        rocketmq.kill_master()
