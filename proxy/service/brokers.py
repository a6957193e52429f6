"""The brokers behind the endpoint: connections to them, and cached topics and groups.

A topic's route and message type, and a group's settings, are cached for REFRESH_SECONDS; a lookup after that uses the
cached value and refreshes it in the background, so that only the first call for a topic waits for a name server. Misses
are not cached. All tables are bounded: the least recently used entry is evicted first.

Java: proxy/service/route/TopicRouteService.java, proxy/service/metadata/ClusterMetadataService.java
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Generic, TypeVar

import trio

from rocketlet.client.errors import ClientError, Refused
from rocketlet.client.sending.send_frames import SendTemplate
from rocketlet.client.talking.broker_calls import refusal, translated
from rocketlet.client.talking.namesrv_calls import NamesrvCalls
from rocketlet.client.talking.route_cache import MASTER, Route, route_of
from rocketlet.common import topic as names
from rocketlet.common.topic_attributes import message_type
from rocketlet.proxy.call import Refusal
from rocketlet.proxy.service.deadlines import Deadlines
from rocketlet.proxy.wire.codes import Code, code_of
from rocketlet.remoting.command import Command, HeaderType, request
from rocketlet.remoting.connection import Connection, OnAnswer
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import BodyError, CallTimeout, RemotingError, TooManyRequests
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.protocol.configuration import (
    GetSubscriptionGroupConfigHeader,
    GetTopicConfigHeader,
    SubscriptionGroupConfig,
    TopicConfig,
)
from rocketlet.remoting.protocol.header import Header
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.proxy.brokers")

REFRESH_SECONDS = 20.0
ASK_SECONDS = 3.0
MAX_TOPICS = 20_000
MAX_GROUPS = 20_000
_DEFAULT_QUEUES = 4

Value = TypeVar("Value")


class Topic:
    """What sends and receives need to know about a topic."""

    __slots__ = ("masters", "name", "route", "template", "type")

    def __init__(self, name: str, route: Route, type_: str) -> None:
        self.name = name
        self.route = route
        self.type = type_
        self.masters = {broker: at[MASTER] for broker, at in route.addresses.items() if MASTER in at}
        # Brokers know producers by the topics they send to, so that a transaction check finds them.
        self.template = SendTemplate(name, name, names.DEFAULT_TOPIC, _DEFAULT_QUEUES)


class _Kept(Generic[Value]):
    """Cached values by name, refreshed in the background once they are old."""

    def __init__(self, ask: Callable[[str], Awaitable[Value | None]], max_size: int) -> None:
        self._ask = ask
        self._max_size = max_size
        self._entries: dict[str, tuple[Value, float]] = {}
        self._asking: dict[str, trio.Event] = {}
        self.nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def known(self, name: str) -> Value | None:
        """The cached value, however old; at most one request for it is pending at a time."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        if trio.current_time() - entry[1] > REFRESH_SECONDS and name not in self._asking and self.nursery is not None:
            self._entries[name] = self._entries.pop(name)  # used: move it to the end
            self._asking[name] = trio.Event()
            self.nursery.start_soon(self._refresh, name)
        return entry[0]

    async def get(self, name: str, *, fresh: bool = False) -> Value | None:
        """The cached value, or one requested now. Raises the request's error."""
        cached = self.known(name)
        if cached is not None and not fresh:
            return cached
        asking = self._asking.get(name)
        if asking is not None:
            await asking.wait()
            entry = self._entries.get(name)
            return entry[0] if entry else None
        self._asking[name] = trio.Event()
        return await self._fetch(name)

    def forget(self, name: str) -> None:
        self._entries.pop(name, None)

    async def _fetch(self, name: str) -> Value | None:
        """Requires: the caller has created the event."""
        try:
            value = await self._ask(name)
            if value is None:
                self._entries.pop(name, None)
            else:
                self._entries[name] = value, trio.current_time()
                while len(self._entries) > self._max_size:
                    del self._entries[next(iter(self._entries))]
            return value
        finally:
            self._asking.pop(name).set()

    async def _refresh(self, name: str) -> None:
        try:
            await self._fetch(name)
        except (ClientError, Refusal) as error:
            log.warning("%s is not refreshed: %s", name, error)
            if name in self._entries:  # the cached value stays, and is refreshed later
                self._entries[name] = self._entries[name][0], trio.current_time()


class Brokers:
    """See the module. `pool` is open as long as this is used."""

    def __init__(
        self,
        pool: ConnectionPool,
        namesrv: tuple[str, ...],
        random: Random,
        signs: Callable[[], bool] = lambda: False,
    ) -> None:
        self.pool = pool
        self._signs = signs
        self.deadlines = Deadlines()
        self.namesrv = NamesrvCalls(pool, namesrv, random, ASK_SECONDS)
        self.masters: dict[str, str] = {}
        """Broker name -> address, of all routes that were met."""
        self._random = random
        self._topics: _Kept[Topic] = _Kept(self._ask_topic, MAX_TOPICS)
        self._groups: _Kept[SubscriptionGroupConfig] = _Kept(self._ask_group, MAX_GROUPS)
        self.known_topic = self._topics.known
        """The topic, where it is known already: for the path of a send."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the background work, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._topics.nursery = self._groups.nursery = nursery
            nursery.start_soon(self.deadlines.run)
            task_status.started()
            await self._learn_brokers()

    async def _learn_brokers(self) -> None:
        """Learn the brokers, for groups requested before any topic."""
        while True:
            try:
                cluster = await self.namesrv.cluster()
                self.masters = {
                    name: broker.brokerAddrs[MASTER]
                    for name, broker in cluster.brokerAddrTable.items()
                    if MASTER in broker.brokerAddrs
                }
            except ClientError as error:
                log.warning("the brokers are not known: %s", error)
            await trio.sleep(REFRESH_SECONDS if self.masters else 1.0)

    # ---- topics and groups

    async def topic(self, name: str) -> Topic:
        """Raises Refusal if there is none."""
        try:
            result = await self._topics.get(name)
        except names.InvalidName as error:
            raise Refusal(Code.ILLEGAL_TOPIC, str(error)) from None
        except ClientError as error:
            raise refused(error) from error
        if result is None:
            raise Refusal(Code.TOPIC_NOT_FOUND, f"no broker serves the topic {name}; create it")
        return result

    async def group(self, name: str) -> SubscriptionGroupConfig:
        """A group's settings; those of an automatically created group if no broker knows it."""
        try:
            config = await self._groups.get(name)
        except ClientError as error:
            log.info("the settings of group %s are not known: %s", name, error)
            config = None
        return config or SubscriptionGroupConfig(groupName=name)

    async def _ask_topic(self, name: str) -> Topic | None:
        data = await self.namesrv.route(name)
        if data is None:
            return None
        route = route_of(name, data, self._random.randrange(1 << 16))
        cached = self._topics._entries.get(name)
        if cached is not None:
            route.turns = cached[0].route.turns
        topic = Topic(name, route, await self._type_of(name, route))
        self.masters.update(topic.masters)
        return topic

    async def _type_of(self, name: str, route: Route) -> str:
        for addresses in route.addresses.values():
            address = addresses.get(MASTER)
            if address is None:
                continue
            try:
                answer = await self.ask(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigHeader(topic=name))
                attributes = TopicConfig.from_json(answer.body).attributes
                return message_type(attributes or {})
            except (ClientError, BodyError) as error:  # a 4.9 broker: it has no types
                log.debug("the type of topic %s is not known: %s", name, error)
        return message_type({})

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig | None:
        error: ClientError | None = None
        for address in list(self.masters.values()):
            header = GetSubscriptionGroupConfigHeader(group=name)
            try:
                answer = await self.ask(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
                return SubscriptionGroupConfig.from_json(answer.body)
            except Refused as refused_:
                error = refused_
        if error is not None:
            raise error
        return None

    def master(self, broker: str) -> str:
        """The address of a broker. Raises Refusal."""
        address = self.masters.get(broker)
        if address is None:
            raise Refusal(Code.INTERNAL_SERVER_ERROR, f"no master of broker {broker[:80]!r} is known")
        return address

    # ---- calls

    def connection(self, address: str) -> Connection | None:
        """The connection to a broker, if there is one."""
        present = self.pool.connections.get(address)
        return None if present is None or present.closed else present

    def takes_frames(self, connection: Connection) -> bool:
        """Whether a request may be sent as a ready-made frame with a JSON header, which hooks do not see."""
        return connection.header_type == HeaderType.JSON and not self._signs()

    def frame_soon(self, connection: Connection, opaque: int, frame: bytes, on_answer: OnAnswer) -> None:
        """Send a frame without a task for its answer: `on_answer` is called once, with the answer or the error."""
        deadlines = self.deadlines

        def answered(answer: Command | RemotingError) -> None:
            deadlines.cross_out(timeout)
            on_answer(answer)

        def too_late() -> None:
            connection.forget(opaque)
            on_answer(CallTimeout(f"{connection.peer} did not answer within {ASK_SECONDS:g} s"))

        timeout = deadlines.add(trio.current_time() + ASK_SECONDS, too_late)
        try:
            connection.call_frame_soon(opaque, frame, answered)
        except RemotingError as error:
            deadlines.cross_out(timeout)
            on_answer(error)

    def ask_soon(self, connection: Connection, command: Command, on_answer: OnAnswer) -> None:
        """`frame_soon` for a command."""
        command.opaque = connection.take_opaque()
        command.header_type = connection.header_type
        connection.sign(command)
        self.frame_soon(connection, command.opaque, encode(command), on_answer)

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None,
        body: bytes = b"",
        *,
        timeout: float = ASK_SECONDS,
        good: frozenset[int] = frozenset({int(ResponseCode.SUCCESS)}),
    ) -> Command:
        """A call; raises ClientError if it fails or is answered with a code other than the accepted ones."""
        try:
            answer = await self.pool.call(address, request(code, header, body), timeout)
        except RemotingError as error:
            raise translated(error, request_name(code), address, "") from error
        if answer.code not in good:
            raise refusal(answer, request_name(code), address, "")
        return answer

    async def demand(
        self,
        address: str,
        code: RequestCode,
        header: Header | None,
        body: bytes = b"",
        *,
        timeout: float = ASK_SECONDS,
        good: frozenset[int] = frozenset({int(ResponseCode.SUCCESS)}),
    ) -> Command:
        """`ask` on behalf of a client: a failure becomes a Refusal with the matching code."""
        try:
            return await self.ask(address, code, header, body, timeout=timeout, good=good)
        except ClientError as error:
            raise refused(error) from error


def refused(error: ClientError) -> Refusal:
    """The client's view of a broker's refusal, or of its absence."""
    if isinstance(error, Refused):
        return Refusal(code_of(error.code), error.remark or str(error))
    return failed(error)


def failed(error: Exception) -> Refusal:
    """The client's view of an unanswered request."""
    if isinstance(error, CallTimeout) or isinstance(error.__cause__, CallTimeout):
        return Refusal(Code.PROXY_TIMEOUT, str(error))
    if isinstance(error, TooManyRequests):
        return Refusal(Code.TOO_MANY_REQUESTS, str(error))
    return Refusal(Code.INTERNAL_SERVER_ERROR, str(error))
