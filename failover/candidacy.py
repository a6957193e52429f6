"""What a replica that does not lead does next: wait, follow, or stand for election. Pure.

Only a member of the in-sync set may be elected, because only it has everything that was acknowledged. Among several,
the one with the longest log stands first, so that the least is cut elsewhere; the others stand later, in case it has
died. A replica that still hears from a leader whose lease has expired (the leader has lost the coordinator, but not us)
waits one lease longer.

The first election of a group may be won by any replica, so all of them announce the end of their logs and the longest
wins. A coordinator that has forgotten a group, or remembers an older epoch than a replica does, has lost its data: then
it is unknown which replica has everything, and an administrator has to decide (`mqadmin addInSync`).

Java: controller/elect/impl/DefaultElectPolicy.java of 5.x
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.failover.coordinator import GroupState, Presence, View, replica_of

ENDS_AWAITED_SECONDS = 0.3  # until the others have announced the ends of their logs
FIRST_SECONDS = 1.0  # the same before the first election ever, since the brokers of a group are started one by one
NEXT_SECONDS = 0.7  # between replicas that cannot know which of them has the longest log


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until something changes, or until that time."""

    until: float
    reason: str = ""
    vacant: bool = False  # announce the end of our log: an election is due


@dataclass(frozen=True, slots=True)
class Follow:
    """Join that leader."""

    leader: str
    address: str
    replica_address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Stand:
    """Have the coordinator replace the state of that revision with this one. `over`: the lease is our own, from
    before."""

    state: GroupState
    revision: int
    over: bool


Decision = Wait | Follow | Stand
_IDLE_SECONDS = 3600.0


class Candidacy:
    """One replica's view of elections. `promised` is the newest epoch that it has taken part in."""

    def __init__(self, me: str, lease_seconds: float, group: str) -> None:
        """`group` is the id of the group, if this replica creates it."""
        self.me = me
        self._group = group
        self._lease_seconds = lease_seconds
        self._vacant_since: float | None = None
        self._vacant_revision = -1

    def decide(self, view: View, now: float, *, promised: int, end: int, following: str) -> Decision:
        """`end` is our log's, `following` the leader from which we hear right now."""
        state = view.state
        if view.revision == 0 and promised:
            return Wait(
                now + _IDLE_SECONDS,
                f"the coordinator knows nothing of this group, but this replica is of epoch {promised}",
            )
        if state.epoch < promised:
            return Wait(
                now + _IDLE_SECONDS, f"the coordinator is at epoch {state.epoch} and this replica at {promised}"
            )
        if view.revision == 0:
            return self._stand_in_turn(view, now, end, FIRST_SECONDS, set(view.members))
        if self.me == state.leader and self.me in state.insync and not state.resigned:
            return self._stand(view, promised, over=True)  # we were the leader, until this process started
        vacant = not view.leased or state.resigned
        if not vacant:
            self._vacant_since = None
        elif self.me in state.insync:
            delay = ENDS_AWAITED_SECONDS
            if state.resigned:
                if state.heir == self.me:
                    return self._stand(view, promised, over=True)
                delay = self._lease_seconds if state.heir or self.me == state.leader else 0.0
            elif following and following == state.leader:
                delay += self._lease_seconds
            rivals = {m for m in state.insync if m in view.members and not (state.resigned and m == state.leader)}
            return self._stand_in_turn(view, now, end, delay, rivals, promised)
        leader = view.members.get(state.leader)
        if leader is None or state.leader == self.me:
            return Wait(now + _IDLE_SECONDS, "the leader is away, and this replica is not in sync", vacant)
        return Follow(state.leader, leader.address, leader.replica_address, state.epoch)

    def _stand_in_turn(
        self, view: View, now: float, end: int, delay: float, rivals: set[str], promised: int = 0
    ) -> Decision:
        if self._vacant_since is None or self._vacant_revision != view.revision:
            self._vacant_since, self._vacant_revision = now, view.revision
        due = self._vacant_since + delay
        if not self._is_furthest(view, end, rivals):
            order = sorted(rivals | {self.me}, key=replica_of)
            due += NEXT_SECONDS * (1 + order.index(self.me))
        if now < due:
            return Wait(due, "the leader is to be elected", vacant=True)
        return self._stand(view, promised)

    def _is_furthest(self, view: View, end: int, rivals: set[str]) -> bool:
        absent = Presence()
        return all(
            (view.members.get(rival, absent).end, -replica_of(rival)) < (end, -replica_of(self.me))
            for rival in rivals
            if rival != self.me
        )

    def _stand(self, view: View, promised: int, *, over: bool = False) -> Stand:
        previous = view.state
        others = (m for m in previous.insync if m not in (self.me, previous.leader) and m in view.members)
        epoch = max(previous.epoch, promised) + 1
        state = GroupState(previous.group or self._group, epoch, self.me, (self.me, *others))
        return Stand(state, view.revision, over or previous.resigned)
