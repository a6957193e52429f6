"""17 UPDATE_AND_CREATE_TOPIC, 215 DELETE_TOPIC_IN_BROKER, 21 GET_ALL_TOPIC_CONFIG, 351 GET_TOPIC_CONFIG,
305 GET_SYSTEM_TOPIC_LIST_FROM_BROKER.

Changes acknowledged by 17 or 215 are on disk, and those by 17 are registered at all reachable name servers. System
topics are neither changed nor deleted, a slave changes nothing (1 each). 215 also removes the topic's queues, offsets
and statistics; its records stay in the log until their files are deleted. The `order` of 17 is ignored: order topics
are configured at the name server.

Attributes of 5.x (`+message.type=FIFO`) are kept and returned; a 17 without attributes leaves them unchanged.

Not served: 18 of 5.x.

Java: broker/processor/AdminBrokerProcessor.java
"""

from __future__ import annotations

import trio

from rocketlet.broker.handlers.acknowledged import acknowledged, refuse_on_slave
from rocketlet.broker.identity import Identity
from rocketlet.broker.registration import Registration
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.tables import Tables
from rocketlet.broker.tombstones import TOPIC
from rocketlet.broker.topic_table import TableFull, Topic
from rocketlet.common import topic as names
from rocketlet.common.topic_attributes import InvalidAttributes, changed_attributes
from rocketlet.remoting.access import ANY_ACCOUNT
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import collect, one_at_a_time, run_all
from rocketlet.remoting.protocol.configuration import (
    FILTER_TYPES,
    CreateTopicHeader,
    DeleteTopicHeader,
    GetTopicConfigHeader,
)
from rocketlet.remoting.protocol.routing import TopicList
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore

MAX_QUEUES = 65_535
# How long an answer waits for silent name servers; administrators' tools wait for five seconds.
REGISTRATION_SECONDS = 3.0


class TopicAdmin:
    """The topic table, as administrators see and change it."""

    def __init__(
        self,
        identity: Identity,
        tables: Tables,
        registration: Registration,
        store: MessageStore,
        statistics: Statistics,
    ) -> None:
        self._identity = identity
        self._tables = tables
        self._topics = tables.topics
        self._registration = registration
        self._store = store
        self._statistics = statistics

    def table(self) -> HandlerTable:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: Handler(self.create, CreateTopicHeader),
            RequestCode.DELETE_TOPIC_IN_BROKER: Handler(self.delete, DeleteTopicHeader),
            RequestCode.GET_ALL_TOPIC_CONFIG: Handler(self.all),
            RequestCode.GET_TOPIC_CONFIG: Handler(self.one, GetTopicConfigHeader, access=ANY_ACCOUNT),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Handler(self.system_topics),
        }

    async def create(self, request: Request) -> Reply:
        header: CreateTopicHeader = request.header
        self._check_changeable(header.topic)
        try:
            self._topics.update(self._topic_of(header))
        except TableFull as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        await acknowledged(self._tables.topics_file)
        with trio.move_on_after(REGISTRATION_SECONDS):
            await self._registration.register_now()
        return Reply()

    async def delete(self, request: Request) -> Reply:
        header: DeleteTopicHeader = request.header
        self._check_changeable(header.topic)
        offsets = self._tables.offsets
        await run_all(offsets.forgetting(topic=header.topic))
        # From here to the tombstone in one step: a message that is taken later, for it or for one of its name that is
        # created again, is not deleted with it, and finds nothing left of it.
        offsets.forget_topic(header.topic)  # those that were committed meanwhile
        self._topics.delete(header.topic)
        self._store.drop_topic(header.topic)
        self._tables.add_tombstone(TOPIC, header.topic, self._store.log.end)
        self._tables.offsets_file.changed()
        await run_all(self._statistics.forgetting(topic=header.topic))
        try:
            # First, for the files of many queues take a while: a start after a kill then leaves the rest of them out,
            # and without the tombstone it would make all of them again.
            await acknowledged(self._tables.tombstones_file, self._tables.topics_file, self._tables.offsets_file)
        finally:
            await self._store.remove_dropped()  # which makes room on a disk that is full
        self._registration.register_soon()
        return Reply()

    @one_at_a_time
    async def all(self, request: Request) -> Reply:
        return Reply(body=await collect(self._topics.pieces()))

    def one(self, request: Request) -> Reply:
        header: GetTopicConfigHeader = request.header
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return Reply(body=topic.to_config().to_json())

    def system_topics(self, request: Request) -> Reply:
        return Reply(body=TopicList(self._topics.system_topics(self._identity.name)).to_json())

    def _check_changeable(self, name: str) -> None:
        refuse_on_slave(self._identity)
        refusal = names.refusal_of(name)
        if refusal:
            raise Refused(ResponseCode.SYSTEM_ERROR, refusal)
        if names.is_system_topic(name, self._identity.cluster, self._identity.name):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The topic[{name}] is conflict with system topic.")

    def _topic_of(self, header: CreateTopicHeader) -> Topic:
        if not (0 <= header.readQueueNums <= MAX_QUEUES and 0 <= header.writeQueueNums <= MAX_QUEUES):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"readQueueNums and writeQueueNums must be 0 to {MAX_QUEUES}")
        if not 0 <= header.perm <= 15:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"perm {header.perm} is invalid: 4 read, 2 write, 1 inherit, 6 both"
            )
        old = self._topics.get(header.topic)
        try:
            attributes = changed_attributes(old.attributes if old is not None else {}, header.attributes)
        except InvalidAttributes as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return Topic(
            header.topic,
            header.readQueueNums,
            header.writeQueueNums,
            header.perm,
            sys_flag=header.topicSysFlag,
            filter_type=header.topicFilterType if header.topicFilterType in FILTER_TYPES else FILTER_TYPES[0],
            attributes=attributes,
        )
