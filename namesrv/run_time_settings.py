"""The settings as they are now: shown by request 319, changed by 318, kept in configStorePath.

A change is checked, written and then taken, all of its keys or none. Only what says `updatable` may change; what names
a path, or is in configBlackList, is refused in RocketMQ's own words and code. The file keeps its comments and order,
for only the lines that change are touched. It is read at the next start where `-c` names it, as with RocketMQ.

Java: common/Configuration.java
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import trio

from rocketlet.common import java_properties, rocketmq_keys
from rocketlet.common.config_file import Loaded
from rocketlet.common.errors import RocketletError
from rocketlet.common.settings import Setting, settings_of, to_properties
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.durable_file import DurableFile


class Forbidden(RocketletError):
    """The key may never be changed from outside, not even to the value that it has."""


class RunTimeSettings:
    """One holder, so that a handler sees a change at once: `settings.namesrv.order_message_enable`."""

    def __init__(self, loaded: Loaded, file: DurableFile) -> None:
        self._loaded = loaded
        self._file = file
        self._writing = trio.Lock()
        self.namesrv = loaded[NamesrvConfig]

    def listens_on(self, port: int) -> None:
        """The port that was taken where listenPort is 0: whoever asks is shown it."""
        configs = tuple(
            dataclasses.replace(one, listen_port=port) if isinstance(one, NamesrvConfig) else one
            for one in self._loaded.configs
        )
        self._loaded = dataclasses.replace(self._loaded, configs=configs)
        self.namesrv = self._loaded[NamesrvConfig]

    def properties(self) -> str:
        """All settings as lines of `key=value`, without comments and escapes, as RocketMQ answers."""
        return java_properties.format_plain(to_properties(*self._loaded.configs))

    async def update(self, updates: Mapping[str, str]) -> list[str]:
        """Returns the keys that RocketMQ knows and we do not serve; they are passed over, as RocketMQ does.

        Raises Forbidden, SettingsError, PropertiesError (the file is damaged) or OSError; then nothing has changed.
        """
        async with self._writing:
            served = {key for one in self._settings() for key in (one.key, *one.old_keys)}
            wanted = {key: value for key, value in updates.items() if key in served or key not in rocketmq_keys.ALL}
            self._forbid(wanted)
            loaded = self._loaded.with_updates(wanted)
            if wanted:
                text = java_properties.decode(self._file.read() or b"")
                await self._file.replace(java_properties.edit(text, wanted).encode())
            self._loaded, self.namesrv = loaded, loaded[NamesrvConfig]
        return sorted(updates.keys() - wanted.keys())

    def _forbid(self, updates: Mapping[str, str]) -> None:
        paths = {one.key for one in self._settings() if one.path}
        for key in updates:
            if key in paths or key in self.namesrv.config_black_list:
                raise Forbidden(f"Can not update config in black list: {key}")

    def _settings(self) -> list[Setting]:
        return [one for config in self._loaded.configs for one in settings_of(type(config))]
