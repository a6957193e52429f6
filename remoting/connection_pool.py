"""Outgoing connections: one per address, shared by all callers, dialled when needed and again when lost.

A dial belongs to the pool, not to the call that caused it: a cancelled call does not cancel it for the others. A call's
timeout covers the dial. How a pool recovers:

- a closed connection is dialled again by the next call;
- one on which nothing at all arrived while a call timed out is closed, because it may be half dead;
- one without traffic for 120 s is closed.

With serialize type MSGPACK each new connection is first probed for that type with a harmless request: our server
answers, any other closes the connection, and then that address gets JSON until the pool ends.

Java: remoting/netty/NettyRemotingClient.java
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from rocketlet.remoting.command import Command, HeaderType
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection import Connection, Limits
from rocketlet.remoting.dispatch import Dispatch
from rocketlet.remoting.errors import CallTimeout, ConnectFailed, ConnectionLost
from rocketlet.remoting.events import ConnectionEvents, notify
from rocketlet.remoting.family_limits import DEFAULT_LIMITS, FamilyLimit
from rocketlet.remoting.frame_codec import HEADER_LIMIT
from rocketlet.remoting.handler import HandlerTable
from rocketlet.remoting.hooks import ClientHook
from rocketlet.remoting.idle import close_idle
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.transport import ByteStream, Network

if TYPE_CHECKING:
    from rocketlet.remoting.tls import TlsContexts

log = logging.getLogger("rocketlet.remoting.connection_pool")

_NO_HANDLERS: HandlerTable = {}
_POOL_CLOSED = "the pool of connections is closed"
_UNSERVED_CODE = int(RequestCode.QUERY_BROKER_OFFSET)  # reserved since 3.x, with no handler anywhere


class ConnectionPool:
    """An async context manager: connections live inside it. See the module."""

    def __init__(
        self,
        network: Network,
        config: PoolConfig | None = None,
        handlers: HandlerTable = _NO_HANDLERS,
        *,
        hooks: Sequence[ClientHook] = (),
        events: Sequence[ConnectionEvents] = (),
        limits: Mapping[str, FamilyLimit] = DEFAULT_LIMITS,
    ) -> None:
        """`handlers` serve the servers' requests to us. Raises SettingsError if certificates cannot be loaded."""
        self._network = network
        self._config = config = config or PoolConfig()
        self._hooks = tuple(hooks)
        self._events = list(events)
        self._dispatch = Dispatch(
            handlers, limits=limits, frame_limit=config.frame_max_length, header_limit=HEADER_LIMIT
        )
        self._limits = Limits(
            oneway=config.client_oneway_semaphore_value,
            oneway_setting=f"clientOnewaySemaphoreValue={config.client_oneway_semaphore_value}",
            calls=config.client_async_semaphore_value,
            calls_setting=f"clientAsyncSemaphoreValue={config.client_async_semaphore_value}",
            unsent_high=config.client_write_buffer_high_water_mark,
            unsent_low=config.client_write_buffer_high_water_mark // 2,
            stops_reading=False,
        )
        self._tls = _contexts(config)
        self._numbers = itertools.count(1)
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, _Dial] = {}
        self._json_only: set[str] = set()
        self._scope: AbstractAsyncContextManager[trio.Nursery, bool | None] | None = None
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        self._scope = trio.open_nursery()
        self._nursery = await self._scope.__aenter__()
        allowed = self._config.client_channel_max_idle_time_seconds
        self._nursery.start_soon(close_idle, self._connections.values, allowed, self._events)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._nursery is not None
        assert self._scope is not None
        nursery, self._nursery = self._nursery, None
        nursery.cancel_scope.cancel()
        if isinstance(error, trio.Cancelled):
            return await self._scope.__aexit__(kind, error, trace)
        # An exception from inside is raised unchanged; the nursery would wrap it in a group.
        await self._scope.__aexit__(None, None, None)
        return None

    def subscribe(self, events: ConnectionEvents) -> None:
        """Tell this subscriber too."""
        self._events.append(events)

    @property
    def connections(self) -> Mapping[str, Connection]:
        """The open ones by address."""
        return self._connections

    async def call(self, address: str, command: Command, timeout: float) -> Command:
        """Send a request and wait for its answer. Raises ConnectFailed, ConnectionLost, CallTimeout,
        TooManyRequests."""
        deadline = trio.current_time() + timeout
        connection = await self._connection(address, timeout, command.code)
        sent = trio.current_time()
        try:
            return await connection.call(command, deadline - sent)
        except CallTimeout:
            self.unanswered(connection, sent)
            raise

    def unanswered(self, connection: Connection, sent: float) -> None:
        """A call sent at that time has timed out."""
        if connection.received_at < sent and self._config.client_close_socket_if_timeout:
            connection.close("nothing arrived while a call timed out")

    async def oneway(self, address: str, command: Command) -> None:
        """Send a one-way request. Raises ConnectFailed, ConnectionLost, TooManyRequests."""
        connection = await self._connection(address, self._config.connect_timeout_millis / 1000, command.code)
        connection.send_oneway(command)

    async def connection(self, address: str) -> Connection:
        """The connection to an address, dialled if there is none. Raises ConnectFailed."""
        return await self._connection(address, self._config.connect_timeout_millis / 1000, 0)

    async def _connection(self, address: str, timeout: float, code: int) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._nursery is None:
            raise ConnectFailed(_POOL_CLOSED)
        dial = self._dials.get(address)
        if dial is None:
            dial = self._dials[address] = _Dial()
            self._nursery.start_soon(self._dial, address, dial)
        with trio.move_on_after(timeout):
            await dial.done.wait()
            if dial.connection is None:
                # Every waiting task raises the error, so each raises its own copy.
                raise ConnectFailed(str(dial.error)) from dial.error
            return dial.connection
        raise CallTimeout(f"{address} was not reached within {timeout:g} s to ask {request_name(code)}")

    # -- dialling

    async def _dial(self, address: str, dial: _Dial) -> None:
        try:
            preferred = HeaderType.JSON if address in self._json_only else self._config.serialize_type.header_type
            connection = await self._opened(address, preferred)
            if preferred is HeaderType.MSGPACK and not await self._knows_msgpack(connection):
                log.info("%s does not know msgpack headers, it gets JSON", address)
                self._json_only.add(address)
                connection.close()
                connection = await self._opened(address, HeaderType.JSON)
            dial.connection = self._connections[address] = connection
        except ConnectFailed as error:
            dial.error = error
        finally:
            del self._dials[address]
            dial.done.set()

    async def _opened(self, address: str, header_type: HeaderType) -> Connection:
        stream = await self._open_stream(address)
        connection = Connection(
            stream, self._dispatch, self._limits, next(self._numbers), self._hooks, header_type=header_type
        )
        connection.unheard = "" if self._tls else "it answered nothing, as a server does that takes only TLS"
        if self._nursery is None:
            connection.close()
            await stream.aclose()
            raise ConnectFailed(_POOL_CLOSED)
        self._nursery.start_soon(self._serve, address, connection)
        return connection

    async def _open_stream(self, address: str) -> ByteStream:
        seconds = self._config.connect_timeout_millis / 1000
        with trio.move_on_after(seconds):
            stream = await self._network.dial(address)
            if self._tls is None:
                return stream
            from rocketlet.remoting.tls import secured

            try:
                name = self._config.tls_server_name or None
                return await secured(stream, self._tls.current(), server_side=False, server_name=name)
            except trio.BrokenResourceError as error:
                raise ConnectFailed(f"{address} refuses TLS: {error.__cause__ or error}") from error
        raise ConnectFailed(f"cannot connect to {address} within connectTimeoutMillis={seconds * 1000:g}")

    async def _knows_msgpack(self, connection: Connection) -> bool:
        """Send a code that no server has. RocketMQ's servers cannot read the header and close the connection."""
        try:
            await connection.call(Command(_UNSERVED_CODE), self._config.connect_timeout_millis / 1000)
        except (ConnectionLost, CallTimeout):
            return False
        return True

    async def _serve(self, address: str, connection: Connection) -> None:
        try:
            notify(self._events, "connected", connection)
            await connection.run()
            if connection.failure:
                notify(self._events, "failed", connection)
        finally:
            if self._connections.get(address) is connection:
                del self._connections[address]
            notify(self._events, "closed", connection)


class _Dial:
    """A dial in progress, and its result."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.connection: Connection | None = None
        self.error = ConnectFailed(_POOL_CLOSED)


def _contexts(config: PoolConfig) -> TlsContexts | None:
    if not config.use_tls:
        return None
    from rocketlet.remoting.tls import client_contexts  # ssl takes 20 ms to import

    return client_contexts(config)
