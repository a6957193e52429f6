"""A slave's side of the stream: connect to the master, write what arrives, report how far it is written.

One connection at a time. Before it, the log is cut to whole records and compared with the master's (`continuity.py`);
on it, every slice must begin where the log ends. Two tasks: one reads and writes; the other reports at once when there
is more, and every `haSendHeartbeatInterval` when there is not. A report is the end of the last whole record that is
written or, with SYNC_FLUSH, flushed. A master that is silent for `haHousekeepingInterval` is abandoned, and a changed
address ends the connection at once; Java's slave notices neither.

A problem is logged once, not at every attempt.

Java: store/ha/HAService.java (HAClient)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from rocketlet.common.errors import RocketletError
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.transport import ByteStream
from rocketlet.replication.config import ReplicationConfig
from rocketlet.replication.continuity import Diverged, MasterAway, check, ends_of
from rocketlet.replication.dial import Dial
from rocketlet.replication.stream_codec import SliceReader, StreamBroken, report
from rocketlet.store.errors import StoreError
from rocketlet.store.message_store import MessageStore
from rocketlet.store.replica import Replica

log = logging.getLogger("rocketlet.replication.follow")

DIAL_SECONDS = 3.0
_READ_SIZE = 256 << 10  # about 5 ms of filing the smallest messages, so that the loop is not held longer
_ADDRESS_SECONDS = 5.0  # a name server answers a registration sooner
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 5.0


class Misfit(RocketletError):
    """The master's log cannot be written here: settings of the two differ."""


@dataclass(frozen=True, slots=True)
class Master:
    """Where a master is: its port for slaves, and its ordinary one."""

    ha_address: str
    address: str


class MasterPlace:
    """Where the master is now, as far as is known; a change wakes waiting tasks."""

    def __init__(self) -> None:
        self._changed = trio.lowlevel.ParkingLot()
        self.now: Master | None = None

    def set(self, master: Master | None) -> None:
        if master != self.now:
            log.info("the master is at %s", master.ha_address if master else "an address not known")
            self.now = master
            self._changed.unpark_all()

    async def change(self) -> None:
        await self._changed.park()


class Followed(Protocol):
    """What others see of a follower."""

    following: Master | None
    heard_at: float
    changed: trio.lowlevel.ParkingLot

    @property
    def trouble(self) -> str:
        """Why no master is followed; empty while following one."""

    def bytes_per_second(self) -> int:
        """Over the present connection."""


class Follower:
    """Follows one master after another, until cancelled."""

    def __init__(
        self,
        dial: Dial,
        pool: ConnectionPool,
        config: Callable[[], ReplicationConfig],
        store: MessageStore,
        replica: Replica,
        place: MasterPlace,
        find_master: Callable[[], None] = lambda: None,
    ) -> None:
        """`find_master` is called when the master is lost and while it is missing; its new address is then expected in
        `place`."""
        self._find_master = find_master
        self._dial = dial
        self._pool = pool
        self._config = config
        self._store = store
        self._replica = replica
        self._place = place
        self._trouble = ""
        self._pause = SHORTEST_PAUSE
        self.following: Master | None = None
        """The master that the log follows now: it is connected, and its log continues ours."""
        self.heard_at = 0.0
        self.received = 0  # bytes, and ...
        self._followed_since = 0.0  # ... since when, of the present connection
        self.changed = trio.lowlevel.ParkingLot()
        """Wakes whoever waits for `following`."""

    @property
    def trouble(self) -> str:
        """Why no master is followed; empty while following one."""
        return "" if self.following else self._trouble or "not connected yet"

    def bytes_per_second(self) -> int:
        """Over the present connection."""
        if self.following is None:
            return 0
        return int(self.received / max(trio.current_time() - self._followed_since, 1))

    async def run(self) -> None:
        try:
            while True:
                master = self._place.now
                if master is None:
                    with trio.move_on_after(_ADDRESS_SECONDS) as timeout:
                        await self._place.change()
                    if timeout.cancelled_caught:
                        self._note_trouble("no master is known: neither haMasterAddress nor the name servers name one")
                        self._find_master()
                    continue
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._cancel_when_moved, nursery.cancel_scope)
                    await self._try(master)
                    nursery.cancel_scope.cancel()
        finally:
            # A partial record left by the cut would look like damage at the next start.
            self._replica.drop_rest()
            if self._store.last_record is None:
                self._replica.clear()

    async def _cancel_when_moved(self, scope: trio.CancelScope) -> None:
        await self._place.change()
        scope.cancel()

    async def _try(self, master: Master) -> None:
        """One connection, followed by a pause."""
        try:
            await self._follow(master)
        except (MasterAway, Diverged, Misfit, RemotingError, StreamBroken, StoreError) as error:
            self._note_trouble(str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._note_trouble(f"the connection to master {master.ha_address} broke: {error.__cause__ or error}")
        finally:
            self.following = None
            self.changed.unpark_all()
        self._find_master()
        await trio.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _note_trouble(self, trouble: str) -> None:
        if self.following is not None and trio.current_time() - self._followed_since > LONGEST_PAUSE:
            self._trouble, self._pause = "", SHORTEST_PAUSE
        if trouble != self._trouble:
            log.warning("the master is not followed: %s", trouble)
            self._trouble = trouble

    async def _follow(self, master: Master) -> None:
        first = await self._first_report(master)
        with trio.move_on_after(DIAL_SECONDS) as timeout:
            stream = await self._dial(master.ha_address)
        if timeout.cancelled_caught:
            raise MasterAway(f"master {master.ha_address} does not accept a connection within {DIAL_SECONDS:g} s")
        try:
            await stream.send_all(report(first))
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._report, stream, first)
                    await self._receive(stream, master)
            except BaseExceptionGroup as group:
                raise _first_of(group) from None
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()

    async def _first_report(self, master: Master) -> int:
        """Cut the log to whole records, check that it is a prefix of the master's, and report where to begin."""
        replica, store = self._replica, self._store
        replica.drop_rest()
        last = store.last_record
        if last is not None:
            record = store.record_at(last.log_offset, last.size)
            if record is not None:
                await check(self._pool, master.address, last.log_offset, record, store.config.store_path_root_dir)
            return replica.end
        replica.clear()
        if self._config().sync_from_last_file:
            return 0
        try:
            ends = await ends_of(self._pool, master.address)
        except MasterAway:
            return 0
        if ends.end == 0 or ends.begin > 0:
            return ends.begin
        # A RocketMQ master takes 0 to mean its last file. Every log begins with the byte 0, the highest of its first
        # record's size, so that byte is written here and the rest requested: the whole log, from any master.
        replica.append(b"\0")
        return 1

    async def _receive(self, stream: ByteStream, master: Master) -> None:
        """Write what arrives until the connection ends. Raises the error that ended it."""
        reader, replica = SliceReader(), self._replica
        silence = self._config().silence_seconds
        while True:
            with trio.move_on_after(silence) as timeout:
                data = await stream.receive_some(_READ_SIZE)
            if timeout.cancelled_caught:
                raise StreamBroken(f"master {master.ha_address} was silent for {silence:g} s")
            if not data:
                raise StreamBroken(f"master {master.ha_address} closed the connection; its log may say why")
            self.heard_at = trio.current_time()
            for offset, piece in reader.feed(data):
                if replica.is_empty and offset != replica.end and piece:
                    self._begin_at(offset, master)
                if offset != replica.end and not (replica.is_empty and not piece):
                    raise StreamBroken(
                        f"master {master.ha_address} sent bytes of log offset {offset}, where {replica.end} comes next"
                    )
                if len(piece) > replica.room_in_file():
                    raise Misfit(
                        f"master {master.ha_address} has larger log files: set mappedFileSizeCommitLog as it is there"
                    )
                if piece:
                    replica.write(piece)
                    self.received += len(piece)
            replica.file()
            if self.following is None:
                self._set_following(master)

    def _begin_at(self, offset: int, master: Master) -> None:
        if offset % self._store.log.file_size:
            raise Misfit(
                f"the log of master {master.ha_address} begins at {offset}, which is not where a file begins here: set"
                " mappedFileSizeCommitLog as it is there"
            )
        self._replica.begin_at(offset)

    def _set_following(self, master: Master) -> None:
        log.info("follows master %s from log offset %d on", master.ha_address, self._store.log.end)
        self.following = master
        self.received, self._followed_since = 0, trio.current_time()
        self.changed.unpark_all()

    async def _report(self, stream: ByteStream, reported: int) -> None:
        store = self._store
        sync = store.config.is_sync_flush
        source = store.flushed if sync else store.appended
        while True:
            if sync:
                store.want_flush()
            with trio.move_on_after(self._config().heartbeat_seconds):
                await source.reach(reported + 1)
            reported = max(reported, source.value)
            await stream.send_all(report(reported))


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a connection's tasks; the others are its consequences."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
