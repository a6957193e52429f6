"""203 GET_CONSUMER_CONNECTION_LIST, 204 GET_PRODUCER_CONNECTION_LIST, 328 GET_ALL_PRODUCER_INFO: who is connected.

A consumer group without members is 206, an unknown producer group 1.

Java: broker/processor/AdminBrokerProcessor.java
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketlet.broker.clients import Clients
from rocketlet.broker.consumer_groups import Member
from rocketlet.broker.handlers.membership import data_of
from rocketlet.common.json_pieces import in_pieces
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import collect, one_at_a_time
from rocketlet.remoting.protocol.inspection import (
    ClientConnection,
    ConsumerConnection,
    ConsumerGroupHeader,
    ProducerConnection,
    ProducerGroupHeader,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode


class Connections:
    """The registries, as administrators see them."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def table(self) -> HandlerTable:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: Handler(self.consumers, ConsumerGroupHeader),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: Handler(self.producers, ProducerGroupHeader),
            RequestCode.GET_ALL_PRODUCER_INFO: Handler(self.all_producers),
        }

    def consumers(self, request: Request) -> Reply:
        header: ConsumerGroupHeader = request.header
        group = self._clients.consumers.get(header.consumerGroup)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{header.consumerGroup}] not online")
        body = ConsumerConnection(
            [_connection(member) for member in group.members.values()],
            group.consume_from_where,
            group.consume_type,
            group.message_model,
            {topic: data_of(subscription) for topic, subscription in group.subscriptions.items()},
        )
        return Reply(body=body.to_json())

    def producers(self, request: Request) -> Reply:
        header: ProducerGroupHeader = request.header
        members = self._clients.producers.members(header.producerGroup)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producerGroup}] not exist")
        return Reply(body=ProducerConnection([_connection(member) for member in members]).to_json())

    @one_at_a_time
    async def all_producers(self, request: Request) -> Reply:
        groups = [(group, list(members.values())) for group, members in self._clients.producers.all().items()]
        return Reply(body=await collect(ProducerTableInfo.pieces(_infos(groups))))


def _connection(member: Member) -> ClientConnection:
    return ClientConnection(member.connection.peer, member.client_id, member.language, member.version)


def _infos(groups: list[tuple[str, list[Member]]]) -> Iterator[tuple[str, list[ProducerInfo]]]:
    """A group is repeated for each of its pieces."""
    for group, members in groups:
        for piece in in_pieces(members):
            yield group, [_info(member) for member in piece]


def _info(member: Member) -> ProducerInfo:
    # With Java's leading slash.
    return ProducerInfo(member.client_id, member.language, member.seen_at, f"/{member.connection.peer}", member.version)
