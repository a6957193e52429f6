"""What a group needs from a coordinator, which is never our own: who leads, and who is in sync.

A group is the brokers of one `brokerName`. The coordinator keeps for it

- the *state*: one value (the epoch, its leader, the in-sync set), replaced by compare-and-set only;
- the *lease* of the leader, which expires once the leader has been silent for the lease time;
- the *presence* of each live replica: its address and the end of its log; it expires likewise.

The lease decides when to elect, and nothing else: no acknowledgement depends on it or on a clock. Correctness depends
on the state being replaced one step at a time (`failover/in_sync.py`).

Java: controller/impl/manager/ReplicasInfoManager.java of 5.x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from rocketlet.common.errors import RocketletError


class CoordinatorAway(RocketletError):
    """The coordinator does not answer. Whether it has carried out the request is unknown."""


class GroupState(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What the replicas have agreed on. Members are named by `replicaId`/store id: a wiped disk is a new member.

    `group` is created by the first election; a store of another group never joins. `heir` is the member to be elected
    next, `""` for any, once a leader has `resigned`.
    """

    group: str = ""
    epoch: int = 0
    leader: str = ""
    insync: tuple[str, ...] = ()
    resigned: bool = False
    heir: str = ""


class Presence(msgspec.Struct, frozen=True):
    """One live replica: its address for clients, its port for replicas, the end of its log."""

    address: str = ""
    replica_address: str = ""
    end: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """The coordinator's view at one moment. `revision` 0: there is no state."""

    state: GroupState = field(default_factory=GroupState)
    revision: int = 0
    leased: bool = False
    members: Mapping[str, Presence] = field(default_factory=dict)


class Coordinator(Protocol):
    """One replica's session. `run` has to be running to keep its leases alive."""

    async def read(self) -> View:
        """The state as it is now. Raises CoordinatorAway."""

    async def change(self, seen: View) -> None:
        """Return when something may differ from the last view, or after a while. Raises CoordinatorAway."""

    async def announce(self, presence: Presence) -> None:
        """Announce this replica, for as long as it lives. Raises CoordinatorAway."""

    async def elect(self, state: GroupState, revision: int, *, over: bool) -> int:
        """Replace the state of that revision and take the leader's lease, which must be free unless `over` takes it
        from its holder. Returns the new revision; 0 if another replica was faster. Raises
        CoordinatorAway."""

    async def replace(self, state: GroupState, revision: int, *, release: bool = False) -> int:
        """Replace the state of that revision; with `release` also give up the leader's lease. Returns the new revision;
        0 if another replica was faster. Raises CoordinatorAway."""

    async def renew(self, revision: int) -> bool:
        """Take the leader's lease again, if it is free and the state still has that revision. Raises
        CoordinatorAway."""

    async def run(self) -> None:
        """Keep the leases alive, until cancelled."""

    async def aclose(self) -> None:
        """Close its connections. The leases expire on their own."""


def replica_of(member: str) -> int:
    """The `replicaId` of a member; 0 if it has none."""
    number = member.partition("/")[0]
    return int(number) if number.isdecimal() else 0
