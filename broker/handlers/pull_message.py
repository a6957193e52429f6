"""11 PULL_MESSAGE, 361 LITE_PULL_MESSAGE (of 5.x, the same): messages of one queue from an offset on.

Refused, in this order: the broker may not be read from (16); no such group (26), or it may not consume (16); no such
topic (17), or it may not be read (16); no such queue (1); then the subscription. It comes with the pull (sysFlag 4;
23 where it does not parse), or is what the group's heartbeats said: no member or not this topic (24), broadcasting
where the group must not (16), older than the pull's version (25: the client's heartbeat is on its way), for SQL92 no
filter (27) or an older one (28). SQL92 while `enablePropertyFilter` is off is 1.

| found                                             | code | nextBeginOffset                  |
|---------------------------------------------------|------|----------------------------------|
| messages                                          |  0   | behind the last entry looked at  |
| only what the filter refuses, or is deleted       | 20   | behind the last entry looked at  |
| the end of the queue (OFFSET_OVERFLOW_ONE)        | 19   | the same offset                  |
| entries that are gone (OFFSET_FOUND_NULL)         | 19   | the next file of the queue       |
| an offset before the begin, or beyond the end     | 21   | begin, or end                    |
| an empty queue, or none                           | 19 at offset 0, else 21 | 0             |

Each of these names all four offsets, and the status as remark. 19 to a pull that may wait (sysFlag 2) parks it until a
message comes that its filter lets pass, at most `suspendTimeoutMillis` (`broker/long_poll.py`). With sysFlag 1 the pull
commits an offset for its group, once, whatever it finds. Records go out as they lie in the log.

Java: broker/processor/PullMessageProcessor.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache

import trio

from rocketlet.broker.clients import Clients
from rocketlet.broker.config import Settings
from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.broker.filter.consumer_filters import ConsumerFilters
from rocketlet.broker.filter.lexer import FilterSyntaxError
from rocketlet.broker.filter.message_filter import MessageFilter, by_consumer_filter, by_origin, by_selector, by_tags
from rocketlet.broker.filter.selector import compiled
from rocketlet.broker.identity import Identity
from rocketlet.broker.long_poll import LongPoll
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common.subscription import SQL92, TAG, InvalidSubscription, parse_tags
from rocketlet.common.topic import PERM_READ, RETRY_PREFIX
from rocketlet.remoting.access import subscribe
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.remoting.protocol.pulling import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    SUSPEND,
    PullMessageAnswerHeader,
    PullMessageHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import GetResult, GetStatus

log = logging.getLogger("rocketlet.broker.handlers.pull_message")

# Clients give up at 30 s, and a connection without traffic is closed at 120 s.
LONGEST_HOLD_MS = 120_000

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullMessage:
    """Answers pulls, or parks them."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        topics: TopicTable,
        groups: SubscriptionGroups,
        clients: Clients,
        filters: ConsumerFilters,
        offsets: ConsumerOffsets,
        store: MessageStore,
        long_poll: LongPoll,
        statistics: Statistics,
        recent_bytes: Callable[[], int],
        nursery: trio.Nursery,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._filters = filters
        self._offsets = offsets
        self._store = store
        self._long_poll = long_poll
        self._statistics = statistics
        self._recent_bytes = recent_bytes
        self._nursery = nursery

    def table(self) -> HandlerTable:
        access = subscribe(topic="topic", group="consumerGroup")
        return {
            RequestCode.PULL_MESSAGE: Handler(self.handle, PullMessageHeader, "pull", access=access),
            RequestCode.LITE_PULL_MESSAGE: Handler(self.handle, PullMessageHeader, "pull", access=access),
        }

    def handle(self, request: Request) -> Answer | Deferred:
        header: PullMessageHeader = request.header
        group, messages = self._checked(request)
        if header.sysFlag & COMMIT_OFFSET and not self._identity.slave:
            self._commit(header)
        result = self._get(header, header.queueOffset, messages)
        code = _code_of(result, header)
        if code == ResponseCode.PULL_NOT_FOUND and header.sysFlag & SUSPEND:
            return self._park(request, header)
        return self._answer(request, header, group, result, code)

    # -- checks

    def _checked(self, request: Request) -> tuple[SubscriptionGroupConfig, MessageFilter]:
        """The group and the filter of a pull that may be served. Raises Refused."""
        header: PullMessageHeader = request.header
        if not self._settings.now.broker_permission & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._identity.address}] pulling message is forbidden"
            )
        group = self._groups.find(header.consumerGroup)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumerGroup}] does not exist; create it, or set "
                "autoCreateSubscriptionGroup=true",
            )
        if not group.consumeEnable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumerGroup}")
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not topic.readable:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queueId < topic.read:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read}] consumer:[{request.connection.peer}]",
            )
        if header.sysFlag & SUBSCRIPTION:
            return group, self._filter_of_pull(header)
        return group, self._filter_of_heartbeats(header, group, topic)

    def _filter_of_pull(self, header: PullMessageHeader) -> MessageFilter:
        kind = header.expressionType or TAG
        if kind != TAG:
            self._check_filters_on(kind)
        try:
            return _parsed(header.topic, header.subscription or "", kind)
        except (InvalidSubscription, FilterSyntaxError) as error:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from None

    def _filter_of_heartbeats(
        self, header: PullMessageHeader, group: SubscriptionGroupConfig, topic: Topic
    ) -> MessageFilter:
        members = self._clients.consumers.get(header.consumerGroup)
        if members is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist, {header.consumerGroup}"
            )
        if members.broadcasting and not group.consumeBroadcastEnable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumerGroup}] can not consume by broadcast way",
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.consumerGroup}, topic {header.topic}",
            )
        if subscription.version < header.subVersion:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: group {header.consumerGroup}, topic {header.topic}",
            )
        if subscription.expression_type == TAG:
            if self._settings.now.filter_support_retry and topic.name.startswith(RETRY_PREFIX):
                return by_origin(topic.name, self._filters)
            return by_tags(subscription)
        self._check_filters_on(subscription.expression_type)
        known = self._filters.get(header.topic, header.consumerGroup)
        if known is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"the consumer's filter data not exist: {header.consumerGroup}"
            )
        if known.client_version < header.subVersion:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST, f"the consumer's filter data not latest: {header.consumerGroup}"
            )
        return by_consumer_filter(known, self._filters.bloom)

    def _check_filters_on(self, kind: str) -> None:
        if kind != SQL92 or not self._settings.now.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
            )

    # -- work

    def _commit(self, header: PullMessageHeader) -> None:
        try:
            self._offsets.commit(header.consumerGroup, header.topic, header.queueId, header.commitOffset)
        except OffsetRefused as refused:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(refused)) from None

    def _get(self, header: PullMessageHeader, offset: int, messages: MessageFilter) -> GetResult:
        return self._store.get(
            header.topic,
            header.queueId,
            offset,
            header.maxMsgNums,
            match=messages.by_code,
            match_unit=messages.by_unit,
            match_record=messages.by_record,
            max_bytes=header.maxMsgBytes,
        )

    def _park(self, request: Request, header: PullMessageHeader) -> Deferred:
        config = self._settings.now
        hold = header.suspendTimeoutMillis if config.long_polling_enable else config.short_polling_time_mills
        deadline = request.received_at + min(max(hold, 0), LONGEST_HOLD_MS) / 1000
        end = self._store.watch(header.topic, header.queueId)
        looked_at = header.queueOffset

        def attempt(last: bool) -> Answer | Deferred | int:
            # All checks again: the topic may be gone, the group disabled, the subscription another one.
            nonlocal looked_at
            group, messages = self._checked(request)
            result = self._get(header, looked_at, messages)
            code = _code_of(result, header)
            if not last and code == ResponseCode.PULL_NOT_FOUND:
                return end.value + 1
            if not last and result.status is GetStatus.NO_MATCHED_MESSAGE:
                # Only what the filter refuses: the client would come right back. It waits on, from here.
                looked_at = result.next_offset
                return looked_at + 1
            return self._answer(request, header, group, result, code)

        self._long_poll.park(request, end, header.queueOffset + 1, deadline, attempt)
        return DEFERRED

    def _answer(
        self,
        request: Request,
        header: PullMessageHeader,
        group: SubscriptionGroupConfig,
        result: GetResult,
        code: ResponseCode,
    ) -> Answer | Deferred:
        if result.cold:
            self._nursery.start_soon(self._answer_cold, request, header, group, result)
            return DEFERRED
        statistics = self._statistics
        if result.count:
            flow = statistics.pull_flow(header.consumerGroup, header.topic, header.queueId)
            flow.add(result.count, result.size)
            flow.pulled_to = result.next_offset
            flow.milliseconds += int((trio.current_time() - request.received_at) * 1000)
            statistics.got.add(result.count, result.size)
            statistics.pulls_found += 1
        else:
            statistics.pulls_missed += 1
        suggested = self._suggest(group, result)
        if self._identity.slave and code == ResponseCode.PULL_OFFSET_MOVED:
            # A slave may simply not have got there yet: its master knows.
            code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, group.brokerId
            result.next_offset = header.queueOffset
        offsets = PullMessageAnswerHeader(suggested, result.next_offset, result.min_offset, result.max_offset)
        return Reply(code, offsets, result.slices, result.status.name)

    async def _answer_cold(
        self, request: Request, header: PullMessageHeader, group: SubscriptionGroupConfig, result: GetResult
    ) -> None:
        """Messages that the disk has to be waited for."""
        try:
            await self._store.load(result)
        except OSError as error:
            # Deleted between the two looks, or the disk is broken: the client asks again after a second.
            log.warning(
                "queue %d of %s cannot be read at %d: %s", header.queueId, header.topic, header.queueOffset, error
            )
            request.reply(Reply(ResponseCode.SYSTEM_ERROR, remark=f"the messages cannot be read: {error.strerror}"))
            return
        answer = self._answer(request, header, group, result, ResponseCode.SUCCESS)
        assert not isinstance(answer, Deferred)
        request.reply(answer)

    def _suggest(self, group: SubscriptionGroupConfig, result: GetResult) -> int:
        """Which broker of this name to pull from next: 0 unless slaves may be read from."""
        if not self._settings.now.slave_read_enable:
            return 0
        if result.log_gap > self._recent_bytes():
            return group.whichBrokerWhenConsumeSlowly
        return group.brokerId


def _code_of(result: GetResult, header: PullMessageHeader) -> ResponseCode:
    code = _CODES.get(result.status)
    if code is None:  # nothing in the queue, or no queue: an offset other than 0 cannot be right
        return ResponseCode.PULL_OFFSET_MOVED if header.queueOffset != 0 else ResponseCode.PULL_NOT_FOUND
    return code


@lru_cache(4096)
def _parsed(topic: str, expression: str, kind: str) -> MessageFilter:
    if kind == TAG:
        return by_tags(parse_tags(topic, expression, 0))
    return by_selector(compiled(expression))
