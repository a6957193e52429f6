"""What a leader knows of its replicas, and how far its log is confirmed. Pure: events and time in, decisions out.

*Confirmed* is the offset up to which every counted replica has the log, at this leader's epoch. A message is
acknowledged, and visible to consumers, once it is confirmed. Counted are the in-sync set as the coordinator has it, and
also:

- a replica to be added, from before it is proposed; so nothing is confirmed that a member possibly in the set lacks;
- a replica to be removed, until the coordinator has recorded it; so a member that may be elected has everything
confirmed;
- every proposed set whose outcome is unknown: the proposal may take effect at any time, until the state that it was to
  replace is known to be gone.

A replaced leader confirms nothing any more, because its set holds at least the elected replica, which acknowledges
nothing to a lower epoch. That needs no lease, no clock, and no message from the coordinator.

A member is added only if it has everything the leader had at its election: how much of that an earlier leader confirmed
is unknown.

Invariants, with L(m) the log of member m: confirmed <= L(m) for each m that the coordinator has or may get in the set;
confirmed never decreases; only what a member acknowledged at this epoch counts.

Java: store/ha/autoswitch/AutoSwitchHAService.java of 5.x, which by default waits for no slave
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rocketlet.failover.coordinator import GroupState

# A replica that lacks no more than this is counted from then on, so that it catches up; then it is proposed.
NEAR = 1 << 20
_RETRY_SECONDS = 1.0  # after a replica that was counted did not catch up


@dataclass(slots=True)
class Replica:
    """One replica as its leader sees it. `fresh_at`: when it last confirmed something, or lacked nothing."""

    acked: int = 0
    connected: bool = False
    fresh_at: float = 0.0
    address: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A state to replace that of `revision`. `reason` is for the log."""

    state: GroupState
    revision: int
    reason: str


class InSync:
    """One epoch of one leader."""

    def __init__(self, me: str, state: GroupState, revision: int, begin: int, now: float) -> None:
        """`state` is the one that made us leader, `begin` where our log ended then."""
        assert state.leader == me
        assert me in state.insync
        self.me = me
        self.state = state
        self.revision = revision
        self.begin = begin
        self.confirmed = 0
        self.replaced = False
        """Whether another leader was elected; nothing is confirmed any more."""
        self.replicas: dict[str, Replica] = {m: Replica(fresh_at=now) for m in state.insync if m != me}
        self._joining: dict[str, float] = {}  # counted, and not proposed yet; since when
        self._given_up: dict[str, float] = {}
        self._proposed: Proposal | None = None
        self._doubtful: list[Proposal] = []

    # ---- what replicas say

    def on_joined(self, member: str, address: str, now: float) -> None:
        """A replica has connected, and has promised to acknowledge nothing to a lower epoch."""
        replica = self.replicas.setdefault(member, Replica())
        replica.connected, replica.fresh_at, replica.address = True, now, address

    def on_left(self, member: str, now: float) -> None:
        """Its connection has closed."""
        replica = self.replicas[member]
        replica.connected, replica.fresh_at = False, min(replica.fresh_at, now)
        self._joining.pop(member, None)
        if member not in self.counted:
            del self.replicas[member]

    def on_acked(self, member: str, end: int, now: float) -> None:
        """It has the log up to that offset."""
        replica = self.replicas[member]
        if end > replica.acked:
            replica.acked, replica.fresh_at = end, now

    # ---- what follows

    @property
    def counted(self) -> set[str]:
        """Every member that is, or may be, in the set."""
        members = {*self.state.insync, *self._joining}
        for proposal in self._doubtful:
            members |= {*proposal.state.insync}
        if self._proposed is not None:
            members |= {*self._proposed.state.insync}
        return members

    def confirm(self, end: int) -> int:
        """The offset up to which the log is confirmed, if our own copy is safe up to `end`."""
        if not self.replaced:
            replicas = self.replicas
            for member in self.counted:
                if member != self.me:
                    replica = replicas.get(member)
                    end = min(end, replica.acked if replica is not None else 0)
            self.confirmed = max(self.confirmed, end)
        return self.confirmed

    def waits_for_own_copy(self, end: int) -> bool:
        """Whether more is confirmed as soon as our own copy, now safe up to `end`, is safe further."""
        if self.replaced or self.confirmed < end:
            return False
        others = (self.replicas.get(member) for member in self.counted if member != self.me)
        return all(replica is not None and replica.acked > end for replica in others)

    def propose(self, end: int, now: float, timeout: float) -> Proposal | None:
        """The set to propose, with our log ending at `end`; None if it may stay, or a proposal is pending."""
        for replica in self.replicas.values():
            if replica.connected and replica.acked >= end:
                replica.fresh_at = now
        if self.replaced or self._proposed is not None:
            return None
        self._update_joining(end, now, timeout)
        insync = self.state.insync
        stale = {m: r for m, r in self.replicas.items() if m in insync and now - r.fresh_at >= timeout}
        ready = [m for m in self._joining if self.replicas[m].acked >= self._required_end]
        if not stale and not ready:
            return None
        reasons = [f"{m} confirms nothing" if r.connected else f"{m} is away" for m, r in stale.items()]
        reasons += [f"{m} has caught up" for m in ready]
        members = tuple(m for m in insync if m not in stale) + tuple(ready)
        return self._make_proposal(members, ", ".join(reasons))

    def propose_set(self, insync: tuple[str, ...], reason: str) -> Proposal | None:
        """A set that an administrator asks for; None while another is proposed."""
        if self.replaced or self._proposed is not None:
            return None
        return self._make_proposal(insync, reason)

    def resign(self, heir: str) -> Proposal | None:
        """Have another replica elected; None while a set is proposed."""
        if self.replaced or self._proposed is not None:
            return None
        state = msgspec.structs.replace(self.state, resigned=True, heir=heir)
        self._proposed = Proposal(state, self.revision, f"{self.me} resigns")
        return self._proposed

    @property
    def _required_end(self) -> int:
        """What a member must have to be added: everything confirmed and, because any of it may have been confirmed in
        an earlier epoch, everything our log had when we were elected."""
        return max(self.confirmed, self.begin)

    def _update_joining(self, end: int, now: float, timeout: float) -> None:
        for member, since in list(self._joining.items()):
            if now - since >= timeout and self.replicas[member].acked < self._required_end:
                del self._joining[member]
                self._given_up[member] = now
        for member, replica in self.replicas.items():
            if (
                replica.connected
                and member not in self.state.insync
                and member not in self._joining
                and end - replica.acked <= NEAR
                and now - self._given_up.get(member, -_RETRY_SECONDS) >= _RETRY_SECONDS
            ):
                self._joining[member] = now

    def _make_proposal(self, insync: tuple[str, ...], reason: str) -> Proposal:
        state = msgspec.structs.replace(self.state, insync=insync)
        self._proposed = Proposal(state, self.revision, reason)
        return self._proposed

    # ---- what the coordinator says

    def on_accepted(self, revision: int) -> None:
        """The proposal has taken effect, with that revision."""
        proposal, self._proposed = self._proposed, None
        assert proposal is not None
        self._adopt(proposal.state, revision)

    def on_doubt(self) -> None:
        """The outcome of the proposal is unknown. It may have taken effect, or may yet."""
        proposal, self._proposed = self._proposed, None
        assert proposal is not None
        self._doubtful.append(proposal)

    def on_refused(self) -> None:
        """The state had another revision: the current one has to be read (`learn`)."""
        self._proposed = None

    def learn(self, state: GroupState, revision: int) -> None:
        """The coordinator's state, at this or an earlier moment."""
        if revision <= self.revision:
            return
        if state.epoch != self.state.epoch or state.leader != self.me:
            self.replaced = True
        else:
            self._adopt(state, revision)

    def _adopt(self, state: GroupState, revision: int) -> None:
        if revision <= self.revision:
            return  # learned already
        self.state, self.revision = state, revision
        self._doubtful = [proposal for proposal in self._doubtful if proposal.revision >= revision]
        for member in state.insync:
            self._joining.pop(member, None)
        for member in [m for m, replica in self.replicas.items() if not replica.connected and m not in self.counted]:
            del self.replicas[member]

    def __repr__(self) -> str:
        acked = ", ".join(f"{m} {replica.acked}" for m, replica in self.replicas.items())
        return f"<InSync epoch {self.state.epoch}, {'+'.join(self.state.insync)}, confirmed {self.confirmed}; {acked}>"
