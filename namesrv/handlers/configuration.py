"""The name server's own settings: 318 change, 319 show.

318  Properties text. 16 for a key of configBlackList and for every path; 1 with the reason for a setting that is read
     at start only, an invalid value, or an unknown key; nothing is changed then.
319  Properties text, all settings.

Java: namesrv/processor/DefaultRequestProcessor.java (updateConfig, getConfig)
"""

from __future__ import annotations

from rocketlet.namesrv.run_time_settings import RunTimeSettings
from rocketlet.remoting.handler import Handler, HandlerTable, Reply, Request
from rocketlet.remoting.protocol.configuration import LONGEST_UPDATE
from rocketlet.remoting.request_codes import RequestCode


class ConfigurationHandlers:
    """The two requests about settings."""

    def __init__(self, settings: RunTimeSettings) -> None:
        self._settings = settings

    def table(self) -> HandlerTable:
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: Handler(self.update, longest_body=LONGEST_UPDATE),
            RequestCode.GET_NAMESRV_CONFIG: Handler(self.show),
        }

    async def update(self, request: Request) -> Reply:
        """318."""
        await self._settings.update_by(request)
        return Reply()

    def show(self, _: Request) -> Reply:
        """319."""
        return Reply(body=self._settings.properties().encode())
