"""Accounts and their permissions: the account files as values.

A permission is given on a topic or a group. RocketMQ keeps both in one map, a group by the name of its retry topic, and
so it is here: `topicPerms: [%RETRY%g=SUB]` and `groupPerms: [g=SUB]` are the same. Resources not in the map get the
defaults, which are DENY if the file has none.

Java: acl/plain/PlainAccessResource.java, acl/common/Permission.java, common/PlainAccessConfig.java
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rocketlet.access.addresses import NO_ADDRESSES, Addresses
from rocketlet.common.topic import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
    retry_topic,
)
from rocketlet.remoting.access import Permission, Resource
from rocketlet.remoting.signing import Secret

# RocketMQ's numbers. DO NOT CHANGE.
DENY = 1
PUB = 4
SUB = 8
PERMISSIONS: Mapping[str, int] = MappingProxyType(
    {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
)

KEY_LENGTH = 7  # of account names and secrets, at least
LONGEST_KEY = 255
MAX_PERMISSIONS = 10_000  # of one account
_REMEMBERED_HOSTS = 10_000

_HIDDEN = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TOPIC})


@dataclass(frozen=True, slots=True)
class Account:
    """One account. `permissions` is by topic, or by retry topic of a group; `place` is where its file names it."""

    access_key: str
    secret: Secret = field(repr=False)
    secret_key: str = field(repr=False)
    addresses: Addresses = NO_ADDRESSES
    admin: bool = False
    default_topic: int = DENY
    default_group: int = DENY
    permissions: Mapping[str, int] = field(default_factory=dict)
    place: str = ""

    @property
    def is_unbound_admin(self) -> bool:
        """An administrator may do everything with every topic and group, unless its own permissions restrict it."""
        return self.admin and not self.permissions

    def may(self, permission: Permission, resource: Resource, name: str) -> bool:
        """RocketMQ's rule."""
        if self.is_unbound_admin:
            return True
        key = resource_key(resource, name)
        granted = self.permissions.get(key)
        if granted is None:
            granted = self.default_group if key.startswith(RETRY_PREFIX) else self.default_topic
        return _allows(granted, permission)

    def may_strictly(self, permission: Permission, resource: Resource, name: str) -> bool:
        """Our rule, which differs if no permission of the account names the topic."""
        # Called for each send: a topic's permission is one lookup without a call.
        key = name if resource is Resource.TOPIC else retry_topic(name)
        granted = self.permissions.get(key)
        if granted is None:
            if self.admin and not self.permissions:
                return True
            granted = self._strict_default(key)
        return bool(granted & (PUB if permission is Permission.PUBLISH else SUB)) and not granted & DENY

    def _strict_default(self, key: str) -> int:
        """The permission on a topic or group that the account's permissions do not name.

        Delayed messages, transactions and replies of all topics are in the broker's own topics, so no default opens
        those. A group's dead letters belong to the group. Traces may be written by everybody, and by default read by
        nobody.
        """
        if key.startswith(RETRY_PREFIX):
            return self.default_group
        if key.startswith(DLQ_PREFIX):
            return self.permissions.get(retry_topic(key.removeprefix(DLQ_PREFIX)), self.default_group)
        if key == TRACE_TOPIC:
            return PUB
        if key in _HIDDEN or key.startswith(SYSTEM_PREFIX):
            return DENY
        if key.endswith(REPLY_SUFFIX):
            return self.default_topic & ~SUB
        return self.default_topic


def _allows(granted: int, permission: Permission) -> bool:
    return bool(granted & (PUB if permission is Permission.PUBLISH else SUB)) and not granted & DENY


def resource_key(resource: Resource, name: str) -> str:
    """What a topic or a group is called among permissions."""
    return retry_topic(name) if resource is Resource.GROUP else name


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force at one moment; replaced as a whole."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    everywhere: Addresses = NO_ADDRESSES  # globalWhiteRemoteAddresses of all files
    _matches_by_host: dict[tuple[str, str], bool] = field(default_factory=dict, repr=False, compare=False)

    def comes_from(self, account: Account, host: str) -> bool:
        """Whether the host is among the account's own addresses."""
        return self._match(account.access_key, account.addresses, host)

    def is_white(self, host: str) -> bool:
        """Whether the host is among the global white addresses."""
        return self._match("", self.everywhere, host)

    def _match(self, name: str, addresses: Addresses, host: str) -> bool:
        """Parsing an address takes 3 µs, so it is cached."""
        is_match = self._matches_by_host.get((name, host))
        if is_match is None:
            if len(self._matches_by_host) >= _REMEMBERED_HOSTS:
                self._matches_by_host.clear()
            is_match = self._matches_by_host[name, host] = addresses.match(host)
        return is_match
