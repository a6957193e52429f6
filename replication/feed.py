"""A master's port for slaves: each slave gets the log from its own end onwards and reports how far it has it.

Two tasks per connection: one sends slices of the log as it grows, at the slave's pace; the other reads reports. Only
the kernel's buffers lie between a slow slave and the log, so a slow slave costs no memory and delays nothing else. A
slave is dropped if it is silent for `haHousekeepingInterval`, reports bytes that it cannot have, or owes an
acknowledgement for STALLED_SECONDS: no slave is better than one that every send waits for in vain.

`replicated` is the offset up to which `policy` finds the log confirmed. By default the confirmation of one slave
suffices for a SYNC_MASTER, as in RocketMQ. With SYNC_FLUSH slaves are sent only flushed bytes, so no slave ever has
bytes that its master can lose in a power cut.

Java: store/ha/HAService.java (AcceptSocketService), store/ha/HAConnection.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import trio

from rocketlet.remoting.config import TlsMode
from rocketlet.remoting.first_byte import detect_tls
from rocketlet.remoting.transport import ByteStream, Network
from rocketlet.replication.admission import MAX_CONNECTIONS, admit
from rocketlet.replication.config import ReplicationConfig
from rocketlet.replication.slave_view import LogSpan, NotServed, SlaveView, start_for
from rocketlet.replication.stream_codec import SLICE, ReportReader
from rocketlet.store.errors import StoreError
from rocketlet.store.log_slices import LogSlices, SliceGone
from rocketlet.store.watermark import Watermark

if TYPE_CHECKING:
    from rocketlet.remoting.own_context import OwnContext
    from rocketlet.remoting.tls import TlsContexts

log = logging.getLogger("rocketlet.replication.feed")

STALLED_SECONDS = 6.0  # twice the default of slaveTimeout
# Where nobody waits for a slave, what comes within this time goes to it in one piece, and what it reports is read as
# rarely: a turn of the loop for a few messages, or for a report, costs as much as to take 20 messages.
_COLLECT_SECONDS = 0.01
_AWAITED_SECONDS = 1.0  # for so long after somebody waited nothing is collected
# Slices are written together, for a call of the system costs more than to copy a few of them.
_SLICES_AT_ONCE = 8
_BYTES_AT_ONCE = 256 << 10


@dataclass(slots=True, eq=False)
class ServedSlave:
    """A slave that is being sent the log."""

    stream: ByteStream
    view: SlaveView
    since: float


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection, and the slave it turned out to be."""

    scope: trio.CancelScope
    slave: ServedSlave | None = None


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """One connected slave, for display: its address, how far the log was sent, and how far it is confirmed."""

    address: str
    sent: int
    acked: int
    behind: int
    in_sync: bool
    bytes_per_second: int


Policy = Callable[[Sequence[ServedSlave]], int]


def by_any(slaves: Sequence[ServedSlave]) -> int:
    """RocketMQ's rule: what one slave has confirmed is replicated."""
    return max((slave.view.confirmed for slave in slaves), default=0)


class Feed:
    """One master's slaves. `source` is the offset up to which the log may be sent, `span` the part of it that exists,
    `policy` which confirmations make an offset count as replicated."""

    def __init__(
        self,
        network: Network,
        config: Callable[[], ReplicationConfig],
        slices: LogSlices,
        span: Callable[[], LogSpan],
        source: Watermark,
        *,
        tls_mode: TlsMode = TlsMode.PERMISSIVE,
        tls: TlsContexts | OwnContext | None = None,
        policy: Policy = by_any,
    ) -> None:
        self._network = network
        self._config = config
        self._slices = slices
        self._span = span
        self._source = source
        self._tls_mode = tls_mode
        self._tls = tls
        self._policy = policy
        self._connections: list[_Connection] = []
        self._last_awaited_at = -inf
        self.slaves: list[ServedSlave] = []
        self.replicated = Watermark()

    # ---- what a SYNC_MASTER asks

    def settle(self) -> None:
        """Update how far the log is replicated; also called when the inputs of `policy` change."""
        self.replicated.advance(self._policy(self.slaves))

    def _is_expected(self) -> bool:
        """Whether a send waits for slaves, or did a moment ago."""
        now = trio.current_time()
        if self.replicated.statistics().waiting:
            self._last_awaited_at = now
        return now - self._last_awaited_at < _AWAITED_SECONDS

    def has_slave_in_reach(self, end: int) -> bool:
        """Whether a connected slave lacks less than `haSlaveFallbehindMax` of the log up to that offset."""
        limit = self._config().ha_slave_fallbehind_max
        return any(end - slave.view.acked < limit for slave in self.slaves)

    def statuses(self) -> list[SlaveStatus]:
        end, limit, now = self._source.value, self._config().ha_slave_fallbehind_max, trio.current_time()
        return [
            SlaveStatus(
                slave.stream.peer,
                slave.view.sent,
                slave.view.acked,
                max(end - slave.view.acked, 0),
                end - slave.view.acked < limit,
                int((slave.view.sent - slave.view.start) / max(now - slave.since, 1)),
            )
            for slave in self.slaves
        ]

    # ---- the port

    async def serve(
        self, host: str, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Feed slaves until cancelled. Starts with the bound address. Raises ListenFailed."""
        await admit(
            self._network, host, port, lambda: self._config().ha_allowed, self._has_room, self._accept, log, task_status
        )

    def _accept(self, stream: ByteStream, nursery: trio.Nursery) -> None:
        connection = _Connection(trio.CancelScope())
        self._connections.append(connection)
        nursery.start_soon(self._serve_one, stream, connection)

    def _has_room(self) -> bool:
        """Whether one more connection fits. Those that have confirmed nothing yet make room for it, the oldest first: a
        peer that merely holds connections must not keep slaves out."""
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        for connection in self._connections:
            if connection.slave is None or not connection.slave.view.confirmed:
                connection.scope.cancel()
                self._connections.remove(connection)
                return True
        return False

    async def _serve_one(self, raw: ByteStream, connection: _Connection) -> None:
        with connection.scope:
            await self._serve(raw, connection)

    async def _serve(self, raw: ByteStream, connection: _Connection) -> None:
        """One connection from its first byte to its end; its failure affects no other."""
        stream = None
        try:
            detected = await detect_tls(raw, self._tls_mode, self._tls, self._config().silence_seconds, log)
            if detected is not None:
                stream, first = detected
                await self._greet(stream, first, connection)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("the connection of slave %s broke: %s", raw.peer, error.__cause__ or error)
        except NotServed as error:
            log.warning("%s is not fed: %s", raw.peer, error)
        except (SliceGone, StoreError, OSError) as error:
            log.error("slave %s is dropped: the log cannot be read: %s", raw.peer, error)
        finally:
            if connection in self._connections:
                self._connections.remove(connection)
            with trio.CancelScope(shield=True):
                await (stream or raw).aclose()

    async def _greet(self, stream: ByteStream, first: bytes, connection: _Connection) -> None:
        """Read the first report, and send the log from there. Raises NotServed."""
        reader, reports = ReportReader(), list[int]()
        with trio.move_on_after(self._config().silence_seconds):
            while not (reports := reader.feed(first)):
                first = await stream.receive_some(4096)
                if not first:
                    return
        if not reports:
            return
        start = start_for(reports[0], self._span(), last_file_only=self._config().sync_from_last_file)
        now = trio.current_time()
        slave = connection.slave = ServedSlave(stream, SlaveView(reports[0], start, now), now)
        log.info("slave %s has the log up to %d and is served from %d on", stream.peer, reports[0], start)
        self.slaves.append(slave)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, slave)
                reason = await self._read_reports(slave, reader, reports[1:])
                log.info("slave %s is no longer served: %s", stream.peer, reason)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("the connection of slave %s broke: %s", stream.peer, error.exceptions[0])
        except* (SliceGone, StoreError, OSError) as error:
            log.error("slave %s is dropped: the log cannot be read: %s", stream.peer, error.exceptions[0])
        finally:
            self.slaves.remove(slave)

    async def _read_reports(self, slave: ServedSlave, reader: ReportReader, reports: list[int]) -> str:
        """Take reports until there are no more to take; returns why."""
        view, heard_at = slave.view, trio.current_time()
        while True:
            now = trio.current_time()
            for offset in reports:
                if problem := view.report(offset, now):
                    return problem
            if reports:
                self.settle()
                if not self._is_expected():
                    await trio.sleep(_COLLECT_SECONDS)
            stalled = view.stalled_for(now)
            if stalled > STALLED_SECONDS:
                return f"it has confirmed nothing for {stalled:.0f} s of what it was sent from {view.acked} on"
            silence = self._config().silence_seconds
            reports, data = [], b""
            # A stalled slave is detected when its heartbeat is due, not only when one arrives.
            with trio.move_on_after(min(heard_at + silence - now, STALLED_SECONDS)) as timeout:
                data = await slave.stream.receive_some(4096)
            if not timeout.cancelled_caught:
                if not data:
                    return "it closed the connection"
                heard_at, reports = trio.current_time(), reader.feed(data)
            elif trio.current_time() >= heard_at + silence:
                return f"it has been silent for {silence:g} s (haHousekeepingInterval)"

    async def _send(self, slave: ServedSlave) -> None:
        """Send the log as it grows, and a heartbeat when it does not."""
        stream, view, source = slave.stream, slave.view, self._source
        while True:
            if view.sent >= source.value:
                with trio.move_on_after(self._config().heartbeat_seconds):
                    await source.reach(view.sent + 1)
                    continue
                await stream.send_all(SLICE.pack(view.sent, 0))
                continue
            slices = self._gathered(view.sent) or [await self._slices.wait(view.sent, self._largest_slice(view.sent))]
            parts, offset = list[bytes | memoryview](), view.sent
            for piece in slices:
                parts += (SLICE.pack(offset, len(piece)), piece)
                offset += len(piece)
            # Before it is written: the acknowledgement may come while the rest still waits for room.
            view.sending(offset - view.sent, trio.current_time())
            data = b"".join(parts)
            if (sent := stream.send_now(data)) < len(data):
                await stream.send_all(memoryview(data)[sent:])
            if view.sent < source.value:
                await trio.lowlevel.checkpoint()
            elif not self._is_expected():
                await trio.sleep(_COLLECT_SECONDS)

    def _gathered(self, offset: int) -> list[bytes | memoryview]:
        """The next slices for one call of the system; none if the disk has to be waited for."""
        slices, end = list[bytes | memoryview](), min(self._source.value, offset + _BYTES_AT_ONCE)
        while offset < end and len(slices) < _SLICES_AT_ONCE:
            piece = self._slices.now(offset, self._largest_slice(offset))
            if piece is None:
                break
            slices.append(piece)
            offset += len(piece)
        return slices

    def _largest_slice(self, offset: int) -> int:
        return min(self._config().ha_transfer_batch_size, self._source.value - offset)
