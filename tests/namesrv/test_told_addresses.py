"""Which address a client gets, depending on its own: the same in route, cluster list, members and system topics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketlet.remoting.command import request
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.protocol.configuration import TopicConfig, TopicConfigTable
from rocketlet.remoting.protocol.registration import RegisterBrokerBody, RegisterBrokerHeader, body_crc32
from rocketlet.remoting.protocol.routing import GetBrokerMembersHeader, GetRouteInfoHeader
from rocketlet.remoting.request_codes import RequestCode
from tests.support.name_server_desk import Desk

OWN, LOOPBACK = "192.168.1.5:10911", "127.0.0.1:10911"
BROKER, HERE, ELSEWHERE = 1, 2, 3


async def addresses_for(desk: Desk, conn: int) -> set[str]:
    """Every address in the answers on one connection; they must agree."""
    asked: list[tuple[int, Any]] = [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader("T")),
        (RequestCode.GET_BROKER_CLUSTER_INFO, None),
        (RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMembersHeader("broker-a", "C")),
        (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, None),
    ]
    seen = set()
    for code, header in asked:
        answer = await desk.answer(encode(request(code, header)), conn)
        assert answer is not None
        assert answer.code == 0
        text = bytes(answer.body).decode()
        assert json.loads(text)
        seen |= {address for address in (OWN, LOOPBACK) if address in text}
    return seen


async def registered(broker_local: str, broker_peer: str, loopback: str | None) -> Desk:
    desk = Desk()
    desk.connection(BROKER, broker_local, broker_peer)
    desk.connection(HERE, "127.0.0.1:9876", "127.0.0.1:50000")
    desk.connection(ELSEWHERE, "192.168.1.5:9876", "192.168.1.77:50000")
    body = RegisterBrokerBody([], TopicConfigTable(topicConfigTable={"T": TopicConfig(topicName="T")})).to_json()
    header = RegisterBrokerHeader(0, "broker-a", OWN, "C", OWN, False, body_crc32(body), loopback)
    answer = await desk.answer(encode(request(RequestCode.REGISTER_BROKER, header, body)), BROKER)
    assert answer is not None
    assert answer.code == 0
    return desk


@pytest.mark.parametrize(
    ("local", "peer"),
    [("127.0.0.1:9876", "127.0.0.1:40000"), ("192.168.1.5:9876", "192.168.1.5:40000")],
    ids=["registered through loopback", "registered through its own address"],
)
async def test_on_one_host_each_client_gets_an_address_that_reaches_the_broker(local: str, peer: str) -> None:
    desk = await registered(local, peer, LOOPBACK)
    assert await addresses_for(desk, HERE) == {LOOPBACK}
    assert await addresses_for(desk, ELSEWHERE) == {OWN}


async def test_a_broker_on_another_host_is_returned_as_registered() -> None:
    desk = await registered("192.168.1.5:9876", "192.168.1.6:40000", LOOPBACK)
    assert await addresses_for(desk, HERE) == await addresses_for(desk, ELSEWHERE) == {OWN}


async def test_a_broker_without_a_second_address_is_returned_as_registered() -> None:
    """Every Java broker, and ours with brokerIP1."""
    desk = await registered("127.0.0.1:9876", "127.0.0.1:40000", None)
    assert await addresses_for(desk, HERE) == await addresses_for(desk, ELSEWHERE) == {OWN}


async def test_a_broker_cannot_redirect_local_clients() -> None:
    desk = await registered("127.0.0.1:9876", "127.0.0.1:40000", "203.0.113.9:10911")
    assert await addresses_for(desk, HERE) == {OWN}


async def test_a_slave_gets_its_masters_registered_address() -> None:
    desk = await registered("127.0.0.1:9876", "127.0.0.1:40000", LOOPBACK)
    header = RegisterBrokerHeader(1, "broker-a", "192.168.1.6:10911", "C", "192.168.1.6:10912")
    answer = await desk.answer(encode(request(RequestCode.REGISTER_BROKER, header)), HERE)
    assert answer is not None
    assert answer.ext == {"masterAddr": OWN, "haServerAddr": OWN}
