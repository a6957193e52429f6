"""Which clients consume in which group, and what the group subscribes to.

A member is a connection with the client id from its heartbeat. Heartbeats come every 30 s; a member leaves by
unregistering, with its connection, or after 120 s of silence. The subscription of a group is that of the latest
heartbeat of any member: this is the protocol's rule, and the reason why members with different subscriptions lose
messages to each other. Each new difference is therefore logged once, as a warning with names; of a large group the
newest members are compared. Pure: the time and the connections are arguments.

Invariants: a group without members does not exist; a client id is listed once, however many connections it has.

Java: broker/client/ConsumerManager.java, ConsumerGroupInfo.java
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from rocketlet.broker.filter.message_filter import MessageFilter, by_tags
from rocketlet.common.errors import RocketletError
from rocketlet.common.subscription import Subscription

if TYPE_CHECKING:
    from rocketlet.remoting.connection import Connection

log = logging.getLogger("rocketlet.broker.consumer_groups")

Key = TypeVar("Key")

EXPIRY_MS = 120_000
# Bounds on what heartbeats can make us hold: groups per connection, and the text of all subscriptions. A consumer of a
# hundred topics sends 5 KB, so this suffices for 10,000 such consumers.
MAX_GROUPS_OF_CONNECTION = 500
MAX_SIZE = 64 << 20
# Members of a group whose subscriptions are compared, how many different ones, and the topics that are named: 6,000 log
# lines took 40 ms.
MAX_COMPARED, MAX_KINDS, MAX_NAMED = 100, 8, 100
BROADCASTING, CLUSTERING = "BROADCASTING", "CLUSTERING"


@dataclass(slots=True, eq=False)
class Member:
    """One client on one connection."""

    connection: Connection
    client_id: str
    language: str
    version: int
    seen: int  # by a monotonic clock
    # This member's own last subscriptions, for comparison with others of the group: topic -> expression.
    subscribed: Mapping[str, str] = field(default_factory=dict)
    kind: int = 0  # a hash of that
    seen_at: int = 0  # by the wall clock, for display
    size: int = 0  # its share of MAX_SIZE


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """Members by connection, and the group's state from the latest heartbeat."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    tag_filters: dict[str, MessageFilter] = field(default_factory=dict)
    """Of each subscription by its topic, as if it were one of tags: made once, not at every pull."""
    warned: frozenset[str] = frozenset()
    kinds: Counter[int] = field(default_factory=Counter)
    """How many members subscribe what, by `Member.kind`."""
    connections: Counter[str] = field(default_factory=Counter)
    """How many members each client is, by its id."""

    @property
    def broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Each client once: duplicates would skew the allocation of queues while a client reconnects."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def member(self, client_id: str) -> Member | None:
        """The newest connection of a client."""
        newest = None
        for member in self.members.values():
            if member.client_id == client_id:
                newest = member
        return newest

    def add(self, member: Member) -> None:
        """A member more, or instead of the one that its connection was, in its place."""
        present = self.members.get(member.connection)
        if present is not None:
            self._discount(present)
        self.kinds[member.kind] += 1
        self.connections[member.client_id] += 1
        self.members[member.connection] = member

    def remove(self, connection: Connection) -> Member | None:
        """The member that leaves; None if the connection is none."""
        member = self.members.pop(connection, None)
        if member is not None:
            self._discount(member)
        return member

    def _discount(self, member: Member) -> None:
        _count_down(self.kinds, member.kind)
        _count_down(self.connections, member.client_id)

    def replace_subscriptions(self, latest: Sequence[Subscription]) -> bool:
        """Apply a heartbeat's subscriptions. True if a topic was added or removed, not for a newer version only."""
        changed = False
        for new in latest:
            old = self.subscriptions.get(new.topic)
            if old is None:
                changed = True
            if old is None or new.version > old.version:
                self.subscriptions[new.topic] = new
                self.tag_filters[new.topic] = by_tags(new)
        removed = self.subscriptions.keys() - {new.topic for new in latest}
        for topic in removed:
            del self.subscriptions[topic], self.tag_filters[topic]
        return changed or bool(removed)

    def differences(self) -> list[str]:
        """Each of the first topics on which members disagree, as a line with their expressions; empty if they agree."""
        if len(self.kinds) < 2:
            return []
        latest: dict[str, Member] = {}
        for member in islice(reversed(self.members.values()), MAX_COMPARED):
            latest.setdefault(member.client_id, member)
        kinds: dict[int, tuple[Mapping[str, str], list[str]]] = {}
        for member in latest.values():
            if member.kind in kinds or len(kinds) < MAX_KINDS:
                kinds.setdefault(member.kind, (member.subscribed, []))[1].append(member.client_id)
        if len(kinds) < 2:
            return []
        lines: list[str] = []
        for topic in sorted({topic for subscribed, _ in kinds.values() for topic in subscribed}):
            if len(lines) == MAX_NAMED:
                break
            clients_by_subscription: dict[str | None, list[str]] = {}
            for subscribed, clients in kinds.values():
                clients_by_subscription.setdefault(subscribed.get(topic), []).extend(clients)
            if len(clients_by_subscription) > 1:
                lines.append(
                    f"topic {topic}: " + "; ".join(_expression_of(*item) for item in clients_by_subscription.items())
                )
        return lines


def _count_down(counter: Counter[Key], key: Key) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _expression_of(expression: str | None, clients: list[str]) -> str:
    named = ", ".join(sorted(clients)[:3]) + (f" and {len(clients) - 3} more" if len(clients) > 3 else "")
    return f"{named}: {'not at all' if expression is None else repr(expression)}"


@dataclass(frozen=True, slots=True)
class Consuming:
    """One consumer group in a heartbeat."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: Sequence[Subscription]


@dataclass(frozen=True, slots=True)
class ConsumerGroupsStatistics:
    groups: int
    members: int


class RegistryFull(RocketletError):
    """A heartbeat exceeds the limit of a connection, or of all; nothing of it was applied."""


class ConsumerGroups:
    """All consumer groups of one broker."""

    def __init__(self, expiry_ms: int = EXPIRY_MS) -> None:
        self._expiry = expiry_ms
        self._groups: dict[str, ConsumerGroup] = {}
        self.get: Callable[[str], ConsumerGroup | None] = self._groups.get
        self._of_connection: dict[Connection, set[str]] = {}
        self._size = 0

    def register(self, member: Member, consuming: Consuming) -> bool:
        """Register one group of a heartbeat. True if the group has to be notified (a new member or topic).

        Raises RegistryFull.
        """
        self._make_room(member, consuming)
        group = self._groups.get(consuming.group)
        if group is None:
            group = self._groups[consuming.group] = ConsumerGroup(consuming.group)
            log.info("consumer group %s: %s is its first member", group.name, member.client_id)
        group.consume_type = consuming.consume_type
        group.message_model = consuming.message_model
        group.consume_from_where = consuming.consume_from_where
        present = group.members.get(member.connection)
        joined = present is None or present.client_id != member.client_id
        if joined and present is None and len(group.members) >= 1:
            log.info("consumer group %s: %s joined", group.name, member.client_id)
        member.subscribed = {
            s.topic: s.expression if s.expression_type == "TAG" else f"{s.expression_type} {s.expression}"
            for s in consuming.subscriptions
        }
        member.kind = hash(frozenset(member.subscribed.items()))
        group.add(member)
        self._of_connection.setdefault(member.connection, set()).add(group.name)
        changed = group.replace_subscriptions(consuming.subscriptions)
        if joined or present is None or present.kind != member.kind:
            self._warn_of_differences(group)
        return joined or changed

    def unregister(self, name: str, connection: Connection) -> bool:
        """Remove a member. True if it was one."""
        group = self._groups.get(name)
        if group is None:
            return False
        member = group.remove(connection)
        if member is None:
            return False
        self._size -= member.size
        group.warned = frozenset()
        log.info("consumer group %s: %s left", name, member.client_id)
        groups = self._of_connection[connection]
        groups.discard(name)
        if not groups:
            del self._of_connection[connection]
        if not group.members:
            del self._groups[name]
        return True

    def connection_closed(self, connection: Connection) -> list[tuple[str, str]]:
        """Remove a connection from all groups. Returns those groups, each with its client id there."""
        members = []
        for name in sorted(self._of_connection.get(connection, ())):
            client_id = self._groups[name].members[connection].client_id
            if self.unregister(name, connection):
                members.append((name, client_id))
        return members

    def is_member(self, name: str, client_id: str) -> bool:
        """Whether a client is in a group, by any connection."""
        group = self._groups.get(name)
        return group is not None and client_id in group.connections

    def expired(self, now: int) -> list[Member]:
        """Members that have been silent for too long; the caller closes their connections, which removes them."""
        return [
            member
            for group in self._groups.values()
            for member in group.members.values()
            if now - member.seen > self._expiry
        ]

    def all(self) -> Iterable[ConsumerGroup]:
        return self._groups.values()

    def of_topic(self, topic: str) -> list[str]:
        """Online groups that subscribe to the topic."""
        return [group.name for group in self._groups.values() if topic in group.subscriptions]

    def statistics(self) -> ConsumerGroupsStatistics:
        return ConsumerGroupsStatistics(len(self._groups), sum(len(group.members) for group in self._groups.values()))

    def _make_room(self, member: Member, consuming: Consuming) -> None:
        """Count a member instead of the one that it replaces."""
        names = self._of_connection.get(member.connection, ())
        if consuming.group not in names and len(names) >= MAX_GROUPS_OF_CONNECTION:
            raise RegistryFull(f"one connection is in {len(names)} groups, which is the limit")
        group = self._groups.get(consuming.group)
        present = group.members.get(member.connection) if group is not None else None
        member.size = _HELD_BY_EACH + sum(map(_size_of, consuming.subscriptions))
        size = self._size + member.size - (present.size if present is not None else 0)
        if size > MAX_SIZE:
            raise RegistryFull(f"the subscriptions of all consumers take {self._size} bytes; {MAX_SIZE} is the limit")
        self._size = size

    def _warn_of_differences(self, group: ConsumerGroup) -> None:
        lines = frozenset(group.differences())
        for line in sorted(lines - group.warned):
            log.warning(
                "consumer group %s: its members have different subscriptions; %s. The broker keeps only those of the "
                "latest heartbeat, so each of them misses messages. Give them the same subscription, or another group.",
                group.name,
                line,
            )
        group.warned = lines


_HELD_BY_EACH = 500  # a member, or a subscription


def _size_of(subscription: Subscription) -> int:
    text = len(subscription.topic) + len(subscription.expression) + sum(map(len, subscription.tags))
    return _HELD_BY_EACH + text + 50 * (len(subscription.tags) + len(subscription.codes))
