"""A network whose members can be killed, paused and partitioned, over TCP or in memory.

    network = BreakableNetwork(TcpNetwork())
    broker = Broker(loaded, network.of("broker-a"), disk)
    network.pause("broker-a")                    # as kill -STOP: connections stay open, and nothing moves on them
    network.partition("broker-a", "broker-a-1")  # the same between two members only
    network.kill("broker-a")                     # as kill -9: connections end, and nothing more is sent

Held data is kept and delivered later, as with TCP. Members are known by their addresses; a dialler from outside is not
a member, and only `pause` and `kill` affect its connections.

Java: (none)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from rocketlet.remoting.errors import ConnectFailed
from rocketlet.remoting.frame_codec import Buffer
from rocketlet.remoting.transport import ByteStream, Listener, Network

Got = TypeVar("Got")


class BreakableNetwork:
    """See the module. Used within one trio run."""

    def __init__(self, inner: Network) -> None:
        self._inner = inner
        self._names: dict[str, str] = {}  # address → member, of listeners and of those that dialled
        self._members: dict[str, _MemberNetwork] = {}
        self._paused: set[str] = set()
        self._parted: set[frozenset[str]] = set()
        self._changed = trio.lowlevel.ParkingLot()

    def of(self, name: str) -> Network:
        """The network as a member sees it. Call it again after `kill`, for a new start."""
        self._members[name] = member = _MemberNetwork(self, name)
        return member

    def kill(self, name: str) -> None:
        """End all connections and ports of a member; it cannot open others."""
        self._members[name].kill()
        self.resume(name)

    def pause(self, name: str) -> None:
        """Let nothing reach or leave a member."""
        self._paused.add(name)

    def resume(self, name: str) -> None:
        """End a pause."""
        self._paused.discard(name)
        self._changed.unpark_all()

    def partition(self, one: str, other: str) -> None:
        """Let nothing pass between two members."""
        self._parted.add(frozenset((one, other)))

    def heal(self) -> None:
        """End all partitions."""
        self._parted.clear()
        self._changed.unpark_all()

    # ---- for the members' streams

    async def dial(self, name: str, address: str) -> ByteStream:
        await self.open_between(name, lambda: self._names.get(address, ""))
        stream = await self._inner.dial(address)
        self._names[stream.local] = name
        return stream

    async def listen(self, name: str, host: str, port: int) -> Listener:
        listener = await self._inner.listen(host, port)
        self._names[listener.address] = name
        return listener

    def forget(self, address: str) -> None:
        self._names.pop(address, None)

    def is_open(self, name: str, peer: str) -> bool:
        """Whether bytes pass between a member and another one, or "" for an outsider."""
        if self._paused and (name in self._paused or peer in self._paused):
            return False
        return not self._parted or frozenset((name, peer)) not in self._parted

    async def open_between(self, name: str, peer: Callable[[], str]) -> None:
        """Wait until bytes pass."""
        while not self.is_open(name, peer()):
            await self._changed.park()

    def name_of(self, address: str) -> str:
        return self._names.get(address, "")


class _MemberNetwork:
    """See Network."""

    def __init__(self, network: BreakableNetwork, name: str) -> None:
        self._network = network
        self._name = name
        self._dead = False
        self._open: set[_Stream | _Listener] = set()

    def kill(self) -> None:
        self._dead = True
        for opened in list(self._open):
            opened.break_off()

    async def dial(self, address: str) -> ByteStream:
        if self._dead:
            raise ConnectFailed(f"cannot connect to {address}: {self._name} was killed")
        inner = await self._network.dial(self._name, address)
        return self._opened(_Stream(self, self._network, self._name, inner, dialled=True))

    async def listen(self, host: str, port: int) -> Listener:
        return self._opened(_Listener(self, self._network, await self._network.listen(self._name, host, port)))

    def accepted(self, stream: ByteStream) -> ByteStream:
        return self._opened(_Stream(self, self._network, self._name, stream, dialled=False))

    def _opened(self, opened: Opened) -> Opened:
        self._open.add(opened)
        if self._dead:
            opened.break_off()
        return opened

    def closed(self, opened: _Stream | _Listener) -> None:
        self._open.discard(opened)


class _Breakable:
    """Operations that can be broken: waiting callers get a broken connection."""

    def __init__(self) -> None:
        self._broken = False
        self._scopes: set[trio.CancelScope] = set()

    async def unless_broken(self, wait: Callable[[], Awaitable[Got]]) -> Got:
        if not self._broken:
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    return await wait()
                finally:
                    self._scopes.discard(scope)
        raise trio.BrokenResourceError("this member was killed")

    def break_off(self) -> None:
        self._broken = True
        for scope in self._scopes:
            scope.cancel()


class _Listener(_Breakable):
    """See Listener."""

    def __init__(self, member: _MemberNetwork, network: BreakableNetwork, inner: Listener) -> None:
        super().__init__()
        self._member, self._network, self._inner = member, network, inner
        self.address = inner.address

    async def accept(self) -> ByteStream:
        """See Listener. A killed member accepts no connections."""
        try:
            return self._member.accepted(await self.unless_broken(self._inner.accept))
        except trio.BrokenResourceError:
            await self._inner.aclose()
            await trio.sleep_forever()
            raise

    async def aclose(self) -> None:
        """See Listener."""
        self._member.closed(self)
        self._network.forget(self.address)
        await self._inner.aclose()


class _Stream(_Breakable):
    """See ByteStream."""

    def __init__(
        self, member: _MemberNetwork, network: BreakableNetwork, name: str, inner: ByteStream, *, dialled: bool
    ) -> None:
        super().__init__()
        self._member, self._network, self._name, self._inner = member, network, name, inner
        self._dialled = dialled
        self._delayed_data: bytes | None = None  # arrived during the pause
        self.local, self.peer = inner.local, inner.peer

    def _peer_name(self) -> str:
        return self._network.name_of(self.peer)

    async def _moving(self) -> None:
        await self._network.open_between(self._name, self._peer_name)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See ByteStream."""

        async def receive() -> bytes:
            await self._moving()
            if self._delayed_data is None:
                self._delayed_data = await self._inner.receive_some(max_bytes)
            await self._moving()
            data, self._delayed_data = self._delayed_data, None
            return data

        return await self.unless_broken(receive)

    def send_now(self, data: Buffer) -> int:
        """See ByteStream."""
        if self._broken:
            raise trio.BrokenResourceError("this member was killed")
        if not self._network.is_open(self._name, self._peer_name()):
            return 0
        return self._inner.send_now(data)

    async def send_all(self, data: Buffer) -> None:
        """See ByteStream."""

        async def send() -> None:
            await self._moving()
            await self._inner.send_all(data)

        await self.unless_broken(send)

    def break_off(self) -> None:
        super().break_off()
        trio.lowlevel.spawn_system_task(self._inner.aclose)

    async def aclose(self) -> None:
        """See ByteStream."""
        self._member.closed(self)
        if self._dialled:
            self._network.forget(self.local)
        await self._inner.aclose()


Opened = TypeVar("Opened", _Stream, _Listener)
