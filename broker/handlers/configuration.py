"""25 UPDATE_BROKER_CONFIG, 26 GET_BROKER_CONFIG.

26 lists every setting of RocketMQ's and ours with its value, secrets redacted. 25 changes updatable settings, all of
them or none: 16 for a setting of the black list or a path; 1, with the reason, for one that is read at start only, is
unknown, or cannot have that value. A change of brokerPermission is registered with the name servers. An acknowledged
change is in the configuration file, if the broker was started with one.

Java: broker/processor/AdminBrokerProcessor.java, common/Configuration.java
"""

from __future__ import annotations

import trio

from rocketlet.broker.handlers.topic_admin import REGISTRATION_SECONDS
from rocketlet.broker.registration import Registration
from rocketlet.broker.run_time_settings import RunTimeSettings
from rocketlet.broker.topic_table import TopicTable
from rocketlet.remoting.handler import Handler, HandlerTable, Reply, Request
from rocketlet.remoting.protocol.configuration import LONGEST_UPDATE, BrokerConfigAnswerHeader
from rocketlet.remoting.request_codes import RequestCode


class Configuration:
    """The two requests about settings."""

    def __init__(self, settings: RunTimeSettings, topics: TopicTable, registration: Registration) -> None:
        self._settings = settings
        self._topics = topics
        self._registration = registration

    def table(self) -> HandlerTable:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: Handler(self.update, longest_body=LONGEST_UPDATE),
            RequestCode.GET_BROKER_CONFIG: Handler(self.get),
        }

    def get(self, request: Request) -> Reply:
        header = BrokerConfigAnswerHeader(self._settings.version.to_json().decode())
        return Reply(header=header, body=self._settings.properties().encode())

    async def update(self, request: Request) -> Reply:
        changed = await self._settings.update_by(request)
        if "brokerPermission" in changed:
            self._topics.renew()  # RocketMQ's name servers read a table only if its version is new
            with trio.move_on_after(REGISTRATION_SECONDS):
                await self._registration.register_now()
        return Reply()
