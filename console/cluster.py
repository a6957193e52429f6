"""The console's view of a cluster: answers of name servers and brokers, cached for a few seconds.

A list page requests the whole list once in `FRESH_SECONDS`, however many users view it, and details only for the rows
shown. So ten thousand topics cost a page no more than fifty.

Java: rocketmq-dashboard's service/impl/
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

from rocketlet.common.errors import RocketletError
from rocketlet.common.message import MessageQueue
from rocketlet.common.topic import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from rocketlet.common.topic_attributes import message_type
from rocketlet.remoting.protocol.configuration import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from rocketlet.remoting.protocol.inspection import (
    BrokerStatsData,
    ConsumerConnection,
    ConsumeStatsList,
    ConsumeTimeSpanBody,
    GetBrokerConsumeStatsHeader,
    OffsetWrapper,
    ProducerTableInfo,
    QueryConsumeTimeSpanHeader,
    TopicOffset,
    ViewBrokerStatsHeader,
)
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.routing import ClusterInfo
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import MASTER, Admin

FRESH_SECONDS = 3.0
AT_ONCE = 32
MAX_KEPT = 1000
KINDS = ("normal", "retry", "dlq", "system")

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker as registered, with its runtime info if it answers."""

    cluster: str
    name: str
    number: int
    address: str
    table: dict[str, str]
    problem: str = ""

    @property
    def is_master(self) -> bool:
        return self.number == MASTER

    def tps(self, key: str) -> float:
        """Over the last ten seconds."""
        parts = self.table.get(key, "").split()
        try:
            return float(parts[0])
        except (IndexError, ValueError):
            return 0.0

    @property
    def tps_in(self) -> float:
        return self.tps("putTps")

    @property
    def tps_out(self) -> float:
        return self.tps("getTransferedTps") or self.tps("getTransferredTps")

    def number_of(self, key: str) -> float:
        try:
            return float(self.table.get(key, "0").split(" ")[0])
        except ValueError:
            return 0.0

    @property
    def version(self) -> str:
        return self.table.get("brokerVersionDesc", "")


@dataclass(slots=True)
class Topic:
    """One topic over all brokers."""

    name: str
    kind: str
    configs: dict[str, TopicConfig] = field(default_factory=dict)

    @property
    def is_users(self) -> bool:
        return self.kind == "normal"

    @property
    def queues(self) -> int:
        return sum(config.writeQueueNums for config in self.configs.values())

    @property
    def types(self) -> set[str]:
        """The message types accepted from RocketMQ 5's clients, if a broker says so."""
        attributes = (config.attributes for config in self.configs.values())
        return {
            message_type(attribute_map)
            for attribute_map in attributes
            if isinstance(attribute_map, dict) and attribute_map
        }

    @property
    def permissions(self) -> set[int]:
        return {config.perm for config in self.configs.values()}


@dataclass(slots=True)
class Group:
    """One consumer group over all brokers. `places`: topic -> queue -> its position."""

    name: str
    tps: float = 0.0
    places: dict[str, dict[MessageQueue, OffsetWrapper]] = field(default_factory=dict)
    configs: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)

    def lag(self, topic: str = "") -> int:
        """Messages not consumed, of one topic or of all but the retries."""
        return sum(
            max(place.brokerOffset - place.consumerOffset, 0)
            for name, places in self.places.items()
            for place in places.values()
            if (name == topic if topic else not name.startswith(RETRY_PREFIX))
        )

    @property
    def retries(self) -> int:
        return self.lag(RETRY_PREFIX + self.name)

    def consumed_until(self) -> int:
        """The store time of the newest message consumed in the slowest queue, ms; 0 if nothing lags."""
        times = [
            place.lastTimestamp
            for places in self.places.values()
            for place in places.values()
            if place.brokerOffset > place.consumerOffset > 0 and place.lastTimestamp > 0
        ]
        return min(times, default=0)


class Kept:
    """Cached values by key, requested again when old; concurrent callers share one request."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: dict[object, tuple[float, Any]] = {}
        self._asking: dict[object, trio.Lock] = {}

    async def get(self, key: object, ask: Callable[[], Awaitable[Found]]) -> Found:
        if len(self._values) >= MAX_KEPT:
            self._drop_old()
        lock = self._asking.setdefault(key, trio.Lock())
        async with lock:
            cached = self._values.get(key)
            if cached is None or trio.current_time() - cached[0] > self._seconds:
                cached = self._values[key] = trio.current_time(), await ask()
            value: Found = cached[1]
            return value

    def forget(self) -> None:
        """Something has changed: drop the value."""
        self._values.clear()

    def _drop_old(self) -> None:
        oldest = trio.current_time() - self._seconds
        self._values = {key: cached for key, cached in self._values.items() if cached[0] >= oldest}
        self._asking = {key: lock for key, lock in self._asking.items() if key in self._values or lock.locked()}


async def each(items: Iterable[Item], ask: Callable[[Item], Awaitable[Found]]) -> list[Found]:
    """Request all, a few at once; answers in the order of the items. Raises the error of any of them."""
    all_items = list(items)
    results: dict[int, Found] = {}
    failures: list[Exception] = []
    limit = trio.CapacityLimiter(AT_ONCE)

    async def ask_one(number: int, item: Item) -> None:
        async with limit:
            if not failures:
                try:
                    results[number] = await ask(item)
                except RocketletError as error:
                    failures.append(error)

    async with trio.open_nursery() as nursery:
        for number, item in enumerate(all_items):
            nursery.start_soon(ask_one, number, item)
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(all_items))]


class Cluster:
    """Requests, with cached answers."""

    def __init__(self, calls: Admin) -> None:
        self.calls = calls
        self._cache = Kept(FRESH_SECONDS)

    def forget(self) -> None:
        self._cache.forget()

    async def info(self) -> ClusterInfo:
        return await self._cache.get("info", self.calls.cluster)

    async def brokers(self) -> list[Broker]:
        """All, masters first in each cluster."""
        return await self._cache.get("brokers", self._ask_brokers)

    async def masters(self) -> list[Broker]:
        return [broker for broker in await self.brokers() if broker.is_master and not broker.problem]

    async def _ask_brokers(self) -> list[Broker]:
        info = await self.info()
        clusters = {name: cluster for cluster, names in info.clusterAddrTable.items() for name in names}

        async def ask(place: tuple[str, int, str]) -> Broker:
            name, number, address = place
            cluster = clusters.get(name, "")
            try:
                answer = await self.calls.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
            except RocketletError as error:
                return Broker(cluster, name, number, address, {}, str(error))
            return Broker(cluster, name, number, address, KVTable.from_json(answer.body).table)

        places = [
            (name, number, address)
            for name, data in sorted(info.brokerAddrTable.items())
            for number, address in sorted(data.brokerAddrs.items())
        ]
        brokers = await each(places, ask)
        return sorted(brokers, key=lambda broker: (broker.cluster, broker.name, broker.number))

    async def topics(self) -> dict[str, Topic]:
        """All topics by name."""
        return await self._cache.get("topics", self._ask_topics)

    async def _ask_topics(self) -> dict[str, Topic]:
        masters = await self.masters()
        names = {broker.cluster for broker in masters} | {broker.name for broker in masters}

        async def ask(broker: Broker) -> tuple[str, TopicConfigTable]:
            answer = await self.calls.ask(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout=15.0)
            return broker.name, TopicConfigTable.from_json(answer.body)

        topics: dict[str, Topic] = {}
        for broker_name, table in await each(masters, ask):
            for name, config in table.topicConfigTable.items():
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = Topic(name, kind_of(name, names))
                topic.configs[broker_name] = config
        return dict(sorted(topics.items()))

    async def groups(self) -> dict[str, Group]:
        """All user groups by name, with their positions."""
        return await self._cache.get("groups", self._ask_groups)

    async def _ask_groups(self) -> dict[str, Group]:
        masters = await self.masters()

        async def ask(broker: Broker) -> tuple[str, ConsumeStatsList, SubscriptionGroupTable]:
            stats = await self.calls.ask(
                broker.address, RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsHeader(), timeout=15.0
            )
            groups = await self.calls.ask(broker.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout=15.0)
            return (
                broker.name,
                ConsumeStatsList.from_json(stats.body),
                SubscriptionGroupTable.from_json(groups.body),
            )

        by_name: dict[str, Group] = {}
        for broker_name, stats, configs in await each(masters, ask):
            for name, config in configs.subscriptionGroupTable.items():
                if not is_system_group(name):
                    by_name.setdefault(name, Group(name)).configs[broker_name] = config
            for entry in stats.consumeStatsList:
                for name, several in entry.items():
                    if is_system_group(name):
                        continue
                    group = by_name.setdefault(name, Group(name))
                    for one in several:
                        group.tps += one.consumeTps
                        for queue, place in one.offsetTable.items():
                            group.places.setdefault(queue.topic, {})[queue] = place
        return dict(sorted(by_name.items()))

    async def producers(self) -> dict[str, list[tuple[str, Any]]]:
        """Group -> (broker name, client info)."""

        async def ask(broker: Broker) -> tuple[str, ProducerTableInfo]:
            try:
                answer = await self.calls.ask(broker.address, RequestCode.GET_ALL_PRODUCER_INFO)
            except RocketletError:
                return broker.name, ProducerTableInfo()  # brokers before 4.9.4 do not know the request
            return broker.name, ProducerTableInfo.from_json(answer.body)

        async def ask_all() -> dict[str, list[tuple[str, Any]]]:
            by_group: dict[str, list[tuple[str, Any]]] = {}
            for name, table in await each(await self.masters(), ask):
                for group, clients in table.data.items():
                    by_group.setdefault(group, []).extend((name, client) for client in clients)
            return dict(sorted(by_group.items()))

        return await self._cache.get("producers", ask_all)

    async def offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """The offsets of each queue of a topic."""

        async def ask() -> dict[MessageQueue, TopicOffset]:
            return (await self.calls.topic_stats(topic)).offsetTable

        return await self._cache.get(("offsets", topic), ask)

    async def members(self, group: str) -> ConsumerConnection | None:
        """The consumers of a group now."""
        return await self._cache.get(("members", group), lambda: self.calls.consumers(group))

    async def delays(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """The age of a group's first unconsumed message, by queue, in milliseconds."""
        by_queue: dict[MessageQueue, int] = {}
        header = QueryConsumeTimeSpanHeader(topic=topic, group=group)
        for name, address in (await self.calls.masters_of(topic)).items():
            answer = await self.calls.ask(address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
            for span in ConsumeTimeSpanBody.from_json(answer.body).consumeTimeSpanSet:
                by_queue[MessageQueue(topic, name, span.messageQueue.queueId)] = max(span.delayTime, 0)
        return by_queue

    async def rate(self, statistic: str, key: str, addresses: Sequence[str]) -> BrokerStatsData | None:
        """One of the brokers' statistics, summed; None if no broker has it."""
        total: BrokerStatsData | None = None
        for address in addresses:
            header = ViewBrokerStatsHeader(statsName=statistic, statsKey=key)
            try:
                answer = await self.calls.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
            except RocketletError:
                continue  # code 1: nothing of that name
            stats = BrokerStatsData.from_json(answer.body)
            if total is None:
                total = stats
            else:
                for span in ("statsMinute", "statsHour", "statsDay"):
                    getattr(total, span).tps += getattr(stats, span).tps
                    getattr(total, span).sum += getattr(stats, span).sum
        return total


def kind_of(topic: str, own_names: Iterable[str] = ()) -> str:
    """normal, retry, dlq or system."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dlq"
    return "system" if is_system_topic(topic) or topic in own_names or topic.endswith("_REPLY_TOPIC") else "normal"
