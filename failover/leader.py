"""One epoch of leading: confirm what every counted replica has, maintain set and lease, refuse sends when necessary.

If something is not confirmed within `inSyncTimeout` while the coordinator is unreachable, so that no replica can be
removed from the in-sync set, sends are refused until it is: clients then try elsewhere instead of waiting for timeouts.

Java: broker/controller/ReplicasManager.java (the master's part) of 5.x
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from rocketlet.failover.config import FailoverConfig
from rocketlet.failover.coordinator import CoordinatorAway
from rocketlet.failover.follow import EpochFollower, ReplicaParts
from rocketlet.failover.in_sync import InSync, Proposal
from rocketlet.failover.outlook import Outlook
from rocketlet.store.errors import Closed
from rocketlet.store.watermark import Waiter, Watermark

log = logging.getLogger("rocketlet.failover.leader")

_CHECK_SECONDS = 0.2  # how often it looks whether the set should change
_RESIGN_SECONDS = 5.0
_SHORTEST_WAIT = 0.01
_ROUNDS_BEFORE_FILING = 3  # in one answers are written, in one connections wait to read again, in one they do


class NotNow(Exception):
    """An administrator's request cannot be carried out; the text says why."""


def own_mark(parts: ReplicaParts) -> Watermark:
    """The offset up to which our log is as safe as an acknowledgement requires."""
    store = parts.store
    return store.flushed if store.config.is_sync_flush else store.appended


def _file_later() -> None:
    """Filing follows the answers; see `Leader.file`."""


class Leader:
    """See the module. `in_sync` decides what is confirmed; this acts on it."""

    def __init__(
        self,
        parts: ReplicaParts,
        follower: EpochFollower,
        outlook: Outlook,
        in_sync: InSync,
        config: Callable[[], FailoverConfig],
        announce: Callable[[], Awaitable[None]],
        refuse: Callable[[str], None],
        fence: Callable[[], None],
    ) -> None:
        """`announce` announces this replica; `refuse` makes sends be refused with a text, or accepted if it is empty;
        `fence` is called when another replica leads."""
        self.in_sync = in_sync
        self.serves = False
        """Whether it takes sends, if enough replicas are in sync: from the end of its promotion until it resigns."""
        self._parts = parts
        self._follower = follower
        self._store = parts.store
        self._outlook = outlook
        self._config = config
        self._announce = announce
        self._refuse = refuse
        self._fence = fence
        self._is_resigning = False
        self._own_mark = own_mark(parts)
        self._own_growth = trio.lowlevel.ParkingLot()
        self._unfiled = trio.lowlevel.ParkingLot()
        self._own_waiter: Waiter | None = None

    def has_enough(self) -> bool:
        """Whether so many replicas are in sync that sends are taken."""
        return len(self.in_sync.state.insync) >= self._config().min_in_sync_replicas

    def is_sure(self) -> bool:
        """Whether this is known to be the leader: the coordinator, or every counted replica, has just confirmed it."""
        in_sync = self.in_sync
        if in_sync.replaced:
            return False
        if self._outlook.answered_within(self._config().lease_seconds):
            return True
        others = [in_sync.replicas.get(member) for member in in_sync.counted if member != in_sync.me]
        return all(replica is not None and replica.connected for replica in others)

    # ---- the tasks

    async def confirm_own(self) -> None:
        """Confirm as our own log grows, if only that is missing: others may have it before our disk, or there are
        none."""
        while True:
            self.changed()
            await self._own_growth.park()

    async def file(self) -> None:
        """File what is confirmed, after those who waited for it have been answered, and after what they had sent
        meanwhile has gone to the replicas: all of them are at work while this one files."""
        while True:
            self._parts.settle()
            self._store.log.make_room_ahead()
            await self._unfiled.park()
            for _ in range(_ROUNDS_BEFORE_FILING):
                await trio.lowlevel.checkpoint()

    def changed(self) -> None:
        """A replica has joined, reported or left; or more of our own log is safe."""
        in_sync, own = self.in_sync, self._own_mark
        confirmed = in_sync.confirm(own.value)
        waits = self._own_waiter is not None and self._own_waiter.function is not None
        if not waits and in_sync.waits_for_own_copy(own.value):
            self._own_waiter = own.call_at(own.value + 1, self._own_growth.unpark_all)
        mark = self._store.confirmed
        assert mark is not None
        if confirmed > mark.value:
            self._parts.state_file.mark_log_begun(self._follower.state)
            self._store.confirm(confirmed, _file_later)
            self._unfiled.unpark_all()
        if in_sync.replaced:
            self._fence()

    async def maintain_set(self) -> None:
        """Add replicas that have caught up, remove those that do not confirm, and keep the lease, until another one
        leads."""
        in_sync = self.in_sync
        while not in_sync.replaced:
            proposal = None
            if not self._is_resigning:
                proposal = in_sync.propose(self._own_mark.value, trio.current_time(), self._config().in_sync_seconds)
            if proposal is not None:
                await self._propose(proposal)
            await self._keep_lease()
            await self._announce()
            self.changed()
            self.update_refusal()
            with trio.move_on_after(_CHECK_SECONDS):
                await self._outlook.changes.park()
        self._fence()

    async def _propose(self, proposal: Proposal, *, release: bool = False) -> None:
        in_sync, outlook = self.in_sync, self._outlook
        try:
            revision = await outlook.coordinator.replace(proposal.state, proposal.revision, release=release)
            outlook.note_answer()
        except CoordinatorAway as error:
            in_sync.on_doubt()
            outlook.note_away(error)
            return
        if revision:
            in_sync.on_accepted(revision)
            log.warning("in sync are %s: %s", ", ".join(in_sync.state.insync), proposal.reason)
        else:
            in_sync.on_refused()
            await outlook.refresh()

    async def _keep_lease(self) -> None:
        in_sync, outlook = self.in_sync, self._outlook
        view = outlook.view
        if view is None or view.leased or view.revision != in_sync.revision or outlook.trouble:
            return
        try:
            if await outlook.coordinator.renew(in_sync.revision):
                log.warning("took the lease of epoch %d again", in_sync.state.epoch)
        except CoordinatorAway as error:
            outlook.note_away(error)
            return
        await outlook.refresh()

    def update_refusal(self) -> None:
        """Decide whether sends are accepted."""
        if not self.serves:
            return
        in_sync, now, config = self.in_sync, trio.current_time(), self._config()
        silent = [
            member
            for member in in_sync.counted
            if member != in_sync.me
            and ((replica := in_sync.replicas.get(member)) is None or now - replica.fresh_at >= config.in_sync_seconds)
        ]
        if in_sync.replaced:
            self._refuse("another replica leads now")
        elif not self.has_enough():
            self._refuse(
                f"{len(in_sync.state.insync)} replicas are in sync, and minInSyncReplicas is"
                f" {config.min_in_sync_replicas}"
            )
        elif silent and self._outlook.trouble:
            self._refuse(f"{', '.join(silent)} confirm nothing, and the coordinator does not answer")
        else:
            self._refuse("")

    # ---- what people ask

    async def resign(self, heir: str) -> None:
        """Refuse sends, get everything confirmed, and give up leadership. Raises NotNow.

        `heir`: who is to lead, a `replicaId` or a member; empty: any that is in sync.
        """
        in_sync = self.in_sync
        others = [member for member in in_sync.state.insync if member != in_sync.me]
        heirs = [member for member in others if heir in (member, member.partition("/")[0])]
        if heir and not heirs:
            raise NotNow(f"replica {heir} is not in sync; in sync are {', '.join(others) or 'no others'}")
        if not others:
            raise NotNow("no other replica is in sync, so nobody could lead")
        self.serves, self._is_resigning = False, True
        self._refuse("this replica hands over to another one")
        try:
            await self._hand_over(heirs[0] if heir else "")
        except NotNow:
            self._is_resigning = False
            if not in_sync.replaced:
                self.serves = True
                self._refuse("")
            raise
        in_sync.replaced = True

    async def _hand_over(self, heir: str) -> None:
        in_sync = self.in_sync
        self._parts.settle()
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
            trouble = self._outlook.trouble or "the state has changed"
            raise NotNow(f"the coordinator did not take it ({trouble}); try again")

    async def change_set(self, replica: str, *, add: bool) -> None:
        """Remove from the in-sync set, at an administrator's request; or say why nobody is added this way. Raises
        NotNow."""
        in_sync = self.in_sync
        insync = in_sync.state.insync
        matches = [m for m in (*insync, *in_sync.replicas) if replica in (m, m.partition("/")[0])]
        if not matches:
            raise NotNow(f"no replica {replica} is known here")
        member = matches[0]
        if member == in_sync.me or (member in insync) is add:
            raise NotNow(f"{member} is the leader" if member == in_sync.me else f"{member} is there already")
        if add:
            raise NotNow(f"{member} is added by itself once it has caught up; it has {in_sync.replicas[member].acked}")
        proposal = in_sync.propose_set(tuple(m for m in insync if m != member), f"a person removes {member}")
        if proposal is None:
            raise NotNow("the set is being changed already; try again")
        await self._propose(proposal)
        if member in in_sync.state.insync:
            trouble = self._outlook.trouble or "the state has changed"
            raise NotNow(f"the coordinator did not take it: {trouble}; try again")
