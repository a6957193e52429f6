"""Typed administrative requests to name servers and brokers, for `mqadmin` and for listing commands.

    async with admin(namesrv) as calls:
        for topic in await calls.topics():
            stats = await calls.topic_stats(topic)

Queries about a topic go to every master that serves it, and the answers are merged; changes go to all masters of a
cluster, or to one broker by its address. An error answer raises `AdminRefused`.

Java: tools/admin/DefaultMQAdminExtImpl.java, client/impl/MQClientAPIImpl.java
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random

from rocketlet.client.config import DEFAULT_NAMESRV, NAMESRV_VARIABLE, name_servers
from rocketlet.client.talking.broker_calls import BrokerCalls
from rocketlet.client.talking.namesrv_calls import NamesrvCalls
from rocketlet.common.errors import RocketletError
from rocketlet.common.topic import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_topic_name, retry_topic
from rocketlet.remoting.command import Command, Language, request
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.hooks import ClientHook
from rocketlet.remoting.protocol.configuration import SubscriptionGroupTable, TopicConfigTable
from rocketlet.remoting.protocol.header import Header
from rocketlet.remoting.protocol.inspection import (
    ConsumerConnection,
    ConsumerGroupHeader,
    ConsumeStats,
    GetConsumeStatsHeader,
    GroupList,
    TopicHeader,
    TopicStatsTable,
)
from rocketlet.remoting.protocol.kv import KVConfigHeader
from rocketlet.remoting.protocol.routing import ClusterInfo, TopicList, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.response_codes import ResponseCode, response_name
from rocketlet.remoting.transport import Network, TcpNetwork
from rocketlet.tools.admin.credentials import pool_of

TIMEOUT = 5.0
MASTER = 0


class AdminRefused(RocketletError):
    """A server answered with an error code; `code` and `remark` are its own."""

    def __init__(self, code: int, remark: str, request_text: str, address: str) -> None:
        super().__init__(f"{address} answers {request_text} with {response_name(code)}: {remark or 'no reason given'}")
        self.code = code
        self.remark = remark


class NoSuchTopic(RocketletError):
    """No broker serves a topic."""


class NoSuchGroup(RocketletError):
    """No broker knows a consumer group."""


class NoSuchBroker(RocketletError):
    """No broker has a name."""


class NoSuchCluster(RocketletError):
    """No broker belongs to a cluster."""


@asynccontextmanager
async def admin(
    namesrv: str,
    *,
    timeout: float = TIMEOUT,
    network: Network | None = None,
    hooks: Sequence[ClientHook] = (),
    pool: PoolConfig | None = None,
) -> AsyncIterator[Admin]:
    """Calls over separate connections, which end with the block. `namesrv`: `host:port;host:port`.

    `hooks` see every request, and may sign it. `pool` configures connections; by default the environment decides about
    TLS.
    """
    pool = pool or pool_of(os.environ)
    async with ConnectionPool(network or TcpNetwork(), pool, hooks=hooks) as connections:
        yield Admin(connections, name_servers(namesrv), timeout)


def chosen_name_servers(flag: str | None, environment: Mapping[str, str]) -> str:
    """The name servers of the flag, else NAMESRV_ADDR, else this machine's."""
    return flag or environment.get(NAMESRV_VARIABLE) or DEFAULT_NAMESRV


class Admin:
    """See the module."""

    def __init__(self, pool: ConnectionPool, namesrvs: Sequence[str], timeout: float = TIMEOUT) -> None:
        self._pool = pool
        self._timeout = timeout
        self.brokers = BrokerCalls(pool, timeout)
        self.use(namesrvs)

    def use(self, namesrvs: Sequence[str]) -> None:
        """Use these name servers from now on."""
        self.namesrvs = tuple(namesrvs)
        self.namesrv = NamesrvCalls(self._pool, namesrvs, Random(), self._timeout)

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout: float | None = None,
        language: Language | None = None,
    ) -> Command:
        """One request to one server; raises AdminRefused unless it is answered with success."""
        command = request(code, header, body)
        if language is not None:
            command.language = language
        answer = await self._pool.call(address, command, timeout or self._timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise AdminRefused(answer.code, answer.remark or "", request_name(code), address)
        return answer

    async def ask_namesrv(self, code: RequestCode, header: Header | None = None) -> Command:
        """One request to any name server that answers; the one that answered last is tried first."""
        candidates = [address for address in self.namesrvs if address != self.namesrv.current]
        for address in (self.namesrv.current, *candidates[:-1]):
            try:
                return await self.ask(address, code, header)
            except RemotingError:
                if not candidates:
                    raise
        return await self.ask(candidates[-1], code, header)

    async def tell_all_namesrvs(self, code: RequestCode, header: Header | None = None, body: bytes = b"") -> None:
        """The same request to every name server; they share no state."""
        for address in self.namesrvs:
            await self.ask(address, code, header, body)

    # ---- what servers know

    async def some_namesrv_has(self, namespace: str, key: str) -> bool:
        """Whether the KV configuration of any name server has this key."""
        for address in self.namesrvs:
            try:
                await self.ask(address, RequestCode.GET_KV_CONFIG, KVConfigHeader(namespace=namespace, key=key))
            except AdminRefused as refused:
                if refused.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
            else:
                return True
        return False

    async def broker_knows_topic(self, address: str, topic: str) -> bool:
        """Whether this broker has a topic."""
        answer = await self.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return topic in TopicConfigTable.from_json(answer.body).topicConfigTable

    async def broker_knows_group(self, address: str, group: str) -> bool:
        """Whether this broker has a consumer group."""
        answer = await self.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return group in SubscriptionGroupTable.from_json(answer.body).subscriptionGroupTable

    async def broker_has_progress(self, address: str, group: str) -> bool:
        """Whether this broker keeps how far a group is, which may have been deleted."""
        try:
            answer = await self.ask(address, RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader(consumerGroup=group))
        except AdminRefused:
            return False
        return bool(ConsumeStats.from_json(answer.body).offsetTable)

    async def topic_is_known(self, addresses: Iterable[str], topic: str) -> bool:
        """Whether any of these brokers, or any name server, has a topic."""
        for address in addresses:
            if await self.broker_knows_topic(address, topic):
                return True
        for address in self.namesrvs:
            answer = await self.ask(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            if topic in TopicList.from_json(answer.body).topicList:
                return True
        return False

    # ---- locations

    async def cluster(self) -> ClusterInfo:
        """All brokers."""
        return await self.namesrv.cluster()

    async def masters(self, cluster: str = "") -> dict[str, str]:
        """Broker name -> address of each master; of one cluster, or of all."""
        info = await self.cluster()
        names = info.clusterAddrTable.get(cluster, []) if cluster else list(info.brokerAddrTable)
        addresses = {name: info.brokerAddrTable[name].brokerAddrs.get(MASTER, "") for name in sorted(names)}
        if cluster and not addresses:
            raise NoSuchCluster(
                f"no broker of cluster {cluster}; there are {', '.join(info.clusterAddrTable) or 'none'}"
            )
        return {name: address for name, address in addresses.items() if address}

    async def broker_name(self, address: str) -> str | None:
        """The name of the broker at an address, if the name server knows it."""
        table = (await self.cluster()).brokerAddrTable
        return next((name for name, data in table.items() if address in data.brokerAddrs.values()), None)

    async def route(self, topic: str) -> TopicRouteData:
        """Where a topic is. Raises NoSuchTopic."""
        route = await self.namesrv.route(topic)
        if route is None:
            raise NoSuchTopic(f"no broker serves topic {topic}; `rocketlet topics --all` lists those there are")
        return route

    async def masters_of(self, topic: str) -> dict[str, str]:
        """Broker name -> address of each master that serves a topic."""
        route = await self.route(topic)
        return {data.brokerName: data.brokerAddrs[MASTER] for data in route.brokerDatas if MASTER in data.brokerAddrs}

    # ---- listings

    async def topics(self) -> list[str]:
        """All topics, retry and dead-letter topics among them."""
        answer = await self.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.from_json(answer.body).topicList)

    async def system_topics(self) -> set[str]:
        """Topics that the brokers use internally."""
        topics: set[str] = set()
        for address in (await self.masters()).values():
            answer = await self.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            topics.update(TopicList.from_json(answer.body).topicList)
        return topics

    async def groups(self) -> list[str]:
        """Consumer groups that the brokers know, without the brokers' own."""
        group_names: set[str] = set()
        for address in (await self.masters()).values():
            answer = await self.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            group_names.update(SubscriptionGroupTable.from_json(answer.body).subscriptionGroupTable)
        return sorted(name for name in group_names if not is_system_group(name))

    async def check_group(self, group: str) -> None:
        """Raise NoSuchGroup if no broker knows the group or its dead letters."""
        if is_system_group(group) or group in await self.groups() or DLQ_PREFIX + group in await self.topics():
            return
        raise NoSuchGroup(f"no broker knows consumer group {group}; `rocketlet groups` lists those there are")

    async def masters_of_group(self, group: str) -> dict[str, str]:
        """Broker name -> address of each master that may serve a group: those of its retry topic.

        A broadcasting group has no retry topic, and a new one does not have it yet, nor one whose name is so long that
        its retry topic's is illegal: then all masters.
        """
        topic = retry_topic(group)
        if not is_topic_name(topic):
            return await self.masters()
        try:
            return await self.masters_of(topic)
        except NoSuchTopic:
            return await self.masters()

    async def topic_stats(self, topic: str) -> TopicStatsTable:
        """The offsets of each queue of a topic, over all brokers."""
        joined = TopicStatsTable()
        for address in (await self.masters_of(topic)).values():
            answer = await self.ask(address, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=topic))
            joined.offsetTable.update(TopicStatsTable.from_json(answer.body).offsetTable)
        return joined

    async def consume_stats(self, group: str, topic: str = "") -> ConsumeStats:
        """A group's progress in each queue, over all brokers."""
        joined = ConsumeStats()
        for address in (await self.masters_of_group(group)).values():
            header = GetConsumeStatsHeader(consumerGroup=group, topic=topic or None)
            stats = ConsumeStats.from_json((await self.ask(address, RequestCode.GET_CONSUME_STATS, header)).body)
            joined.offsetTable.update(stats.offsetTable)
            joined.consumeTps += stats.consumeTps
        return joined

    async def consumers(self, group: str) -> ConsumerConnection | None:
        """The consumers of a group; None if none is online."""
        for address in (await self.masters_of_group(group)).values():
            try:
                answer = await self.ask(
                    address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumerGroup=group)
                )
            except AdminRefused as refused:
                if refused.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
            else:
                return ConsumerConnection.from_json(answer.body)
        return None

    async def groups_of(self, topic: str) -> list[str]:
        """Groups that consume or have consumed a topic."""
        groups: set[str] = set()
        for address in (await self.masters_of(topic)).values():
            answer = await self.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic=topic))
            groups.update(GroupList.from_json(answer.body).groupList)
        return sorted(groups)


def is_of_a_group(topic: str) -> bool:
    """Whether a topic belongs to a consumer group: its retries or its dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
