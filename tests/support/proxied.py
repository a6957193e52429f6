"""A whole stack in memory with the gRPC endpoint in front of it, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.common.clock import WallClock
from rocketlet.common.config_file import load
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.proxy import Proxy
from rocketlet.remoting.command import request
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.configuration import CreateTopicHeader, SubscriptionGroupConfig
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.local import LocalStack
from rocketlet.tools.local_settings import LocalSettings
from tests.support.memory_folder import MemoryFolder


@dataclass
class Proxied:
    """The parts that tests use."""

    network: MemoryNetwork
    stack: LocalStack
    proxy: Proxy
    address: str
    brokers: Mapping[str, str]
    pool: ConnectionPool

    async def make_topic(self, name: str, kind: str = "NORMAL", queues: int = 4) -> str:
        header = CreateTopicHeader(
            topic=name, readQueueNums=queues, writeQueueNums=queues, attributes=f"+message.type={kind}"
        )
        for address in self.brokers.values():
            answer = await self.pool.call(address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 3)
            assert answer.code == 0, answer
        return name

    async def make_group(self, name: str, *, orderly: bool = False, retries: int = 16) -> str:
        body = SubscriptionGroupConfig(groupName=name, retryMaxTimes=retries, consumeMessageOrderly=orderly).to_json()
        for address in self.brokers.values():
            answer = await self.pool.call(
                address, request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body), 3
            )
            assert answer.code == 0, answer
        return name


@asynccontextmanager
async def proxied(
    clock: WallClock,
    *,
    brokers: int = 1,
    settings: Mapping[str, str] | None = None,
    accounts: MemoryFolder | None = None,
    **flags: str,
) -> AsyncIterator[Proxied]:
    """`settings` are the brokers', `flags` the endpoint's, whose access control is on where it has `accounts`."""
    network = MemoryNetwork()
    stack = LocalStack(LocalSettings(host="10.0.0.1", brokers=brokers, settings=settings or {}), network, clock)
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(stack.run)
        loaded = load(
            ProxyConfig,
            ServerConfig,
            PoolConfig,
            flags={"namesrvAddr": addresses.namesrv, "bindAddress": "10.0.0.1", **flags},
        )
        proxy = Proxy(
            loaded[ProxyConfig],
            loaded[ServerConfig],
            loaded[PoolConfig],
            network,
            access=AccessConfig(acl_enable=accounts is not None),
            accounts=accounts,
            clock=clock,
            random=Random(1),
        )
        address = await nursery.start(proxy.run)
        async with ConnectionPool(network) as pool:
            yield Proxied(network, stack, proxy, address, addresses.brokers, pool)
        nursery.cancel_scope.cancel()
