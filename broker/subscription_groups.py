"""What each consumer group may do: consume, broadcast, how often a message is retried, and where.

Groups come from an administrator (200) or are created when they are first seen, if the settings allow it. Pure but for
its log; changes are written (`subscriptionGroup.json`) through `on_change`.

Invariants: a group's name is legal, so its retry topic's is; `version` grows with every change; a group in the table is
replaced, never changed.

Java: broker/subscription/SubscriptionGroupManager.java, common/subscription/SubscriptionGroupConfig.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rocketlet.broker.config import Settings
from rocketlet.broker.topic_table import TableFull, read_version
from rocketlet.common import topic as names
from rocketlet.common.json_pieces import object_pieces
from rocketlet.remoting.protocol.body import without_nulls
from rocketlet.remoting.protocol.configuration import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable

log = logging.getLogger("rocketlet.broker.subscription_groups")

# Heartbeats and pulls create groups, so a peer could create them without end.
MAX_GROUPS = 100_000
_LARGEST = 2048  # bytes of one, which may have attributes


def read_group(fields: Any) -> SubscriptionGroupConfig:
    """A group from a file. Raises ValidationError or InvalidName."""
    group = msgspec.convert(without_nulls(fields), SubscriptionGroupConfig, strict=False)
    names.check_group_name(group.groupName)
    return group


class SubscriptionGroups:
    """Every subscription group of one broker."""

    def __init__(self, settings: Settings, clock: Callable[[], int], on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._groups = {name: SubscriptionGroupConfig(groupName=name) for name in sorted(names.SYSTEM_GROUPS)}
        self.version = DataVersion(0, clock())
        self._forbidden: dict[str, Any] | UnsetType = UNSET
        # The lookup of existing groups, which is all that a group's pulls need after the first.
        self.get: Callable[[str], SubscriptionGroupConfig | None] = self._groups.get

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, created now if it is new and the settings allow it."""
        group = self._groups.get(name)
        if group is not None:
            return group
        allowed = self._settings.now.auto_create_subscription_group or name.startswith(names.SYSTEM_GROUP_PREFIX)
        if not allowed or not names.is_group_name(name):
            return None
        if len(self._groups) >= MAX_GROUPS:
            log.error("group %s is not created: there are %d already", name, MAX_GROUPS)
            return None
        log.info("group %s created when it was first seen", name)
        return self._put(SubscriptionGroupConfig(groupName=name))

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Create or replace a group for an administrator. Requires: a checked name. Raises TableFull."""
        is_known = group.groupName in self._groups
        if not is_known and len(self._groups) >= MAX_GROUPS:
            raise TableFull(f"this broker has {len(self._groups)} groups, and may have {MAX_GROUPS}: delete some first")
        if (size := len(group.to_json())) > _LARGEST:
            raise TableFull(f"a group of {size} bytes; with all its attributes it may have {_LARGEST}")
        log.info("group %s %s by an administrator: %r", group.groupName, "updated" if is_known else "created", group)
        self._put(group)

    def disable_consume(self, name: str) -> None:
        """Stop a group from consuming."""
        group = self._groups.get(name)
        if group is not None and group.consumeEnable:
            self._put(msgspec.structs.replace(group, consumeEnable=False))

    def delete(self, name: str) -> bool:
        """True if it existed."""
        if self._groups.pop(name, None) is None:
            return False
        log.info("group %s deleted", name)
        self._changed()
        return True

    def follow(
        self,
        groups: Iterable[SubscriptionGroupConfig],
        removed: Iterable[str],
        version: DataVersion,
        forbidden: dict[str, Any] | UnsetType = UNSET,
    ) -> None:
        """Adopt the master's groups, and its version of the table. Requires: checked names."""
        self._forbidden = forbidden
        self._groups.update((group.groupName, group) for group in groups)
        for name in removed:
            if self._groups.pop(name, None) is not None:
                log.info("group %s was deleted at the master", name)
        self.version = version
        self._on_change()

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        return f"<SubscriptionGroups: {len(self._groups)} groups, version {self.version.counter}>"

    def to_body(self) -> SubscriptionGroupTable:
        """All of it, as the answer to request 201 has it."""
        return SubscriptionGroupTable(self.version, dict(self._groups), self._forbidden)

    def pieces(self, separator: bytes = b",") -> Iterator[bytes]:
        """The JSON of `to_body`, also of subscriptionGroup.json."""
        yield b'{"dataVersion":%b,"subscriptionGroupTable":' % msgspec.json.encode(self.version)
        yield from object_pieces(dict(self._groups).items(), separator)
        if self._forbidden is not UNSET:
            yield b',"forbiddenTable":%b' % msgspec.json.encode(self._forbidden)
        yield b"}"

    def load(self, body: Any) -> None:
        """Load subscriptionGroup.json; invalid entries are logged and skipped."""
        if not isinstance(body, dict):
            return
        table = body.get("subscriptionGroupTable")
        for name, fields in (table if isinstance(table, dict) else {}).items():
            try:
                group = read_group(fields)
            except (msgspec.ValidationError, names.InvalidName) as error:
                log.warning("group %r of the group table is left out: %s", name, error)
                continue
            self._groups[group.groupName] = group
        self.version = read_version(body) or self.version
        forbidden = body.get("forbiddenTable")
        self._forbidden = forbidden if isinstance(forbidden, dict) else UNSET

    def _put(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        self._groups[group.groupName] = group
        self._changed()
        return group

    def _changed(self) -> None:
        self.version = DataVersion(self.version.counter + 1, self._clock())
        self._on_change()
