"""Which clients produce in which group, so that the broker can send requests to one of them.

Needed for two things only: to check a transaction with a live producer of its group, and to push a reply to the waiting
client. A producer leaves by unregistering, with its connection, or after 120 s of silence. Pure.

Invariant: what heartbeats can make us keep is MAX_SIZE.

Java: broker/client/ProducerManager.java
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketlet.broker.consumer_groups import EXPIRY_MS, Member, RegistryFull

if TYPE_CHECKING:
    from rocketlet.remoting.connection import Connection


MAX_GROUPS_OF_CONNECTION = 1_000
MAX_SIZE = 64 << 20
"""Bytes, about: a producer in one group takes 400, so it is for 150,000 of them."""
_HELD_BY_EACH = 300


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
        self._size = 0

    def register(self, group: str, member: Member) -> None:
        """Raises RegistryFull."""
        names = self._of_connection.get(member.connection, ())
        if group not in names:
            if len(names) >= MAX_GROUPS_OF_CONNECTION:
                raise RegistryFull(f"one connection is in {len(names)} groups, which is the limit")
            if self._size > MAX_SIZE:
                raise RegistryFull(f"the groups of all producers take {self._size} bytes; {MAX_SIZE} is the limit")
            self._size += _size_of(group)
        self._groups.setdefault(group, {})[member.connection] = member
        self._clients.setdefault(member.client_id, {})[member.connection] = member
        self._of_connection.setdefault(member.connection, set()).add(group)

    def unregister(self, group: str, connection: Connection) -> bool:
        members = self._groups.get(group)
        if members is None or connection not in members:
            return False
        member = members.pop(connection)
        self._size -= _size_of(group)
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
        """Members that have been silent for too long; the caller closes their connections, which removes them."""
        return [
            member
            for members in self._groups.values()
            for member in members.values()
            if now - member.seen > self._expiry
        ]

    def members(self, group: str) -> list[Member]:
        return list(self._groups.get(group, {}).values())

    def client(self, client_id: str) -> Member | None:
        """The newest connection of a client, whatever groups it produces in."""
        members = self._clients.get(client_id)
        return next(reversed(members.values())) if members else None

    def all(self) -> Mapping[str, Mapping[Connection, Member]]:
        return self._groups

    def statistics(self) -> ProducerGroupsStatistics:
        return ProducerGroupsStatistics(len(self._groups), sum(map(len, self._groups.values())))

    def __repr__(self) -> str:
        numbers = self.statistics()
        return f"<ProducerGroups: {numbers.members} members in {numbers.groups} groups, {self._size} bytes>"

    def _forget_client(self, member: Member) -> None:
        connections = self._clients.get(member.client_id, {})
        connections.pop(member.connection, None)
        if not connections:
            self._clients.pop(member.client_id, None)


def _size_of(group: str) -> int:
    return _HELD_BY_EACH + len(group)
