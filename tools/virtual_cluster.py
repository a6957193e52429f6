"""A whole cluster in memory and in virtual time: hours of retries, partitions and restarts in milliseconds.

    async def test_a_lost_master(autojump_clock):
        async with virtual_cluster(replicas=2) as cluster:
            async with AsyncProducer("g", namesrv=cluster.namesrv, world=cluster.world()) as producer:
                await producer.send(Message("T", b"hi"))
            cluster.kill("broker-a")
            await trio.sleep(200)
            await cluster.promote("broker-a-1", force=True)

It is the stack of `rocketlet up`, on a network in memory and with a wall clock that follows trio's. Each client is a
separate host. Under pytest it is the fixture `rocketmq_virtual`.

Java: (none)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random

import trio

from rocketlet.client.talking.session import World
from rocketlet.common.clock import TrioWallClock
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.tools.local import LocalStack
from rocketlet.tools.local_settings import Addresses, LocalSettings

BEGIN_MS = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC


class VirtualCluster(LocalStack):
    """A running stack, with its addresses and the seams for clients."""

    def __init__(self, settings: LocalSettings) -> None:
        self.network = MemoryNetwork(host="127.0.0.1")
        self.clock = TrioWallClock(BEGIN_MS)
        super().__init__(settings, self.network, self.clock)
        self.addresses: Addresses
        self._clients = 0

    @property
    def namesrv(self) -> str:
        """The name servers, in clients' format."""
        return self.addresses.namesrv

    def world(self) -> World:
        """The seams of one more client: `AsyncProducer(..., world=cluster.world())`."""
        self._clients += 1
        host = f"10.3.0.{self._clients}"
        return World(network=self.network.of_host(host), clock=self.clock, random=Random(self._clients), ip=host)


@asynccontextmanager
async def virtual_cluster(
    *, brokers: int = 1, namesrvs: int = 1, replicas: int = 1, settings: Mapping[str, str] | None = None
) -> AsyncIterator[VirtualCluster]:
    """Runs until the block ends. `settings` are the brokers', by RocketMQ's keys."""
    stack_settings = LocalSettings(
        namesrv_port=0,
        broker_port=0,
        brokers=brokers,
        namesrvs=namesrvs,
        replicas=replicas,
        breakable=True,
        # Real time goes on beside virtual time: a machine that stood still would have requests refused as stale.
        settings={"brokerFastFailureEnable": "false", **(settings or {})},
    )
    cluster = VirtualCluster(stack_settings)
    async with trio.open_nursery() as nursery:
        cluster.addresses = await nursery.start(cluster.run)
        yield cluster
        nursery.cancel_scope.cancel()
