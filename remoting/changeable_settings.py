"""Settings that requests change while a server runs: 25 of a broker, 318 of a name server.

A change is checked, written and then applied, all of its keys or none. The file keeps its comments and order: only
changed lines are touched. Only settings marked `updatable` can change. Those in configBlackList, and paths, are refused
with RocketMQ's own text and code: two of its CVEs were a path changed remotely. RocketMQ's keys that are not served are
refused, unless they have the value that is shown.

Java: common/Configuration.java
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import trio

from rocketlet.common import java_properties, rocketmq_keys
from rocketlet.common.config_file import Loaded
from rocketlet.common.errors import RocketletError
from rocketlet.common.java_properties import PropertiesError
from rocketlet.common.settings import Setting, SettingsError, settings_of, to_properties
from rocketlet.remoting.handler import Refused, Request
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.remoting.changeable_settings")

MAX_KEYS_NAMED = 20  # refused keys in one answer
# In addition to configBlackList.
NEVER = ("configBlackList", "brokerConfigPath", "rocketmqHome")


class Forbidden(RocketletError):
    """The key may never be changed remotely, not even to its present value."""


class ChangeableSettings(ABC):
    """All settings of a server. A subclass holds them in the form its readers need, and knows where changes are
    saved."""

    def __init__(self, loaded: Loaded, not_served: Mapping[str, str]) -> None:
        """`not_served`: RocketMQ's other settings, with its values."""
        self._loaded = loaded
        self._not_served = not_served
        self._writing = trio.Lock()

    @property
    def loaded(self) -> Loaded:
        """All settings."""
        return self._loaded

    @property
    @abstractmethod
    def _black_list(self) -> Iterable[str]:
        """The current configBlackList."""

    @abstractmethod
    async def _keep(self, changed: Mapping[str, str]) -> None:
        """Save the changes where the next start reads them. Raises PropertiesError, OSError."""

    def _take(self, loaded: Loaded) -> None:
        """Apply these settings."""
        self._loaded = loaded

    def shown(self) -> dict[str, str]:
        """All settings as text, by key; RocketMQ's unserved ones have its defaults."""
        return {**self._not_served, **to_properties(*self._loaded.configs)}

    def properties(self) -> str:
        """All settings as lines of `key=value`, without comments and escapes, as RocketMQ answers."""
        return java_properties.format_plain(self.shown())

    async def update(self, updates: Mapping[str, str]) -> dict[str, str]:
        """Returns the changes.

        Raises Forbidden, SettingsError, PropertiesError (the file is damaged) or OSError; then nothing has changed.
        """
        async with self._writing:
            served = {key for setting in self._settings() for key in (setting.key, *setting.old_keys)}
            current = self.shown()
            # An unserved setting may be sent back with the value shown, along with the rest of the list.
            requested = {
                key: text for key, text in updates.items() if key in served or current.get(key) != text.strip()
            }
            self._forbid(updates)
            not_served = sorted(key for key in requested if key not in served and key in rocketmq_keys.ALL)
            if not_served:
                raise SettingsError(*(self._why_not(key) for key in not_served[:MAX_KEYS_NAMED]))
            loaded = self._loaded.with_updates(requested)
            before, after = to_properties(*self._loaded.configs), to_properties(*loaded.configs)
            changed = {key: text for key, text in after.items() if text != before[key]}
            if changed:
                await self._keep(changed)
            self._take(loaded)
        return changed

    @staticmethod
    def _why_not(key: str) -> str:
        note = rocketmq_keys.NOTES.get(key, "RocketMQ knows it, this process does not use it")
        return f"setting {key} is not served: {note}; nothing was changed"

    async def update_by(self, request: Request) -> dict[str, str]:
        """Apply a request's properties text. Returns the changes. Raises Refused: 16 if forbidden; 1, with the reason,
        if a setting is read at start only, is unknown, or cannot have that value."""
        peer = request.connection.peer
        await trio.lowlevel.checkpoint()  # the audit log has just read the same text, and 32 KiB may take 10 ms
        try:
            changed = await self.update(java_properties.as_dict(java_properties.decode(bytes(request.body))))
        except Forbidden as error:
            log.warning("%s: refused to change a setting: %s", peer, error)
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from error
        except (SettingsError, PropertiesError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except OSError as error:
            log.error("changed settings cannot be written: %s", error)
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the settings cannot be written: {error}; nothing was changed"
            ) from error
        for key, text in changed.items():
            log.info("setting %s is %s now, by %s", key, text, peer)
        return changed

    def _forbid(self, updates: Mapping[str, str]) -> None:
        forbidden = {*NEVER, *self._black_list, *(setting.key for setting in self._settings() if setting.path)}
        for key in updates:
            if key in forbidden:
                raise Forbidden(f"Can not update config in black list: {key}")

    def _settings(self) -> list[Setting]:
        return [setting for config in self._loaded.configs for setting in settings_of(type(config))]


def edited(text: bytes, changed: Mapping[str, str]) -> bytes:
    """A properties file with some values changed. Raises PropertiesError."""
    return java_properties.edit(java_properties.decode(text), changed).encode()
