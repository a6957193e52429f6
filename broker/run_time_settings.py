"""The settings as they are now: shown by request 26, changed by 25, kept in the file that `-c` named.

A change is checked, written and then taken, all of its keys or none; the file keeps its comments and order. Only what
says `updatable` may change. What is in configBlackList, or names a path, is refused in RocketMQ's own words and code:
two of its CVEs were a path changed from outside. Keys of RocketMQ's that are not served are passed over. A broker that
was started without a file keeps changes until it stops.

Java: common/Configuration.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import trio

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.json_file import BACKUP
from rocketlet.common import java_properties, rocketmq_keys
from rocketlet.common.config_file import Loaded
from rocketlet.common.errors import RocketletError
from rocketlet.common.settings import Setting, settings_of, to_properties
from rocketlet.remoting.protocol.configuration import DataVersion
from rocketlet.store.disk import Disk

log = logging.getLogger("rocketlet.broker.run_time_settings")

# Besides what configBlackList names.
NEVER = ("configBlackList", "brokerConfigPath", "rocketmqHome")


class Forbidden(RocketletError):
    """The key may never be changed from outside, not even to the value that it has."""


class RunTimeSettings(Settings):
    """The holder of all settings. `taken` is told after each change."""

    __slots__ = ("_clock", "_disk", "_loaded", "_taken", "_writing", "version")

    def __init__(self, loaded: Loaded, disk: Disk, clock: Callable[[], int], taken: Callable[[Loaded], None]) -> None:
        super().__init__(loaded[BrokerConfig])
        self._loaded = loaded
        self._disk = disk
        self._clock = clock
        self._taken = taken
        self._writing = trio.Lock()
        self.version = DataVersion(0, clock())

    def properties(self) -> str:
        """All settings as lines of `key=value`, without comments and escapes, as RocketMQ answers."""
        return java_properties.format_plain(to_properties(*self._loaded.configs))

    async def update(self, updates: Mapping[str, str]) -> dict[str, str]:
        """Returns what changed. Raises Forbidden, SettingsError, PropertiesError or OSError; then nothing has."""
        async with self._writing:
            served = {key for one in self._settings() for key in (one.key, *one.old_keys)}
            wanted = {key: text for key, text in updates.items() if key in served or key not in rocketmq_keys.ALL}
            self._forbid(updates)
            loaded = self._loaded.with_updates(wanted)
            before, after = to_properties(*self._loaded.configs), to_properties(*loaded.configs)
            changed = {key: text for key, text in after.items() if text != before[key]}
            if changed and loaded.file_name:
                await self._keep(loaded.file_name, changed)
            self._loaded, self.now = loaded, loaded[BrokerConfig]
            self._taken(loaded)
            if changed:
                self.version = DataVersion(self.version.counter + 1, self._clock())
        passed_over = sorted(updates.keys() - wanted.keys())
        if passed_over:
            log.warning("settings of RocketMQ that are not served here: %s", ", ".join(passed_over))
        return changed

    @property
    def loaded(self) -> Loaded:
        """All of them."""
        return self._loaded

    def replaced(self, loaded: Loaded) -> None:
        """Take settings that nobody asked for by request: the broker has another role. They are not kept."""
        self._loaded, self.now = loaded, loaded[BrokerConfig]
        self._taken(loaded)
        self.version = DataVersion(self.version.counter + 1, self._clock())

    def get(self, config_type: type[Any]) -> Any:
        """One of the other settings dataclasses."""
        return self._loaded[config_type]

    def _forbid(self, updates: Mapping[str, str]) -> None:
        paths = {one.key for one in self._settings() if one.path}
        for key in updates:
            if key in paths or key in NEVER or key in self.now.config_black_list:
                raise Forbidden(f"Can not update config in black list: {key}")

    async def _keep(self, path: str, changed: Mapping[str, str]) -> None:
        def write() -> None:
            old = self._disk.read_file(path) or b""
            text = java_properties.edit(java_properties.decode(old), changed)
            self._disk.write_file(path + BACKUP, old)
            self._disk.write_file(path, text.encode())

        if self._disk.inline:
            write()
        else:
            await trio.to_thread.run_sync(write)

    def _settings(self) -> list[Setting]:
        return [one for config in self._loaded.configs for one in settings_of(type(config))]
