"""Which clients produce in which group, so that the broker can send requests to one of them.

Needed for two things only: to ask a live producer of a group about a transaction, and to hand a reply to the client
that waits for it. A producer leaves by saying so, with its connection, or after 120 s of silence. Pure.

Java: broker/client/ProducerManager.java
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketlet.broker.consumer_groups import EXPIRY_MS, MAX_GROUPS_OF_CONNECTION, Member, RegistryFull

if TYPE_CHECKING:
    from rocketlet.remoting.connection import Connection


@dataclass(frozen=True, slots=True)
class ProducerGroupsStatistics:
    groups: int
    members: int


class ProducerGroups:
    """All producer groups of one broker: group -> connection -> member."""

    def __init__(self, expiry_ms: int = EXPIRY_MS) -> None:
        self._expiry = expiry_ms
        self._groups: dict[str, dict[Connection, Member]] = {}
        self._clients: dict[str, dict[Connection, Member]] = {}
        self._of_connection: dict[Connection, set[str]] = {}

    def register(self, group: str, member: Member) -> None:
        """Raises RegistryFull."""
        names = self._of_connection.get(member.connection, ())
        if group not in names and len(names) >= MAX_GROUPS_OF_CONNECTION:
            raise RegistryFull(f"one connection is in {len(names)} groups, which is the limit")
        self._groups.setdefault(group, {})[member.connection] = member
        self._clients.setdefault(member.client_id, {})[member.connection] = member
        self._of_connection.setdefault(member.connection, set()).add(group)

    def unregister(self, group: str, connection: Connection) -> bool:
        members = self._groups.get(group)
        if members is None or connection not in members:
            return False
        member = members.pop(connection)
        if not members:
            del self._groups[group]
        groups = self._of_connection[connection]
        groups.discard(group)
        if not groups:
            del self._of_connection[connection]
            self._forget_client(member)
        return True

    def connection_closed(self, connection: Connection) -> None:
        for group in sorted(self._of_connection.get(connection, ())):
            self.unregister(group, connection)

    def expired(self, now: int) -> list[Member]:
        """Members that have been silent for too long; the caller closes their connections, which takes them out."""
        return [
            member
            for members in self._groups.values()
            for member in members.values()
            if now - member.seen > self._expiry
        ]

    def members(self, group: str) -> list[Member]:
        return list(self._groups.get(group, {}).values())

    def client(self, client_id: str) -> Member | None:
        """The youngest connection of a client, whatever groups it produces in."""
        members = self._clients.get(client_id)
        return next(reversed(members.values())) if members else None

    def all(self) -> Mapping[str, Mapping[Connection, Member]]:
        return self._groups

    def statistics(self) -> ProducerGroupsStatistics:
        return ProducerGroupsStatistics(len(self._groups), sum(map(len, self._groups.values())))

    def _forget_client(self, member: Member) -> None:
        connections = self._clients.get(member.client_id, {})
        connections.pop(member.connection, None)
        if not connections:
            self._clients.pop(member.client_id, None)
