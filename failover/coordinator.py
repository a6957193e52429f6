"""What the group asks of a coordinator, which is never ours to write: who leads, and who is in sync.

A group is the brokers of one `brokerName`. The coordinator keeps for it

- the *state*: one value, replaced only by who has seen the present one: the epoch, its leader, the in-sync set;
- the *lease* of the leader: gone once the leader has not been heard of for the lease time;
- the *presence* of each replica that lives: where it is and how far its log goes; gone likewise.

The lease says when to elect, and nothing else: no acknowledgement depends on it, nor on a clock. Everything that must
be true depends on the state being replaced one step at a time (`failover/in_sync.py`).

Java: controller/impl/manager/ReplicasInfoManager.java of 5.x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from rocketlet.common.errors import RocketletError


class CoordinatorAway(RocketletError):
    """The coordinator does not answer. Whether it has done what it was asked to is not known."""


class GroupState(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What the replicas have agreed on. Members are named by `replicaId`/store id: a wiped disk is a new member.

    `group` comes into being with the first election; a store of another group never joins. `heir` is who is to be
    elected next, `""` for anyone, while a leader has `resigned`.
    """

    group: str = ""
    epoch: int = 0
    leader: str = ""
    insync: tuple[str, ...] = ()
    resigned: bool = False
    heir: str = ""


class Presence(msgspec.Struct, frozen=True):
    """One replica that lives: its address for clients, its port for replicas, where its log ends."""

    address: str = ""
    replica_address: str = ""
    end: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """What the coordinator knew at one moment. `revision` 0: there is no state."""

    state: GroupState = field(default_factory=GroupState)
    revision: int = 0
    leased: bool = False
    members: Mapping[str, Presence] = field(default_factory=dict)


class Coordinator(Protocol):
    """One replica's session. `run` has to run for its leases to live."""

    async def read(self) -> View:
        """The state as it is now. Raises CoordinatorAway."""

    async def change(self, seen: View) -> None:
        """Return when something may differ from what was seen, or after a while. Raises CoordinatorAway."""

    async def announce(self, presence: Presence) -> None:
        """Say where this replica is, for as long as it lives. Raises CoordinatorAway."""

    async def elect(self, state: GroupState, revision: int, *, over: bool) -> int:
        """Replace the state of that revision and take the leader's lease, which must be free; unless `over`, with
        which its holder loses it. The new revision; 0 where another replica was faster. Raises
        CoordinatorAway."""

    async def replace(self, state: GroupState, revision: int, *, release: bool = False) -> int:
        """Replace the state of that revision; with `release` give the leader's lease back too. The new revision; 0
        where another replica was faster. Raises CoordinatorAway."""

    async def renew(self, revision: int) -> bool:
        """Take the leader's lease again, if it is free and the state is still of that revision. Raises
        CoordinatorAway."""

    async def run(self) -> None:
        """Keep the leases alive, until cancelled."""

    async def aclose(self) -> None:
        """Close its connections. The leases end by themselves."""


def replica_of(member: str) -> int:
    """The `replicaId` of a member; 0 where it says none."""
    number = member.partition("/")[0]
    return int(number) if number.isdecimal() else 0
