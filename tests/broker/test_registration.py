"""The broker at its name servers: when it registers, with what, and how it behaves when they are absent."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from rocketlet.remoting.handler import Handler, Refused, Reply, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.configuration import CreateTopicHeader, DataVersion
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.registration import (
    QueryDataVersionAnswerHeader,
    QueryDataVersionHeader,
    RegisterBrokerAnswerHeader,
    RegisterBrokerBody,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
    body_crc32,
)
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.server import Server
from tests.support.memory_broker import NAME, RunningBroker, memory_broker

FIRST, SECOND = "10.0.0.9:9876", "10.0.0.8:9876"


@dataclass
class NameServer:
    """Records its requests."""

    registered: list[tuple[RegisterBrokerHeader, RegisterBrokerBody]] = field(default_factory=list)
    unregistered: list[UnregisterBrokerHeader] = field(default_factory=list)
    asked: int = 0
    known: DataVersion | None = None
    order: dict[str, str] = field(default_factory=dict)
    refuses: bool = False
    takes: float = 0
    connections: set[object] = field(default_factory=set)

    async def register(self, request: Request) -> Reply:
        if self.refuses:
            raise Refused(1, "not today")
        await trio.sleep(self.takes)
        header: RegisterBrokerHeader = request.header
        assert body_crc32(request.body) == header.bodyCrc32
        read = RegisterBrokerBody.from_compressed if header.compressed else RegisterBrokerBody.from_json
        body = read(request.body)
        self.connections.add(request.connection)
        self.registered.append((header, body))
        self.known = body.topicConfigSerializeWrapper.dataVersion
        return Reply(header=RegisterBrokerAnswerHeader(), body=KVTable(self.order).to_json() if self.order else b"")

    def query(self, request: Request) -> Reply:
        self.asked += 1
        changed = DataVersion.from_json(request.body) != self.known
        return Reply(header=QueryDataVersionAnswerHeader(changed))

    def unregister(self, request: Request) -> Reply:
        self.unregistered.append(request.header)
        return Reply()

    def topics(self) -> set[str]:
        """The topics of the latest registration."""
        return set(self.registered[-1][1].topicConfigSerializeWrapper.topicConfigTable)

    @asynccontextmanager
    async def serving(self, network: MemoryNetwork, address: str) -> AsyncIterator[None]:
        table = {
            103: Handler(self.register, RegisterBrokerHeader),
            104: Handler(self.unregister, UnregisterBrokerHeader),
            322: Handler(self.query, QueryDataVersionHeader),
        }
        host, _, port = address.partition(":")
        async with trio.open_nursery() as nursery:
            await nursery.start(Server(table, network).serve, host, int(port))
            yield
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def registered_broker(**settings: object) -> AsyncIterator[tuple[RunningBroker, NameServer, NameServer]]:
    network, first, second = MemoryNetwork(), NameServer(), NameServer()
    async with (
        first.serving(network, FIRST),
        second.serving(network, SECOND),
        memory_broker(network=network, namesrv_addr=f"{FIRST};{SECOND}", **settings) as one,
    ):
        yield one, first, second


async def test_it_registers_everywhere_before_it_reports_ready(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, second):
        for name_server in (first, second):
            [(header, body)] = name_server.registered
            assert header == RegisterBrokerHeader(
                0, NAME, "127.0.0.1:10911", "DefaultCluster", "127.0.0.1:10912", False, header.bodyCrc32, None
            )
            assert {"TBW102", "DefaultCluster", NAME, "BenchmarkTest"} <= name_server.topics()
            assert body.topicConfigSerializeWrapper.dataVersion == one.broker.tables.topics.version


async def test_a_topic_is_registered_everywhere_when_its_creation_is_answered(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, second):
        await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader("T"))
        for name_server in (first, second):
            assert {"T", "TBW102"} <= name_server.topics()


async def test_topics_created_by_sends_and_heartbeats_are_registered_soon(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, second):
        await one.send("T")
        await one.heartbeat("c", "CG")
        await trio.sleep(0.2)
        for name_server in (first, second):
            assert {"T", "%RETRY%CG"} <= name_server.topics()


async def test_each_member_that_joins_is_answered_when_the_name_servers_know_the_retry_topic(
    autojump_clock: MockClock,
) -> None:
    """The second one was answered at once, since the topic was there, and its client found no route."""
    async with registered_broker() as (one, first, _), one.client() as other:
        first.takes = 0.5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.heartbeat, "c1", "CG")
            await trio.sleep(0.1)
            assert (await other.heartbeat("c2", "CG")).code == 0
            assert "%RETRY%CG" in first.topics()


async def test_a_message_sent_back_is_answered_when_the_name_servers_know_its_topic(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, _):
        await one.send("T")
        first.takes = 0.5
        for level, topic in ((1, "%RETRY%CG"), (-1, "%DLQ%CG")):
            header = ConsumerSendMsgBackHeader(offset=0, group="CG", delayLevel=level, originTopic="T")
            assert (await one.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
            assert topic in first.topics()


async def test_a_dead_letter_that_is_sent_is_answered_when_its_topic_is_known(autojump_clock: MockClock) -> None:
    """It was answered before its topic was saved: after a crash nobody could have read it."""
    async with registered_broker() as (one, first, _):
        await one.heartbeat("c", "CG")
        await one.send("%RETRY%CG")
        first.takes = 0.5
        sent = await one.send("%RETRY%CG", fields={"reconsumeTimes": 16})
        assert sent.code == 0
        assert "%DLQ%CG" in first.topics()


async def test_many_changes_share_few_registrations(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, _):
        before = len(first.registered)
        for n in range(100):
            one.broker.tables.topics.create(f"T{n}", 1, reason="for a test")
        await trio.sleep(1)
        assert len(first.registered) - before <= 2
        assert f"T{99}" in first.topics()


@pytest.mark.parametrize(("period", "pause"), [(1, 10), (30_000, 30), (3_600_000, 60)])
async def test_registration_repeats_every_ten_to_sixty_seconds(
    autojump_clock: MockClock, period: int, pause: int
) -> None:
    async with registered_broker(register_name_server_period=period) as (_, first, _second):
        await trio.sleep(pause * 5 + 1)
        assert len(first.registered) == 6
        assert len(first.connections) == 1  # the connection is reused


async def test_it_asks_for_the_version_before_it_registers_again(autojump_clock: MockClock) -> None:
    async with registered_broker(force_register=False) as (one, first, second):
        await trio.sleep(91)
        assert (len(first.registered), first.asked) == (1, 3)
        second.known = None  # as after a restart
        await trio.sleep(30)
        assert (len(first.registered), len(second.registered)) == (1, 2)
        await one.send("T")
        await trio.sleep(1)
        assert "T" in first.topics()


async def test_a_registration_may_be_deflated(autojump_clock: MockClock) -> None:
    async with registered_broker(compressed_register=True) as (_, first, _second):
        [(header, body)] = first.registered
        assert header.compressed
        assert body.topicConfigSerializeWrapper.topicConfigTable["TBW102"].perm == 7


async def test_it_unregisters_when_it_stops(autojump_clock: MockClock) -> None:
    async with registered_broker() as (_, first, second):
        pass
    for name_server in (first, second):
        assert name_server.unregistered == [UnregisterBrokerHeader(0, NAME, "127.0.0.1:10911", "DefaultCluster")]


async def test_a_changed_permission_is_registered_masked(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, _):
        await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4")
        table = first.registered[-1][1].topicConfigSerializeWrapper.topicConfigTable
        assert table["SELF_TEST_TOPIC"].perm == 4
        assert table["TBW102"].perm == 5
        kept = one.broker.tables.topics.get("SELF_TEST_TOPIC")
        assert kept is not None
        assert kept.perm == 6


async def test_the_answer_brings_the_ordered_topics(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, second):
        await one.send("T")
        first.order = second.order = {"T": "broker-a:4"}
        await trio.sleep(31)
        topic = one.broker.tables.topics.get("T")
        assert topic is not None
        assert topic.order


async def test_an_absent_name_server_is_logged_once_and_later_gets_everything(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    network, late = MemoryNetwork(), NameServer()
    with caplog.at_level(logging.INFO, "rocketlet.broker.registration"):
        async with memory_broker(network=network, namesrv_addr=FIRST) as one:
            await one.send("T")
            await trio.sleep(100)
            async with late.serving(network, FIRST):
                await trio.sleep(31)
                assert "T" in late.topics()
    lines = [record.message for record in caplog.records if record.name == "rocketlet.broker.registration"]
    assert len([line for line in lines if "not registered" in line]) == 1
    assert len([line for line in lines if line.startswith("registered at")]) == 1


async def test_a_restarted_name_server_is_told_at_once(autojump_clock: MockClock) -> None:
    network, before, after = MemoryNetwork(), NameServer(), NameServer()
    async with memory_broker(network=network, namesrv_addr=FIRST):
        async with before.serving(network, FIRST):
            await trio.sleep(100)
            assert before.topics()
        await trio.sleep(2)
        async with after.serving(network, FIRST):
            await trio.sleep(3)
            assert "TBW102" in after.topics()


async def test_a_name_server_that_closes_each_connection_is_not_flooded(autojump_clock: MockClock) -> None:
    network, server = MemoryNetwork(), NameServer()
    async with memory_broker(network=network, namesrv_addr=FIRST) as one, server.serving(network, FIRST):
        await trio.sleep(40)
        count = len(server.registered)
        for _ in range(100):
            for connection in list(one.broker.parts.pool.connections.values()):
                connection.close()
            await trio.sleep(0.1)
        assert count + 5 <= len(server.registered) <= count + 12


async def test_a_refusal_is_logged_with_its_reason(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    network, grumpy = MemoryNetwork(), NameServer(refuses=True)
    async with grumpy.serving(network, FIRST), memory_broker(network=network, namesrv_addr=FIRST):
        assert "not today" in caplog.text


async def test_a_dead_name_server_does_not_delay_the_other(autojump_clock: MockClock) -> None:
    network, alive = MemoryNetwork(), NameServer()
    network.isolate(SECOND)
    async with alive.serving(network, FIRST):
        start = trio.current_time()
        async with memory_broker(network=network, namesrv_addr=f"{SECOND};{FIRST}"):
            assert len(alive.registered) == 1
            assert trio.current_time() - start <= 6.1  # registerBrokerTimeoutMills


async def test_changes_do_not_wait_for_a_dead_name_server(autojump_clock: MockClock) -> None:
    network, alive = MemoryNetwork(), NameServer()
    network.isolate(SECOND)
    addresses = f"{SECOND};{FIRST}"
    async with alive.serving(network, FIRST), memory_broker(network=network, namesrv_addr=addresses) as one:
        for n in range(5):
            start = trio.current_time()
            header = CreateTopicHeader(f"T{n}")
            assert (await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
            assert f"T{n}" in alive.topics()
            assert trio.current_time() - start <= 3.1
            await one.send(f"U{n}")
            await trio.sleep(0.2)
            assert f"U{n}" in alive.topics()


async def test_a_change_during_a_registration_causes_another(autojump_clock: MockClock) -> None:
    async with registered_broker() as (one, first, _):
        one.network.delay = 0.5
        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(one.call, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader(f"T{n}"))
                await trio.sleep(0.3)
        assert {"T0", "T1", "T2"} <= first.topics()


async def test_a_default_address_is_registered_with_loopback_beside_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketlet.broker.own_address.own_address", lambda name_servers: "10.7.7.7")
    async with registered_broker(bind_address="0.0.0.0") as (_, first, _second):
        [(header, _body)] = first.registered
        assert (header.brokerAddr, header.loopbackAddr) == ("10.7.7.7:10911", "127.0.0.1:10911")
    async with registered_broker(bind_address="0.0.0.0", broker_ip1="10.8.8.8") as (_, first, _second):
        [(header, _body)] = first.registered
        assert (header.brokerAddr, header.loopbackAddr) == ("10.8.8.8:10911", None)
