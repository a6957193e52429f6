"""The port for metrics and health: its answers, and hostile peers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketlet.metrics.endpoint import FRESH_SECONDS, IDLE_SECONDS, MAX_CONNECTIONS, Endpoint
from rocketlet.metrics.page import Page
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.transport import ByteStream


class Told:
    """A source with scripted values."""

    def __init__(self) -> None:
        self.scrapes = 0
        self.reasons: list[str] = []
        self.failure: Exception | None = None

    def fill(self, page: Page) -> Iterator[None]:
        self.scrapes += 1
        if self.failure is not None:
            raise self.failure
        page.gauge("told", "What was told.").add((), self.scrapes)
        yield

    def not_ready(self) -> Sequence[str]:
        return self.reasons


@asynccontextmanager
async def serving(told: Told) -> AsyncIterator[tuple[MemoryNetwork, str]]:
    network = MemoryNetwork()
    async with trio.open_nursery() as nursery:
        address: str = await nursery.start(Endpoint(network, [told], 1000).serve, "10.0.0.1", 5557)
        yield network, address
        nursery.cancel_scope.cancel()


async def answer_to(stream: ByteStream, request: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body; for a HEAD, the rest after the headers."""
    await stream.send_all(f"{request}\r\nHost: x\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    while not request.startswith("HEAD") and len(body) < int(headers["content-length"]):
        body += await stream.receive_some()
    return int(lines[0].split(" ")[1]), headers, body.decode()


async def test_one_connection_serves_several_requests(autojump_clock: trio.testing.MockClock) -> None:
    told = Told()
    async with serving(told) as (network, address):
        stream = await network.dial(address)
        status, headers, body = await answer_to(stream, "GET /metrics HTTP/1.1")
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "\ntold 1.0\n" in body
        assert "\nrocketlet_metrics_series_left_out 0.0\n" in body
        assert (await answer_to(stream, "GET /healthz HTTP/1.1"))[::2] == (200, "ok\n")
        assert (await answer_to(stream, "HEAD /readyz HTTP/1.1"))[::2] == (200, "")
        told.reasons = ["broker-a is starting", "a disk is full"]
        assert (await answer_to(stream, "GET /readyz HTTP/1.1"))[::2] == (503, "broker-a is starting\na disk is full\n")
        assert (await answer_to(stream, "GET /other?x=/metrics HTTP/1.1"))[0] == 404
        status, headers, _ = await answer_to(stream, "DELETE /metrics HTTP/1.1")
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        await stream.aclose()


async def test_a_page_is_built_at_most_once_a_second(autojump_clock: trio.testing.MockClock) -> None:
    told = Told()
    async with serving(told) as (network, address):

        async def ask() -> None:
            stream = await network.dial(address)
            await answer_to(stream, "GET /metrics HTTP/1.1")
            await stream.aclose()

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        assert told.scrapes == 1
        await trio.sleep(FRESH_SECONDS)
        await ask()
        assert told.scrapes == 2


async def test_a_failing_source_costs_only_one_page(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    told.failure = ZeroDivisionError("planted")
    async with serving(told) as (network, address):
        stream = await network.dial(address)
        assert (await answer_to(stream, "GET /metrics HTTP/1.1"))[0] == 500
        assert "ZeroDivisionError: planted" in caplog.text
        told.failure = None
        assert (await answer_to(stream, "GET /metrics HTTP/1.1"))[0] == 200
        await stream.aclose()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
        b"\x00\x00\x00\x10not http at all",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000,
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["nothing", "half", "body-missing", "binary", "long", "continue", "connect", "upgrade"],
)
async def test_a_peer_that_stalls_is_closed_in_time(said: bytes, autojump_clock: trio.testing.MockClock) -> None:
    async with serving(Told()) as (network, address):
        stream = await network.dial(address)
        began = trio.current_time()
        with trio.move_on_after(10 * IDLE_SECONDS):
            try:
                await stream.send_all(said)
                while await stream.receive_some():
                    pass
            except trio.BrokenResourceError:
                pass
        assert trio.current_time() - began <= 2 * IDLE_SECONDS + 1
        assert (await answer_to(await network.dial(address), "GET /healthz HTTP/1.1"))[0] == 200


async def test_connections_are_limited(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(Told()) as (network, address):
        held = [await network.dial(address) for _ in range(MAX_CONNECTIONS)]
        await trio.testing.wait_all_tasks_blocked()
        refused = await network.dial(address)
        assert await refused.receive_some() == b""
        await held[0].aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (await answer_to(await network.dial(address), "GET /healthz HTTP/1.1"))[0] == 200
