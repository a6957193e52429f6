"""Sends, send-backs and replies: 10, 310, 320, 324, 325, 36, 326.

A send has long field names (10, 324) or letters (310, 320, 325); both structs have the same attributes, so a handler
serves either. Whether the body is a batch is decided by `batch`, not by the code: C++ clients send batches as
310.

Java: common/protocol/header/SendMessageRequestHeaderV2.java, SendMessageResponseHeader.java,
ConsumerSendMsgBackRequestHeader.java, ReplyMessageRequestHeader.java
"""

from __future__ import annotations

from rocketlet.remoting.protocol.header import Header, Int, Long

_LETTERS = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "brokerName": "n",
}


class SendMessageHeader(Header):
    """10 and 324: long names. A queue id below zero leaves the choice to the broker."""

    queueId: Int
    topic: str = ""
    producerGroup: str = ""
    defaultTopic: str = ""
    defaultTopicQueueNums: Int = 0
    sysFlag: Int = 0
    bornTimestamp: Long = 0
    flag: Int = 0
    properties: str = ""
    reconsumeTimes: Int = 0
    unitMode: bool = False
    maxReconsumeTimes: Int | None = None
    batch: bool = False
    bname: str | None = None


class SendMessageHeaderV2(Header, rename=_LETTERS):
    """310, 320 and 325: the same with letters."""

    queueId: Int
    topic: str = ""
    producerGroup: str = ""
    defaultTopic: str = ""
    defaultTopicQueueNums: Int = 0
    sysFlag: Int = 0
    bornTimestamp: Long = 0
    flag: Int = 0
    properties: str = ""
    reconsumeTimes: Int = 0
    unitMode: bool = False
    maxReconsumeTimes: Int | None = None
    batch: bool = False
    brokerName: str | None = None


class SendMessageAnswerHeader(Header):
    """Where a message was stored. `msgId` of a batch: one id per message, joined by commas; the offset is the first
    one's."""

    msgId: str
    queueId: Int
    queueOffset: Long
    transactionId: str | None = None
    MSG_REGION: str | None = None
    TRACE_ON: str | None = None
    recallHandle: str | None = None
    """Of a message for a later moment, to take it back by."""


class SendRefusedHeader(Header):
    """A refused send's answer still has these two fields."""

    MSG_REGION: str | None = None
    TRACE_ON: str | None = None


class ConsumerSendMsgBackHeader(Header):
    """36: a message could not be consumed; store it for a later attempt."""

    offset: Long
    group: str = ""
    delayLevel: Int = 0
    originMsgId: str | None = None
    originTopic: str | None = None
    unitMode: bool = False
    maxReconsumeTimes: Int | None = None
    bname: str | None = None


class PushReplyMessageHeader(Header):
    """326, broker to client: the reply to a request that this client has sent. Hosts are `ip:port`."""

    queueId: Int
    topic: str = ""
    producerGroup: str = ""
    defaultTopic: str = ""
    defaultTopicQueueNums: Int = 0
    sysFlag: Int = 0
    bornTimestamp: Long = 0
    flag: Int = 0
    properties: str = ""
    reconsumeTimes: Int = 0
    unitMode: bool = False
    bornHost: str = ""
    storeHost: str = ""
    storeTimestamp: Long = 0
