"""Routes and lists: 105 route, 106 clusters, 901 members, topic lists 206, 224, 304, 311 to 313; write permission 205
and 327; 216 forget a topic.

105  17 if no live broker has the topic: the one code on which producers fall back to TBW102. Clients since 4.9.4, and
     those that set acceptStandardJsonOnly, get standard JSON; older ones get fastjson's (`{0:"host:port"}`), as from a
     RocketMQ name server. The order configuration is included only while orderMessageEnable is on.
106  Both tables, with quoted keys for all (every tool reads them).
901  (5.x) an unknown name has no members.

Every client asks for the route of every topic every 30 s, and routes hardly ever change: the bytes are cached until the
table or the order configuration changes. The route of a topic on very many brokers is made in turns.

Java: namesrv/processor/DefaultRequestProcessor.java, ClientRequestProcessor.java (5.x)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

import trio

from rocketlet.namesrv.advertised import is_loopback
from rocketlet.namesrv.kv_config import KvConfig
from rocketlet.namesrv.route_table import RouteTable
from rocketlet.namesrv.route_text import RouteText
from rocketlet.namesrv.route_values import HAS_UNIT_SUBSCRIPTION, UNIT, BrokerData, Route
from rocketlet.namesrv.run_time_settings import RunTimeSettings
from rocketlet.remoting.access import ANYONE
from rocketlet.remoting.command import V4_9_4
from rocketlet.remoting.handler import Handler, HandlerTable, Later, Refused, Reply, Request
from rocketlet.remoting.in_turns import Turns, collect, one_at_a_time, run_and_count
from rocketlet.remoting.protocol import routing
from rocketlet.remoting.protocol.kv import ORDER_TOPIC_CONFIG
from rocketlet.remoting.protocol.routing import (
    AddWritePermAnswerHeader,
    BrokerMembers,
    ClusterInfo,
    DeleteTopicInNamesrvHeader,
    GetBrokerMembersHeader,
    GetRouteInfoHeader,
    GetTopicsByClusterHeader,
    TopicList,
    TopicRouteData,
    WipeWritePermAnswerHeader,
    WritePermHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import SEE_FAQ, ResponseCode

log = logging.getLogger("rocketlet.namesrv.routes")

MAX_SORTED = 20_000  # topics of a list; more come in the order in which they were registered
LOOKS = 1_000  # at topics and at what their brokers say of them, at once; a topic may be on 10,000 brokers

AT_ONCE = 200  # brokers of a route
MAX_KEPT = 100_000  # encoded routes; to drop a million of them, at the next change, takes 60 ms

Key = tuple[str, bool, bool]  # topic, standard JSON, asked through loopback


class RouteHandlers:
    """Queries of the route table, and operators' changes to it."""

    def __init__(self, table: RouteTable, kv: KvConfig, settings: RunTimeSettings) -> None:
        self._table = table
        self._kv = kv
        self._settings = settings
        # Only topics with a route enter.
        self._routes: dict[Key, bytes] = {}
        self._routes_of = (-1, -1, False)

    # ---- 105

    def table(self) -> HandlerTable:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: Handler(self.route, GetRouteInfoHeader, access=ANYONE),
            RequestCode.GET_BROKER_CLUSTER_INFO: Handler(self.cluster_info, access=ANYONE),
            RequestCode.GET_BROKER_MEMBER_GROUP: Handler(self.broker_members, GetBrokerMembersHeader, access=ANYONE),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: Handler(self.wipe_write_permission, WritePermHeader),
            RequestCode.ADD_WRITE_PERM_OF_BROKER: Handler(self.add_write_permission, WritePermHeader),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Handler(self.all_topics, access=ANYONE),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: Handler(self.delete_topic, DeleteTopicInNamesrvHeader),
            RequestCode.GET_TOPICS_BY_CLUSTER: Handler(self.topics_of_cluster, GetTopicsByClusterHeader, access=ANYONE),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: Handler(self.system_topics, access=ANYONE),
            RequestCode.GET_UNIT_TOPIC_LIST: Handler(self.unit_topics, access=ANYONE),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: Handler(self.unit_subscription_topics, access=ANYONE),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Handler(self.unit_subscription_plain_topics, access=ANYONE),
        }

    def route(self, request: Request) -> Reply:
        """105."""
        topic = request.header.topic
        body: bytes | None = request.ready
        if body is None:
            key = _key(request)
            body = self._known(key)
            if body is None and self._table.count_brokers(topic) > AT_ONCE:
                raise Later(partial(self._make_in_turns, key))
            body = body or self._make(key)
        if not body:
            raise no_route(topic)
        return Reply(body=body)

    async def find_route(self, request: Request) -> bytes:
        """The encoded route, or b"" if there is none."""
        key = _key(request)
        return self._known(key) or await self._make_in_turns(key)

    def _known(self, key: Key) -> bytes | None:
        state = self._state()
        if state != self._routes_of:
            self._routes.clear()
            self._routes_of = state
        return self._routes.get(key)

    def _state(self) -> tuple[int, int, bool]:
        return (self._table.changes, self._kv.changes, self._settings.namesrv.order_message_enable)

    @one_at_a_time
    async def _make_in_turns(self, key: Key) -> bytes:
        turns = Turns()
        making = self._making(key)
        while (body := next(making)) is None:
            await turns.pause()
        await trio.lowlevel.checkpoint()
        return body

    def _make(self, key: Key) -> bytes:
        return next(body for body in self._making(key) if body is not None)

    def _making(self, key: Key) -> Iterator[bytes | None]:
        """Steps, and then the encoded route, or b"" if there is none."""
        if (body := self._known(key)) is not None:
            yield body  # another request has made it meanwhile
            return
        state = self._state()
        topic, standard, local = key
        text, found = RouteText(standard=standard), False
        names = self._table.names_of(topic)
        for at in range(0, len(names), AT_ONCE):
            route = self._table.route(topic, names[at : at + AT_ONCE])
            if route is not None:
                text.add(self._wire_route(route, local))
                found = True
            if len(names) > AT_ONCE:
                yield None
        enabled = self._settings.namesrv.order_message_enable or self._settings.namesrv.cluster_test
        body = text.whole(self._kv.get(ORDER_TOPIC_CONFIG, topic) if enabled else None) if found else b""
        if found and self._state() == state and len(self._routes) < MAX_KEPT:
            self._routes[key] = body
        yield body

    def _wire_route(self, route: Route, local: bool) -> TopicRouteData:
        return TopicRouteData(
            [self._with_local_addresses(broker, local) for broker in route.brokers],
            {address: list(servers) for address, servers in route.filter_servers.items()},
            queueDatas=[
                routing.QueueData(
                    q.broker_name, q.perm, q.read_queues, topicSysFlag=q.flags, writeQueueNums=q.write_queues
                )
                for q in route.queues
            ],
        )

    def _with_local_addresses(self, broker: BrokerData, local: bool) -> routing.BrokerData:
        addresses = broker.addresses
        if local:
            addresses = {id_: self._table.local_address(address) for id_, address in addresses.items()}
        return routing.BrokerData(addresses, broker.broker_name, broker.cluster)

    # ---- clusters and lists

    @one_at_a_time
    async def cluster_info(self, request: Request) -> Reply:
        """106, in turns: there may be 10,000 brokers."""
        local = is_loopback(request.connection.peer)
        brokers = (
            (name, self._with_local_addresses(broker, local))
            for name in self._table.broker_names()
            if (broker := self._table.broker(name)) is not None
        )
        return Reply(body=await collect(ClusterInfo.pieces(brokers, self._table.clusters().items())))

    def broker_members(self, request: Request) -> Reply:
        """901."""
        header: GetBrokerMembersHeader = request.header
        broker = self._table.broker(header.brokerName)
        if broker is None or broker.cluster != header.clusterName:
            broker = BrokerData(header.clusterName, header.brokerName, {})
        return Reply(
            body=BrokerMembers(self._with_local_addresses(broker, is_loopback(request.connection.peer))).to_json()
        )

    async def all_topics(self, _: Request) -> Reply:
        """206."""
        return await self._list(self._table.is_served)

    async def topics_of_cluster(self, request: Request) -> Reply:
        """224."""
        header: GetTopicsByClusterHeader = request.header
        return await self._list(lambda topic: self._table.is_in_cluster(topic, header.cluster))

    def system_topics(self, request: Request) -> Reply:
        """304. mqadmin then asks the broker at `brokerAddr` for its own system topics."""
        topics, address = self._table.system_topics()
        if address is not None and is_loopback(request.connection.peer):
            address = self._table.local_address(address)
        return Reply(body=TopicList(topics, address).to_json())

    async def unit_topics(self, _: Request) -> Reply:
        """311."""
        return await self._list(lambda topic: self._table.flags_of(topic) & UNIT)

    async def unit_subscription_topics(self, _: Request) -> Reply:
        """312: topics, unit topics or not, to which a unit subscribes."""
        return await self._list(lambda topic: self._table.flags_of(topic) & HAS_UNIT_SUBSCRIPTION)

    async def unit_subscription_plain_topics(self, _: Request) -> Reply:
        """313: those of them that are no unit topics themselves."""
        mask = HAS_UNIT_SUBSCRIPTION | UNIT
        return await self._list(lambda topic: self._table.flags_of(topic) & mask == HAS_UNIT_SUBSCRIPTION)

    @one_at_a_time
    async def _list(self, is_listed: Callable[[str], object]) -> Reply:
        """The topics that are wanted, in turns: there may be a million."""
        topics = self._table.all_topics()
        if len(topics) <= MAX_SORTED:
            topics.sort()
        parts = ([topic for topic in part if is_listed(topic)] for part in self._in_parts(topics))
        return Reply(body=await collect(TopicList.pieces(parts)))

    def _in_parts(self, topics: list[str]) -> Iterator[list[str]]:
        part, looks = [], 0
        for topic in topics:
            part.append(topic)
            looks += 1 + self._table.count_brokers(topic)
            if looks >= LOOKS:
                yield part
                part, looks = [], 0
        yield part

    # ---- operators' changes

    async def wipe_write_permission(self, request: Request) -> Reply:
        """205."""
        header: WritePermHeader = request.header
        count = await run_and_count(self._table.wipe_write_permission(header.brokerName))
        log.info(
            "%s: write permission of broker %s wiped, %d topics", request.connection.peer, header.brokerName, count
        )
        return Reply(header=WipeWritePermAnswerHeader(count))

    async def add_write_permission(self, request: Request) -> Reply:
        """327."""
        header: WritePermHeader = request.header
        count = await run_and_count(self._table.add_write_permission(header.brokerName))
        log.info(
            "%s: write permission of broker %s added, %d topics", request.connection.peer, header.brokerName, count
        )
        return Reply(header=AddWritePermAnswerHeader(count))

    def delete_topic(self, request: Request) -> Reply:
        """216."""
        header: DeleteTopicInNamesrvHeader = request.header
        self._table.delete_topic(header.topic, header.clusterName or None)
        log.info(
            "%s: topic %s deleted from %s", request.connection.peer, header.topic, header.clusterName or "everywhere"
        )
        return Reply()


def no_route(topic: str) -> Refused:
    return Refused(
        ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic or 'null'}{SEE_FAQ}"
    )


def _key(request: Request) -> Key:
    header: GetRouteInfoHeader = request.header
    standard = request.version >= V4_9_4 or header.acceptStandardJsonOnly is True
    return header.topic, standard, is_loopback(request.connection.peer)
