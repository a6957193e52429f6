"""One replica at work: it watches the coordinator, and does what `candidacy.py` and `in_sync.py` decide.

A replica follows, or stands for election, or leads. To lead it ends its stream, promises the new epoch durably, lets
the other replicas join, and takes sends once all that its log had is confirmed again: what a consumer has seen at the
old leader is then seen here. It leads until it hears of a newer epoch, or resigns. Then, and where some of its log is
to be cut, the broker is restarted within its process (`Stage.start_anew`): no view of deleted bytes is kept.

What is not confirmed within `inSyncTimeout` although the coordinator cannot be reached, so that nobody can be removed
from the in-sync set, has sends refused until it is: clients then look elsewhere, and do not wait for time-outs.

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
from rocketlet.failover.follow import Ground, Joined, Parted
from rocketlet.failover.in_sync import InSync, Proposal
from rocketlet.failover.own_state import OwnState
from rocketlet.failover.replica_port import Leading, ReplicaPort
from rocketlet.store.disk import Disk
from rocketlet.store.errors import Closed
from rocketlet.store.offload import offload
from rocketlet.store.watermark import Waiter

log = logging.getLogger("rocketlet.failover.driver")

_ASK_AGAIN_SECONDS = 0.2  # after the coordinator has not answered
_LOOK_SECONDS = 0.2  # how often a leader looks whether its set should change
_RESIGN_SECONDS = 5.0
_SHORTEST_WAIT = 0.01


class State(Enum):
    """What a replica is doing, for people."""

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
        """File what may be filed, and wake who waits for it."""

    async def lead(self) -> None:
        """Be the master from now on."""

    def refuse_sends(self, why: str) -> None:
        """Refuse sends with that text from now on; empty: take them."""

    def start_anew(self, why: str) -> None:
        """Stop, and start again from the files."""


class NotNow(Exception):
    """What a person asked for cannot be done; the text says why."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state, for people."""

    member: str
    state: str
    epoch: int
    leader: str
    insync: tuple[str, ...]
    confirmed: int
    elections: int
    coordinator: str  # what is wrong with it; empty while it answers
    trouble: str
    cut_files: int
    cut_bytes: int


class Driver:
    """See the module. One life of a broker; `run` runs until cancelled."""

    def __init__(
        self,
        ground: Ground,
        state: OwnState,
        coordinator: Coordinator,
        port: ReplicaPort,
        config: Callable[[], FailoverConfig],
        disk: Disk,
        stage: Stage,
        group: str,
    ) -> None:
        """`group` names the group, should it come into being by us."""
        self._ground = ground
        self._coordinator = coordinator
        self._port = port
        self._config = config
        self._disk = disk
        self._stage = stage
        self._store = ground.store
        lease = config().lease_seconds
        self._candidacy = Candidacy(ground.member, lease, group)
        self._view: View | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._own_growth = trio.lowlevel.ParkingLot()
        self._own_waiter: Waiter | None = None
        self._trouble = ""  # with the coordinator
        self._answered_at = -lease
        self._announced: Presence | None = None
        self._refused = ""
        self._kept = truncation.kept(disk, self._store.config)
        self.state = State.RECOVERING
        self.elections = 0
        self.joined = Joined(ground, state, self._wake)
        self.in_sync: InSync | None = None

    # ---- what people ask

    def status(self) -> Status:
        in_sync, view = self.in_sync, self._view
        known = in_sync.state if in_sync is not None else view.state if view is not None else None
        confirmed = self._store.confirmed
        return Status(
            self._ground.member,
            self.state.value,
            self.joined.state.promised,
            known.leader if known is not None else "",
            known.insync if known is not None else (),
            confirmed.value if confirmed is not None else 0,
            self.elections,
            self._trouble,
            self._refused or ("" if self.in_sync else self.joined.trouble),
            self._kept.files,
            self._kept.size,
        )

    @property
    def epoch(self) -> int:
        """The newest epoch that this replica is a part of."""
        return self.joined.state.promised

    def has_enough(self) -> bool:
        """Whether so many replicas are in sync that sends are taken."""
        in_sync = self.in_sync
        return in_sync is not None and len(in_sync.state.insync) >= self._config().min_in_sync_replicas

    def may_register(self) -> bool:
        """Whether a leader is known to be one: the coordinator has just said so, or every counted replica does."""
        in_sync = self.in_sync
        if in_sync is None:
            return True
        if in_sync.replaced:
            return False
        lease = self._config().lease_seconds
        if trio.current_time() - self._answered_at < lease:
            return True
        known = [in_sync.replicas.get(member) for member in in_sync.counted if member != in_sync.me]
        return all(one is not None and one.connected for one in known)

    async def resign(self, heir: str) -> None:
        """Stop leading, with everything confirmed, for another one. Raises NotNow.

        `heir`: who is to lead, a `replicaId` or a member; empty: any that is in sync.
        """
        in_sync = self.in_sync
        if in_sync is None or self.state is not State.LEADING:
            raise NotNow("this replica does not lead; ask the one that does")
        others = [member for member in in_sync.state.insync if member != in_sync.me]
        chosen = [member for member in others if heir in (member, member.partition("/")[0])]
        if heir and not chosen:
            raise NotNow(f"replica {heir} is not in sync; in sync are {', '.join(others) or 'no others'}")
        if not others:
            raise NotNow("no other replica is in sync, so nobody could lead")
        self.state = State.RESIGNING
        self._refuse("this replica hands over to another one")
        try:
            await self._hand_over(in_sync, chosen[0] if heir else "")
        except NotNow:
            self.state = State.LEADING
            self._refuse("")
            raise

    async def _hand_over(self, in_sync: InSync, heir: str) -> None:
        self._stage.settle()
        end = self._store.log.end
        assert self._store.confirmed is not None
        proposal: Proposal | None = None
        with trio.move_on_after(_RESIGN_SECONDS):
            try:
                await self._store.confirmed.reach(end)
            except Closed as error:
                raise NotNow(str(error)) from None
            while (proposal := in_sync.resign(heir)) is None:
                if in_sync.replaced:
                    raise NotNow("another replica was elected meanwhile")
                await trio.sleep(_SHORTEST_WAIT)
        if proposal is None:
            raise NotNow(f"the replicas in sync did not confirm everything within {_RESIGN_SECONDS:g} s")
        await self._propose(proposal, release=True)
        if not in_sync.state.resigned:
            raise NotNow(f"the coordinator did not take it ({self._trouble or 'the state has changed'}); try again")
        in_sync.replaced = True
        self._start_anew("it resigned")

    async def change_set(self, replica: str, *, add: bool) -> None:
        """Add to the in-sync set, or remove from it, by a person's word. Raises NotNow."""
        in_sync = self.in_sync
        if in_sync is None:
            raise NotNow("this replica does not lead; ask the one that does")
        insync = in_sync.state.insync
        known = [m for m in (*insync, *in_sync.replicas) if replica in (m, m.partition("/")[0])]
        if not known:
            raise NotNow(f"no replica {replica} is known here")
        member = known[0]
        if member == in_sync.me or (member in insync) is add:
            raise NotNow(f"{member} is the leader" if member == in_sync.me else f"{member} is there already")
        if add:
            raise NotNow(f"{member} is added by itself once it has caught up; it has {in_sync.replicas[member].acked}")
        proposal = in_sync.ask_for(tuple(m for m in insync if m != member), f"a person removes {member}")
        if proposal is None:
            raise NotNow("the set is being changed already; try again")
        await self._propose(proposal)
        if member in in_sync.state.insync:
            raise NotNow(f"the coordinator did not take it: {self._trouble or 'the state has changed'}; try again")

    async def claim(self) -> None:
        """Be the only replica in sync, by an administrator's word; all others in sync are lost. Raises NotNow."""
        view = self._view
        if self.in_sync is not None or view is None or view.leased:
            raise NotNow("a replica leads already" if view is not None else f"the coordinator is away: {self._trouble}")
        me, known, own = self._ground.member, view.state, self.joined.state
        epoch = max(known.epoch, own.promised)
        state = replace_state(known, group=own.group or known.group, epoch=epoch, leader="", insync=(me,))
        try:
            if not await self._coordinator.replace(state, view.revision):
                raise NotNow("the state has changed meanwhile; look again")
            self._seen(await self._coordinator.read())
        except CoordinatorAway as away:
            raise NotNow(f"the coordinator does not answer: {away}") from None

    # ---- the tasks

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._coordinator.run)
                nursery.start_soon(self._watch)
                nursery.start_soon(self._conduct, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await self._coordinator.aclose()

    def _wake(self) -> None:
        self._news.unpark_all()

    async def _watch(self) -> None:
        """Keep the view up to date."""
        while True:
            try:
                view = await self._coordinator.read()
                self._seen(view)
                await self._coordinator.change(view)
            except CoordinatorAway as away:
                self._away(away)
                await trio.sleep(_ASK_AGAIN_SECONDS)

    def _seen(self, view: View) -> None:
        if self._trouble:
            log.warning("the coordinator answers again")
            self._trouble = ""
        if self._ground.member not in view.members:
            self._announced = None  # our lease has ended, and others cannot find us
        self._answered_at = trio.current_time()
        self._view = view
        if self.in_sync is not None:
            self.in_sync.learned(view.state, view.revision)
        self._wake()

    def _away(self, away: CoordinatorAway) -> None:
        if not self._trouble:
            log.warning("the coordinator does not answer, so nobody is elected and the in-sync set stays: %s", away)
        self._trouble = str(away)

    async def _conduct(self, nursery: trio.Nursery) -> None:
        """Follow, stand for election, lead."""
        stand = None
        while stand is None:
            async with trio.open_nursery() as following:
                stand = await self._follow(following)
                following.cancel_scope.cancel()
            if stand is not None:
                stand = await self._elected(stand)
        state, revision = stand.state, stand.revision
        await self._promote(
            state.epoch, InSync(self._ground.member, state, revision, self._end(), trio.current_time()), nursery
        )

    async def _follow(self, nursery: trio.Nursery) -> Stand | None:
        """Until an election is to be stood for."""
        followed: tuple[str, int] | None = None
        scope = trio.CancelScope()
        while True:
            view, now = self._view, trio.current_time()
            until = now + 60.0
            if view is not None:
                await self._announce(vacant=False)
                decision = self._candidacy.decide(
                    view, now, promised=self.epoch, end=self._end(), following=self.joined.leader
                )
                if isinstance(decision, Stand):
                    return decision
                if isinstance(decision, Follow) and followed != (decision.leader, decision.epoch):
                    scope.cancel()
                    followed, scope = (decision.leader, decision.epoch), trio.CancelScope()
                    nursery.start_soon(self._join, decision, scope)
                if isinstance(decision, Wait):
                    until = decision.until
                    if not self.joined.leader:
                        self.joined.say(decision.why)
                    if decision.vacant:
                        await self._announce(vacant=True)
                self._now(State.FOLLOWING if self.joined.leader else State.WAITING)
            with trio.move_on_at(max(until, now + _SHORTEST_WAIT)):
                if self._view is view:
                    await self._news.park()

    async def _join(self, leader: Follow, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await self.joined.follow(leader)
            except Parted as parted:
                intent = truncation.Intent(parted.end, self._end(), parted.epoch)
                log.warning("%s; %d bytes are cut off", parted, intent.end - intent.cut)
                truncation.intend(self._disk, self._store.config, intent)
                self._start_anew(str(parted))

    async def _announce(self, *, vacant: bool) -> None:
        """Say where we are; and, before an election, how far our log goes."""
        ground, known = self._ground, self._announced
        end = self._end() if vacant or known is None else known.end
        presence = Presence(ground.address, self.replica_address, end, self.epoch)
        if presence != known:
            try:
                await self._coordinator.announce(presence)
                self._announced = presence
            except CoordinatorAway as away:
                self._away(away)

    replica_address = ""
    """Where other replicas are told to join."""

    def _end(self) -> int:
        """Where the part of our log ends that is as safe as an acknowledgement has to be."""
        return self._store.flushed.value if self._store.config.is_sync_flush else self._store.appended.value

    # ---- leading

    async def _elected(self, stand: Stand) -> Stand | None:
        """Stand; with the new revision where it was won."""
        self._now(State.CAMPAIGNING)
        try:
            revision = await self._coordinator.elect(stand.state, stand.revision, over=stand.over)
        except CoordinatorAway as away:
            # It may have been won. Then the state names us, and we stand again, for the next epoch.
            self._away(away)
            await trio.sleep(_ASK_AGAIN_SECONDS)
            revision = 0
        if not revision:
            self._view = None
            with trio.move_on_after(1.0):
                while self._view is None:
                    try:
                        self._seen(await self._coordinator.read())
                    except CoordinatorAway as away:
                        self._away(away)
                        await trio.sleep(_ASK_AGAIN_SECONDS)
            return None
        return Stand(stand.state, revision, stand.over)

    async def _promote(self, epoch: int, in_sync: InSync, nursery: trio.Nursery) -> None:
        self._now(State.PROMOTING)
        ground, store = self._ground, self._store
        ground.replica.drop_rest()
        end = store.log.end
        if store.config.is_sync_flush:
            await store.flushed_to(end)
        in_sync.begin = end
        state = self.joined.state
        self.joined.state = replace(
            state, group=in_sync.state.group, promised=epoch, epochs=state.epochs.begun(epoch, end)
        )
        await offload(self._disk, lambda: ground.state_file.write(self.joined.state))
        self.elections += 1
        self.in_sync = in_sync
        log.warning(
            "elected to lead epoch %d from log offset %d on; in sync: %s", epoch, end, ", ".join(in_sync.state.insync)
        )
        self._port.leading = Leading(in_sync, self.joined.state.epochs, self._changed)
        nursery.start_soon(self._look_after_set)
        nursery.start_soon(self._confirm_own)
        self._changed()
        assert store.confirmed is not None
        try:
            await store.confirmed.reach(end)
        except Closed:
            return  # another one was elected meanwhile
        await self._stage.lead()
        self._now(State.LEADING)
        self._judge()

    def _changed(self) -> None:
        """A replica has come, said something, or gone; or our own log is safe up to a later place."""
        in_sync = self.in_sync
        assert in_sync is not None
        own = self._store.flushed if self._store.config.is_sync_flush else self._store.appended
        confirmed = in_sync.confirm(own.value)
        waits = self._own_waiter is not None and self._own_waiter.function is not None
        if not waits and in_sync.lacks_own(own.value):
            self._own_waiter = own.call_at(own.value + 1, self._own_growth.unpark_all)
        mark = self._store.confirmed
        assert mark is not None
        if confirmed > mark.value:
            self._ground.state_file.log_began(self.joined.state)
            self._store.confirm(confirmed, self._stage.settle)
        if in_sync.replaced:
            self._fence()

    async def _confirm_own(self) -> None:
        """Confirm as our own log grows where only that lacks: others may have it before our disk, or there are none."""
        while True:
            self._changed()
            await self._own_growth.park()

    async def _look_after_set(self) -> None:
        """Add who has caught up, remove who does not confirm, and keep the lease."""
        in_sync = self.in_sync
        assert in_sync is not None
        while not in_sync.replaced:
            proposal = None
            if self.state is not State.RESIGNING:
                seconds = self._config().in_sync_seconds
                proposal = in_sync.propose(self._end(), trio.current_time(), seconds)
            if proposal is not None:
                await self._propose(proposal)
            await self._keep_lease(in_sync)
            await self._announce(vacant=False)
            self._changed()
            self._judge()
            with trio.move_on_after(_LOOK_SECONDS):
                await self._news.park()
        self._fence()

    async def _propose(self, proposal: Proposal, *, release: bool = False) -> None:
        in_sync = self.in_sync
        assert in_sync is not None
        try:
            revision = await self._coordinator.replace(proposal.state, proposal.revision, release=release)
            self._answered_at = trio.current_time()
        except CoordinatorAway as away:
            in_sync.doubted()
            self._away(away)
            return
        if revision:
            in_sync.settled(revision)
            log.warning("in sync are %s: %s", ", ".join(in_sync.state.insync), proposal.why)
        else:
            in_sync.refused()
            try:
                self._seen(await self._coordinator.read())
            except CoordinatorAway as away:
                self._away(away)

    async def _keep_lease(self, in_sync: InSync) -> None:
        view = self._view
        if view is not None and not view.leased and view.revision == in_sync.revision and not self._trouble:
            try:
                if await self._coordinator.renew(in_sync.revision):
                    log.warning("took the lease of epoch %d again", in_sync.state.epoch)
                self._seen(await self._coordinator.read())
            except CoordinatorAway as away:
                self._away(away)

    def _judge(self) -> None:
        """Whether sends are taken."""
        in_sync = self.in_sync
        if in_sync is None or self.state is not State.LEADING:
            return
        now, config = trio.current_time(), self._config()
        stuck = [
            member
            for member in in_sync.counted
            if member != in_sync.me
            and ((known := in_sync.replicas.get(member)) is None or now - known.fresh_at >= config.in_sync_seconds)
        ]
        if in_sync.replaced:
            self._refuse("another replica leads now")
        elif not self.has_enough():
            self._refuse(
                f"{len(in_sync.state.insync)} replicas are in sync, and minInSyncReplicas is"
                f" {config.min_in_sync_replicas}"
            )
        elif stuck and self._trouble:
            self._refuse(f"{', '.join(stuck)} confirm nothing, and the coordinator does not answer")
        else:
            self._refuse("")

    def _refuse(self, why: str) -> None:
        if why != self._refused:
            self._refused = why
            log.warning("sends are refused: %s", why) if why else log.warning("sends are taken")
            self._stage.refuse_sends(why)

    def _fence(self) -> None:
        """Another replica leads: acknowledge nothing, feed none, and start again as its follower."""
        if self.state is not State.FENCED:
            self._start_anew("another replica leads")

    def _start_anew(self, why: str) -> None:
        self._now(State.FENCED)
        self._refuse(why)
        leading, self._port.leading = self._port.leading, None
        if leading is not None:
            leading.end()
        self._stage.start_anew(why)

    def _now(self, state: State) -> None:
        if state is not self.state and self.state is not State.FENCED:
            log.info("this replica is %s", state.value)
            self.state = state
