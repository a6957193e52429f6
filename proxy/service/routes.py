"""A topic's route as gRPC clients see it: queues of brokers that are all reached through this endpoint. Pure.

From then on a client talks to the addresses in the answer. Unless settings say otherwise, these are the addresses by
which it has reached us, so a client behind a forwarded port or in a container never gets one that it cannot reach.

Java: proxy/grpc/v2/route/RouteActivity.java
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from rocketlet.client.talking.route_cache import MASTER
from rocketlet.common.topic import PERM_READ, PERM_WRITE
from rocketlet.common.topic_attributes import DELAY, FIFO, MIXED, NORMAL, TRANSACTION
from rocketlet.proxy.service.brokers import Topic
from rocketlet.proxy.wire import messages as m

TYPES = {NORMAL: m.NORMAL, FIFO: m.FIFO, DELAY: m.DELAY, TRANSACTION: m.TRANSACTION}
_ANY_QUEUE = -1
_MAX_ADDRESSES = 16


def endpoints(host: str, port: int) -> m.Endpoints:
    """One address as clients expect it."""
    try:
        scheme = m.IPv4 if ip_address(host).version == 4 else m.IPv6
    except ValueError:
        scheme = m.DOMAIN_NAME
    return m.Endpoints(scheme=scheme, addresses=[m.Address(host=host, port=port)])


def reachable(requested: m.Endpoints, local: tuple[str, int], host: str) -> m.Endpoints:
    """The endpoints for the answer: those in the settings, else those the client used, else the socket's own."""
    if host:
        return endpoints(host, local[1])
    if 0 < len(requested.addresses) <= _MAX_ADDRESSES and all(
        address.host and address.port > 0 for address in requested.addresses
    ):
        return requested
    return endpoints(*local)


def accepted_types(type_: str) -> list[int]:
    """What `accept_message_types` says for a topic."""
    return list(TYPES.values()) if type_ == MIXED else [TYPES.get(type_, m.MESSAGE_TYPE_UNSPECIFIED)]


def message_queues(topic: Topic, resource: m.Resource, endpoints: m.Endpoints) -> Iterator[m.MessageQueue]:
    """All queues of the topic on brokers that have a master."""
    types = accepted_types(topic.type)
    for queues in sorted(topic.route.data.queueDatas, key=lambda queue_data: queue_data.brokerName):
        if MASTER not in topic.route.addresses.get(queues.brokerName, ()):
            continue
        broker = m.Broker(name=queues.brokerName, id=MASTER, endpoints=endpoints)
        readable = queues.readQueueNums if queues.perm & PERM_READ else 0
        writable = queues.writeQueueNums if queues.perm & PERM_WRITE else 0
        for number in range(max(readable, writable)):
            permission = (m.READ if number < readable else 0) | (m.WRITE if number < writable else 0)
            yield m.MessageQueue(
                topic=resource,
                id=number,
                permission=m.READ_WRITE if permission == m.READ | m.WRITE and number < min(readable, writable)
                else permission,
                broker=broker,
                accept_message_types=types,
            )  # fmt: skip


def assignments(topic: Topic, resource: m.Resource, endpoints: m.Endpoints, *, orderly: bool) -> Iterator[m.Assignment]:
    """What a push consumer receives from: each broker as one, or each queue if the group is orderly."""
    for queues in sorted(topic.route.data.queueDatas, key=lambda queue_data: queue_data.brokerName):
        if MASTER not in topic.route.addresses.get(queues.brokerName, ()) or not queues.perm & PERM_READ:
            continue
        broker = m.Broker(name=queues.brokerName, id=MASTER, endpoints=endpoints)
        for number in range(queues.readQueueNums) if orderly else (_ANY_QUEUE,):
            queue = m.MessageQueue(topic=resource, id=number, permission=m.READ_WRITE, broker=broker)
            yield m.Assignment(message_queue=queue)
