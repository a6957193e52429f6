"""The coordinator in memory: for `rocketlet up --replicas`, for fixtures and for tests. It does what etcd does.

It can be down, and a single replica can be cut off from it; leases then expire by its clock, as etcd's do. When it
comes back it renews every lease for its full time, as etcd's new leader does.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import trio

from rocketlet.failover.coordinator import CoordinatorAway, GroupState, Presence, View

_DELAY_SECONDS = 0.002
_TIMEOUT_SECONDS = 1.0
_MAX_WATCH_SECONDS = 10.0


@dataclass(slots=True)
class _Session:
    member: str
    seconds: float
    alive_until: float = 0.0
    presence: Presence | None = None
    leads: bool = False


class MemoryCoordination:
    """What all replicas of one group share."""

    def __init__(self, saved: bytes = b"", save: Callable[[bytes], None] | None = None) -> None:
        """`save` is called with the state whenever it changes, to make it durable; `saved` is the last such state."""
        self.is_down = False
        self.cut_off: set[str] = set()  # members, or replicaIds, that cannot reach it
        self.state = GroupState()
        self.revision = 0
        self._save = save
        if saved:
            self.revision, self.state = msgspec.json.decode(saved, type=tuple[int, GroupState])
        self._sessions: dict[str, _Session] = {}
        self._changed = trio.lowlevel.ParkingLot()

    def session(self, member: str, lease_seconds: float) -> MemoryCoordinator:
        """A new session of a replica; the remains of an earlier one last until its lease expires."""
        previous = self._sessions.get(member)
        session = _Session(member, lease_seconds)
        if previous is not None:
            session.alive_until, session.presence, session.leads = (
                previous.alive_until,
                previous.presence,
                previous.leads,
            )
        self._sessions[member] = session
        return MemoryCoordinator(self, session)

    def stop(self) -> None:
        """Answer no request."""
        self.is_down = True

    def resume(self) -> None:
        """Answer again."""
        self.is_down = False
        for session in self._sessions.values():
            if session.alive_until:
                session.alive_until = trio.current_time() + session.seconds
        self.changed()

    def changed(self) -> None:
        """Wake all waiters for a change."""
        self._changed.unpark_all()

    def expire(self) -> None:
        """Expire the leases of silent sessions."""
        if self.is_down:
            return
        now = trio.current_time()
        for session in self._sessions.values():
            if session.alive_until <= now and (session.leads or session.presence is not None):
                session.leads, session.presence = False, None
                self.changed()

    def view(self) -> View:
        """Its current view."""
        self.expire()
        members = {
            session.member: session.presence for session in self._sessions.values() if session.presence is not None
        }
        return View(self.state, self.revision, any(session.leads for session in self._sessions.values()), members)

    def elect(self, session: _Session, state: GroupState, revision: int, over: bool) -> int:
        self.expire()
        if self.revision != revision or (not over and any(other.leads for other in self._sessions.values())):
            return 0
        for other in self._sessions.values():
            other.leads = other is session
        self._renew(session)
        self._put(state)
        return self.revision

    def replace(self, session: _Session, state: GroupState, revision: int, release: bool) -> int:
        if self.revision != revision:
            return 0
        session.leads = session.leads and not release
        self._put(state)
        return self.revision

    def renew(self, session: _Session, revision: int) -> bool:
        self.expire()
        if self.revision != revision or any(other.leads for other in self._sessions.values()):
            return False
        session.leads = True
        self._renew(session)
        return True

    def announce(self, session: _Session, presence: Presence) -> None:
        if session.presence != presence:
            session.presence = presence
            self.changed()
        self._renew(session)

    def keep_alive(self, session: _Session) -> None:
        self.expire()
        if session.leads or session.presence is not None:
            self._renew(session)

    async def wait(self, seconds: float) -> None:
        """Wait until something changes, or a lease may expire."""
        expiries = [
            session.alive_until for session in self._sessions.values() if session.leads or session.presence is not None
        ]
        until = min([*expiries, trio.current_time() + seconds])
        with trio.move_on_at(max(until, trio.current_time() + _DELAY_SECONDS)):
            await self._changed.park()

    def _renew(self, session: _Session) -> None:
        session.alive_until = trio.current_time() + session.seconds

    def _put(self, state: GroupState) -> None:
        if self._save is not None:
            self._save(msgspec.json.encode((self.revision + 1, state)))
        self.state = state
        self.revision += 1
        self.changed()


class MemoryCoordinator:
    """One replica's session. See Coordinator."""

    def __init__(self, hub: MemoryCoordination, session: _Session) -> None:
        self._hub = hub
        self._session = session

    async def read(self) -> View:
        """See Coordinator."""
        await self._cross_network()
        return self._hub.view()

    async def change(self, seen: View) -> None:
        """See Coordinator."""
        await self._cross_network()
        if self._hub.view() == seen:
            await self._hub.wait(_MAX_WATCH_SECONDS)
        await self._cross_network()

    async def announce(self, presence: Presence) -> None:
        """See Coordinator."""
        await self._cross_network()
        self._hub.announce(self._session, presence)

    async def elect(self, state: GroupState, revision: int, *, over: bool) -> int:
        """See Coordinator."""
        await self._cross_network()
        new_revision = self._hub.elect(self._session, state, revision, over)
        await self._cross_network()  # the answer may be lost after the change was made
        return new_revision

    async def replace(self, state: GroupState, revision: int, *, release: bool = False) -> int:
        """See Coordinator."""
        await self._cross_network()
        new_revision = self._hub.replace(self._session, state, revision, release)
        await self._cross_network()
        return new_revision

    async def renew(self, revision: int) -> bool:
        """See Coordinator."""
        await self._cross_network()
        return self._hub.renew(self._session, revision)

    async def run(self) -> None:
        """See Coordinator."""
        while True:
            await trio.sleep(self._session.seconds / 3)
            if self._is_reachable():
                self._hub.keep_alive(self._session)

    async def aclose(self) -> None:
        """See Coordinator."""
        await trio.lowlevel.checkpoint()

    async def _cross_network(self) -> None:
        """One direction of a request or an answer. Raises CoordinatorAway."""
        await trio.sleep(_DELAY_SECONDS)
        if not self._is_reachable():
            await trio.sleep(_TIMEOUT_SECONDS)
            raise CoordinatorAway("the coordinator in memory was told not to answer")

    def _is_reachable(self) -> bool:
        member, cut_off = self._session.member, self._hub.cut_off
        return not self._hub.is_down and member not in cut_off and member.partition("/")[0] not in cut_off
