"""Routes from the name servers: sticks to one server as long as it answers, goes to the next when it does not.

Any answer counts, even "no such topic": name servers do not differ for long. A server that cannot be reached or stays
silent is skipped for the next one, each is asked once, and the one that answered is asked first next time.

Java: remoting/netty/NettyRemotingClient.java#getAndCreateNameserverChannel, client/impl/MQClientAPIImpl.java
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from random import Random

from rocketlet.client.errors import BadAnswer, ClientError, NoRoute
from rocketlet.client.talking.broker_calls import Calls, readable, refusal
from rocketlet.client.validators import check_name
from rocketlet.remoting import errors as remoting_errors
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.routing import BrokerData, ClusterInfo, GetRouteInfoHeader, TopicList, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.remoting.transport import LONGEST_HOST

log = logging.getLogger("rocketlet.client.namesrv_calls")

_MIN_TIMEOUT = 0.5
_MAX_QUEUES = 1 << 18  # to read and to write, of one topic on all brokers
# A client makes a connection to each, and sends it heartbeats. The largest clusters known have a thousand.
MAX_BROKERS = 4096  # masters and slaves
_MAX_BODY = 4 << 20  # a broker and its queues take 300 bytes
_MAX_OBJECTS = 4 * MAX_BROKERS
_MAX_ADDRESS = LONGEST_HOST + len("[]:65535")


class NamesrvCalls:
    """The name servers of one client."""

    def __init__(self, calls: Calls, addresses: Sequence[str], random: Random, timeout: float = 3.0) -> None:
        self._calls = calls
        self._addresses = list(addresses)
        random.shuffle(self._addresses)
        # Asked in turn within the time-out of one: a send that needs a route has 3 s for all of it.
        self._timeout = max(_MIN_TIMEOUT, timeout / len(self._addresses))
        self._current = 0

    @property
    def addresses(self) -> list[str]:
        """All servers, in the order in which they are asked."""
        return list(self._addresses)

    @property
    def current(self) -> str:
        """The server that is asked first."""
        return self._addresses[self._current]

    async def route(self, topic: str) -> TopicRouteData | None:
        """105; None where no broker serves the topic. Raises NoRoute if no server answers, and InvalidUse."""
        check_name(topic)
        answer = await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        with readable("the route", self.current, topic):
            _check_body(answer.body)
            data = TopicRouteData.from_json(answer.body)
        _check_brokers("the route", data.brokerDatas, self.current, topic)
        _check_size(data, topic, self.current)
        return data

    async def cluster(self) -> ClusterInfo:
        """106: all brokers and clusters."""
        answer = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        with readable("the list of brokers", self.current):
            _check_body(answer.body)
            cluster = ClusterInfo.from_json(answer.body)
        _check_brokers("the list of brokers", cluster.brokerAddrTable.values(), self.current)
        return cluster

    async def topics(self) -> list[str]:
        """206: all topics that brokers have registered."""
        answer = await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        with readable("the list of topics", self.current):
            return TopicList.from_json(answer.body).topicList

    async def _ask(self, code: RequestCode, topic: str = "") -> Command:
        """The answer: success or, about a topic, that it does not exist."""
        failures = []
        for _ in self._addresses:
            index = self._current
            command = request(code, GetRouteInfoHeader(topic=topic) if topic else None)
            try:
                answer = await self._calls.call(self._addresses[index], command, self._timeout)
            except remoting_errors.RemotingError as error:
                failures.append(str(error))
                # Another task may have moved on meanwhile; then its choice stands.
                if self._current == index:
                    self._current = (index + 1) % len(self._addresses)
                    if len(self._addresses) > 1:
                        log.warning("name server failed, asking %s from now on: %s", self.current, error)
                continue
            if answer.code == ResponseCode.SUCCESS or (topic and answer.code == ResponseCode.TOPIC_NOT_EXIST):
                return answer
            raise refusal(answer, request_name(code), self._addresses[index], topic)
        raise NoRoute(
            f"no name server answered: {'; '.join(failures)}",
            topic=topic,
            tries=len(failures),
            advice="start one, or correct namesrv (or NAMESRV_ADDR)",
        )


def _check_body(body: bytes | memoryview) -> None:
    """Raises BodyError for what would take long to read, most of all in fastjson's dialect."""
    if len(body) > _MAX_BODY:
        raise BodyError(f"it has {len(body)} bytes, the client takes at most {_MAX_BODY}")
    if bytes(body).count(b"{") > _MAX_OBJECTS:
        raise BodyError(f"it has more than {_MAX_OBJECTS} objects, which are more than {MAX_BROKERS} brokers need")


def _check_brokers(subject: str, brokers: Iterable[BrokerData], address: str, topic: str = "") -> None:
    """Raises BadAnswer for more brokers than a client could talk to, or for what is no address of one."""
    count = 0
    for broker in brokers:
        count += max(1, len(broker.brokerAddrs))
        for place in broker.brokerAddrs.values():
            if len(place) > _MAX_ADDRESS:
                raise BadAnswer(
                    f"{subject} has an address of {len(place)} characters: {place[:40]}...", topic=topic, broker=address
                )
    if count > MAX_BROKERS:
        raise BadAnswer(
            f"{subject} has {count} brokers, the client takes at most {MAX_BROKERS}", topic=topic, broker=address
        )


def _check_size(data: TopicRouteData, topic: str, address: str) -> None:
    """Raises BadAnswer for more queues than a client could hold."""
    count = sum(max(0, queues.readQueueNums) + max(0, queues.writeQueueNums) for queues in data.queueDatas)
    order = data.orderTopicConf or ""
    count += order.count(";")  # before it is split: each word may name a broker
    for word in order.split(";") if count <= _MAX_QUEUES else ():
        number = word.partition(":")[2].strip()
        count += int(number) if number.isdecimal() and len(number) < 10 else (_MAX_QUEUES + 1) * bool(number)
    if count > _MAX_QUEUES:
        raise BadAnswer(
            f"the route has {count} queues, the client takes at most {_MAX_QUEUES}", topic=topic, broker=address
        )


def no_route(topic: str, namesrv: NamesrvCalls, default_topic: str = "") -> ClientError:
    """The error for a topic that no broker serves."""
    also = f", nor the default topic {default_topic}" if default_topic else ""
    return NoRoute(
        f"no broker serves the topic{also}, say the name servers {';'.join(namesrv.addresses)}",
        topic=topic,
        advice="create the topic, or start a broker that creates topics by itself (autoCreateTopicEnable)",
    )
