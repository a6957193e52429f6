"""What the audit log records about each request that changes the name server.

Registrations are not recorded: every broker sends one every 30 seconds.

Java: none
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rocketlet.access.audit import Change
from rocketlet.common import java_properties
from rocketlet.common.java_properties import PropertiesError
from rocketlet.common.settings import to_properties
from rocketlet.namesrv.kv_config import KvConfig
from rocketlet.namesrv.run_time_settings import RunTimeSettings
from rocketlet.remoting.handler import Request
from rocketlet.remoting.request_codes import RequestCode


class AuditedChanges:
    """The changes by request code."""

    def __init__(self, kv: KvConfig, settings: RunTimeSettings) -> None:
        self._kv = kv
        self._settings = settings

    def by_code(self) -> Mapping[int, Change]:
        return {
            RequestCode.PUT_KV_CONFIG: Change(_key, self._value),
            RequestCode.DELETE_KV_CONFIG: Change(_key, self._value),
            RequestCode.UNREGISTER_BROKER: Change(_fields),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: Change(_fields),
            RequestCode.ADD_WRITE_PERM_OF_BROKER: Change(_fields),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: Change(_fields),
            RequestCode.UPDATE_NAMESRV_CONFIG: Change(lambda request: "settings", self._settings_named),
        }

    def _value(self, request: Request) -> Any:
        return self._kv.get(request.header.namespace, request.header.key)

    def _settings_named(self, request: Request) -> Any:
        try:
            named = java_properties.as_dict(java_properties.decode(bytes(request.body)))
        except PropertiesError:
            return None
        present = to_properties(*self._settings.loaded.configs)
        return {key: present[key] for key in named if key in present}


def _key(request: Request) -> str:
    return f"{request.header.namespace} {request.header.key}"[:300]


def _fields(request: Request) -> Any:
    return {} if request.header is None else msgspec.to_builtins(request.header)
