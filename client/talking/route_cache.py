"""What the client knows about topics and brokers. Pure: `namesrv_calls` asks the name servers.

A `Route` is the answer for one topic, ready for use: the queues to send to, the queues to consume from, the addresses.
The addresses of all routes together are the client's view of the brokers, for heartbeats, locks and offsets.

A producer sends to the queues of brokers that may be written and whose master is known; a topic with an order
configuration (`broker-a:4;broker-b:4`) has exactly the queues that it names. A consumer reads from all that may be
read. A topic that does not exist yet borrows the route of the default topic, with as many queues as the producer asks
for; the broker creates it on the first send.

Java: client/impl/factory/MQClientInstance.java#topicRouteData2TopicPublishInfo, TopicPublishInfo.java
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from rocketlet.common.message import MessageQueue
from rocketlet.common.topic import PERM_READ, PERM_WRITE
from rocketlet.remoting.protocol.routing import QueueData, TopicRouteData

MASTER = 0


@dataclass(slots=True, eq=False)
class Route:
    """One topic's brokers and queues. `next_turn()` counts sends, for the round robin; any thread may call it."""

    topic: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    addresses: dict[str, dict[int, str]]
    data: TopicRouteData
    borrowed: bool = False
    turns: count[int] = field(default_factory=count)

    def next_turn(self) -> int:
        return next(self.turns)


def route_of(topic: str, data: TopicRouteData, first_turn: int = 0) -> Route:
    """The route of a name server's answer. `first_turn` is random, so that producers do not all begin at one queue."""
    addresses = {broker.brokerName: dict(broker.brokerAddrs) for broker in data.brokerDatas}
    queue_datas = sorted(data.queueDatas, key=lambda queues: queues.brokerName)
    return Route(
        topic=topic,
        writable=tuple(_writable(topic, data.orderTopicConf, queue_datas, addresses)),
        readable=tuple(
            MessageQueue(topic, queues.brokerName, queue_id)
            for queues in queue_datas
            if queues.perm & PERM_READ
            for queue_id in range(queues.readQueueNums)
        ),
        addresses=addresses,
        data=data,
        turns=count(first_turn),
    )


def borrowed_route(topic: str, data: TopicRouteData, queue_count: int, first_turn: int = 0) -> Route:
    """The default topic's route for a topic that does not exist yet."""
    limited = [
        replace(
            queues,
            readQueueNums=min(queue_count, queues.readQueueNums),
            writeQueueNums=min(queue_count, queues.readQueueNums),
        )
        for queues in data.queueDatas
    ]
    route = route_of(topic, TopicRouteData(brokerDatas=data.brokerDatas, queueDatas=limited), first_turn)
    route.borrowed = True
    return route


def _writable(
    topic: str, order: str | None, queue_datas: Iterable[QueueData], addresses: dict[str, dict[int, str]]
) -> Iterable[MessageQueue]:
    if order:
        for word in order.split(";"):
            broker_name, _, number = word.partition(":")
            if number.strip().isdecimal():
                yield from (MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(number)))
        return
    for queues in queue_datas:
        if queues.perm & PERM_WRITE and MASTER in addresses.get(queues.brokerName, ()):
            yield from (MessageQueue(topic, queues.brokerName, queue_id) for queue_id in range(queues.writeQueueNums))


class RouteCache:
    """The routes of the topics that this client has met, and the brokers in them."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        # Brokers stay known when they leave the routes, until `forget_vanished`: what was pulled from them is still to
        # be committed there.
        self._brokers: dict[str, dict[int, str]] = {}

    def get(self, topic: str) -> Route | None:
        """The topic's route, if it is known."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        """All topics with a route."""
        return list(self._routes)

    def put(self, route: Route) -> bool:
        """Store a route; whether it differs from the previous one. The round robin continues where it was."""
        previous = self._routes.get(route.topic)
        for broker_name, addresses in route.addresses.items():
            self._brokers[broker_name] = addresses
        if previous is not None and _is_same(previous, route):
            previous.borrowed = previous.borrowed and route.borrowed
            return False
        if previous is not None:
            route.turns = previous.turns
        self._routes[route.topic] = route
        return True

    def count_with(self, route: Route) -> int:
        """How many addresses would be known with this route."""
        named = sum(len(addresses) for addresses in route.addresses.values())
        return named + sum(len(addresses) for name, addresses in self._brokers.items() if name not in route.addresses)

    def forget_vanished(self) -> set[str]:
        """Drop brokers that are in no route; returns the addresses that are no longer used."""
        previous = self.all_addresses()
        self._brokers = {
            broker_name: addresses
            for route in self._routes.values()
            for broker_name, addresses in route.addresses.items()
        }
        return previous - self.all_addresses()

    # ---- addresses

    def master(self, broker_name: str) -> str | None:
        """Where to send and lock."""
        return self._brokers.get(broker_name, {}).get(MASTER)

    def reader(self, broker_name: str) -> str | None:
        """Where offsets are asked for and committed: the master, else a slave, which tells a master that returns."""
        place = self.address(broker_name)
        return place[0] if place is not None else None

    def address(self, broker_name: str, broker_id: int = MASTER) -> tuple[str, int] | None:
        """Address and id of a broker to read from: the wanted one, else the master, else any slave."""
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        direct = addresses.get(broker_id)
        if direct is not None:
            return direct, broker_id
        other_id = MASTER if MASTER in addresses else min(addresses)
        return addresses[other_id], other_id

    def masters(self) -> dict[str, str]:
        """Address of each known master -> its broker name. Any thread may call it."""
        return {addresses[MASTER]: name for name, addresses in list(self._brokers.items()) if MASTER in addresses}

    def all_addresses(self) -> set[str]:
        """Masters and slaves."""
        return {address for addresses in self._brokers.values() for address in addresses.values()}

    def name_at(self, address: str) -> str | None:
        """The broker name of an address."""
        for name, addresses in self._brokers.items():
            if address in addresses.values():
                return name
        return None


def _is_same(old: Route, new: Route) -> bool:
    return (
        old.writable == new.writable
        and old.readable == new.readable
        and old.addresses == new.addresses
        and old.data.orderTopicConf == new.data.orderTopicConf
    )
