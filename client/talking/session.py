"""The connections, routes and heartbeats of one client, below its producer or consumer.

There are three periodic tasks, so that a slow one does not hold up the others: one refreshes the routes of all topics
in use every 30 s (at once at first) and forgets what vanished; one asks for missing routes, at first each second; one
sends heartbeats to all known brokers every 30 s (`heartbeats`). Subscribers are notified of changed routes. A new
broker gets its heartbeat at once, and so does one that returns, because it has forgotten its clients.

A producer of transactions is known to all masters of all clusters from its start on (`known_everywhere`): any of them
may have to ask it about a transaction of its group.

Java: client/impl/factory/MQClientInstance.java
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import trio

from rocketlet.client.config import ClientConfig, name_servers
from rocketlet.client.consuming.received_messages import MessageReader
from rocketlet.client.errors import BadAnswer, ClientClosed, ClientError, InvalidUse, NoRoute
from rocketlet.client.talking import identity
from rocketlet.client.talking.broker_calls import BrokerCalls
from rocketlet.client.talking.heartbeats import Heartbeats
from rocketlet.client.talking.namesrv_calls import MAX_BROKERS, NamesrvCalls, no_route
from rocketlet.client.talking.route_cache import MASTER, Route, RouteCache, borrowed_route, route_of
from rocketlet.client.talking.side_by_side import for_each
from rocketlet.common.clock import WallClock, system_clock
from rocketlet.common.message import MessageQueue
from rocketlet.common.retry_pauses import retry_pauses
from rocketlet.common.settings import SettingsError
from rocketlet.common.topic import INNER_PRODUCER_GROUP
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import PoolConfig, SerializeType
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.handler import Handler
from rocketlet.remoting.protocol.membership import ConsumerData, HeartbeatData, ProducerData
from rocketlet.remoting.signing import Signer
from rocketlet.remoting.transport import Network, TcpNetwork

# Applications that want the client's log lines configure logging; a library by itself is silent.
logging.getLogger("rocketlet.client").addHandler(logging.NullHandler())
log = logging.getLogger("rocketlet.client.session")

# Descriptors that connections leave to the program around the client: a name server decides how many there are.
_SPARE_FILES = 128
_MOST_ADDRESSES = 3 * MAX_BROKERS  # in the routes of all topics together
_MAX_PAUSE = 5.0  # between two tries to find missing routes


@dataclass(slots=True)
class World:
    """The seams of a client: what a test replaces."""

    network: Network | None = None
    clock: WallClock = system_clock
    random: Random = field(default_factory=Random)
    ip: str = ""


class Session:
    """The connections, routes and heartbeats of one client. Lives on one trio loop."""

    def __init__(self, config: ClientConfig, world: World, *, stable_id: bool = False) -> None:
        addresses = name_servers(config.namesrv)
        ip = world.ip or identity.local_address(addresses[0])
        instance = config.instance_name or ("DEFAULT" if stable_id else "")
        self.config = config
        self.world = world
        self.client_id = identity.client_id(ip, instance, config.unit_name, world.clock, world.random)
        self.unique_ids = identity.unique_ids(ip, world.clock, world.random)
        self.handlers: dict[int, Handler] = {}
        self.routes = RouteCache()
        self.namesrv = NamesrvCalls(self, addresses, world.random, config.request_timeout)
        self.brokers = BrokerCalls(self, config.request_timeout, vip=config.vip_channel)
        self.heartbeats = Heartbeats(
            self.brokers,
            self._heartbeat_targets,
            self._heartbeat_body,
            interval=config.heartbeat_interval,
            timeout=config.request_timeout,
        )
        self.reader = MessageReader(config.namespace, config.max_inflated_size)
        # What the client's one producer or consumer adds.
        self.producer_groups: list[str] = [INNER_PRODUCER_GROUP]
        self.consumer_data: Callable[[], ConsumerData] | None = None
        self.topics_in_use: Callable[[], Iterable[str]] = tuple
        """Those whose routes are to be known, beside those that were met."""
        self.on_changed_route: Callable[[], None] | None = None
        self.known_everywhere = False
        """Heartbeats go to all masters of all clusters, not only to those in the routes of topics in use."""
        self._cluster_masters: set[str] | None = None
        self._default_topics: dict[str, tuple[str, int]] = {}
        self._fetching: dict[str, trio.Event] = {}
        self._pool: ConnectionPool | None = None
        self._nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[trio.Nursery]:
        """The connections and the three tasks, for as long as the block lasts."""
        hooks = []
        if self.config.access_key:
            hooks.append(Signer(self.config.access_key, self.config.secret_key, self.config.security_token))
        network = self.world.network or TcpNetwork(spare_files=_SPARE_FILES)
        # Created only now, because it copies the handlers.
        events = [_Returns(self.heartbeats.soon)]
        try:
            self._pool = ConnectionPool(network, _pool_config(self.config), self.handlers, hooks=hooks, events=events)
        except SettingsError as error:
            raise InvalidUse(str(error), advice="correct tls_ca_file, tls_cert_file or tls_key_file") from error
        async with self._pool, trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._refresh_forever)
            nursery.start_soon(self._look_for_missing)
            nursery.start_soon(self.heartbeats.run)
            try:
                yield nursery
            finally:
                nursery.cancel_scope.cancel()

    def start_task(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run something beside the three tasks, for as long as they run. Requires: it is open."""
        assert self._nursery is not None
        self._nursery.start_soon(function, *args)

    # ---- connections

    async def call(self, address: str, command: Command, timeout: float) -> Command:
        """Send a request to an address and wait for the answer. Raises RemotingError."""
        return await self.pool.call(address, command, timeout)

    async def oneway(self, address: str, command: Command) -> None:
        """Send a one-way request to an address. Raises RemotingError."""
        await self.pool.oneway(address, command)

    @property
    def pool(self) -> ConnectionPool:
        """The connections themselves. Raises ClientClosed."""
        if self._pool is None:
            raise ClientClosed("the client is not running", advice="start it, or use it in a with block")
        return self._pool

    # ---- routes

    async def route(self, topic: str) -> Route:
        """The topic's route, fetched if it is not known. Raises NoRoute."""
        route = self.routes.get(topic) or await self.refresh(topic)
        if route is None:
            raise no_route(topic, self.namesrv)
        return route

    async def publish_route(self, topic: str, default_topic: str, default_queues: int) -> Route:
        """The route to send by; for a topic that does not exist that of the default topic. Raises NoRoute."""
        self._default_topics[topic] = (default_topic, default_queues)
        route = self.routes.get(topic)
        if route is None or not route.writable:
            route = await self.refresh(topic)
        if route is None:
            raise no_route(topic, self.namesrv, default_topic)
        if not route.writable:
            raise NoRoute(
                "the topic has no queue that can be written",
                topic=topic,
                advice="check the permission of the topic, and that a master broker is up",
            )
        return route

    async def refresh(self, topic: str) -> Route | None:
        """Ask the name servers; the route then known. Concurrent callers share one answer. Raises NoRoute."""
        asking = self._fetching.get(topic)
        if asking is not None:
            await asking.wait()
            return self.routes.get(topic)
        answered = self._fetching[topic] = trio.Event()
        try:
            await self._fetch_route(topic)
        finally:
            del self._fetching[topic]
            answered.set()
        return self.routes.get(topic)

    async def try_to_refresh(self, topic: str, level: int = logging.WARNING) -> None:
        """The same for what is asked again later: a failure is only logged."""
        try:
            await self.refresh(topic)
        except ClientError as error:
            log.log(level, "the route of %s is not known, or not refreshed: %s", topic, error)

    async def _fetch_route(self, topic: str) -> None:
        data = await self.namesrv.route(topic)
        first_turn = self.world.random.randrange(1 << 16)
        if data is not None:
            self._learn(route_of(topic, data, first_turn))
            return
        current = self.routes.get(topic)
        default = self._default_topics.get(topic)
        if default is None or (current is not None and not current.borrowed):
            # An old route stays: brokers that restart are in no route for a moment.
            return
        data = await self.namesrv.route(default[0])
        if data is not None:
            self._learn(borrowed_route(topic, data, default[1], first_turn))

    def _learn(self, route: Route) -> None:
        count = self.routes.count_with(route)
        if count > _MOST_ADDRESSES:  # those that have left the routes are kept only if there is room
            self.routes.forget_vanished()
            self.heartbeats.forget_vanished()
            count = self.routes.count_with(route)
        if count > _MOST_ADDRESSES:
            raise BadAnswer(
                f"with this route the client would know {count} brokers, it takes at most {_MOST_ADDRESSES}",
                topic=route.topic,
                broker=self.namesrv.current,
            )
        if not self.routes.put(route):
            return
        log.info("route of %s: %d queues to write, %d to read", route.topic, len(route.writable), len(route.readable))
        if self.on_changed_route is not None:
            self.on_changed_route()
        self.heartbeats.greet_new()

    async def _learn_cluster(self) -> None:
        try:
            cluster = await self.namesrv.cluster()
        except ClientError as error:
            log.info("the brokers of the cluster are not known yet: %s", error)
            return
        brokers = cluster.brokerAddrTable.values()
        self._cluster_masters = {broker.brokerAddrs[MASTER] for broker in brokers if MASTER in broker.brokerAddrs}
        self.heartbeats.greet_new()

    async def _refresh_forever(self) -> None:
        while True:
            if self.known_everywhere:
                await self._learn_cluster()
            for topic in {*self.routes.topics(), *self.topics_in_use()}:
                await self.try_to_refresh(topic)
            vanished = self.routes.forget_vanished()
            if vanished:
                log.info("brokers that are in no route any longer: %s", ", ".join(sorted(vanished)))
                self.heartbeats.forget_vanished()
            await trio.sleep(self.config.route_interval)

    async def _look_for_missing(self) -> None:
        """Servers that are just starting, and topics that are just being created, appear soon."""
        missing: set[str] = set()
        pauses = self._pauses()
        while True:
            await trio.sleep(next(pauses))
            topics = {*self.routes.topics(), *self.topics_in_use()}
            previous, missing = missing, {topic for topic in topics if self._is_missing(topic)}
            if missing != previous:
                pauses = self._pauses()
            if self.known_everywhere and not self._cluster_masters:
                await self._learn_cluster()
            self.heartbeats.greet_new()
            for topic in missing:
                await self.try_to_refresh(topic, logging.INFO)

    def _pauses(self) -> Iterator[float]:
        return retry_pauses(min(_MAX_PAUSE, self.config.route_interval))

    def _is_missing(self, topic: str) -> bool:
        route = self.routes.get(topic)
        return route is None or route.borrowed

    # ---- heartbeats

    def _heartbeat_targets(self) -> set[str]:
        # Slaves keep no producers; they serve pulls, for which they must know the group.
        addresses = self.routes.all_addresses() if self.consumer_data is not None else set(self.routes.masters())
        return addresses | (self._cluster_masters or set())

    def _heartbeat_body(self) -> bytes | None:
        if self.consumer_data is None and len(self.producer_groups) == 1:
            return None
        return HeartbeatData(
            clientID=self.client_id,
            producerDataSet=[ProducerData(groupName=group) for group in self.producer_groups],
            consumerDataSet=[self.consumer_data()] if self.consumer_data is not None else [],
        ).to_json()

    async def introduce(self, topic: str, default_topic: str, default_queues: int) -> None:
        """Make sure that the brokers of a topic know this client before they have to call it back. Raises NoRoute."""
        route = await self.publish_route(topic, default_topic, default_queues)
        masters = {self.routes.master(queue.broker_name) for queue in route.writable}
        await self.heartbeats.to(
            {master for master in masters if master is not None and not self.heartbeats.are_answered_by(master)}
        )

    async def unregister(self, producer_group: str | None, consumer_group: str | None) -> None:
        """Unregister from all brokers, at shutdown. A broker that cannot be reached will notice by itself."""
        addresses = sorted(self._heartbeat_targets(), key=lambda each: not self.heartbeats.are_answered_by(each))
        with trio.move_on_after(self.config.request_timeout):
            await for_each(addresses, partial(self._unregister_one, producer_group, consumer_group))

    async def _unregister_one(self, producer_group: str | None, consumer_group: str | None, address: str) -> None:
        try:
            await self.brokers.unregister(address, self.client_id, producer_group, consumer_group)
        except ClientError as error:
            log.info("could not unregister from a broker: %s", error)

    # ---- a queue's broker

    async def reader_of(self, queue: MessageQueue) -> str:
        """The address to ask about a queue: its master's, or a slave's while the master is gone. Raises NoRoute."""
        if self.routes.reader(queue.broker_name) is None:
            await self.refresh(queue.topic)
        address = self.routes.reader(queue.broker_name)
        if address is None:
            raise NoRoute("the queue's broker is in no route", topic=queue.topic, broker=queue.broker_name)
        return address


class _Returns(ConnectionEvents):
    """Notices new connections to an address where one was lost: the broker may have restarted and forgotten this
    client."""

    def __init__(self, returned: Callable[[], None]) -> None:
        self._returned = returned
        self._lost: set[str] = set()

    def connected(self, connection: Connection) -> None:
        if connection.peer in self._lost:
            self._lost.discard(connection.peer)
            self._returned()

    def closed(self, connection: Connection) -> None:
        if len(self._lost) >= _MOST_ADDRESSES:
            self._lost.clear()  # of brokers that vanished for good; one that returns meanwhile waits for its heartbeat
        self._lost.add(connection.peer)


def _pool_config(config: ClientConfig) -> PoolConfig:
    kinds = list(SerializeType)
    return PoolConfig(
        connect_timeout_millis=round(config.connect_timeout * 1000),
        client_channel_max_idle_time_seconds=max(1, round(config.idle_timeout)),
        frame_max_length=config.max_frame,
        serialize_type=kinds[config.header_type],
        use_tls=config.tls,
        tls_auth_server=bool(config.tls_ca_file),
        tls_trust_path=config.tls_ca_file,
        tls_cert_path=config.tls_cert_file,
        tls_key_path=config.tls_key_file,
        tls_server_name=config.tls_server_name,
    )
