"""The name server's own settings: 318 change, 319 show.

318  Properties text. 16 for a key of configBlackList and for every path; 1 with the reason for what may only be set at
     start, for a value that cannot be, and for a key that nobody knows; nothing is changed then.
319  Properties text, all settings.

Java: namesrv/processor/DefaultRequestProcessor.java (updateConfig, getConfig)
"""

from __future__ import annotations

import logging

from rocketlet.common import java_properties
from rocketlet.common.java_properties import PropertiesError
from rocketlet.common.settings import SettingsError
from rocketlet.namesrv.run_time_settings import Forbidden, RunTimeSettings
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.configuration import LONGEST_UPDATE
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.namesrv.configuration")


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
        try:
            updates = java_properties.as_dict(java_properties.decode(bytes(request.body)))
            passed_over = await self._settings.update(updates)
        except Forbidden as error:
            log.warning("%s: refused to change a setting: %s", request.connection.peer, error)
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from error
        except (SettingsError, PropertiesError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except OSError as error:
            log.error("changed settings cannot be written: %s", error)
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the settings cannot be written: {error}; nothing was changed"
            ) from error
        log.info("%s: settings changed: %s", request.connection.peer, updates)
        if passed_over:
            log.warning("settings of RocketMQ that are not served here: %s", ", ".join(passed_over))
        return Reply()

    def show(self, _: Request) -> Reply:
        """319."""
        return Reply(body=self._settings.properties().encode())
