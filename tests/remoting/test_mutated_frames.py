"""Ten thousand frames with something wrong in them leave the server serving, fed whole and byte by byte.

Whatever a peer sends, it loses at most its own connection; all others, and the next one, are served.
"""

from __future__ import annotations

import gc
import random
import weakref

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rocketlet.remoting.command import Command
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.handler import Handler, Reply, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.header import to_ext
from tests.support.frames import REQUEST_BODIES, REQUEST_HEADERS, recorded
from tests.support.mutations import mutated
from tests.support.raw_client import RawClient
from tests.support.serving import Serving, serving

PING = Command(1, 77, body=b"ping")


def table() -> dict[int, Handler]:
    """Handlers that read every part of a request."""

    def look(request: Request) -> Reply:
        body: type[Body] | None = REQUEST_BODIES.get(request.code)
        if body is not None:
            body.from_json(request.body)
        return Reply(header=to_ext(request.header) if request.header is not None else request.ext, body=request.body)

    codes = {*REQUEST_HEADERS, *REQUEST_BODIES}
    return {1: Handler(look), **{code: Handler(look, REQUEST_HEADERS.get(code)) for code in codes}}


def frames(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    originals = [frame.data for frame in recorded() if len(frame.data) < 3000]
    originals += [
        encode(Command(310, ext={"b": "T", "e": "1"}, body=b"x" * 50, header_type=type_)) for type_ in (0, 1, 2)
    ]  # type: ignore[arg-type]
    return [mutated(chance.choice(originals), chance) for _ in range(count)]


async def feed(running: Serving, bad: list[bytes]) -> None:
    """Each frame on its own connection, which is then closed; one good client sends requests in between."""
    good = await running.client()
    for number, data in enumerate(bad):
        client = await running.client()
        try:
            await client.send(data)
        except trio.BrokenResourceError:
            pass  # closed before everything was sent
        if number % 100 == 0:
            assert (await good.ask(PING)).body == b"ping"
        await client.stream.aclose()
    assert (await good.ask(PING)).body == b"ping"
    fresh = await running.client()
    assert (await fresh.ask(PING)).body == b"ping"


async def check(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, count: int, chunk_size: int | None) -> None:
    running = await serving(nursery, table(), network=MemoryNetwork(chunk_size=chunk_size))
    await feed(running, frames(count, seed=count))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []  # no handler failed
    while len(running.server.connections) > 2:
        await trio.lowlevel.checkpoint()
    assert running.server.statistics().in_flight["admin"] == 0


async def test_some_mutated_frames_whole(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    await check(nursery, caplog, 800, None)


async def test_some_mutated_frames_byte_by_byte(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    await check(nursery, caplog, 150, 1)


@pytest.mark.slow
async def test_ten_thousand_mutated_frames_whole(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    await check(nursery, caplog, 10_000, None)


@pytest.mark.slow
async def test_ten_thousand_mutated_frames_byte_by_byte(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    await check(nursery, caplog, 10_000, 1)


class Connected(ConnectionEvents):
    """Every connection that there was, as long as it is in memory."""

    def __init__(self) -> None:
        self.all = weakref.WeakSet[Connection]()

    def connected(self, connection: Connection) -> None:
        self.all.add(connection)


async def test_mutated_frames_after_good_ones_on_one_connection(nursery: trio.Nursery) -> None:
    """Requests before the broken frame are answered. Nothing of the connection stays."""
    connected = Connected()
    running = await serving(nursery, table(), events=[connected])
    gc.freeze()  # what other tests have left takes a second to look through
    for bad in frames(100, seed=5):
        client = RawClient(await running.network.dial(running.address))
        await client.send(PING, PING, bad)
        assert [(await client.receive()).body for _ in range(2)] == [b"ping", b"ping"]
        await client.stream.aclose()
    await wait_all_tasks_blocked()
    gc.collect()
    gc.unfreeze()
    assert list(connected.all) == []


async def test_what_was_received_does_not_wait_for_a_collection_of_garbage(nursery: trio.Nursery) -> None:
    """Hundreds of thousands of bytes of each connection would be in memory by then."""
    connected = Connected()
    running = await serving(nursery, table(), events=[connected])
    gc.collect()
    gc.disable()
    try:
        client = await running.client()
        await client.send(PING, b"\0\0\0\x10\0\0\0\x0c" + b"{" * 12)
        assert (await client.receive()).body == b"ping"
        await client.until_closed()
        await wait_all_tasks_blocked()
        assert list(connected.all) == []
    finally:
        gc.enable()
