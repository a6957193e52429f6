"""What only a network in memory can do: cut, delay, isolate, deliver bytes one at a time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from rocketlet.remoting.errors import ConnectFailed
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.transport import ByteStream


async def connected(network: MemoryNetwork) -> tuple[ByteStream, ByteStream]:
    listener = await network.listen("server", 1)
    return await network.dial("server:1"), await listener.accept()


async def test_a_cut_breaks_both_ends() -> None:
    network = MemoryNetwork()
    client, server = await connected(network)
    assert network.cut("server:1") == 1
    for stream in (client, server):
        with pytest.raises(trio.BrokenResourceError, match="cut"):
            await stream.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            stream.send_now(b"x")
    assert (await network.dial("server:1")).peer == "server:1"


async def test_bytes_arrive_after_the_delay_in_order(autojump_clock: MockClock) -> None:
    network = MemoryNetwork(delay=2)
    client, server = await connected(network)
    client.send_now(b"one")
    await trio.sleep(1)
    client.send_now(b"two")
    assert network.bytes_in_flight == 6
    assert await server.receive_some() == b"one"
    assert trio.current_time() == 2
    assert await server.receive_some() == b"two"
    assert trio.current_time() == 3
    assert network.bytes_in_flight == 0


async def test_delivery_a_byte_at_a_time() -> None:
    client, server = await connected(MemoryNetwork(chunk_size=1))
    client.send_now(b"abc")
    assert [await server.receive_some() for _ in range(3)] == [b"a", b"b", b"c"]


async def test_an_isolated_host_receives_and_sends_nothing(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    client, server = await connected(network)
    network.isolate("server:1")
    assert client.send_now(b"lost") == 4
    with trio.move_on_after(60) as waiting:
        await server.receive_some()
    assert waiting.cancelled_caught
    with trio.move_on_after(60) as waiting:
        await network.dial("server:1")
    assert waiting.cancelled_caught
    network.rejoin("server:1")
    with pytest.raises(trio.BrokenResourceError):  # it has lost bytes, so it cannot continue
        await server.receive_some()
    await network.dial("server:1")


async def test_a_connection_that_lost_nothing_survives_an_isolation() -> None:
    network = MemoryNetwork()
    client, server = await connected(network)
    network.isolate("server:1")
    network.rejoin("server:1")
    client.send_now(b"x")
    assert await server.receive_some() == b"x"


async def test_all_addresses_of_a_host_are_isolated() -> None:
    network = MemoryNetwork()
    listener = await network.listen("0.0.0.0", 5)
    client = await network.dial("any.name:5")
    assert (await listener.accept()).peer == client.local
    with pytest.raises(ConnectFailed):
        await network.dial("any.name:6")


async def test_a_paused_host_is_silent_and_loses_nothing(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    listener = await network.listen("10.0.0.2", 1)
    stream = await network.of_host("10.0.0.3").dial("10.0.0.2:1")
    other = await listener.accept()
    network.pause("10.0.0.2")
    stream.send_now(b"there")
    other.send_now(b"back")
    for waiting in (stream, other):
        with trio.move_on_after(60) as scope:
            await waiting.receive_some()
        assert scope.cancelled_caught
    network.resume("10.0.0.2")
    assert await other.receive_some() == b"there"
    assert await stream.receive_some() == b"back"
