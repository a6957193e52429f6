"""The port for the other replicas. While this replica leads, it sends its log to those that join.

Two tasks per connection: one sends the log as it grows, with its confirmed offset (`log_feed.py`); the other reads the
replica's reports. Nothing is kept for a slow replica beyond the kernel's buffers. Reports count for the epoch that the
replica has joined; a new epoch, or the end of leadership, ends every connection.

Java: store/ha/autoswitch/AutoSwitchHAConnection.java of 5.x
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

import trio

from rocketlet.failover.epochs import Epochs
from rocketlet.failover.in_sync import InSync
from rocketlet.failover.log_feed import FramedSlices, LogFeed
from rocketlet.failover.stream_codec import Hello, ReportReader, StreamBroken, Welcome, greeting, read_greeting
from rocketlet.remoting.config import TlsMode
from rocketlet.remoting.first_byte import detect_tls
from rocketlet.remoting.transport import ByteStream, Network
from rocketlet.replication.admission import MAX_CONNECTIONS, Allowed, admit
from rocketlet.store.errors import StoreError
from rocketlet.store.log_slices import SliceGone
from rocketlet.store.message_store import MessageStore

if TYPE_CHECKING:
    from rocketlet.remoting.own_context import OwnContext
    from rocketlet.remoting.tls import TlsContexts

log = logging.getLogger("rocketlet.failover.replica_port")

GREETING_SECONDS = 5.0
PATIENCE_STEP = 0.1
"""Moving a deadline takes 5 µs, so one is moved only when it is this many seconds late, not for each piece of a
stream."""


@dataclass(eq=False)
class Leading:
    """What a leader's port needs. `changed` is called when a replica has reported."""

    in_sync: InSync
    epochs: Epochs
    changed: Callable[[], None]
    connections: set[trio.CancelScope] = field(default_factory=set)

    def end(self) -> None:
        """Stop sending to replicas."""
        for scope in self.connections:
            scope.cancel()


@dataclass(frozen=True, slots=True)
class GroupName:
    """This broker's identity, as in a greeting."""

    cluster: str
    name: str


class ReplicaPort:
    """One port, whether this replica leads or not; `leading` is None while it does not."""

    def __init__(
        self,
        network: Network,
        group_name: GroupName,
        store: MessageStore,
        silence_seconds: float,
        *,
        allowed: Allowed,
        tls_mode: TlsMode = TlsMode.PERMISSIVE,
        tls: TlsContexts | OwnContext | None = None,
    ) -> None:
        self._network = network
        self._group_name = group_name
        self._store = store
        self._silence_seconds = silence_seconds
        self._allowed = allowed
        self._tls_mode = tls_mode
        self._tls = tls
        self._slices = FramedSlices(store.slices)
        self._connections = 0
        self.leading: Leading | None = None

    async def serve(
        self, host: str, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled. Starts with the bound address. Raises ListenFailed."""
        await admit(self._network, host, port, self._allowed, self._has_room, self._accept, log, task_status)

    def _has_room(self) -> bool:
        return self._connections < MAX_CONNECTIONS

    def _accept(self, stream: ByteStream, nursery: trio.Nursery) -> None:
        self._connections += 1
        nursery.start_soon(self._serve_one, stream)

    async def _serve_one(self, raw: ByteStream) -> None:
        stream = raw
        try:
            detected = await detect_tls(raw, self._tls_mode, self._tls, GREETING_SECONDS, log)
            if detected is not None:
                stream, first = detected
                await self._greet(stream, first)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("the connection of replica %s broke: %s", raw.peer, error.__cause__ or error)
        except StreamBroken as error:
            log.warning("%s is no replica: %s", raw.peer, error)
        finally:
            self._connections -= 1
            with trio.CancelScope(shield=True):
                await stream.aclose()

    async def _greet(self, stream: ByteStream, data: bytes) -> None:
        """Read the greeting, and send the log if the replica may join. Raises StreamBroken."""
        with trio.move_on_after(GREETING_SECONDS) as greeting_time:
            while (greeted := read_greeting(data, Hello)) is None:
                chunk = await stream.receive_some(65536)
                if not chunk:
                    return
                data += chunk
            hello, rest = greeted
            leading, refusal = self.leading, self._refusal(hello)
            if leading is None or refusal:
                await stream.send_all(greeting(Welcome(refusal or "this replica does not lead")))
                return
            with trio.CancelScope() as scope:
                leading.connections.add(scope)
                try:
                    await stream.send_all(greeting(self._welcome(leading)))
                    reader = ReportReader()
                    end = reader.feed(rest)
                    while end is None:
                        chunk = await stream.receive_some(4096)
                        if not chunk:
                            return
                        end = reader.feed(chunk)
                    greeting_time.deadline = inf
                    await self._feed(leading, hello, stream, reader, end)
                finally:
                    leading.connections.discard(scope)

    def _refusal(self, hello: Hello) -> str:
        leading = self.leading
        if (hello.cluster, hello.name) != (self._group_name.cluster, self._group_name.name):
            return f"this is a replica of {self._group_name.name} of {self._group_name.cluster}"
        if leading is None or leading.in_sync.replaced:
            return "this replica does not lead"
        state = leading.in_sync.state
        if hello.member == state.leader:
            return f"replicaId {hello.member.partition('/')[0]} is this one's; give each replica its own"
        if hello.group and hello.group != state.group:
            return f"this is a replica of group {state.group}, and not of {hello.group}"
        if hello.epoch != state.epoch or hello.promised > state.epoch:
            return f"this replica leads epoch {state.epoch}"
        return ""

    def _welcome(self, leading: Leading) -> Welcome:
        log_, state = self._store.log, leading.in_sync.state
        entries = [(epoch.number, epoch.begin) for epoch in leading.epochs.entries]
        return Welcome("", state.group, state.epoch, log_.begin, log_.end, leading.in_sync.confirmed, entries)

    async def _feed(self, leading: Leading, hello: Hello, stream: ByteStream, reader: ReportReader, end: int) -> None:
        in_sync, member = leading.in_sync, hello.member
        replica = in_sync.replicas.get(member)
        if replica is not None and replica.connected:
            log.warning("replica %s connects again from %s; two of one replicaId?", member, stream.peer)
            return
        if not self._store.log.begin <= end <= self._store.log.end:
            log.warning("replica %s says that it has the log up to %d; it may not join", member, end)
            return
        if replica is not None and end < replica.acked:
            # Its acknowledgements count until it is removed from the in-sync set; until then it stays away.
            log.error(
                "replica %s has the log up to %d, and had acknowledged %d; it may not join", member, end, replica.acked
            )
            return
        now = trio.current_time()
        in_sync.on_joined(member, hello.address, now)
        in_sync.on_acked(member, end, now)
        log.info("replica %s at %s has joined with the log up to %d", member, hello.address or stream.peer, end)
        leading.changed()
        reason = "this replica no longer leads"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(LogFeed(stream, self._store, self._slices, in_sync, end).run)
                reason = await self._read_reports(leading, member, stream, reader)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = str(error.exceptions[0])
        except* (SliceGone, StoreError, OSError) as error:
            reason = f"the log cannot be read: {error.exceptions[0]}"
        finally:
            log.info("replica %s has left: %s", member, reason)
            in_sync.on_left(member, trio.current_time())
            leading.changed()

    async def _read_reports(self, leading: Leading, member: str, stream: ByteStream, reader: ReportReader) -> str:
        """Take reports until there are no more to take; returns why."""
        least_seconds = self._silence_seconds - PATIENCE_STEP
        with trio.move_on_after(self._silence_seconds) as timeout:
            while True:
                data = await stream.receive_some(4096)
                if not data:
                    return "it closed the connection"
                now = trio.current_time()
                if timeout.deadline < now + least_seconds:
                    timeout.deadline = now + self._silence_seconds
                end = reader.feed(data)
                if end is not None:
                    if end > self._store.log.end:
                        return f"it says that it has the log up to {end}, which is past its end"
                    leading.in_sync.on_acked(member, end, now)
                    leading.changed()
        return f"it has been silent for {self._silence_seconds:g} s"
