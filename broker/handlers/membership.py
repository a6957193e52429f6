"""34 HEART_BEAT, 35 UNREGISTER_CLIENT, 38 GET_CONSUMER_LIST_BY_GROUP, 46 CHECK_CLIENT_CONFIG.

A heartbeat registers all producer and consumer groups of one client on its connection. For a consumer group it also
creates the group, if allowed, and its retry topic, which clients look up at once: so the answer to a client that joins
waits until the name servers have it. The answer carries only our version in its header, from which Java clients know
that SQL92 is supported. The list of 38 is the input of every rebalance: each client id once; a group without members is
code 1. 46 checks a consumer's filter before it starts: 1 if such filters are disabled, 23 if its type is unknown or the
expression does not compile.

Not served: heartbeats of 5.x without subscriptions (a plain answer makes its clients send complete ones).

Java: broker/processor/ClientManageProcessor.java, ConsumerManageProcessor.java
"""

from __future__ import annotations

from rocketlet.broker.clients import Clients, Heartbeat
from rocketlet.broker.config import Settings
from rocketlet.broker.consumer_groups import MAX_GROUPS_OF_CONNECTION, Consuming, RegistryFull
from rocketlet.broker.filter.lexer import FilterSyntaxError
from rocketlet.broker.filter.selector import compiled
from rocketlet.broker.registration import Registration
from rocketlet.broker.subscription_groups import SubscriptionGroups
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.subscription import SQL92, TAG, Subscription
from rocketlet.common.topic import GROUP_MAX_LENGTH, is_group_name, retry_topic
from rocketlet.remoting.access import IfNamed, subscribe
from rocketlet.remoting.handler import DEFERRED, Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.configuration import UNIT_SUBSCRIPTION
from rocketlet.remoting.protocol.membership import (
    CheckClientBody,
    ConsumerData,
    ConsumerListBody,
    GetConsumerListHeader,
    HeartbeatData,
    SubscriptionData,
    UnregisterClientHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

LONGEST_CLIENT_ID = 1_000
LONGEST_CHECK = 128 << 10  # an expression is at most 16 KiB, six times that in escapes
FILTER_OFF = "The broker does not support consumer to filter message by"


class Membership:
    """Clients register, send heartbeats, list their group, and unregister."""

    def __init__(
        self,
        settings: Settings,
        topics: TopicTable,
        groups: SubscriptionGroups,
        clients: Clients,
        registration: Registration,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._registration = registration

    def table(self) -> HandlerTable:
        return {
            RequestCode.HEART_BEAT: Handler(
                self.heartbeat, None, "heartbeat", access=subscribe(topic=_topics_of_beat, group=_groups_of_beat)
            ),
            RequestCode.UNREGISTER_CLIENT: Handler(
                # Unregistering a producer removes only its own connection.
                self.unregister,
                UnregisterClientHeader,
                "client",
                access=subscribe(group=IfNamed("consumerGroup")),
            ),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: Handler(
                self.list_group, GetConsumerListHeader, "consumer", access=subscribe(group="consumerGroup")
            ),
            RequestCode.CHECK_CLIENT_CONFIG: Handler(
                self.check,
                None,
                "client",
                access=subscribe(topic=_topic_of_check, group=_group_of_check),
                longest_body=LONGEST_CHECK,
            ),
        }

    def heartbeat(self, request: Request) -> Reply | Deferred:
        data = HeartbeatData.from_json(request.body)
        if len(data.clientID) > LONGEST_CLIENT_ID:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"a client id of {len(data.clientID)} characters; at most {LONGEST_CLIENT_ID} are allowed",
            )
        if len(data.consumerDataSet) > MAX_GROUPS_OF_CONNECTION:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"a client in {len(data.consumerDataSet)} groups; at most {MAX_GROUPS_OF_CONNECTION} are allowed",
            )
        # A group with an illegal name is refused everything else, here and in RocketMQ.
        data.consumerDataSet = [group for group in data.consumerDataSet if is_group_name(group.groupName)]
        topics = len(self._topics)
        for consumer in data.consumerDataSet:
            self._create_retry_topic(consumer)
        beat = Heartbeat(
            data.clientID,
            request.language.name,
            request.version,
            [consuming_of(consumer) for consumer in data.consumerDataSet],
            [group.groupName for group in data.producerDataSet if 0 < len(group.groupName) <= GROUP_MAX_LENGTH],
        )
        try:
            has_joined = self._clients.heartbeat(request.connection, beat)
        except RegistryFull as error:
            raise Refused(ResponseCode.SYSTEM_BUSY, str(error)) from None
        # A member that has just joined may have created the retry topic, and still be waiting itself.
        if not ((has_joined or len(self._topics) > topics) and self._registration.is_behind):
            return Reply()
        request.connection.start_task(self._answer_when_known, request)
        return DEFERRED

    async def _answer_when_known(self, request: Request) -> None:
        """Clients ask the name servers for the retry topic as soon as they have the answer."""
        await self._registration.wait_registered_briefly()
        request.reply(Reply())

    def unregister(self, request: Request) -> Reply:
        header: UnregisterClientHeader = request.header
        if header.producerGroup:
            self._clients.leave_producer_group(header.producerGroup, request.connection)
        if header.consumerGroup:
            self._clients.leave_consumer_group(header.consumerGroup, request.connection)
        return Reply()

    def list_group(self, request: Request) -> Reply:
        header: GetConsumerListHeader = request.header
        group = self._clients.consumers.get(header.consumerGroup)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumerGroup}")
        return Reply(body=ConsumerListBody(group.client_ids()).to_json())

    def check(self, request: Request) -> Reply:
        body = CheckClientBody.from_json(request.body)
        subscription = body.subscriptionData
        if subscription.expressionType == TAG:
            return Reply()
        if not self._settings.now.enable_property_filter:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{FILTER_OFF} {subscription.expressionType}")
        if subscription.expressionType != SQL92:
            kind = subscription.expressionType
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"no filter of type {kind} is known; use TAG or SQL92"
            )
        try:
            compiled(subscription.subString)
        except FilterSyntaxError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return Reply()

    def _create_retry_topic(self, consumer: ConsumerData) -> None:
        group = self._groups.find(consumer.groupName)
        if group is not None and group.retryQueueNums > 0:
            self._topics.create(
                retry_topic(consumer.groupName),
                group.retryQueueNums,
                sys_flag=UNIT_SUBSCRIPTION if consumer.unitMode else 0,
                reason="by a heartbeat of its group",
            )


def _topics_of_beat(body: bytes | memoryview) -> list[str]:
    consumers = HeartbeatData.from_json(body).consumerDataSet
    return [subscription.topic for consumer in consumers for subscription in consumer.subscriptionDataSet]


def _groups_of_beat(body: bytes | memoryview) -> list[str]:
    return [consumer.groupName for consumer in HeartbeatData.from_json(body).consumerDataSet]


def _topic_of_check(body: bytes | memoryview) -> list[str]:
    return [CheckClientBody.from_json(body).subscriptionData.topic]


def _group_of_check(body: bytes | memoryview) -> list[str]:
    return [CheckClientBody.from_json(body).group]


def consuming_of(consumer: ConsumerData) -> Consuming:
    """One group of a heartbeat in the broker's types."""
    return Consuming(
        consumer.groupName,
        str(consumer.consumeType),
        str(consumer.messageModel),
        str(consumer.consumeFromWhere),
        [subscription_of(data) for data in consumer.subscriptionDataSet],
    )


def subscription_of(data: SubscriptionData) -> Subscription:
    return Subscription(
        data.topic,
        data.subString,
        data.expressionType,
        set(data.tagsSet),
        set(data.codeSet),
        data.subVersion,
        data.classFilterMode,
    )


def data_of(subscription: Subscription) -> SubscriptionData:
    """The reverse, for requests for a group's subscriptions."""
    return SubscriptionData(
        subscription.topic,
        subscription.expression,
        sorted(subscription.tags),
        sorted(subscription.codes),
        subscription.version,
        subscription.expression_type,
        subscription.class_filter,
    )
