"""What the audit log records about each request that changes the broker: its subject, and the state before and after.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rocketlet.access.audit import Change
from rocketlet.broker.run_time_settings import RunTimeSettings
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common import java_properties
from rocketlet.common.java_properties import PropertiesError
from rocketlet.common.settings import to_properties
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.handler import Request
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.remoting.request_codes import RequestCode

_SETTINGS_NAMED = 50


class AuditedChanges:
    """The changes by request code."""

    def __init__(self, settings: RunTimeSettings, topics: TopicTable, groups: SubscriptionGroups) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups

    def by_code(self) -> Mapping[int, Change]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: Change(_named("topic", "topic"), self._topic),
            RequestCode.DELETE_TOPIC_IN_BROKER: Change(_named("topic", "topic"), self._topic),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Change(
                lambda request: f"group {_group_of_body(request)}",
                lambda request: self._group(_group_of_body(request)),
            ),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: Change(
                _named("group", "groupName"), lambda request: self._group(request.header.groupName)
            ),
            RequestCode.UPDATE_BROKER_CONFIG: Change(lambda request: "settings", self._settings_named),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Change(_fields),
            RequestCode.CLONE_GROUP_OFFSET: Change(_fields),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: Change(_fields),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: Change(_fields),
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Change(_fields),
            RequestCode.CLEAN_UNUSED_TOPIC: Change(_fields),
            RequestCode.DELETE_EXPIRED_COMMITLOG: Change(_fields),
            RequestCode.SET_MESSAGE_REQUEST_MODE: Change(_fields),
            RequestCode.PROMOTE_SLAVE: Change(_fields),
            RequestCode.HAND_OVER: Change(_fields),
            RequestCode.DEMOTE_MASTER: Change(_fields),
            RequestCode.RESIGN_MASTER: Change(_fields),
            RequestCode.CHANGE_IN_SYNC: Change(_fields),
        }

    def _topic(self, request: Request) -> Any:
        topic = self._topics.get(request.header.topic)
        if topic is None:
            return None
        return msgspec.to_builtins(topic.to_config())

    def _group(self, name: str) -> Any:
        group = self._groups.get(name)
        return None if group is None else msgspec.to_builtins(group)

    def _settings_named(self, request: Request) -> Any:
        """The current values of the settings in the request; `to_properties` hides secrets."""
        try:
            named = java_properties.as_dict(java_properties.decode(bytes(request.body)))
        except PropertiesError:
            return None
        present = to_properties(*self._settings.loaded.configs)
        return {key: present[key] for key in list(named)[:_SETTINGS_NAMED] if key in present}


def _named(kind: str, field: str) -> Callable[[Request], str]:
    return lambda request: f"{kind} {str(getattr(request.header, field))[:255]}"


def _fields(request: Request) -> Any:
    """All fields of the header."""
    return {} if request.header is None else msgspec.to_builtins(request.header)


def _group_of_body(request: Request) -> str:
    try:
        return SubscriptionGroupConfig.from_json(request.body).groupName[:255]
    except BodyError:
        return ""
