"""The network seam: what a connection needs from the outside world. TCP here, memory in `memory_network.py`.

`Network` dials and listens, `Listener` accepts, `ByteStream` carries bytes both ways. TLS is not part of the seam: it
wraps any stream (`tls.py`), so it is tested over memory too.

`send_now` is why we do not use trio's own streams: it passes bytes to the kernel without going through the scheduler. A
server that answers what it has just read almost always finds room in the socket's buffer, and three task switches per
turn (10 to 20 µs each) become one. For the same reason a read first waits until the socket is readable, which lets
every other task run, and does not yield again after reading.

Java: remoting/netty/NettyRemotingServer.java, remoting/netty/NettyRemotingClient.java (bootstrap)
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import trio

from rocketlet.common.platform_files import most_open_files
from rocketlet.remoting.errors import ConnectFailed, ListenFailed
from rocketlet.remoting.frame_codec import Buffer

LONGEST_HOST = 253
# Descriptors that connections leave for files: the store keeps 256 open, and opens others for moments.
_SPARE_FILES = 384


class ByteStream(Protocol):
    """One connection's bytes. At most one task reads and one writes. Broken: trio.BrokenResourceError."""

    @property
    def local(self) -> str:
        """Our own address, `host:port`."""

    @property
    def peer(self) -> str:
        """The other side's address, `host:port`."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes; b"" when the other side has finished."""

    def send_now(self, data: Buffer) -> int:
        """Write what can be written without waiting. Returns the number of bytes; 0 if the stream cannot do it."""

    async def send_all(self, data: Buffer) -> None:
        """Write everything, waiting for room."""

    async def aclose(self) -> None:
        """Close at once. Unsent bytes are lost."""


class Listener(Protocol):
    """A bound port."""

    @property
    def address(self) -> str:
        """The bound address, `host:port`, with the real number if port 0 was requested."""

    async def accept(self) -> ByteStream:
        """The next connection. Raises OSError, with its errno, if the system refuses."""

    async def aclose(self) -> None:
        """Stop listening."""


class Network(Protocol):
    """Makes connections."""

    async def dial(self, address: str) -> ByteStream:
        """Connect to `host:port`. Raises ConnectFailed. The caller sets the timeout."""

    async def listen(self, host: str, port: int) -> Listener:
        """Bind a port; 0 takes a free one. Raises ListenFailed."""


def host_of(address: str) -> str:
    """`10.0.0.5:10911` or `[::1]:10911` -> the host, without brackets; anything else is returned unchanged."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]") or address


def split_address(address: str) -> tuple[str, int]:
    """`10.0.0.5:10911` or `[2001:db8::1]:10911` -> host without brackets, and port. ValueError names the address."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is no address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_address(text: str) -> bool:
    """Whether it can be dialled: a host that is no more than a name, and a port above 0."""
    try:
        host, port = split_address(text)
    except ValueError:
        return False
    return bool(host) and len(host) <= LONGEST_HOST and host.isprintable() and " " not in host and port > 0


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


LARGEST_READ = 256 << 10


class _Scratch(threading.local):
    """The buffer that a thread's sockets read into; received bytes are copied out of it.

    A `recv` of that size allocates 256 KiB and returns the unused rest, and the allocator then returns it to the
    system, with page faults at every read. Copying the received bytes costs a tenth of that, 1 µs for 40 KiB.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(LARGEST_READ))


_scratch = _Scratch()


class TcpStream:
    """A TCP connection. See ByteStream. Requires: the socket is connected."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self.local = join_address(*connected.getsockname()[:2])
        self.peer = join_address(*connected.getpeername()[:2])

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ByteStream."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                scratch = _scratch.view
                return bytes(scratch[: self._socket.recv_into(scratch, min(max_bytes or 65536, LARGEST_READ))])
            except BlockingIOError:
                pass  # a spurious wakeup
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    def send_now(self, data: Buffer) -> int:
        """See ByteStream."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: Buffer) -> None:
        """See ByteStream."""
        remaining = memoryview(data)
        while remaining := remaining[self.send_now(remaining) :]:
            await trio.lowlevel.wait_writable(self._socket)

    async def aclose(self) -> None:
        """See ByteStream."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()


class TcpListener:
    """A listening TCP socket. See Listener."""

    def __init__(self, bound: socket.socket) -> None:
        bound.setblocking(False)
        self._socket = bound
        self.address = join_address(*bound.getsockname()[:2])

    async def accept(self) -> ByteStream:
        """See Listener."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                accepted = self._socket.accept()[0]
            except (BlockingIOError, ConnectionError):
                continue  # closed again before it was accepted
            if _leaves_too_few(accepted.fileno(), _SPARE_FILES):
                accepted.close()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            try:
                return TcpStream(accepted)
            except OSError:  # reset meanwhile: it no longer has a peer
                accepted.close()

    async def aclose(self) -> None:
        """See Listener."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()


def _leaves_too_few(descriptor: int, spare: int) -> bool:
    """Whether so few descriptors are left that others need them: a new one has the lowest free number."""
    most = most_open_files()
    return most > 0 and descriptor >= most - min(spare, most // 2)


_LOOK_UPS = 20  # of names, at once
_Place = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


class TcpNetwork:
    """The real network. Buffer sizes of 0 leave them to the system, which adapts them. So many descriptors as
    `spare_files` are left to the rest of the process by what is dialled."""

    def __init__(
        self, *, backlog: int = 1024, send_buffer: int = 0, receive_buffer: int = 0, spare_files: int = 0
    ) -> None:
        self._spare_files = spare_files
        # Not trio's own limiter: names that take their time would keep the program's threads from it.
        self._look_ups = trio.CapacityLimiter(_LOOK_UPS)
        self._backlog = backlog
        self._buffers = ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer))

    async def dial(self, address: str) -> ByteStream:
        """See Network. Every address the host name has is tried in turn."""
        problem: OSError | None = None
        try:
            host, port = split_address(address)
            places = await self._look_up(host, port)
        except (OSError, UnicodeError, ValueError) as error:
            raise ConnectFailed(f"cannot connect to {address}: {error}") from error
        for family, kind, protocol, _, place in places:
            try:
                return await self._connect(socket.socket(family, kind, protocol), place)
            except OSError as error:
                problem = error
        raise ConnectFailed(f"cannot connect to {address}: {problem}") from problem

    async def _look_up(self, host: str, port: int) -> Sequence[_Place]:
        await trio.lowlevel.checkpoint()
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # a name
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        return await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self._look_ups)

    async def _connect(self, unconnected: socket.socket, place: tuple[object, ...]) -> TcpStream:
        try:
            if self._spare_files and _leaves_too_few(unconnected.fileno(), self._spare_files):
                raise OSError(errno.EMFILE, f"the last {self._spare_files} descriptors are left to others (ulimit -n)")
            unconnected.setblocking(False)
            self._set_buffers(unconnected)
            try:
                unconnected.connect(place)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(unconnected)
            problem = unconnected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                raise OSError(problem, os.strerror(problem))
            stream = TcpStream(unconnected)
            if stream.local == stream.peer:  # dialling a free port of this host can connect to itself
                raise ConnectionRefusedError("nobody listens there")
            return stream
        except BaseException:
            unconnected.close()
            raise

    async def listen(self, host: str, port: int) -> Listener:
        """See Network."""
        try:
            places = await trio.socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, place = places[0]
            unbound = socket.socket(family, kind, protocol)
            try:
                unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._set_buffers(unbound)
                unbound.bind(place)
                unbound.listen(self._backlog)
                return TcpListener(unbound)
            except BaseException:
                unbound.close()
                raise
        except (OSError, UnicodeError) as error:
            raise ListenFailed(f"cannot listen on {join_address(host, port)}: {error}") from error

    def _set_buffers(self, target: socket.socket) -> None:
        for option, size in self._buffers:
            if size:
                target.setsockopt(socket.SOL_SOCKET, option, size)
