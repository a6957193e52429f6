"""Where a send goes: the checks before storing, and the topics that a send creates.

Java: broker/processor/AbstractSendMessageProcessor.java (msgCheck)
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from rocketlet.broker.config import Settings
from rocketlet.broker.identity import Identity
from rocketlet.broker.overload import Overload
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common import topic as names
from rocketlet.common.host import parse_host
from rocketlet.common.topic import PERM_WRITE
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.handler import Refused, Request
from rocketlet.remoting.protocol.configuration import UNIT_SUBSCRIPTION
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.response_codes import SEE_FAQ, ResponseCode

SendHeader = SendMessageHeader | SendMessageHeaderV2

SLAVE_OR_CLOSED = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full, messages "
    "are put to the slave, message store has been shut down, etc."
)


class SendTargets:
    """Finds topic and queue of a send, or refuses it."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        topics: TopicTable,
        overload: Overload,
        clock: Callable[[], int],
        random: Random,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self.find = topics.get
        self.overload = overload
        self._clock = clock
        self._random = random
        self.serving = False  # from when the broker is ready until it stops
        self.refusal = ""  # why a leader among replicas refuses sends now

    def is_open(self) -> bool:
        """Whether sends can skip the broker-wide checks."""
        config = self._settings.now
        accepting = config.start_accept_send_request_time_stamp <= self._clock()
        return (
            self.serving
            and not self.refusal
            and accepting
            and bool(config.broker_permission & PERM_WRITE)
            and not self._identity.slave
        )

    def admit(self, request: Request, header: SendHeader) -> tuple[Topic, int]:
        """The topic and the queue to store in, after all checks. Raises Refused."""
        self.overload.check(self._settings.now.wait_time_mills_in_send_queue)
        topic = self.topic(request, header)
        return topic, self.queue(request, header, topic)

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
        if self.refusal:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"sends are refused: {self.refusal}")
        known_topic = self._topics.get(header.topic)
        if not config.broker_permission & PERM_WRITE and known_topic is not None and known_topic.order:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._identity.address}] sending message is forbidden"
            )
        self._check_name(header.topic)
        return known_topic or self._create(request, header)

    def queue(self, request: Request, header: SendHeader, topic: Topic) -> int:
        """The queue id to store in. Raises Refused."""
        if header.queueId < 0:
            return self._random.randrange(max(topic.write, 1))
        if header.queueId >= topic.queues:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queueId}] is illegal, TopicConfig [topicName={topic.name}, "
                f"readQueueNums={topic.read}, writeQueueNums={topic.write}, perm={names.permission_text(topic.perm)}, "
                f"topicFilterType={topic.filter_type}, topicSysFlag={topic.sys_flag}, "
                f"order={'true' if topic.order else 'false'}] Producer: {request.connection.peer}",
            )
        return header.queueId

    def _check_name(self, name: str) -> None:
        refusal = names.refusal_of(name)
        if refusal:
            raise Refused(ResponseCode.SYSTEM_ERROR, refusal)
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
                f"topic[{header.topic}] not exist, apply first please!{SEE_FAQ} (template "
                f"{header.defaultTopic or 'none'}, autoCreateTopicEnable="
                f"{'true' if self._settings.now.auto_create_topic_enable else 'false'})",
            )
        return topic


# A connection's attribute: the packed address of its peer.
BORN_HOST = "born_host"


def born_host_of(connection: Connection) -> bytes:
    """The packed address of a connection's peer, parsed once per connection."""
    host: bytes | None = connection.attributes.get(BORN_HOST)
    if host is None:
        host = connection.attributes[BORN_HOST] = parse_host(connection.peer)
    return host
