"""36 CONSUMER_SEND_MSG_BACK: a consumer could not process a message; store it for a retry, or as a dead letter.

1. An unknown group is 26, a broker or retry topic that may not be written to 16; for a group without retry queues it
   succeeds without effect.
2. The message is looked up by its log offset; 1 if there is none.
3. If it was tried often enough (the request's maximum if it has one, else the group's), or the consumer wants no retry
   (a level below zero), it goes to %DLQ%group. Otherwise to %RETRY%group, after the delay in the request, or level 3 +
   attempts so far: 10 s the first time, 2 h the sixteenth.
4. It is stored again with its body, flags, birth and store host, one attempt more, its topic in RETRY_TOPIC and the id
   of its first delivery in ORIGIN_MESSAGE_ID. A dead letter keeps DELAY=0 and the REAL_TOPIC of its last delay.
5. Where that created a topic, the answer waits until the name servers know it.

Unlike RocketMQ, with SYNC_FLUSH the answer waits for the disk, since the consumer forgets the message once answered.

Java: broker/processor/SendMessageProcessor.java (asyncConsumerSendMsgBack)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from rocketlet.broker.at_once import at_once
from rocketlet.broker.config import Settings
from rocketlet.broker.delay_levels import delay
from rocketlet.broker.durability import Durability
from rocketlet.broker.identity import Identity
from rocketlet.broker.message_topics import topics_at
from rocketlet.broker.property_text import rewritten
from rocketlet.broker.put_again import FilterBits, put_again
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_properties import DELAY, ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT, decode_bytes
from rocketlet.common.message_record import Record, decode
from rocketlet.common.topic import PERM_WRITE, InvalidName, check_topic_name, dlq_topic, retry_topic
from rocketlet.remoting.access import Found, subscribe
from rocketlet.remoting.command import V3_4_9
from rocketlet.remoting.handler import Answer, Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.configuration import UNIT_SUBSCRIPTION
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.errors import StoreError
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.handlers.send_back")

FIRST_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of a message that could not be consumed: a delay level, 0 for the dead letters."""

    level: int

    @property
    def dead(self) -> bool:
        return self.level == 0


def judge(tries: int, limit: int, wanted_level: int) -> Verdict:
    """The rule for retries. `tries` are those so far, without the first delivery."""
    if tries >= limit or wanted_level < 0:
        return Verdict(0)
    return Verdict(wanted_level or FIRST_LEVEL + tries)


class SendBack:
    """Handles messages sent back by consumers."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        topics: TopicTable,
        groups: SubscriptionGroups,
        store: MessageStore,
        durability: Durability,
        announced: Callable[[], Awaitable[None]],
        statistics: Statistics,
        random: Random,
        filter_bits: FilterBits,
    ) -> None:
        """`announced` returns when the name servers know all topics, or after a moment."""
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._store = store
        self._durability = durability
        self._announced = announced
        self._statistics = statistics
        self._random = random
        self._filter_bits = filter_bits
        self._levels = store.config.delay_level_count

    def table(self) -> HandlerTable:
        return {
            RequestCode.CONSUMER_SEND_MSG_BACK: Handler(
                # On the topic, too: otherwise a group could send back, and so receive, any message by its offset.
                self.handle,
                ConsumerSendMsgBackHeader,
                "send",
                access=subscribe(group="group", topic=Found(self._topic_at)),
            ),
        }

    def _topic_at(self, header: ConsumerSendMsgBackHeader) -> list[str]:
        return topics_at(self._store, header.offset)

    def handle(self, request: Request) -> Answer | Deferred:
        header: ConsumerSendMsgBackHeader = request.header
        group = self._groups.find(header.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group}; create it, or set autoCreateSubscriptionGroup=true",
            )
        if not self._settings.now.broker_permission & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._identity.address}] sending message is forbidden"
            )
        if group.retryQueueNums <= 0:
            return Reply()
        topics = len(self._topics)
        retry = self._retry_topic(header, group.retryQueueNums)
        raw = at_once(self._store, partial(self._store.record_at, header.offset))
        if raw is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        limit = group.retryMaxTimes
        if request.version >= V3_4_9 and header.maxReconsumeTimes is not None:
            limit = header.maxReconsumeTimes
        record = decode(raw)
        verdict = judge(record.reconsume_times, limit, header.delayLevel)
        message = self._retry_copy(record, verdict, retry, header.group)
        try:
            appended = self._store.put(message)
        except StoreError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}") from error
        is_known = header.originTopic is not None and self._topics.get(header.originTopic) is not None
        self._statistics.count_sent_back(header.group, (is_known and header.originTopic) or record.topic)
        announced = self._announced if len(self._topics) > topics else None
        return self._durability.answer(request, appended.end, Reply(), ResponseCode.SYSTEM_ERROR, announced)

    def _retry_topic(self, header: ConsumerSendMsgBackHeader, queues: int) -> Topic:
        topic = self._create(retry_topic(header.group), queues, UNIT_SUBSCRIPTION if header.unitMode else 0)
        if not topic.writable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden")
        return topic

    def _create(self, name: str, queues: int, sys_flag: int = 0) -> Topic:
        try:
            check_topic_name(name)
        except InvalidName as error:  # a group's name may have 255 characters, which leaves no room for a prefix
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        topic = self._topics.create(name, queues, sys_flag=sys_flag, reason="for messages that come back")
        if topic is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
        return topic

    def _retry_copy(self, record: Record, verdict: Verdict, retry: Topic, group: str) -> Put:
        properties = decode_bytes(record.properties)
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties[WAIT] = "false"
        properties[DELAY] = str(verdict.level)
        properties.setdefault(ORIGIN_MESSAGE_ID, offset_message_id(record.store_host, record.log_offset))
        if verdict.dead:
            tries = record.reconsume_times
            log.info("group %s: the message at %d is dead after %d tries", group, record.log_offset, tries)
            message = put_again(record, self._create(dlq_topic(group), 1).name, 0, rewritten(properties))
        else:
            message = put_again(record, retry.name, self._random.randrange(max(retry.write, 1)))
            delay(message, properties, verdict.level, self._levels)
        message.reconsume_times = min(record.reconsume_times + 1, INT32_MAX)
        message.filter_bits = self._filter_bits(message.topic, message.properties)
        return message
