"""Where a send goes: the checks that come before storing, and the topics that a send creates.

Java: broker/processor/AbstractSendMessageProcessor.java (msgCheck), SendMessageProcessor.java (handleRetryAndDLQ)
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from rocketlet.broker.config import Settings
from rocketlet.broker.identity import Identity
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common import topic as names
from rocketlet.common.host import V4_SIZE, parse_host
from rocketlet.common.topic import PERM_WRITE
from rocketlet.remoting.command import V3_4_9
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.handler import Refused, Request
from rocketlet.remoting.protocol.configuration import UNIT_SUBSCRIPTION
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.response_codes import ResponseCode

SendHeader = SendMessageHeader | SendMessageHeaderV2

SLAVE_OR_CLOSED = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full, messages "
    "are put to the slave, message store has been shut down, etc."
)


class SendTargets:
    """Finds topic and queue of a send, or says why not."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        topics: TopicTable,
        groups: SubscriptionGroups,
        clock: Callable[[], int],
        random: Random,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._random = random
        self.serving = False  # from the moment that the broker is ready until it stops

    def is_open(self) -> bool:
        """Whether sends need none of the checks that concern the broker as a whole."""
        config = self._settings.now
        accepting = config.start_accept_send_request_time_stamp <= self._clock()
        return self.serving and accepting and bool(config.broker_permission & PERM_WRITE) and not self._identity.slave

    def topic(self, request: Request, header: SendHeader) -> Topic:
        """The topic to store in; created if that is allowed. Raises Refused."""
        config = self._settings.now
        if config.start_accept_send_request_time_stamp > self._clock():
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {config.start_accept_send_request_time_stamp} ms since 1970 "
                "(startAcceptSendRequestTimeStamp)",
            )
        if not self.serving or self._identity.slave:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, SLAVE_OR_CLOSED)
        found = self._topics.get(header.topic)
        if not config.broker_permission & PERM_WRITE and found is not None and found.order:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._identity.address}] sending message is forbidden"
            )
        self._check_name(header.topic)
        return found or self._create(request, header)

    def queue(self, request: Request, header: SendHeader, topic: Topic) -> int:
        """The queue id to store in. Raises Refused."""
        if header.queueId < 0:
            return self._random.randrange(max(topic.write, 1))
        if header.queueId >= topic.queues:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queueId}] is illegal, {topic!r} Producer: {request.connection.peer}",
            )
        return header.queueId

    def dead_letters(self, request: Request, header: SendHeader) -> Topic | None:
        """For a send to a %RETRY% topic: the dead-letter topic where it was tried too often. Raises Refused."""
        name = header.topic.removeprefix(names.RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}; create it, or set autoCreateSubscriptionGroup=true",
            )
        most = group.retryMaxTimes
        if request.version >= V3_4_9 and header.maxReconsumeTimes is not None:
            most = header.maxReconsumeTimes
        if header.reconsumeTimes < most:
            return None
        topic = self._topics.create(names.dlq_topic(name), 1, reason="for dead letters")
        if topic is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{names.dlq_topic(name)}] not exist")
        return topic

    def _check_name(self, name: str) -> None:
        try:
            names.check_topic_name(name)
        except names.InvalidName as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if name in names.NOT_SENDABLE:
            raise Refused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")

    def _create(self, request: Request, header: SendHeader) -> Topic:
        topic = self._topics.create_on_send(
            header.topic,
            header.defaultTopic,
            header.defaultTopicQueueNums,
            unit=header.unitMode,
            peer=request.connection.peer,
        )
        if topic is None and header.topic.startswith(names.RETRY_PREFIX):
            sys_flag = UNIT_SUBSCRIPTION if header.unitMode else 0
            topic = self._topics.create(header.topic, 1, sys_flag=sys_flag, reason="by a send to it")
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! (template {header.defaultTopic or 'none'}, "
                f"autoCreateTopicEnable={'true' if self._settings.now.auto_create_topic_enable else 'false'})",
            )
        return topic


# Attributes of a connection: the packed address of its other side, and the same only where it is IPv4.
BORN_HOST, BORN_HOST_V4 = "born_host", "born_host_v4"


def born_host_of(connection: Connection) -> bytes:
    """The packed address of a connection's other side, parsed once a connection."""
    found: bytes | None = connection.attributes.get(BORN_HOST)
    if found is None:
        found = connection.attributes[BORN_HOST] = parse_host(connection.peer)
        if len(found) == V4_SIZE:
            connection.attributes[BORN_HOST_V4] = found
    return found
