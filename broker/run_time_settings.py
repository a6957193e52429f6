"""The broker's current settings: shown by request 26, changed by 25, saved in the file given by `-c`.

A broker that was started without a file keeps changes until it stops.

Java: common/Configuration.java
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trio

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.filter.bloom import Bloom
from rocketlet.broker.json_file import BACKUP
from rocketlet.common import rocketmq_defaults
from rocketlet.common.config_file import Loaded
from rocketlet.remoting.changeable_settings import ChangeableSettings, edited
from rocketlet.remoting.protocol.configuration import DataVersion
from rocketlet.store.disk import Disk


class RunTimeSettings(ChangeableSettings, Settings):
    """The holder of all settings. `taken` is called after each change."""

    def __init__(self, loaded: Loaded, disk: Disk, clock: Callable[[], int], taken: Callable[[Loaded], None]) -> None:
        config = loaded[BrokerConfig]
        # RocketMQ, too, computes this one at its start, whatever the file says.
        bits = Bloom.for_groups(config.expect_consumer_num_use_filter, config.max_error_rate_of_bloom_filter).bits
        ChangeableSettings.__init__(self, loaded, rocketmq_defaults.BROKER | {"bitMapLengthConsumeQueueExt": str(bits)})
        Settings.__init__(self, config)
        self._disk = disk
        self._clock = clock
        self._taken = taken
        self.version = DataVersion(0, clock())

    def get(self, config_type: type[Any]) -> Any:
        """One of the other settings dataclasses."""
        return self._loaded[config_type]

    def replaced(self, loaded: Loaded) -> None:
        """Apply settings that follow from a change of role. They are not saved."""
        self._take(loaded)

    @property
    def _black_list(self) -> Iterable[str]:
        return self.now.config_black_list

    def _take(self, loaded: Loaded) -> None:
        changed = loaded.configs != self._loaded.configs
        super()._take(loaded)
        self.now = loaded[BrokerConfig]
        if changed:
            self.version = DataVersion(self.version.counter + 1, self._clock())
        self._taken(loaded)

    async def _keep(self, changed: Mapping[str, str]) -> None:
        path = self._loaded.file_name
        if not path:
            return

        def write() -> None:
            old = self._disk.read_file(path) or b""
            new = edited(old, changed)
            self._disk.write_file(path + BACKUP, old)
            self._disk.write_file(path, new)

        if self._disk.inline:
            write()
        else:
            await trio.to_thread.run_sync(write)
