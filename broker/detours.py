"""Messages that do not go straight into the queue they were sent to: delayed, half of a transaction, dead.

The properties of a delayed or half message are rewritten. WAIT, which is dropped from a plain send's text, is kept
there, as the last one.

Java: broker/processor/SendMessageProcessor.java (handleRetryAndDLQ), store/CommitLog.java
"""

from __future__ import annotations

from rocketlet.broker.config import Settings
from rocketlet.broker.delay_levels import InvalidDelay, delay, delay_level
from rocketlet.broker.half_messages import prepare
from rocketlet.broker.identity import Identity
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.timing.deliver_at import PROPERTIES, InvalidMoment, moment, postpone
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common import topic as names
from rocketlet.common.clock import WallClock
from rocketlet.common.message_flags import COMMIT, NOT_TRANSACTION, TRANSACTION_MASK
from rocketlet.common.message_properties import TRAN_MSG, WAIT, decode_bytes
from rocketlet.remoting.command import V3_4_9
from rocketlet.remoting.handler import Refused, Request
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message import Put

Header = SendMessageHeader | SendMessageHeaderV2


TIMERS = frozenset(PROPERTIES)


class Detours:
    """Redirects such messages before they are stored. `levels`: the number of delay levels."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        topics: TopicTable,
        groups: SubscriptionGroups,
        levels: int,
        clock: WallClock,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._levels = levels
        self._clock = clock

    def take(self, request: Request, header: Header, put: Put) -> None:
        """Convert a sent message into the one to be stored. Raises Refused."""
        if put.topic.startswith(names.RETRY_PREFIX):
            dead = self._dead_letters(request, header)
            if dead is not None:
                put.topic, put.queue_id = dead.name, 0
        properties = decode_bytes(put.properties)
        try:
            level = delay_level(properties)
        except InvalidDelay as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if properties.get(TRAN_MSG, "").lower() == "true" and not (header.reconsumeTimes > 0 and level > 0):
            if self._settings.now.reject_transaction_message:
                raise Refused(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._identity.address}] sending transaction message is forbidden",
                )
            self.half(put)
        elif level > 0 and put.sys_flag & TRANSACTION_MASK in (NOT_TRANSACTION, COMMIT):
            self.delayed(put)
        elif not TIMERS.isdisjoint(properties):
            self._timed(put, properties)

    def _timed(self, put: Put, properties: dict[str, str]) -> None:
        """Route a message with a delivery time through the timer's topic. Raises Refused."""
        config = self._settings.now
        if not config.timer_wheel_enable:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false: use a delay level, or set it",
            )
        try:
            due = moment(properties, self._clock(), config.timer_max_delay_sec)
        except InvalidMoment as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if due is not None:
            postpone(put, _properties_of(put), due)

    def delayed(self, put: Put) -> Put:
        """Route a message with DELAY through the schedule topic. REQUIRES: the level is a number above 0."""
        properties = _properties_of(put)
        delay(put, properties, delay_level(properties), self._levels)
        return put

    def half(self, put: Put) -> Put:
        """Route a message with TRAN_MSG through the half topic."""
        self._topics.create(names.HALF_TOPIC, 1, reason="for transactions")
        prepare(put, _properties_of(put))
        return put

    def _dead_letters(self, request: Request, header: Header) -> Topic | None:
        """For a send to a %RETRY% topic: the dead-letter topic if it was tried too often. Raises Refused."""
        name = header.topic.removeprefix(names.RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}; create it, or set autoCreateSubscriptionGroup=true",
            )
        limit = group.retryMaxTimes
        if request.version >= V3_4_9 and header.maxReconsumeTimes is not None:
            limit = header.maxReconsumeTimes
        if header.reconsumeTimes < limit:
            return None
        topic = self._topics.create(names.dlq_topic(name), 1, reason="for dead letters")
        if topic is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{names.dlq_topic(name)}] not exist")
        return topic


def _properties_of(put: Put) -> dict[str, str]:
    properties = decode_bytes(put.properties)
    wait = properties.pop(WAIT, None)
    if wait is not None:
        properties[WAIT] = wait
    return properties
