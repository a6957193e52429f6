"""Whether a pull may be served, and with which filter: the checks before reading.

Java: broker/processor/PullMessageProcessor.java (processRequest, its first half)
"""

from __future__ import annotations

from functools import lru_cache, partial

import trio

from rocketlet.broker.clients import Clients
from rocketlet.broker.config import Settings
from rocketlet.broker.filter.lexer import FilterSyntaxError
from rocketlet.broker.filter.message_filter import MessageFilter, by_consumer_filter, by_origin, by_selector, by_tags
from rocketlet.broker.filter.selector import compiled, is_ready
from rocketlet.broker.identity import Identity
from rocketlet.broker.overload import Overload
from rocketlet.broker.tables import Tables
from rocketlet.broker.topic_table import Topic
from rocketlet.common.subscription import SQL92, TAG, InvalidSubscription, parse_tags
from rocketlet.common.topic import PERM_READ, RETRY_PREFIX
from rocketlet.remoting.handler import Later, Refused, Request
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig
from rocketlet.remoting.protocol.pulling import SUBSCRIPTION, PullMessageHeader
from rocketlet.remoting.response_codes import SEE_FAQ, ResponseCode

# Of tags or an expression in a pull: 4,000 tags take 2 ms to parse.
LONGEST_SUBSCRIPTION = 16_384
# Parsed, 256 characters of tags take at most 10 KB, so 4,096 of them 40 MB.
LONGEST_CACHED = 256


class PullChecks:
    """The order of the checks, and their codes: `pull_message.py`. Each raises Refused."""

    def __init__(
        self, identity: Identity, settings: Settings, overload: Overload, tables: Tables, clients: Clients
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._overload = overload
        self._groups = tables.groups
        self._known_group = tables.groups.get
        self._topic = tables.topics.get
        self._filters = tables.filters
        self._members = clients.consumers.get
        self._compiling = trio.Lock()

    def admit(self, request: Request) -> tuple[SubscriptionGroupConfig, MessageFilter]:
        """The group and the filter of a new pull. Raises Later, see `prepare`."""
        if self._overload.waited_ms:
            self._overload.check(self._settings.now.wait_time_mills_in_pull_queue)
        return self.check(request, is_new=True)

    def check(self, request: Request, *, is_new: bool = False) -> tuple[SubscriptionGroupConfig, MessageFilter]:
        """The same for one that has been parked."""
        header: PullMessageHeader = request.header
        group, topic = self.group_and_topic(header.consumerGroup, header.topic)
        if not 0 <= header.queueId < topic.read:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queueId}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read}] consumer:[{request.connection.peer}]",
            )
        if header.sysFlag & SUBSCRIPTION:
            expression, kind = header.subscription or "", header.expressionType or TAG
            if is_new:
                self.prepare(header.topic, expression, kind)
            return group, self.filter_of(header.topic, expression, kind)
        return group, self._filter_of_heartbeats(header, group, topic)

    def group_and_topic(self, group_name: str, topic_name: str) -> tuple[SubscriptionGroupConfig, Topic]:
        """The group and topic of a request that may read. Raises Refused."""
        if not self._settings.now.broker_permission & PERM_READ:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the broker[{self._identity.address}] pulling message is forbidden"
            )
        group = self._known_group(group_name) or self._groups.find(group_name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group_name}] does not exist; create it, or set autoCreateSubscriptionGroup=true"
                + SEE_FAQ,
            )
        if not group.consumeEnable:
            raise Refused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        topic = self._topic(topic_name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please! {SEE_FAQ}")
        if not topic.perm & PERM_READ:
            raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{topic_name}] pulling message is forbidden")
        return group, topic

    def prepare(self, topic: str, expression: str, kind: str) -> None:
        """To be called for an expression in a new request. Raises Later where it is long and not compiled yet.

        The longest takes 10 ms, what is read with it then may take as long again, and the next request of the turn may
        have another one: so it is compiled in a step of its own, one at a time.
        """
        if kind == SQL92 and not is_ready(expression):
            raise Later(partial(self._compile, topic, expression, kind))

    async def _compile(self, topic: str, expression: str, kind: str) -> None:
        async with self._compiling:
            self.filter_of(topic, expression, kind)
            await trio.lowlevel.checkpoint()

    def filter_of(self, topic: str, expression: str, kind: str) -> MessageFilter:
        """The filter for an expression in a request. Raises Refused."""
        if kind != TAG:
            self._check_filters_on(kind)
        try:
            parse = _parse_once if len(expression) <= LONGEST_CACHED else _parse
            return parse(topic, expression, kind)
        except (InvalidSubscription, FilterSyntaxError) as error:
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from None

    def _filter_of_heartbeats(
        self, header: PullMessageHeader, group: SubscriptionGroupConfig, topic: Topic
    ) -> MessageFilter:
        members = self._members(header.consumerGroup)
        if members is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist, {header.consumerGroup}{SEE_FAQ}",
            )
        if not group.consumeBroadcastEnable and members.broadcasting:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumerGroup}] can not consume by broadcast way",
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.consumerGroup}, topic {header.topic}{SEE_FAQ}",
            )
        if subscription.version < header.subVersion:
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: group {header.consumerGroup}, topic {header.topic}",
            )
        if subscription.expression_type == TAG:
            if self._settings.now.filter_support_retry and topic.name.startswith(RETRY_PREFIX):
                return by_origin(topic.name, self._filters)
            return members.tag_filters[header.topic]
        self._check_filters_on(subscription.expression_type)
        consumer_filter = self._filters.get(header.topic, header.consumerGroup)
        if consumer_filter is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"the consumer's filter data not exist: {header.consumerGroup}"
            )
        if consumer_filter.client_version < header.subVersion:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST, f"the consumer's filter data not latest: {header.consumerGroup}"
            )
        return by_consumer_filter(consumer_filter, self._filters.bloom)

    def _check_filters_on(self, kind: str) -> None:
        if kind != SQL92 or not self._settings.now.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
            )


def _parse(topic: str, expression: str, kind: str) -> MessageFilter:
    if len(expression) > LONGEST_SUBSCRIPTION:
        raise InvalidSubscription(
            f"a subscription of {len(expression)} characters; at most {LONGEST_SUBSCRIPTION} are allowed"
        )
    if kind == TAG:
        return by_tags(parse_tags(topic, expression, 0))
    return by_selector(compiled(expression))


_parse_once = lru_cache(4096)(_parse)
