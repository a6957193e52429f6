"""Limits on what peers may use, in total and by address."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.remoting.command import Command
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.frame_codec import Buffer, encode_answer
from rocketlet.remoting.handler import Handler, PlainFunction, Reply, Request
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.rates import Rates
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.serving import serving

ECHO = {1: Handler(lambda request: Reply(body=request.body))}


def test_connections_are_counted_in_total_and_by_address() -> None:
    peers = Peers(ServerConfig(max_connections=3, max_connections_by_address=2))
    assert [peers.connected("a"), peers.connected("a")] == [None, None]
    assert peers.connected("a") == "maxConnectionsByAddress=2"
    assert peers.connected("b") is None
    assert peers.connected("c") == "maxConnections=3"
    peers.disconnected("a")
    assert peers.connected("c") is None
    assert dict(peers.refused) == {"maxConnectionsByAddress": 1, "maxConnections": 1}
    for host in ("a", "b", "c"):
        peers.disconnected(host)
    assert repr(peers) == "<Peers 0 connections from 0 addresses>", "nothing is left of who has gone"


def test_a_rate_allows_a_burst_of_one_second() -> None:
    rates = Rates()
    assert [rates.take("a", 3, 0.0) for _ in range(4)] == [True, True, True, False]
    assert rates.take("b", 3, 0.0), "others have their own"
    assert [rates.take("a", 3, 0.4) for _ in range(2)] == [True, False]
    assert [rates.take("a", 3, 9.0) for _ in range(4)] == [True, True, True, False]


def test_rates_for_many_names_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketlet.remoting.rates._MAX_BUCKETS", 100)
    rates = Rates()
    for number in range(1_000):
        rates.take(f"peer {number}", 3, number / 1000)
    assert len(rates) <= 100


async def test_an_excess_connection_is_closed_before_it_is_read(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serving(nursery, ECHO, ServerConfig(max_connections_by_address=2, server_drain_seconds=0.0))
    first, second = await server.client(), await server.client()
    assert (await first.ask(Command(1, body=b"x"))).body == b"x"
    assert (await second.ask(Command(1, body=b"x"))).body == b"x"
    third = await server.client()
    await third.until_closed()
    assert "maxConnectionsByAddress=2 allows no more" in caplog.text
    await first.stream.aclose()
    await wait_all_tasks_blocked()
    assert (await (await server.client()).ask(Command(1, body=b"x"))).body == b"x"


async def test_requests_are_rate_limited_by_address(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    config = ServerConfig(requests_per_second_by_address=5, server_drain_seconds=0.0)
    server = await serving(nursery, ECHO, config)
    client = await server.client()
    codes = [(await client.ask(Command(1))).code for _ in range(7)]
    assert codes == [0] * 5 + [ResponseCode.SYSTEM_BUSY] * 2
    assert server.server.peers.refused["requestsPerSecondByAddress"] == 2
    await trio.sleep(1)
    assert (await client.ask(Command(1))).code == 0


async def test_log_lines_about_bad_frames_are_rate_limited_by_address(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serving(nursery, ECHO, ServerConfig(log_lines_per_second_by_address=2, server_drain_seconds=0.0))
    for _ in range(20):
        client = await server.client()
        await client.send(b"\x00\xff\xff\xff\xff\xff\xff\xff")
        await client.until_closed()
    assert sum("its connection is closed" in record.message for record in caplog.records) <= 4
    assert server.server.peers.refused["logLinesPerSecondByAddress"] >= 16


def in_one(request: Request) -> Reply:
    return Reply(body=bytes(request.body) * 100)


def in_buffers(request: Request) -> list[Buffer]:
    """As a pull is answered with messages."""
    return encode_answer(0, request.opaque, 0, None, bytes(request.body) * 100, None)


@pytest.mark.parametrize("handle", [in_one, in_buffers])
async def test_a_peer_with_too_many_unread_answers_is_not_read_from(
    nursery: trio.Nursery, handle: PlainFunction
) -> None:
    config = ServerConfig(unread_answers_max=1 << 20, server_drain_seconds=0.0)
    server = await serving(nursery, {1: Handler(handle)}, config)
    silent = [await server.client() for _ in range(4)]
    for client in silent:
        with trio.move_on_after(0.2):
            await client.send(*[Command(1, number, body=bytes(1000)) for number in range(200)])
    await wait_all_tasks_blocked()
    peers = server.server.peers
    assert peers.is_short_of_memory
    assert peers.unread < 3 << 20, "without the limit 4 MiB would wait for each of them"
    for client in silent:
        await client.stream.aclose()
    await wait_all_tasks_blocked()
    assert peers.unread == 0, "nothing of closed connections is left"
    assert (await (await server.client()).ask(Command(1, body=b"x"))).body == b"x" * 100


async def test_answers_that_are_not_joined_yet_are_counted(nursery: trio.Nursery) -> None:
    """Three hundred silent peers took 4.7 GB, of a limit of 1 GiB."""
    config = ServerConfig(server_drain_seconds=0.0)
    server = await serving(nursery, {1: Handler(in_buffers)}, config)
    silent = [await server.client() for _ in range(3)]
    for client in silent:
        with trio.move_on_after(0.2):
            await client.send(*[Command(1, number, body=bytes(10_000)) for number in range(20)])
    await wait_all_tasks_blocked()
    unsent = [connection.unsent for connection in server.server.connections]
    assert min(unsent) > 4 << 20
    assert max(unsent) < 6 << 20, "a turn ends at unsentHigh"
    assert server.server.peers.unread == sum(unsent)
