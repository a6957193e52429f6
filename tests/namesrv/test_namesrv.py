"""A whole name server on a network in memory and in virtual time: brokers connect, answer, close, hang and return."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.access.config import AccessConfig
from rocketlet.common import json_pieces
from rocketlet.common.config_file import load
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.handlers import registration, routes
from rocketlet.namesrv.liveness import Liveness
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.namesrv.route_table import RouteTable
from rocketlet.namesrv.route_values import QueueData, Registration
from rocketlet.remoting import in_turns
from rocketlet.remoting.command import V4_9_4, Command, request
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol import registration as registration_pieces
from rocketlet.remoting.protocol.configuration import DataVersion, TopicConfig, TopicConfigTable
from rocketlet.remoting.protocol.kv import KVConfigHeader, KVNamespaceHeader, KVTable, PutKVConfigHeader
from rocketlet.remoting.protocol.registration import (
    QueryDataVersionHeader,
    RegisterBrokerBody,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
    body_crc32,
    in_pieces,
)
from rocketlet.remoting.protocol.routing import (
    BrokerData,
    ClusterInfo,
    GetBrokerMembersHeader,
    GetRouteInfoHeader,
    GetTopicsByClusterHeader,
    TopicList,
    TopicRouteData,
)
from rocketlet.remoting.request_codes import RequestCode
from tests.support.name_server_desk import Desk

HOST = "10.0.0.9"
NEVER_IDLE = PoolConfig(client_channel_max_idle_time_seconds=1_000_000)


@asynccontextmanager
async def running(network: MemoryNetwork, files: MemoryFiles | None = None, **settings: str) -> AsyncIterator[str]:
    """A name server until the block ends; its address."""
    flags = {"bindAddress": HOST, "listenPort": "0", "kvConfigPath": "kv", "configStorePath": "conf", **settings}
    server = NameServer(
        load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags),
        network,
        files=files or MemoryFiles(),
    )
    async with trio.open_nursery() as nursery:
        yield await nursery.start(server.run)
        nursery.cancel_scope.cancel()


class Peer:
    """A broker or client with its own pool, and so its own connection."""

    def __init__(
        self, pool: ConnectionPool, namesrv: str, name: str = "broker-a", address: str = "10.0.0.7:10911"
    ) -> None:
        self.pool = pool
        self.namesrv = namesrv
        self.name = name
        self.address = address

    async def ask(self, command: Command) -> Command:
        return await self.pool.call(self.namesrv, command, 3)

    async def register(self, *topics: str, counter: int = 1, version: int = 409) -> Command:
        table = TopicConfigTable(DataVersion(counter, 5), {topic: TopicConfig(topicName=topic) for topic in topics})
        body = RegisterBrokerBody([], table).to_json() if version >= 37 else table.to_json()
        header = RegisterBrokerHeader(0, self.name, self.address, "C", f"{self.address}9", False, body_crc32(body))
        command = request(RequestCode.REGISTER_BROKER, header, body)
        command.version = version
        answer = await self.ask(command)
        assert answer.code == 0, answer
        return answer

    async def changed(self, counter: int = 1) -> bool:
        header = QueryDataVersionHeader(0, self.name, self.address, "C")
        answer = await self.ask(request(RequestCode.QUERY_DATA_VERSION, header, DataVersion(counter, 5).to_json()))
        return (answer.ext or {})["changed"] == "true"

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await self.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic)))
        assert answer.code in (0, 17)
        return TopicRouteData.from_json(answer.body) if answer.code == 0 else None

    async def hang_up(self) -> None:
        self.pool.connections[self.namesrv].close()
        await wait_all_tasks_blocked()


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


async def test_a_disconnecting_broker_leaves_the_routes_at_once(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        broker, client = Peer(one, address), Peer(two, address)
        assert await client.route("T") is None
        await broker.register("T", "U")
        route = await client.route("T")
        assert route is not None
        assert route.brokerDatas[0].brokerAddrs == {0: "10.0.0.7:10911"}
        before = trio.current_time()
        await broker.hang_up()
        assert await client.route("T") is None
        assert trio.current_time() - before < 1
        await broker.register("T")
        assert await client.route("T") is not None


async def test_a_broken_connection_counts_as_closed(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        broker, client = Peer(one, address), Peer(two, address)
        await broker.register("T")
        local = one.connections[address].local
        assert await client.route("T") is not None
        network.cut(local)
        await wait_all_tasks_blocked()
        assert await client.route("T") is None


async def test_a_silent_connection_is_closed_after_120_s(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network, NEVER_IDLE) as one, ConnectionPool(network) as two:
        broker, client = Peer(one, address), Peer(two, address)
        await broker.register("T")
        await trio.sleep(119)
        assert await client.route("T") is not None
        await trio.sleep(2)
        assert await client.route("T") is None


async def test_a_broker_that_stops_registering_is_removed_by_the_scan(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with running(network) as address, ConnectionPool(network) as pool:
        broker = Peer(pool, address)
        await broker.register("T")
        connection = pool.connections[address]
        for _ in range(11):
            await trio.sleep(10)
            assert await broker.route("T") is not None
        await trio.sleep(21)  # a lease of 120 s, and at most 10 until the next scan
        assert connection.closed
        assert await broker.route("T") is None


async def test_a_broker_whose_host_hangs_is_removed_after_120_s(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        broker, client = Peer(one, address), Peer(two, address)
        await broker.register("T")
        network.isolate(one.connections[address].local)
        await trio.sleep(118)
        assert await client.route("T") is not None
        await trio.sleep(14)
        assert await client.route("T") is None


async def test_asking_for_the_version_keeps_a_broker_alive(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network) as pool:
        broker = Peer(pool, address)
        assert await broker.changed()
        await broker.register("T")
        for _ in range(20):
            await trio.sleep(30)
            assert not await broker.changed()
        assert await broker.changed(counter=2)
        assert await broker.route("T") is not None


async def test_a_late_close_does_not_remove_a_broker_that_is_back(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        old, new = Peer(one, address), Peer(two, address)
        await old.register("T")
        await new.register("T")
        await old.hang_up()
        assert await new.route("T") is not None
        assert not await new.changed()


async def test_unregistration(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network) as pool:
        broker = Peer(pool, address)
        await broker.register("T")
        header = UnregisterBrokerHeader(0, broker.name, broker.address, "C")
        for _ in range(2):
            assert (await broker.ask(request(RequestCode.UNREGISTER_BROKER, header))).code == 0
        assert await broker.route("T") is None


async def test_a_broker_older_than_3_0_11_sends_a_bare_table(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network) as pool:
        broker = Peer(pool, address)
        await broker.register("Old", version=36)
        assert await broker.route("Old") is not None


async def test_a_conversation_byte_by_byte(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(chunk_size=1)
    async with running(network) as address, ConnectionPool(network) as pool:
        broker = Peer(pool, address)
        await broker.register(*(f"T{i}" for i in range(50)))
        assert await broker.route("T49") is not None


@pytest.mark.parametrize("code", [9999, 34, 310])
async def test_unknown_codes_get_3(network: MemoryNetwork, autojump_clock: MockClock, code: int) -> None:
    async with running(network) as address, ConnectionPool(network) as pool:
        answer = await Peer(pool, address).ask(request(code))
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


BAD = {
    "no name": (RegisterBrokerHeader(0, "", "a:1", "C"), b"", "brokerName"),
    "no address": (RegisterBrokerHeader(0, "b", "", "C"), b"", "brokerAddr"),
    "no cluster": (RegisterBrokerHeader(0, "b", "a:1", ""), b"", "brokerClusterName"),
    "negative id": (RegisterBrokerHeader(-1, "b", "a:1", "C"), b"", "brokerId"),
    "wrong crc": (RegisterBrokerHeader(0, "b", "a:1", "C", bodyCrc32=12345), b"{}", "crc32 not match"),
    "no JSON": (RegisterBrokerHeader(0, "b", "a:1", "C"), b"{", "RegisterBrokerBody"),
    "no zlib": (RegisterBrokerHeader(0, "b", "a:1", "C", compressed=True), b"{}", "zlib"),
}


@pytest.mark.parametrize("which", BAD)
async def test_a_bad_registration_is_refused_and_changes_nothing(
    network: MemoryNetwork, autojump_clock: MockClock, which: str
) -> None:
    header, body, word = BAD[which]
    async with running(network) as address, ConnectionPool(network) as pool:
        peer = Peer(pool, address)
        answer = await peer.ask(request(RequestCode.REGISTER_BROKER, header, body))
        assert answer.code == 1
        assert word in (answer.remark or "")
        info = await peer.ask(request(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert json.loads(bytes(info.body)) == {"brokerAddrTable": {}, "clusterAddrTable": {}}


async def test_members_of_a_broker_name(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network) as pool:
        broker = Peer(pool, address)
        await broker.register("T")
        for cluster, addresses in (("C", {"0": broker.address}), ("D", {})):
            header = GetBrokerMembersHeader(broker.name, cluster)
            answer = await broker.ask(request(RequestCode.GET_BROKER_MEMBER_GROUP, header))
            group = {"brokerAddrs": addresses, "brokerName": "broker-a", "cluster": cluster}
            assert json.loads(bytes(answer.body)) == {"brokerMemberGroup": group}


async def test_kv_survives_a_restart_and_a_failed_write_is_reported(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    files = MemoryFiles()
    async with running(network, files) as address, ConnectionPool(network) as pool:
        peer = Peer(pool, address)
        assert (await peer.ask(request(RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("NS", "k", "v")))).code == 0
        files.fails = True
        answer = await peer.ask(request(RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("NS", "k", "lost")))
        assert (answer.code, "No space left" in (answer.remark or "")) == (1, True)
        no_value = await peer.ask(request(RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("NS", "k")))
        assert no_value.code == 1
        nothing = await peer.ask(request(RequestCode.DELETE_KV_CONFIG, KVConfigHeader("NS")))
        assert nothing.code == 1
        unknown = await peer.ask(request(RequestCode.GET_KVLIST_BY_NAMESPACE, KVNamespaceHeader()))
        assert unknown.code == 22
    files.fails = False
    async with running(network, files) as address, ConnectionPool(network) as pool:
        peer = Peer(pool, address)
        answer = await peer.ask(request(RequestCode.GET_KV_CONFIG, KVConfigHeader("NS", "k")))
        assert answer.ext == {"value": "v"}


async def test_the_order_configuration_is_returned_while_enabled(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    files = MemoryFiles()
    async with running(network, files) as address, ConnectionPool(network) as pool:
        peer = Peer(pool, address)
        await peer.register("T")
        put = PutKVConfigHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:2")
        assert (await peer.ask(request(RequestCode.PUT_KV_CONFIG, put))).code == 0
        shown = []
        for value in ("false", "true", "false"):
            text = f"orderMessageEnable={value}\n".encode()
            assert (await peer.ask(request(RequestCode.UPDATE_NAMESRV_CONFIG, body=text))).code == 0
            route = await peer.route("T")
            assert route is not None
            shown.append(route.orderTopicConf)
        assert shown == [None, "broker-a:2", None]
        registered = await peer.register("T")
        assert json.loads(bytes(registered.body)) == {"table": {"T": "broker-a:2"}}
    assert files.files["conf"] == b"orderMessageEnable=false\n"


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("kvConfigPath=/tmp/x", 16, "black list"),
        ("listenPort=1", 1, "restart"),
        ("orderMessageEnable=perhaps", 1, "true or false"),
        ("orderMessagEnable=true", 1, "did you mean"),
        ("serverWorkerThreads=4", 1, "not served"),
        ("orderMessageEnable=\\u12", 1, "hex digits"),
    ],
)
async def test_settings_can_be_changed(
    network: MemoryNetwork, autojump_clock: MockClock, text: str, code: int, word: str
) -> None:
    async with running(network) as address, ConnectionPool(network) as pool:
        peer = Peer(pool, address)
        answer = await peer.ask(request(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode()))
        assert (answer.code, word in (answer.remark or "")) == (code, True)
        shown = await peer.ask(request(RequestCode.GET_NAMESRV_CONFIG))
        assert b"orderMessageEnable=false\n" in bytes(shown.body)
        assert b"serverOnewaySemaphoreValue=256\n" in bytes(shown.body)
        assert f"listenPort={address.rpartition(':')[2]}\n".encode() in bytes(shown.body)


async def test_a_setting_that_cannot_be_saved_is_not_changed(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    files = MemoryFiles()
    async with running(network, files) as address, ConnectionPool(network) as pool:
        peer = Peer(pool, address)
        files.fails = True
        answer = await peer.ask(request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true"))
        assert (answer.code, "No space left" in (answer.remark or "")) == (1, True)
        shown = await peer.ask(request(RequestCode.GET_NAMESRV_CONFIG))
        assert b"orderMessageEnable=false\n" in bytes(shown.body)


async def test_full_tables_answer_with_the_name_of_the_limit(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketlet.namesrv.route_table.MAX_ADDRESSES", 0)
    async with running(network) as address, ConnectionPool(network) as pool:
        answer = await Peer(pool, address).ask(
            request(RequestCode.REGISTER_BROKER, RegisterBrokerHeader(0, "b", "a:1", "C"))
        )
        assert (answer.code, "MAX_ADDRESSES" in (answer.remark or "")) == (1, True)


async def test_a_route_is_fresh_after_every_change(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Encoded routes are cached; none may outlive its contents."""
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        a, b = Peer(one, address, "broker-a", "a:1"), Peer(two, address, "broker-b", "b:1")
        await a.register("T")
        for names in (["broker-a", "broker-b"], ["broker-a"]):
            assert await a.route("T") is not None
            await (b.register("T") if len(names) == 2 else b.hang_up())
            route = await a.route("T")
            assert route is not None
            assert [queues.brokerName for queues in route.queueDatas] == names


async def test_a_late_scan_spares_brokers_until_the_next(mock_clock: MockClock) -> None:
    table = RouteTable()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Liveness(table).scan)
        await wait_all_tasks_blocked()
        now = round(trio.current_time() * 1000)
        table.register(Registration("C", "broker-a", 0, "a:1", "", "conn"), now)
        mock_clock.jump(600)  # the process was stopped for ten minutes
        await wait_all_tasks_blocked()
        assert "a:1" in table
        table.known_version(
            "a:1", Registration("C", "n", 0, "a", "", 0).version, "conn", round(trio.current_time() * 1000)
        )
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        assert "a:1" in table
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("compressed", [True, False])
async def test_a_large_registration_does_not_block_others(
    network: MemoryNetwork, autojump_clock: MockClock, compressed: bool
) -> None:
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        small = Peer(two, address, "broker-b", "10.0.0.8:10911")
        await small.register("T")
        topics = {f"T{number}": TopicConfig(topicName=f"T{number}") for number in range(5_500)}
        table = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 5), topics))
        body = table.to_compressed() if compressed else table.to_json()
        header = RegisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C", "", compressed, body_crc32(body))
        order: list[str] = []

        async def large() -> None:
            answer = await one.call(address, request(RequestCode.REGISTER_BROKER, header, body), 30)
            assert answer.code == 0, answer.remark
            order.append("large")

        async def route() -> None:
            assert await small.route("T") is not None
            order.append("small")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(large)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(route)
        assert order == ["small", "large"]
        assert await small.route("T5499") is not None
        assert not await Peer(one, address).changed()
        await Peer(one, address).hang_up()
        assert await small.route("T5499") is None


async def test_a_large_registration_of_a_broker_that_disconnects_leaves_nothing(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        topics = {f"T{number}": TopicConfig(topicName=f"T{number}") for number in range(5_500)}
        body = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 5), topics)).to_compressed()
        header = RegisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C", "", True, body_crc32(body))
        connection = await one.connection(address)
        connection.send_oneway(request(RequestCode.REGISTER_BROKER, header, body))
        client = Peer(two, address)
        while await client.route("T0") is None:
            await trio.lowlevel.checkpoint()
        await Peer(one, address).hang_up()
        assert [await client.route(f"T{number}") for number in (0, 2_000, 5_499)] == [None] * 3


def large_registration(address: str) -> tuple[RegisterBrokerHeader, bytes]:
    topics = {f"T{number}": TopicConfig(topicName=f"T{number}") for number in range(5_500)}
    body = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 5), topics)).to_json()
    return RegisterBrokerHeader(0, "broker-a", address, "C", "", False, body_crc32(body)), body


async def test_a_large_registration_that_another_one_replaces_is_answered(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_pieces, "_WHOLE", 2_000)  # or it may be over before the other one is there
    async with running(network) as address, ConnectionPool(network) as one, ConnectionPool(network) as two:
        answers: list[Command] = []

        async def large() -> None:
            ask = request(RequestCode.REGISTER_BROKER, *large_registration("10.0.0.7:10911"))
            answers.append(await one.call(address, ask, 30))

        other = Peer(two, address, "broker-a", "10.0.0.8:10911")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(large)
            while await other.route("T0") is None:
                await trio.lowlevel.checkpoint()
            await other.register("T0")
        assert [answer.code for answer in answers] == [1]
        assert "another connection has registered" in (answers[0].remark or "")


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("problem", ["a topic that nobody can read", "a name too long", "too many"])
async def test_a_large_registration_that_is_refused_changes_nothing(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, problem: str, compressed: bool
) -> None:
    if problem == "too many":
        monkeypatch.setattr("rocketlet.namesrv.route_table.MAX_ENTRIES", 5_000)
    async with running(network) as address, ConnectionPool(network) as one:
        topics = {f"T{number}": TopicConfig(topicName=f"T{number}") for number in range(5_500)}
        if problem == "a topic that nobody can read":
            topics["T"] = TopicConfig(topicName="T T" if compressed else "T", readQueueNums="x")  # type: ignore[arg-type]
        elif problem == "a name too long":
            topics["T"] = TopicConfig(topicName="T" * 600)
        table = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 5), topics))
        body = table.to_compressed() if compressed else table.to_json()
        header = RegisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C", "", compressed, body_crc32(body))
        assert (await one.call(address, request(RequestCode.REGISTER_BROKER, header, body), 30)).code == 1
        assert await Peer(one, address).route("T0") is None
        listed = await one.call(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), 3)
        assert json.loads(listed.body) == {"brokerAddrTable": {}, "clusterAddrTable": {}}


async def test_a_broker_cannot_overtake_its_own_large_registration(
    network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    async with running(network) as address, ConnectionPool(network) as one:
        broker, other = Peer(one, address), Peer(one, address, "broker-b", "10.0.0.8:10911")
        small = RegisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C")
        leave = UnregisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C")
        large = request(RequestCode.REGISTER_BROKER, *large_registration("10.0.0.7:10911"))
        (await one.connection(address)).send_oneway(large)
        assert await broker.route("T0") is None
        await other.register("U")
        assert await broker.route("T0") is None
        assert (await broker.ask(request(RequestCode.REGISTER_BROKER, small))).code == 0
        assert await broker.route("T0") is not None
        (await one.connection(address)).send_oneway(large)
        assert (await broker.ask(request(RequestCode.UNREGISTER_BROKER, leave))).code == 0
        assert await broker.route("T0") is None
        assert await broker.route("U") is not None
        await broker.register("T0")


async def test_few_registrations_of_a_connection_get_in_line(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network) as one:
        broker = Peer(one, address)
        for _ in range(8):
            large = request(RequestCode.REGISTER_BROKER, *large_registration("10.0.0.7:10911"))
            (await one.connection(address)).send_oneway(large)
        small = RegisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C")
        refused = await broker.ask(request(RequestCode.REGISTER_BROKER, small))
        assert (refused.code, refused.remark) == (2, "8 registrations before this one are not read yet")


async def test_large_registrations_are_read_one_after_the_other_and_few_may_wait(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty of 400 KB, deflated, took 1.8 GB."""
    _, body = large_registration("")
    monkeypatch.setattr(registration, "MAX_WAITING", 3 * len(body))
    reading: list[bytes] = []
    most = 0

    def pieces(data: bytes, **how: bool) -> Iterator[RegisterBrokerBody]:
        nonlocal most
        reading.append(data)
        most = max(most, len(reading))
        yield from in_pieces(data, **how)
        reading.remove(data)

    monkeypatch.setattr(registration, "in_pieces", pieces)
    async with running(network) as address:
        codes: list[int] = []

        async def large(number: int) -> None:
            async with ConnectionPool(network) as pool:
                header, body = large_registration(f"10.0.0.{number}:10911")
                header.brokerName = f"broker-{number}"
                codes.append((await pool.call(address, request(RequestCode.REGISTER_BROKER, header, body), 30)).code)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(large, number)
        assert sorted(codes) == [0, 0, 0, 2, 2]
        assert most == 1
        await large(9)
        assert codes[-1] == 0


async def test_a_topic_with_a_lone_surrogate_spoils_no_list(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    async with running(network) as address, ConnectionPool(network) as one:
        topic = b'"x\\ud800":{"topicName":"x\\ud800","perm":6,"readQueueNums":4,"writeQueueNums":4}'
        body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{' + topic + b"}}}"
        header = RegisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C", "", False, body_crc32(body))
        assert (await one.call(address, request(RequestCode.REGISTER_BROKER, header, body), 3)).code == 0
        listed = await one.call(address, Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), 3)
        assert json.loads(listed.body)["topicList"] == ["x\ufffd"]
        listed = await one.call(address, Command(RequestCode.GET_TOPICS_BY_CLUSTER, ext={"cluster": "C"}), 3)
        assert json.loads(listed.body)["topicList"] == ["x\ufffd"]


@pytest.mark.parametrize(
    ("code", "header", "wanted"),
    [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, ["Both", "Plain", "Sub", "Unit"]),
        (RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterHeader("C"), ["Both", "Plain", "Sub", "Unit"]),
        (RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterHeader("D"), []),
        (RequestCode.GET_UNIT_TOPIC_LIST, None, ["Both", "Unit"]),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None, ["Both", "Sub"]),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, ["Sub"]),
    ],
)
@pytest.mark.parametrize("looks", [1, 500])
async def test_lists_of_topics_are_made_in_turns(
    network: MemoryNetwork,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    code: RequestCode,
    header: GetTopicsByClusterHeader | None,
    wanted: list[str],
    looks: int,
) -> None:
    monkeypatch.setattr(routes, "LOOKS", looks)
    monkeypatch.setattr(in_turns, "AT_ONCE", -1.0)
    async with running(network) as address, ConnectionPool(network) as pool:
        flags = {"Plain": 0, "Unit": 1, "Sub": 2, "Both": 3}
        topics = {name: TopicConfig(topicName=name, topicSysFlag=flag) for name, flag in flags.items()}
        body = RegisterBrokerBody([], TopicConfigTable(DataVersion(1, 5), topics)).to_json()
        header_of_broker = RegisterBrokerHeader(0, "broker-a", "10.0.0.7:10911", "C", "", False, body_crc32(body))
        answer = await pool.call(address, request(RequestCode.REGISTER_BROKER, header_of_broker, body), 3)
        assert answer.code == 0
        turns = Counted()
        trio.lowlevel.add_instrument(turns)
        listed = await pool.call(address, request(code, header), 3)
        trio.lowlevel.remove_instrument(turns)
        assert json.loads(listed.body)["topicList"] == wanted
        assert turns.count > (4 if looks == 1 else 0)


async def test_the_order_configuration_is_written_once_for_all_registrations(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Mock(side_effect=KVTable.to_json, autospec=True)
    monkeypatch.setattr(KVTable, "to_json", lambda table: written(table))
    async with running(network) as address, ConnectionPool(network) as pool:
        for number, order in enumerate((None, "broker-a:4", "broker-a:8")):
            if order is not None:
                put = PutKVConfigHeader("ORDER_TOPIC_CONFIG", "T", order)
                assert (await pool.call(address, request(RequestCode.PUT_KV_CONFIG, put), 3)).code == 0
            for name in ("broker-a", "broker-b"):
                answer = await Peer(pool, address, name, f"{name}:1").register("T")
                assert bytes(answer.body) == (b"" if order is None else b'{"table":{"T":"%b"}}' % order.encode())
            assert written.call_count == number


async def test_a_topic_of_many_brokers_counts_as_many_in_lists(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 topics on 10,000 brokers held the loop for 150 ms."""
    monkeypatch.setattr(routes, "LOOKS", 4)
    at_once: list[list[str]] = []

    def pieces(parts: Iterable[list[str]]) -> Iterator[bytes]:
        for part in parts:
            at_once.append(part)
            yield b""

    monkeypatch.setattr(TopicList, "pieces", pieces)
    async with running(network) as address, ConnectionPool(network) as pool:
        for number, topics in enumerate((["A", "B", "C", "D", "E"], ["B", "C"], ["B"])):
            await Peer(pool, address, f"broker-{number}", f"10.0.0.{number}:10911").register(*topics)
        await pool.call(address, Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), 3)
    assert at_once == [["A", "B"], ["C", "D"], ["E"]]


@pytest.mark.parametrize("version", [300, V4_9_4])
async def test_a_route_of_many_brokers_is_made_in_turns(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """10,000 of them held the loop for 20 to 80 ms."""
    monkeypatch.setattr(in_turns, "AT_ONCE", -1.0)
    async with running(network) as address, ConnectionPool(network) as pool:
        for number in range(6):
            await Peer(pool, address, f"broker-{number}", f"10.0.0.{number}:10911").register("T")
        bodies, counts = [], []
        for at_once in (6, 2):
            monkeypatch.setattr(routes, "AT_ONCE", at_once)
            await Peer(pool, address, "broker-x", "10.0.0.9:10911").register(f"U{at_once}")  # so that none is cached
            ask = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader("T"))
            ask.version = version
            for _ in range(2):
                turns = Counted("_serve_later")
                trio.lowlevel.add_instrument(turns)
                bodies.append(bytes((await pool.call(address, ask, 3)).body))
                trio.lowlevel.remove_instrument(turns)
                counts.append(turns.count)
        assert len(TopicRouteData.from_json(bodies[0]).brokerDatas) == 6
        assert bodies == [bodies[0]] * 4
        assert (counts[0], counts[1], counts[3]) == (0, 0, 0)
        assert counts[2] > 3
        answer = await pool.call(address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader("V")), 3)
        assert answer.code == 17


async def test_only_so_many_routes_are_kept_as_are_dropped_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_KEPT", 2)
    desk = Desk()
    topics = {f"T{number}": QueueData("broker-a", 4, 4, 6) for number in range(3)}
    desk.table.register(Registration("C", "broker-a", 0, "10.0.0.1:1", "", 1, topics=topics), 0)
    for topic in topics:
        answer = await desk.answer(encode(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic))))
        assert answer is not None
        assert answer.code == 0
    assert len(desk.routes._routes) == 2


async def test_a_route_that_changes_while_it_is_made_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "AT_ONCE", 1)
    desk, key = Desk(), ("T", True, False)
    for number in range(3):
        desk.table.register(of_broker(number), 0)
    making = desk.routes._making(key)
    assert next(making) is None
    desk.table.forget(2)
    *_, body = making
    assert body is not None
    assert [broker.brokerName for broker in TopicRouteData.from_json(body).brokerDatas] == ["broker-0", "broker-1"]
    assert desk.routes._known(key) is None


async def test_a_route_whose_brokers_all_leave_before_it_is_made_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "AT_ONCE", 1)
    desk = Desk()
    for number in range(3):
        desk.table.register(of_broker(number), 0)
    making = desk.routes._making(("T", True, False))
    monkeypatch.setattr(desk.table, "names_of", lambda topic: ["gone", "gone, too"])
    assert list(making) == [None, None, b""]


def of_broker(number: int) -> Registration:
    name = f"broker-{number}"
    return Registration("C", name, 0, f"10.0.0.{number}:1", "", number, topics={"T": QueueData(name, 4, 4, 6)})


async def test_clusters_are_listed_in_turns(
    network: MemoryNetwork, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_pieces, "PIECE", 1)
    monkeypatch.setattr(in_turns, "AT_ONCE", -1.0)
    async with running(network) as address, ConnectionPool(network) as pool:
        for number in range(6):
            await Peer(pool, address, f"broker-{number}", f"10.0.0.{number}:10911").register("T")
        turns = Counted()
        trio.lowlevel.add_instrument(turns)
        answer = await pool.call(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), 3)
        trio.lowlevel.remove_instrument(turns)
        info = ClusterInfo.from_json(answer.body)
        assert bytes(answer.body) == info.to_json()
        assert list(info.brokerAddrTable) == info.clusterAddrTable["C"] == [f"broker-{number}" for number in range(6)]
        assert info.brokerAddrTable["broker-5"] == BrokerData({0: "10.0.0.5:10911"}, "broker-5", "C")
        assert turns.count > 6


class Counted(trio.abc.Instrument):
    """How often the loop turned to a task that works on a request."""

    def __init__(self, task: str = "_run_task") -> None:
        self.count = 0
        self._task = task

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith(self._task)
