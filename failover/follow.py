"""A replica's side of the stream: join the leader of an epoch, write what it sends, report how far it is written.

Joining, in this order: the leader sends its epochs; if our log diverges from its log, the rest of ours has to be cut
and this attempt ends (`Diverged`); otherwise the epoch is promised, durably, and only then is anything acknowledged. So
whatever an older leader still receives from us was sent before the promise.

With SYNC_FLUSH an acknowledgement means that the disk has the bytes, otherwise that the kernel has them.

Java: store/ha/autoswitch/AutoSwitchHAClient.java of 5.x
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import trio

from rocketlet.common.errors import RocketletError
from rocketlet.failover.candidacy import Follow
from rocketlet.failover.epochs import common_end
from rocketlet.failover.intake import Intake
from rocketlet.failover.log_feed import BEAT_SECONDS
from rocketlet.failover.own_state import OwnState, OwnStateFile
from rocketlet.failover.replica_port import GREETING_SECONDS, PATIENCE_STEP, GroupName
from rocketlet.failover.stream_codec import (
    REPORT,
    Hello,
    SliceReader,
    StreamBroken,
    Welcome,
    epochs_of,
    greeting,
    read_greeting,
)
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.transport import ByteStream
from rocketlet.replication.dial import Dial
from rocketlet.replication.follow import Master
from rocketlet.store.errors import StoreError
from rocketlet.store.message_store import MessageStore
from rocketlet.store.replica import Replica

log = logging.getLogger("rocketlet.failover.follow")

_READ_SIZE = 128 << 10
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_let_others_run: Callable[[], object] = getattr(os, "sched_yield", lambda: None)  # Windows has none
_MAX_TROUBLES = 20  # problems that are logged before a leader is followed


class Diverged(RocketletError):
    """Our log diverges from the leader's: it has to be cut at `end`."""

    def __init__(self, end: int, epoch: int) -> None:
        super().__init__(f"the log of the leader of epoch {epoch} diverges from ours at {end}")
        self.end = end
        self.epoch = epoch


class NotJoined(RocketletError):
    """The leader cannot be joined now; the text says why."""


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """The parts of a replica that a follower uses."""

    group_name: GroupName
    member: str
    address: str
    store: MessageStore
    replica: Replica
    state_file: OwnStateFile
    dial: Dial
    settle: Callable[[], None]
    silence_seconds: float


class EpochFollower:
    """Follows the leader of one epoch after another. Also answers what followed tables and administrators ask of a
    slave."""

    def __init__(self, parts: ReplicaParts, state: OwnState, changed: Callable[[], None]) -> None:
        self._parts = parts
        self._on_change = changed
        self.state = state
        self.following: Master | None = None
        self.leader = ""
        """The leader that is heard right now."""
        self.heard_at = 0.0
        self.received = 0
        self.changed = trio.lowlevel.ParkingLot()
        self._followed_since = 0.0
        self._trouble = ""
        self._logged: set[str] = set()

    @property
    def trouble(self) -> str:
        """Why no leader is followed; empty while following one."""
        return "" if self.following else self._trouble or "no leader is known"

    def note_trouble(self, trouble: str) -> None:
        """Note why no leader is followed; logged once until one is."""
        self._trouble = trouble
        if not trouble:
            self._logged.clear()
        elif trouble not in self._logged and len(self._logged) < _MAX_TROUBLES:
            self._logged.add(trouble)
            log.warning("no leader is followed: %s", trouble)

    def bytes_per_second(self) -> int:
        """Over the present connection."""
        if self.following is None:
            return 0
        return int(self.received / max(trio.current_time() - self._followed_since, 1))

    async def follow(self, leader: Follow) -> None:
        """Follow until cancelled, or until our log has to be cut: raises Diverged."""
        pause = _SHORTEST_PAUSE
        while True:
            received_before = self.received
            try:
                await self._follow_once(leader)
            except (NotJoined, RemotingError, StreamBroken, StoreError) as error:
                self.note_trouble(str(error))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self.note_trouble(f"the connection to leader {leader.leader} broke: {error.__cause__ or error}")
            finally:
                self._parts.replica.drop_rest()
                self._note_leader("", None)
            if self.received != received_before:
                pause = _SHORTEST_PAUSE
            await trio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _note_leader(self, leader: str, master: Master | None) -> None:
        self.leader, self.following = leader, master
        self.changed.unpark_all()
        self._on_change()

    async def _follow_once(self, leader: Follow) -> None:
        parts, store = self._parts, self._parts.store
        with trio.move_on_after(GREETING_SECONDS) as timeout:
            stream = await parts.dial(leader.replica_address)
        if timeout.cancelled_caught:
            raise NotJoined(f"leader {leader.leader} at {leader.replica_address} does not accept a connection")
        try:
            rest = await self._join(stream, leader)
            intake = Intake(store, parts.replica, parts.settle)
            reports = _Reports(stream, store, intake)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(reports.run)
                    await self._receive(stream, leader, rest, intake, reports)
            except BaseExceptionGroup as group:
                raise _first_of(group) from None
            finally:
                intake.file()
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()

    async def _join(self, stream: ByteStream, leader: Follow) -> bytes:
        """Greet, check that our log is a prefix of the leader's, promise its epoch. Returns the bytes after the
        greeting."""
        parts, state, store = self._parts, self.state, self._parts.store
        parts.replica.drop_rest()
        greeted: tuple[Welcome, bytes] | None = None
        with trio.move_on_after(GREETING_SECONDS) as timeout:
            entries = [(epoch.number, epoch.begin) for epoch in state.epochs.entries]
            hello = Hello(
                parts.group_name.cluster, parts.group_name.name, state.group, parts.member, parts.address, leader.epoch,
                state.promised, store.log.begin, store.log.end, entries,
            )  # fmt: skip
            await stream.send_all(greeting(hello))
            data = b""
            while (greeted := read_greeting(data, Welcome)) is None:
                chunk = await stream.receive_some(65536)
                if not chunk:
                    raise NotJoined(f"leader {leader.leader} at {leader.replica_address} closed the connection")
                data += chunk
        if timeout.cancelled_caught or greeted is None:
            raise NotJoined(f"leader {leader.leader} at {leader.replica_address} does not answer")
        welcome, rest = greeted
        if welcome.refused:
            raise NotJoined(f"leader {leader.leader} at {leader.replica_address} refuses: {welcome.refused}")
        await self._check_prefix(welcome, leader)
        await self._promise(welcome)
        await stream.send_all(REPORT.pack(store.log.end))
        return rest

    async def _check_prefix(self, welcome: Welcome, leader: Follow) -> None:
        """Check that our log is a prefix of the leader's. Raises Diverged, NotJoined."""
        parts, state, store = self._parts, self.state, self._parts.store
        if welcome.epoch != leader.epoch or welcome.epoch < state.promised:
            raise NotJoined(f"{leader.leader} leads epoch {welcome.epoch}, not {leader.epoch}")
        reseed = f"stop this broker and empty it with `rocketlet store reseed {store.config.store_path_root_dir}`"
        end, begin = store.log.end, store.log.begin
        if end and not state.group:
            raise NotJoined(f"this store has messages that are none of this group's; to join it, {reseed}")
        if not end:
            parts.replica.clear()
            if welcome.begin % store.log.file_size:
                raise NotJoined("the leader has log files of another size: set mappedFileSizeCommitLog as it is there")
            parts.replica.begin_at(welcome.begin)
            return
        common = common_end(state.epochs, end, epochs_of(welcome), welcome.end)
        confirmed = store.confirmed.value if store.confirmed is not None else 0
        if common < confirmed:
            raise NotJoined(
                f"the leader lacks what was confirmed: our logs diverge at {common}, and up to {confirmed} every"
                f" replica had it. Keep this store, and look at what happened to the others; nothing is cut here"
            )
        if common < welcome.begin or (common < begin and common < end):
            raise NotJoined(
                f"our log ends at {end} and the leader's begins at {welcome.begin}: the part in between is deleted"
                f" there; to follow, {reseed}"
            )
        if common < end:
            raise Diverged(common, welcome.epoch)

    async def _promise(self, welcome: Welcome) -> None:
        parts, store = self._parts, self._parts.store
        state = replace(self.state, group=welcome.group, promised=welcome.epoch, epochs=epochs_of(welcome))
        if state != self.state:
            parts.state_file.write(state)
            self.state = state
        if store.config.is_sync_flush:
            await store.flushed_to(store.log.end)

    async def _receive(
        self, stream: ByteStream, leader: Follow, data: bytes, intake: Intake, reports: _Reports
    ) -> None:
        """Write what arrives until the connection ends. Raises the error that ended it."""
        parts, reader, store = self._parts, SliceReader(), self._parts.store
        replica, is_sync = parts.replica, store.config.is_sync_flush
        self._followed_since = trio.current_time()
        self.received = 0
        log.info("follows leader %s of epoch %d from log offset %d on", leader.leader, leader.epoch, store.log.end)
        self.note_trouble("")
        self._note_leader(leader.leader, Master(leader.replica_address, leader.address))
        least_seconds = parts.silence_seconds - PATIENCE_STEP
        with trio.move_on_after(parts.silence_seconds) as timeout:
            while True:
                self.heard_at = trio.current_time()
                if timeout.deadline < self.heard_at + least_seconds:
                    timeout.deadline = self.heard_at + parts.silence_seconds
                confirmed = 0
                end_before = replica.end
                for offset, confirmed, piece in reader.feed(data):  # noqa: B007 - the last one counts
                    if offset != replica.end:
                        raise StreamBroken(
                            f"leader {leader.leader} sent bytes of {offset}, where {replica.end} is next"
                        )
                    intake.write(piece)
                    self.received += len(piece)
                if replica.end > end_before:
                    parts.state_file.mark_log_begun(self.state)
                    if not is_sync:
                        reports.send_soon()
                        # Whoever was woken for these bytes, or is woken by the report, goes first: nobody waits for the
                        # rest of this turn, and it takes up to a millisecond. A tenth more sends where all of them
                        # share a machine.
                        _let_others_run()
                intake.confirm(confirmed)
                if is_sync and replica.end > end_before:
                    store.want_flush()
                data = await stream.receive_some(_READ_SIZE)
                if not data:
                    raise StreamBroken(f"leader {leader.leader} closed the connection")
        raise StreamBroken(f"leader {leader.leader} was silent for {parts.silence_seconds:g} s")


class _Reports:
    """Reports how far the log is written (with SYNC_FLUSH: durable), and sends heartbeats."""

    def __init__(self, stream: ByteStream, store: MessageStore, intake: Intake) -> None:
        self._stream = stream
        self._is_sync = store.config.is_sync_flush
        self._flushed = store.flushed
        self._intake = intake
        self._reported = 0
        self._rest = b""  # the part of a report that the kernel did not take

    def send_soon(self) -> None:
        """Report without a task switch; if the kernel takes nothing now, with the next heartbeat."""
        end = self._end()
        if not self._rest and end > self._reported:
            self._send(end)

    def _end(self) -> int:
        return self._flushed.value if self._is_sync else self._intake.end

    def _send(self, end: int) -> None:
        report = REPORT.pack(end)
        self._rest = report[self._stream.send_now(report) :]
        self._reported = end

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._rest:
                rest, self._rest = self._rest, b""
                await self._stream.send_all(rest)
            self._send(self._end())
            with trio.move_on_after(BEAT_SECONDS):
                await (self._flushed.reach(self._reported + 1) if self._is_sync else trio.sleep_forever())


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
