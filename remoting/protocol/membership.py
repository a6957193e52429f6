"""Membership: heartbeats (34), unregistering (35), members of a group (38) and changes of them (40), locks of queues
for consuming in order (41, 42), the check of a filter before a consumer starts (46).

Java: common/protocol/heartbeat/HeartbeatData.java, ConsumerData.java, SubscriptionData.java,
common/protocol/body/LockBatchRequestBody.java, CheckClientRequestBody.java
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec
from msgspec import field

from rocketlet.remoting.protocol.body import MANY_OBJECTS, Body, name_ordinals, part
from rocketlet.remoting.protocol.header import Header, Int, Long
from rocketlet.remoting.protocol.queue import WireQueue

# Names by ordinal: C++ clients send the ordinal. DO NOT CHANGE the order.
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
_ENUMS = {"consumeType": CONSUME_TYPES, "messageModel": MESSAGE_MODELS, "consumeFromWhere": CONSUME_FROM_WHERE}


class SubscriptionData(Body):
    """A group's subscription to a topic. `subVersion` grows with every change; `subString` `*` is everything."""

    topic: str = ""
    subString: str = "*"
    tagsSet: list[str] = field(default_factory=list)
    codeSet: list[Int] = field(default_factory=list)
    subVersion: Long = 0
    expressionType: str = "TAG"
    classFilterMode: bool = False

    def __post_init__(self) -> None:
        self.subString = self.subString or "*"
        self.expressionType = self.expressionType or "TAG"


class ConsumerData(Body):
    """One consumer group of a client."""

    groupName: str = ""
    consumeType: str = "CONSUME_PASSIVELY"
    messageModel: str = "CLUSTERING"
    consumeFromWhere: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptionDataSet: list[SubscriptionData] = field(default_factory=list)
    unitMode: bool = False


class ProducerData(Body):
    """One producer group of a client."""

    groupName: str = ""


class HeartbeatData(Body):
    """The body of 34: everything about one client."""

    # A subscription of RocketMQ's clients takes more than a hundred bytes, and a body a megabyte at most.
    most_objects: ClassVar[int | None] = MANY_OBJECTS

    clientID: str = ""
    producerDataSet: list[ProducerData] = field(default_factory=list)
    consumerDataSet: list[ConsumerData] = field(default_factory=list)

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        for consumer in part(value, "consumerDataSet", list[Any], []):
            name_ordinals(consumer, _ENUMS)
        return msgspec.convert(value, cls, strict=False)


class UnregisterClientHeader(Header):
    """35. C++ clients send both groups, one of them empty."""

    clientID: str = ""
    producerGroup: str | None = None
    consumerGroup: str | None = None


class GetConsumerListHeader(Header):
    """38. A group without members is answered with code 1."""

    consumerGroup: str = ""


class ConsumerListBody(Body):
    """The answer to 38: the client ids, the input of every rebalance."""

    consumerIdList: list[str] = field(default_factory=list)


class NotifyConsumerIdsChangedHeader(Header):
    """40, broker to client, one-way: rebalance now."""

    consumerGroup: str = ""


class LockBatchBody(Body):
    """41 and 42: these queues for this client."""

    clientId: str = ""
    consumerGroup: str = ""
    mqSet: list[WireQueue] = field(default_factory=list)


class LockBatchAnswerBody(Body):
    """The answer to 41: the queues now locked for the client."""

    lockOKMQSet: list[WireQueue] = field(default_factory=list)


class CheckClientBody(Body):
    """46: 1 if the filter's type is not supported, 23 if the expression does not compile."""

    clientId: str = ""
    group: str = ""
    subscriptionData: SubscriptionData = field(default_factory=SubscriptionData)
