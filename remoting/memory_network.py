"""A network in memory: for tests, and for whole clusters in one process without a port.

Hosts are any names; port 0 takes the next free one. Deterministic, and it uses no clock but trio's, so it works with an
autojump clock. A test can cut connections, refuse them, hold back a host's traffic for a while, or deliver bytes one at
a time.

Java: none
"""

from __future__ import annotations

import math
from collections import deque

import trio

from rocketlet.remoting.errors import ConnectFailed, ListenFailed
from rocketlet.remoting.frame_codec import Buffer
from rocketlet.remoting.transport import ByteStream, Listener, join_address, split_address

CAPACITY = 256 << 10  # bytes in flight in one direction, as a socket's buffers hold
_FIRST_FREE_PORT = 20_000


class MemoryNetwork:
    """See the module. `chunk_size`: the most bytes that one read returns; 1 for byte by byte. `delay` in seconds."""

    def __init__(self, *, chunk_size: int | None = None, delay: float = 0.0, host: str = "10.0.0.1") -> None:
        self.chunk_size = chunk_size
        self.delay = delay
        self._host = host
        self._listeners: dict[str, MemoryListener] = {}
        self._streams: set[MemoryStream] = set()
        self._unreachable: set[str] = set()
        self._separated: set[frozenset[str]] = set()
        self._paused: dict[str, trio.Event] = {}
        self._next_port = _FIRST_FREE_PORT

    async def listen(self, host: str, port: int) -> Listener:
        """See Network."""
        await trio.lowlevel.checkpoint()
        address = join_address(host, port or self._free_port())
        if address in self._listeners:
            raise ListenFailed(f"cannot listen on {address}: address already in use")
        self._listeners[address] = listener = MemoryListener(self, address)
        return listener

    async def dial(self, address: str) -> ByteStream:
        """See Network. Dialling an unreachable host waits until the timeout, as with a real one."""
        return await self.dial_from(self._host, address)

    def of_host(self, host: str) -> HostNetwork:
        """The same network as seen by one host: its connections come from there."""
        return HostNetwork(self, host)

    async def dial_from(self, host: str, address: str) -> ByteStream:
        """`dial`, from a host."""
        await trio.lowlevel.checkpoint()
        while address in self._unreachable or self.are_separated(host, address.rpartition(":")[0]):
            await trio.sleep(1)
        listener = self._listeners.get(address) or self._any_host(address)
        if listener is None:
            raise ConnectFailed(f"cannot connect to {address}: connection refused")
        client, server = _stream_pair(self, join_address(host, self._free_port()), address)
        self._streams |= {client, server}
        listener.arrived(server)
        return client

    def cut(self, address: str) -> int:
        """Break every connection with this address at either end. Returns their number."""
        broken = [stream for stream in self._streams if stream.local == address]
        for stream in broken:
            stream.break_both()
        return len(broken)

    def isolate(self, address: str) -> None:
        """Swallow all traffic from and to an address, without breaking anything; dials to it wait."""
        self._unreachable.add(address)

    def rejoin(self, address: str) -> None:
        """End an isolation. Swallowed bytes stay lost, so connections that lost some are broken."""
        self._unreachable.discard(address)
        for stream in list(self._streams):
            if stream.lost_bytes and address in (stream.local, stream.peer):
                stream.break_both()

    def separate(self, first: str, second: str) -> None:
        """Swallow all traffic between two hosts, without breaking anything; `*` means every host."""
        self._separated.add(frozenset((first, second)))

    def unite(self, first: str, second: str) -> None:
        """End a separation, as `rejoin` ends an isolation."""
        self._separated.discard(frozenset((first, second)))
        for stream in list(self._streams):
            if stream.lost_bytes and {first, second} <= {*_hosts(stream), "*"}:
                stream.break_both()

    def pause(self, host: str) -> None:
        """Let nothing reach or leave a host, as if its processes were stopped; nothing is lost."""
        self._paused.setdefault(host, trio.Event())

    def resume(self, host: str) -> None:
        """End a pause: bytes in flight arrive."""
        if host in self._paused:
            self._paused.pop(host).set()

    async def wait_while_paused(self, stream: MemoryStream) -> None:
        """Wait as long as either end of a stream is paused."""
        while stopped := [self._paused[host] for host in _hosts(stream) if host in self._paused]:
            await stopped[0].wait()

    def are_separated(self, first: str, second: str) -> bool:
        """Whether bytes between these hosts are lost now."""
        if not self._separated:
            return False
        return any(frozenset(pair) in self._separated for pair in ((first, second), (first, "*"), (second, "*")))

    def cut_host(self, host: str) -> int:
        """Break every connection of a host. Returns their number."""
        broken = [stream for stream in self._streams if stream.local.rpartition(":")[0] == host]
        for stream in broken:
            stream.break_both()
        return len(broken)

    @property
    def has_paused(self) -> bool:
        """Whether any host is paused."""
        return bool(self._paused)

    @property
    def bytes_in_flight(self) -> int:
        """Bytes sent and not received yet, over all connections."""
        return sum(stream.bytes_to_receive for stream in self._streams)

    def is_isolated(self, stream: MemoryStream) -> bool:
        """Whether bytes sent on this stream are lost now."""
        if stream.local in self._unreachable or stream.peer in self._unreachable:
            return True
        return bool(self._separated) and self.are_separated(*_hosts(stream))

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def _any_host(self, address: str) -> MemoryListener | None:
        try:
            _, port = split_address(address)
        except ValueError as error:
            raise ConnectFailed(f"cannot connect to {address}: {error}") from error
        return self._listeners.get(join_address("0.0.0.0", port))

    def forget(self, closed: MemoryStream | MemoryListener) -> None:
        """Drop closed streams."""
        if isinstance(closed, MemoryStream):
            self._streams.discard(closed)
        elif self._listeners.get(closed.address) is closed:
            del self._listeners[closed.address]


class HostNetwork:
    """A memory network as one host sees it. See Network."""

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self._host = host

    async def listen(self, host: str, port: int) -> Listener:
        """See Network."""
        return await self._network.listen(host, port)

    async def dial(self, address: str) -> ByteStream:
        """See Network."""
        return await self._network.dial_from(self._host, address)


class MemoryListener:
    """See Listener."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self.address = address
        self._network = network
        self._arrivals, self._accepted = trio.open_memory_channel[ByteStream](math.inf)

    def arrived(self, stream: ByteStream) -> None:
        """A connection was dialled."""
        self._arrivals.send_nowait(stream)

    async def accept(self) -> ByteStream:
        """See Listener."""
        return await self._accepted.receive()

    async def aclose(self) -> None:
        """See Listener."""
        self._network.forget(self)
        self._accepted.close()
        await trio.lowlevel.checkpoint()


class _Pipe:
    """Bytes in flight in one direction, each chunk with the time at which it arrives."""

    def __init__(self) -> None:
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.finished = False
        self.broken = False
        self.changed = trio.lowlevel.ParkingLot()


class MemoryStream:
    """One end of a connection. See ByteStream."""

    def __init__(self, network: MemoryNetwork, local: str, peer: str, incoming: _Pipe, outgoing: _Pipe) -> None:
        self.local = local
        self.peer = peer
        self.lost_bytes = False
        self._network = network
        self._incoming = incoming
        self._outgoing = outgoing
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ByteStream."""
        await trio.lowlevel.checkpoint()
        pipe = self._incoming
        while True:
            if self._network.has_paused:
                await self._network.wait_while_paused(self)
            self._check(pipe)
            if pipe.chunks:
                due = pipe.chunks[0][0]
                if due <= trio.current_time():
                    return self._take(min(max_bytes or CAPACITY, self._network.chunk_size or CAPACITY))
                with trio.move_on_at(due):
                    await pipe.changed.park()
            elif pipe.finished:
                return b""
            else:
                await pipe.changed.park()

    def _take(self, limit: int) -> bytes:
        pipe = self._incoming
        due, chunk = pipe.chunks.popleft()
        if len(chunk) > limit:
            pipe.chunks.appendleft((due, chunk[limit:]))
        pipe.size -= min(len(chunk), limit)
        pipe.changed.unpark_all()
        return chunk[:limit]

    def send_now(self, data: Buffer) -> int:
        """See ByteStream."""
        pipe = self._outgoing
        self._check(pipe)
        if pipe.finished:
            raise trio.BrokenResourceError("the other side has closed")
        accepted = bytes(data[: max(0, CAPACITY - pipe.size)])
        if accepted and self._network.is_isolated(self):
            self.lost_bytes = True
        elif accepted:
            pipe.chunks.append((trio.current_time() + self._network.delay, accepted))
            pipe.size += len(accepted)
            pipe.changed.unpark_all()
        return len(accepted)

    async def send_all(self, data: Buffer) -> None:
        """See ByteStream."""
        await trio.lowlevel.checkpoint()
        remaining = memoryview(data)
        while remaining := remaining[self.send_now(remaining) :]:
            await self._outgoing.changed.park()

    async def aclose(self) -> None:
        """See ByteStream."""
        if not self._closed:
            self._closed = True
            self._outgoing.finished = True
            self._incoming.finished = True  # sending to a closed stream fails
            self._outgoing.changed.unpark_all()
            self._incoming.changed.unpark_all()
            self._network.forget(self)
        await trio.lowlevel.checkpoint()

    @property
    def bytes_to_receive(self) -> int:
        """Bytes sent to this end and not received yet."""
        return self._incoming.size

    def break_both(self) -> None:
        """As if a cable were cut and both ends noticed."""
        for pipe in (self._incoming, self._outgoing):
            pipe.broken = True
            pipe.changed.unpark_all()

    def _check(self, pipe: _Pipe) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        if pipe.broken:
            raise trio.BrokenResourceError("the connection was cut")


def _stream_pair(network: MemoryNetwork, client: str, server: str) -> tuple[MemoryStream, MemoryStream]:
    requests, answers = _Pipe(), _Pipe()
    return MemoryStream(network, client, server, answers, requests), MemoryStream(
        network, server, client, requests, answers
    )


def _hosts(stream: MemoryStream) -> tuple[str, str]:
    return stream.local.rpartition(":")[0], stream.peer.rpartition(":")[0]
