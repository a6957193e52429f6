"""The name server's current settings: shown by request 319, changed by 318, saved in configStorePath.

The file is read at the next start if `-c` names it, as in RocketMQ.

Java: common/Configuration.java
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from rocketlet.common import rocketmq_defaults
from rocketlet.common.config_file import Loaded
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.durable_file import DurableFile
from rocketlet.remoting.changeable_settings import ChangeableSettings, edited


class RunTimeSettings(ChangeableSettings):
    """One holder, so that a handler sees a change at once: `settings.namesrv.order_message_enable`."""

    def __init__(self, loaded: Loaded, file: DurableFile) -> None:
        super().__init__(loaded, rocketmq_defaults.SERVER)
        self._file = file
        self.namesrv = loaded[NamesrvConfig]

    def listens_on(self, port: int) -> None:
        """The bound port if listenPort is 0: requests for the settings show it."""
        configs = tuple(
            dataclasses.replace(config, listen_port=port) if isinstance(config, NamesrvConfig) else config
            for config in self._loaded.configs
        )
        self._take(dataclasses.replace(self._loaded, configs=configs))

    @property
    def _black_list(self) -> Iterable[str]:
        return self.namesrv.config_black_list

    def _take(self, loaded: Loaded) -> None:
        super()._take(loaded)
        self.namesrv = loaded[NamesrvConfig]

    async def _keep(self, changed: Mapping[str, str]) -> None:
        await self._file.replace(edited(self._file.read() or b"", changed))
