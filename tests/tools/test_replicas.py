"""Masters and slaves in one process: the fixtures, `rocketlet up --replicas`, and mqadmin's commands for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock

from rocketlet.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    ReceivedMessage,
    SendFailed,
)
from rocketlet.common.errors import RocketletError
from rocketlet.tools.__main__ import rocketlet
from rocketlet.tools.admin.__main__ import mqadmin
from rocketlet.tools.thread_stack import ThreadStack
from rocketlet.tools.virtual_cluster import VirtualCluster

Cluster = Callable[..., ThreadStack]
Virtual = Callable[..., AbstractAsyncContextManager[VirtualCluster]]


def admin(stack: ThreadStack, *words: str) -> str:
    done = CliRunner().invoke(mqadmin, [*words, "-n", stack.namesrv], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_a_master_that_is_killed_is_replaced_and_nothing_acknowledged_is_lost(rocketmq_cluster: Cluster) -> None:
    stack = rocketmq_cluster(replicas=2)
    assert set(stack.addresses.brokers) == {"broker-a", "broker-a-1"}
    with Producer("p", namesrv=stack.namesrv) as producer:
        for number in range(20):
            while (producer.send(Message("T", b"%d" % number)).status.name) != "SEND_OK":
                pass  # the slave has not connected yet: stored, and sent again
        status = [json.loads(line) for line in admin(stack, "haStatus", "-c", "DefaultCluster", "--json").splitlines()]
        assert [one["master"] for one in status] == [True, False]
        assert status[0]["inSyncSlaveNums"] == 1
        text = admin(stack, "haStatus", "-b", stack.addresses.brokers["broker-a-1"])
        assert "follows its master" in text
        listed = CliRunner().invoke(rocketlet, ["brokers", "-n", stack.namesrv, "--json"]).output.splitlines()
        rows = [json.loads(line) for line in listed]
        assert [row["role"] for row in rows] == ["master", "slave"]
        assert rows[0]["state"] == "1 of 1 slaves in sync"
        stack.kill("broker-a")
        with pytest.raises((SendFailed, RocketletError)):
            producer.send(Message("T", b"nobody"), timeout=0.5)
        said = admin(stack, "promoteSlave", "-b", stack.addresses.brokers["broker-a-1"], "--force")
        assert "0 bytes of the old master's log may be missing" in said
    with Producer("p", namesrv=stack.namesrv) as producer:
        assert producer.send(Message("T", b"goes on")).status.name in ("SEND_OK", "SLAVE_NOT_AVAILABLE")
    with PullConsumer("c", namesrv=stack.namesrv) as consumer:
        found = set()
        for queue in consumer.queues("T"):
            found |= {message.body for message in consumer.pull(queue, 0).messages}
    assert found >= {b"%d" % number for number in range(20)} | {b"goes on"}


def test_an_unknown_broker_is_named(rocketmq: ThreadStack) -> None:
    with pytest.raises(ValueError, match="no broker is called broker-z; there are broker-a"):
        rocketmq.restart("broker-z")


def test_a_broker_that_runs_is_not_started_again(rocketmq: ThreadStack) -> None:
    with pytest.raises(RuntimeError, match="broker-a runs; kill it first"):
        rocketmq.restart("broker-a")


def test_a_shared_broker_is_not_to_be_broken(rocketmq_session: ThreadStack) -> None:
    with pytest.raises(RuntimeError, match="use the fixture rocketmq or rocketmq_cluster"):
        rocketmq_session.kill("broker-a")


async def test_in_virtual_time_a_master_is_paused_parted_and_killed(
    rocketmq_virtual: Virtual, autojump_clock: MockClock
) -> None:
    async with rocketmq_virtual(replicas=2) as cluster:
        await trio.sleep(5)

        async def send(body: bytes) -> str:
            async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world(), retries=0) as producer:
                return (await producer.send(Message("T", body), timeout=10.0)).status.name

        assert await send(b"both") == "SEND_OK"
        cluster.partition("broker-a", "broker-a-1")
        assert await send(b"alone") == "FLUSH_SLAVE_TIMEOUT"
        cluster.heal()
        await trio.sleep(30)
        assert await send(b"both again") == "SEND_OK"
        cluster.pause("broker-a-1")
        assert await send(b"waits in vain") == "FLUSH_SLAVE_TIMEOUT"
        cluster.resume("broker-a-1")
        await trio.sleep(30)
        await cluster.promote("broker-a-1")
        await trio.sleep(30)
        assert await send(b"changed places") == "SEND_OK"
        await cluster.promote("broker-a")
        await trio.sleep(30)
        assert await send(b"and back") == "SEND_OK"
        cluster.kill("broker-a")
        with pytest.raises(RocketletError):
            await send(b"nobody")
        await cluster.promote("broker-a-1", force=True)
        assert await send(b"alone again") == "SLAVE_NOT_AVAILABLE"
        ends = {name: broker.store.log.end for name, broker in cluster.brokers.items()}
        assert list(ends) == ["broker-a-1"]


async def test_consumers_continue_at_the_slave_and_back(rocketmq_virtual: Virtual, autojump_clock: MockClock) -> None:
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with rocketmq_virtual(replicas=2) as cluster:
        await trio.sleep(5)
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            for number in range(10):
                assert (await producer.send(Message("T", b"%d" % number))).status.name == "SEND_OK"
        reading = {"topics": {"T": "*"}, "namesrv": cluster.namesrv, "consume_from": ConsumeFrom.FIRST_OFFSET}
        async with AsyncPushConsumer("g", listener, world=cluster.world(), **reading):
            await trio.sleep(40)
        assert len(got) == 10
        cluster.kill("broker-a")
        await trio.sleep(200)
        # At the slave: another group from the beginning, and the first one with nothing to do, since its offsets were
        # replicated.
        for group in ("g", "other"):
            async with AsyncPushConsumer(group, listener, world=cluster.world(), **reading):
                await trio.sleep(40)
        assert len(got) == 20
        await cluster.start("broker-a")
        await trio.sleep(60)
        # Offsets committed at the slave have reached the master.
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            assert (await producer.send(Message("T", b"back"))).status.name == "SEND_OK"
        async with AsyncPushConsumer("other", listener, world=cluster.world(), **reading):
            await trio.sleep(40)
        assert got[20:] == [b"back"]
