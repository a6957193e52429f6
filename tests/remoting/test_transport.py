"""Streams and listeners: the same guarantees over TCP and in memory."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rocketlet.remoting import transport
from rocketlet.remoting.errors import ConnectFailed, ListenFailed
from rocketlet.remoting.memory_network import CAPACITY, MemoryNetwork
from rocketlet.remoting.transport import ByteStream, Network, TcpNetwork, join_address, split_address

NETWORKS: list[Callable[[], Network]] = [
    TcpNetwork,
    lambda: TcpNetwork(backlog=10, send_buffer=65536, receive_buffer=65536),
    MemoryNetwork,
    lambda: MemoryNetwork(chunk_size=1000),
]
everywhere = pytest.mark.parametrize("make", NETWORKS, ids=["tcp", "tcp-small-buffers", "memory", "memory-in-pieces"])


async def connected(network: Network) -> tuple[ByteStream, ByteStream]:
    listener = await network.listen("127.0.0.1", 0)
    client = await network.dial(listener.address)
    server = await listener.accept()
    await listener.aclose()
    return client, server


async def receive_all(stream: ByteStream) -> bytes:
    parts = []
    while part := await stream.receive_some():
        parts.append(part)
    return b"".join(parts)


@everywhere
async def test_bytes_flow_both_ways_and_ends_know_their_addresses(make: Callable[[], Network]) -> None:
    client, server = await connected(make())
    assert client.peer == server.local
    assert client.local == server.peer
    await client.send_all(b"there")
    assert server.send_now(b"back") == 4
    assert (await receive(server, 5), await receive(client, 4)) == (b"there", b"back")
    await client.aclose()
    await client.aclose()
    assert await server.receive_some() == b""
    await server.aclose()


async def receive(stream: ByteStream, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += await stream.receive_some(size - len(found))
    return found


@everywhere
async def test_more_than_fits_waits_for_room(make: Callable[[], Network]) -> None:
    client, server = await connected(make())
    data = bytes(range(256)) * 40_000
    sent = client.send_now(data)
    assert 0 < sent < len(data)
    assert client.send_now(data[sent:]) < len(data) - sent
    finished = trio.Event()

    async def send() -> None:
        await client.send_all(memoryview(b"x" * 10_000_000))
        finished.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert not finished.is_set()
        size = 0
        while not finished.is_set():
            size += len(await server.receive_some(1 << 20))
        await client.aclose()
        size += len(await receive_all(server))
        assert size >= 10_000_000
    await server.aclose()


@everywhere
async def test_sending_to_a_closed_peer_breaks(make: Callable[[], Network]) -> None:
    client, server = await connected(make())
    await server.aclose()
    with pytest.raises(trio.BrokenResourceError):
        for _ in range(1000):
            await client.send_all(b"x" * 1000)
            await trio.lowlevel.checkpoint()
    await client.aclose()


@everywhere
async def test_a_read_ends_when_its_own_side_closes(make: Callable[[], Network]) -> None:
    client, server = await connected(make())
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await client.receive_some()

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await client.aclose()
    await server.aclose()


@everywhere
async def test_a_closed_port_and_a_port_in_use(make: Callable[[], Network]) -> None:
    network = make()
    listener = await network.listen("127.0.0.1", 0)
    with pytest.raises(ListenFailed, match=listener.address):
        await network.listen(*split_address(listener.address))
    await listener.aclose()
    with pytest.raises(ConnectFailed, match=f"cannot connect to {listener.address}"):
        await network.dial(listener.address)


async def test_names_that_do_not_resolve() -> None:
    for address in ("x" * 64 + ":1", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await TcpNetwork().dial(address)
    with pytest.raises(ListenFailed):
        await TcpNetwork().listen("192.0.2.1", 0)  # an address for documentation, never this host's


@pytest.mark.parametrize(
    ("address", "parts"),
    [("10.0.0.5:10911", ("10.0.0.5", 10911)), ("[2001:db8::1]:1", ("2001:db8::1", 1)), (" h:1 ", ("h", 1))],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts
    assert join_address(*parts) == address.strip()


@pytest.mark.parametrize("address", ["", "h", "h:", "h:x", "h:-1", "h:65536", ":"])
def test_invalid_addresses(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)


async def test_memory_is_bounded_as_a_socket_is() -> None:
    client, _ = await connected(MemoryNetwork())
    assert client.send_now(bytes(CAPACITY + 1)) == CAPACITY
    assert client.send_now(b"x") == 0


async def test_connections_reset_before_they_are_accepted_cost_nothing() -> None:
    listener = await TcpNetwork().listen("127.0.0.1", 0)
    _, port = split_address(listener.address)
    for _ in range(50):
        gone = socket.create_connection(("127.0.0.1", port))
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset instead of an end
        gone.close()
    client = await TcpNetwork().dial(listener.address)
    server = await listener.accept()  # 600 of these kept a new client waiting for 62 s
    assert server.peer == client.local
    for end in (client, server, listener):
        await end.aclose()


async def test_connections_leave_descriptors_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose descriptors were all taken by idle connections could not flush, and ended."""
    network = TcpNetwork()
    listener = await network.listen("127.0.0.1", 0)
    first = await network.dial(listener.address)
    held = await listener.accept()
    used = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(transport, "most_open_files", lambda: 2 * (used // 2))
    refused = await network.dial(listener.address)
    with pytest.raises(OSError, match="Too many open files") as error:
        await listener.accept()
    assert error.value.errno == errno.EMFILE
    assert await refused.receive_some() == b"", "it is closed, and does not wait"
    monkeypatch.setattr(transport, "most_open_files", lambda: -1)
    second = await network.dial(listener.address)
    for stream in (first, held, refused, second, await listener.accept()):
        await stream.aclose()
    await listener.aclose()


async def test_what_is_dialled_leaves_descriptors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that named many brokers could take all those of an application."""
    network = TcpNetwork(spare_files=2)
    listener = await TcpNetwork().listen("127.0.0.1", 0)
    monkeypatch.setattr(transport, "most_open_files", lambda: 4)  # of which 0 and 1 are not free
    with pytest.raises(ConnectFailed, match="descriptors are left to others"):
        await network.dial(listener.address)
    monkeypatch.setattr(transport, "most_open_files", lambda: -1)
    client = await network.dial(listener.address)
    for stream in (client, await listener.accept(), listener):
        await stream.aclose()


async def test_names_that_are_not_found_leave_threads_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as trio has by default waited for names that a name server had made up."""
    gone, asked = threading.Event(), []

    def slow(*args: object, **named: object) -> object:
        if threading.current_thread() is not threading.main_thread():  # else it is no look-up: are these digits?
            asked.append(args)
            gone.wait(10)
        raise socket.gaierror(socket.EAI_NONAME, "made up")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    network = TcpNetwork()
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(network.dial, f"made-up-{number}:1")
        await wait_all_tasks_blocked()
        others = trio.to_thread.current_default_thread_limiter().borrowed_tokens
        nursery.cancel_scope.cancel()
    gone.set()
    assert others == 0
    assert asked
