"""One replica at work: it watches the coordinator, and follows, stands for election or leads as `candidacy.py` decides.

A replica follows, stands for election, or leads. To lead, it ends its stream, promises the new epoch durably, lets the
other replicas join, and accepts sends once everything in its log is confirmed again: what consumers have seen at the
old leader is then visible here. It leads until it learns of a newer epoch, or resigns. Then, and when part of its log
has to be cut, the broker is restarted within its process (`Stage.restart`), so that no view of deleted bytes is kept.

Java: broker/controller/ReplicasManager.java of 5.x
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import trio
from msgspec.structs import replace as replace_state

from rocketlet.failover import truncation
from rocketlet.failover.candidacy import Candidacy, Follow, Stand, Wait
from rocketlet.failover.config import FailoverConfig
from rocketlet.failover.coordinator import Coordinator, CoordinatorAway, Presence, View
from rocketlet.failover.follow import Diverged, EpochFollower, ReplicaParts
from rocketlet.failover.in_sync import InSync
from rocketlet.failover.leader import Leader, NotNow, own_mark
from rocketlet.failover.outlook import RETRY_SECONDS, Outlook
from rocketlet.failover.own_state import OwnState
from rocketlet.failover.replica_port import Leading, ReplicaPort
from rocketlet.store.disk import Disk
from rocketlet.store.errors import Closed
from rocketlet.store.offload import offload

log = logging.getLogger("rocketlet.failover.driver")

_SHORTEST_WAIT = 0.01


class State(Enum):
    """What a replica is doing, for display."""

    RECOVERING = "recovering"
    FOLLOWING = "following"
    WAITING = "waiting"
    CAMPAIGNING = "campaigning"
    PROMOTING = "promoting"
    LEADING = "leading"
    RESIGNING = "resigning"
    FENCED = "fenced"


class Stage(Protocol):
    """The broker around it."""

    def settle(self) -> None:
        """Dispatch what may be dispatched, and wake its waiters."""

    async def lead(self) -> None:
        """Be the master from now on."""

    def refuse_sends(self, reason: str) -> None:
        """Refuse sends with that text from now on; with an empty one, accept them."""

    def restart(self, reason: str) -> None:
        """Stop, and start again from the files."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state, for display."""

    member: str
    state: str
    epoch: int
    leader: str
    insync: tuple[str, ...]
    confirmed: int
    elections: int
    coordinator: str  # why it does not answer; empty while it does
    trouble: str
    cut_files: int
    cut_bytes: int


class Driver:
    """See the module. One run of a broker; `run` lasts until cancelled."""

    def __init__(
        self,
        parts: ReplicaParts,
        state: OwnState,
        coordinator: Coordinator,
        port: ReplicaPort,
        config: Callable[[], FailoverConfig],
        disk: Disk,
        stage: Stage,
        group: str,
    ) -> None:
        """`group` is the id of the group, if this replica creates it."""
        self._parts = parts
        self._outlook = Outlook(coordinator, parts.member, config().lease_seconds, self._on_view)
        self._port = port
        self._config = config
        self._disk = disk
        self._stage = stage
        self._store = parts.store
        self._candidacy = Candidacy(parts.member, config().lease_seconds, group)
        self._refusal = ""
        self._cut_files = truncation.cut_files(disk, self._store.config)
        self.state = State.RECOVERING
        self.elections = 0
        self.follower = EpochFollower(parts, state, self._outlook.wake)
        self.leader: Leader | None = None

    # ---- queries and commands of administrators

    @property
    def in_sync(self) -> InSync | None:
        """What a leader knows of its replicas."""
        return self.leader.in_sync if self.leader is not None else None

    def status(self) -> Status:
        """The state, for display."""
        in_sync, view = self.in_sync, self._outlook.view
        group_state = in_sync.state if in_sync is not None else view.state if view is not None else None
        confirmed = self._store.confirmed
        return Status(
            self._parts.member,
            self.state.value,
            self.follower.state.promised,
            group_state.leader if group_state is not None else "",
            group_state.insync if group_state is not None else (),
            confirmed.value if confirmed is not None else 0,
            self.elections,
            self._outlook.trouble,
            self._refusal or ("" if self.in_sync else self.follower.trouble),
            self._cut_files.files,
            self._cut_files.size,
        )

    @property
    def epoch(self) -> int:
        """The newest epoch that this replica takes part in."""
        return self.follower.state.promised

    def has_enough(self) -> bool:
        """Whether enough replicas are in sync to accept sends."""
        return self.leader is not None and self.leader.has_enough()

    def may_register(self) -> bool:
        """Whether this replica may be registered at the name servers: a leader only while it is known to be one."""
        return self.leader is None or self.leader.is_sure()

    async def resign(self, heir: str) -> None:
        """Hand leadership to another replica, with everything confirmed. Raises NotNow.

        `heir`: the next leader, a `replicaId` or a member; empty: any that is in sync.
        """
        if self.leader is None or self.state is not State.LEADING:
            raise NotNow("this replica does not lead; ask the one that does")
        self.state = State.RESIGNING
        try:
            await self.leader.resign(heir)
        except NotNow:
            if self.state is State.RESIGNING:
                self.state = State.LEADING
            raise
        self._restart("it resigned")

    async def change_set(self, replica: str, *, add: bool) -> None:
        """Add to the in-sync set, or remove from it, at an administrator's request. Raises NotNow."""
        if self.leader is None:
            raise NotNow("this replica does not lead; ask the one that does")
        await self.leader.change_set(replica, add=add)

    async def claim(self) -> None:
        """Become the only replica in sync, at an administrator's request; all others in sync are lost. Raises
        NotNow."""
        outlook = self._outlook
        view = outlook.view
        if self.leader is not None or view is None or view.leased:
            outage = f"the coordinator is away: {outlook.trouble}"
            raise NotNow("a replica leads already" if view is not None else outage)
        me, group_state, own_state = self._parts.member, view.state, self.follower.state
        epoch = max(group_state.epoch, own_state.promised)
        state = replace_state(
            group_state, group=own_state.group or group_state.group, epoch=epoch, leader="", insync=(me,)
        )
        try:
            if not await outlook.coordinator.replace(state, view.revision):
                raise NotNow("the state has changed meanwhile; look again")
        except CoordinatorAway as error:
            raise NotNow(f"the coordinator does not answer: {error}") from None
        await outlook.refresh()

    # ---- the tasks

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._outlook.coordinator.run)
                nursery.start_soon(self._outlook.run)
                nursery.start_soon(self._conduct, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await self._outlook.coordinator.aclose()

    def _on_view(self, view: View) -> None:
        if self.in_sync is not None:
            self.in_sync.learn(view.state, view.revision)

    async def _conduct(self, nursery: trio.Nursery) -> None:
        """Follow, stand for election, lead."""
        stand = None
        while stand is None:
            async with trio.open_nursery() as following:
                stand = await self._follow(following)
                following.cancel_scope.cancel()
            if stand is not None:
                stand = await self._stand_for_election(stand)
        state, revision = stand.state, stand.revision
        await self._promote(
            state.epoch, InSync(self._parts.member, state, revision, self._end(), trio.current_time()), nursery
        )

    async def _follow(self, nursery: trio.Nursery) -> Stand | None:
        """Follow until it is time to stand for election."""
        followed: tuple[str, int] | None = None
        scope = trio.CancelScope()
        while True:
            view, now = self._outlook.view, trio.current_time()
            until = now + 60.0
            if view is not None:
                await self._announce(vacant=False)
                decision = self._candidacy.decide(
                    view, now, promised=self.epoch, end=self._end(), following=self.follower.leader
                )
                if isinstance(decision, Stand):
                    return decision
                if isinstance(decision, Follow) and followed != (decision.leader, decision.epoch):
                    scope.cancel()
                    followed, scope = (decision.leader, decision.epoch), trio.CancelScope()
                    nursery.start_soon(self._join, decision, scope)
                if isinstance(decision, Wait):
                    until = decision.until
                    if not self.follower.leader:
                        self.follower.note_trouble(decision.reason)
                    if decision.vacant:
                        await self._announce(vacant=True)
                self._set_state(State.FOLLOWING if self.follower.leader else State.WAITING)
            with trio.move_on_at(max(until, now + _SHORTEST_WAIT)):
                if self._outlook.view is view:
                    await self._outlook.changes.park()

    async def _join(self, leader: Follow, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await self.follower.follow(leader)
            except Diverged as divergence:
                intent = truncation.Intent(divergence.end, self._end(), divergence.epoch)
                log.warning("%s; %d bytes are cut off", divergence, intent.end - intent.cut)
                truncation.intend(self._disk, self._store.config, intent)
                self._restart(str(divergence))

    async def _announce(self, *, vacant: bool) -> None:
        """Announce our address and, before an election, the end of our log."""
        parts, outlook = self._parts, self._outlook
        announced_end = outlook.announced_end
        end = self._end() if vacant or announced_end is None else announced_end
        await outlook.announce(Presence(parts.address, self.replica_address, end, self.epoch))

    replica_address = ""
    """Where other replicas are told to join."""

    def _end(self) -> int:
        return own_mark(self._parts).value

    # ---- leading

    async def _stand_for_election(self, stand: Stand) -> Stand | None:
        """Stand for election. Returns the new revision if it was won."""
        self._set_state(State.CAMPAIGNING)
        outlook = self._outlook
        try:
            revision = await outlook.coordinator.elect(stand.state, stand.revision, over=stand.over)
        except CoordinatorAway as error:
            # It may have been won. Then the state names us, and we stand again for the next epoch.
            outlook.note_away(error)
            await trio.sleep(RETRY_SECONDS)
            revision = 0
        if not revision:
            await outlook.reread(1.0)
            return None
        return Stand(stand.state, revision, stand.over)

    async def _promote(self, epoch: int, in_sync: InSync, nursery: trio.Nursery) -> None:
        self._set_state(State.PROMOTING)
        parts, store = self._parts, self._store
        parts.replica.drop_rest()
        end = store.log.end
        if store.config.is_sync_flush:
            await store.flushed_to(end)
        in_sync.begin = end
        state = self.follower.state
        self.follower.state = replace(
            state, group=in_sync.state.group, promised=epoch, epochs=state.epochs.with_epoch(epoch, end)
        )
        await offload(self._disk, lambda: parts.state_file.write(self.follower.state))
        self.elections += 1
        self.leader = leader = Leader(
            parts,
            self.follower,
            self._outlook,
            in_sync,
            self._config,
            lambda: self._announce(vacant=False),
            self._refuse,
            self._fence,
        )
        log.warning(
            "elected to lead epoch %d from log offset %d on; in sync: %s", epoch, end, ", ".join(in_sync.state.insync)
        )
        self._port.leading = Leading(in_sync, self.follower.state.epochs, leader.changed)
        nursery.start_soon(leader.maintain_set)
        nursery.start_soon(leader.confirm_own)
        nursery.start_soon(leader.file)
        leader.changed()
        assert store.confirmed is not None
        try:
            await store.confirmed.reach(end)
        except Closed:
            return  # another one was elected meanwhile
        await self._stage.lead()
        self._set_state(State.LEADING)
        leader.serves = True
        leader.update_refusal()

    def _refuse(self, reason: str) -> None:
        if reason != self._refusal:
            self._refusal = reason
            log.warning("sends are refused: %s", reason) if reason else log.warning("sends are taken")
            self._stage.refuse_sends(reason)

    def _fence(self) -> None:
        """Another replica leads: acknowledge nothing, serve no replica, and restart as its follower."""
        if self.state is not State.FENCED:
            self._restart("another replica leads")

    def _restart(self, reason: str) -> None:
        self._set_state(State.FENCED)
        self._refuse(reason)
        leading, self._port.leading = self._port.leading, None
        if leading is not None:
            leading.end()
        self._stage.restart(reason)

    def _set_state(self, state: State) -> None:
        if state is not self.state and self.state is not State.FENCED:
            log.info("this replica is %s", state.value)
            self.state = state
