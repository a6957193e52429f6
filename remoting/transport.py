"""The network seam: what a connection needs of the world outside. TCP here, memory in `memory_network.py`.

`Network` dials and listens, `Listener` accepts, `ByteStream` carries bytes both ways. TLS is not part of the seam: it
wraps any stream (`tls.py`), so it is tested over memory too.

`send_now` is why we do not use trio's own streams: it hands bytes to the kernel without a visit to the scheduler. A
server that answers what it has just read almost always finds room in the socket's buffer, and three task switches a
turn (10 to 20 µs each) become one. For the same reason reading first waits until the socket is readable, which lets
every other task run, and never yields a second time after it has read.

Java: remoting/netty/NettyRemotingServer.java, remoting/netty/NettyRemotingClient.java (bootstrap)
"""

from __future__ import annotations

from typing import Protocol

Buffer = bytes | bytearray | memoryview


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
        """Hand over what goes without waiting; how many bytes that were. 0 where the stream cannot do it."""

    async def send_all(self, data: Buffer) -> None:
        """Hand over everything, waiting for room."""

    async def aclose(self) -> None:
        """Close, at once. What was not sent yet is lost."""


class Listener(Protocol):
    """A bound port."""

    @property
    def address(self) -> str:
        """Where it is bound, `host:port`, with the real number where port 0 was asked for."""

    async def accept(self) -> ByteStream:
        """The next connection."""

    async def aclose(self) -> None:
        """Stop listening."""


class Network(Protocol):
    """Makes connections."""

    async def dial(self, address: str) -> ByteStream:
        """Connect to `host:port`. Raises ConnectFailed. Whoever calls sets the time-out."""

    async def listen(self, host: str, port: int) -> Listener:
        """Bind a port; 0 takes a free one. Raises ListenFailed."""


def split_address(address: str) -> tuple[str, int]:
    """`10.0.0.5:10911` or `[2001:db8::1]:10911` -> host without brackets, and port. ValueError names the address."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is no address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
