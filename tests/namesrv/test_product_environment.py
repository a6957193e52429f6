"""clusterTest: missing routes are requested from the product environment, found by address or over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from rocketlet.access.config import AccessConfig
from rocketlet.common.config_file import load
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.namesrv.product_environment import LookupFailed, addresses_in
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.configuration import TopicConfig, TopicConfigTable
from rocketlet.remoting.protocol.kv import PutKVConfigHeader
from rocketlet.remoting.protocol.registration import RegisterBrokerBody, RegisterBrokerHeader
from rocketlet.remoting.protocol.routing import GetRouteInfoHeader, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode

PRODUCT = "10.0.0.2:9876"
OTHER = "10.0.0.3:9876"
TESTING = "10.0.0.1:9876"


async def start(nursery: trio.Nursery, network: MemoryNetwork, address: str, **settings: str) -> None:
    host, _, port = address.rpartition(":")
    flags = {"bindAddress": host, "listenPort": port, **settings}
    loaded = load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags)
    await nursery.start(NameServer(loaded, network, files=MemoryFiles()).run)


async def register(pool: ConnectionPool, namesrv: str, topic: str) -> None:
    body = RegisterBrokerBody([], TopicConfigTable(topicConfigTable={topic: TopicConfig(topicName=topic)})).to_json()
    header = RegisterBrokerHeader(0, f"broker-{namesrv}", f"{namesrv}1", "C")
    assert (await pool.call(namesrv, request(RequestCode.REGISTER_BROKER, header, body), 3)).code == 0


async def route(pool: ConnectionPool, topic: str) -> Command:
    return await pool.call(TESTING, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic)), 10)


def brokers(answer: Command) -> list[str]:
    assert answer.code == 0, answer
    return [broker.brokerName for broker in TopicRouteData.from_json(answer.body).brokerDatas]


@asynccontextmanager
async def environment() -> AsyncIterator[tuple[trio.Nursery, MemoryNetwork, ConnectionPool]]:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery, ConnectionPool(network) as pool:
        await start(nursery, network, PRODUCT)
        await register(pool, PRODUCT, "Product")
        yield nursery, network, pool
        nursery.cancel_scope.cancel()


async def serve_addresses(
    network: MemoryNetwork, answer: bytes, seen: list[bytes], *, task_status: trio.TaskStatus[None]
) -> None:
    listener = await network.listen("jmenv.tbsite.net", 8080)
    task_status.started()
    while True:
        stream = await listener.accept()
        seen.append(await stream.receive_some())
        if answer:
            await stream.send_all(answer)
            await stream.aclose()


async def test_a_missing_route_comes_from_the_product_environment(autojump_clock: MockClock) -> None:
    async with environment() as (nursery, network, pool):
        await start(nursery, network, TESTING, clusterTest="true", namesrvAddr=f"{OTHER};{PRODUCT}")
        await register(pool, TESTING, "Ours")
        assert brokers(await route(pool, "Product")) == [f"broker-{PRODUCT}"]
        assert brokers(await route(pool, "Ours")) == [f"broker-{TESTING}"]
        assert (await route(pool, "Nowhere")).code == 17


async def test_without_cluster_test_a_missing_route_is_missing(autojump_clock: MockClock) -> None:
    async with environment() as (nursery, network, pool):
        await start(nursery, network, TESTING, namesrvAddr=PRODUCT)
        assert (await route(pool, "Product")).code == 17


async def test_the_order_configuration_is_always_included(autojump_clock: MockClock) -> None:
    async with environment() as (nursery, network, pool):
        await start(nursery, network, TESTING, clusterTest="true", namesrvAddr=PRODUCT)
        await register(pool, TESTING, "Ours")
        put = PutKVConfigHeader("ORDER_TOPIC_CONFIG", "Ours", "b:1")
        await pool.call(TESTING, request(RequestCode.PUT_KV_CONFIG, put), 3)
        answer = await route(pool, "Ours")
        assert TopicRouteData.from_json(answer.body).orderTopicConf == "b:1"


async def test_the_addresses_are_looked_up_over_http(autojump_clock: MockClock) -> None:
    seen: list[bytes] = []
    async with environment() as (nursery, network, pool):
        await nursery.start(
            serve_addresses, network, f"HTTP/1.1 200 OK\r\nX: y\r\n\r\n{OTHER};{PRODUCT}\n".encode(), seen
        )
        await start(nursery, network, TESTING, clusterTest="true")
        for _ in range(3):
            assert brokers(await route(pool, "Product")) == [f"broker-{PRODUCT}"]
        assert len(seen) == 1
        assert seen[0].startswith(b"GET /rocketmq/nsaddr-center?nofix=1 HTTP/1.0\r\nHost: jmenv.tbsite.net\r\n")
        await trio.sleep(121)
        await register(pool, PRODUCT, "Product")
        assert (await route(pool, "Product")).code == 0
        assert len(seen) == 2


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 404 Not Found\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nnonsense"])
async def test_a_failed_lookup_means_no_route(
    autojump_clock: MockClock, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with environment() as (nursery, network, pool):
        await nursery.start(serve_addresses, network, answer, [])
        await start(nursery, network, TESTING, clusterTest="true")
        assert (await route(pool, "Product")).code == 17
        assert "set them with -n" in caplog.text


async def test_an_unreachable_lookup_server_means_no_route(autojump_clock: MockClock) -> None:
    async with environment() as (nursery, network, pool):
        await start(nursery, network, TESTING, clusterTest="true", namesrvDomain="nobody:80")
        assert (await route(pool, "Product")).code == 17


def test_addresses_in_an_answer() -> None:
    assert addresses_in(b"HTTP/1.0 200 OK\r\n\r\n a:1 ; [::1]:2;\r\nmore\r\n") == ["a:1", "[::1]:2"]
    for bad in (b"", b"HTTP/1.0 200 OK\r\n\r\n", b"SSH-2.0-x\r\n\r\na:1", b"HTTP/1.0 302 Found\r\n\r\na:1"):
        with pytest.raises(LookupFailed):
            addresses_in(bad)
    with pytest.raises(ValueError, match="nonsense"):
        addresses_in(b"HTTP/1.0 200 OK\r\n\r\nnonsense")
