"""Pop, from 5.x: receive messages for a while (200050), acknowledge them (200051, 200151), extend or end their
invisible time (200053), ask whether there are any (200054), peek at them (200052), count waiting pops (200055); which
queues a client consumes and how (400 to 402); recall a delayed message (370); messages in flight and delayed (30021,
ours).

The `...Info` fields of an answer to a pop are lists joined by `;` of three words, `retry queueId value`; `retry` is 0
for the topic itself. Offsets are those of the messages in the body, in its order.

Java: remoting/protocol/header/PopMessageRequestHeader.java and its neighbours, ExtraInfoUtil.java;
remoting/protocol/body/BatchAck.java, QueryAssignmentRequestBody.java, SetMessageRequestModeRequestBody.java
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import UNSET, UnsetType, field

from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.body import MANY_OBJECTS, ODD_VALUES_OF_ANSWERS, Body
from rocketlet.remoting.protocol.header import Header, Int, Long
from rocketlet.remoting.protocol.queue import WireQueue

ANY_QUEUE: Final = -1  # queue id of a pop or notification: whichever queue has messages
MAX_MESSAGES: Final = 32  # of one pop
FROM_MIN, FROM_MAX = 0, 1  # initMode: where a group without an offset begins

PULL_MODE, POP_MODE = "PULL", "POP"
MODES: Final = (PULL_MODE, POP_MODE)


class PopMessageHeader(Header):
    """200050. Times in ms; `bornTime` + `pollTime` is when the client stops waiting. `attemptId`: an orderly pop
    repeated with the same id gets the same messages again, since its answer may have been lost."""

    consumerGroup: str = ""
    topic: str = ""
    queueId: Int = ANY_QUEUE
    maxMsgNums: Int = 1
    invisibleTime: Long = 60_000
    pollTime: Long = 0
    bornTime: Long = 0
    initMode: Int = FROM_MIN
    expType: str | None = None
    exp: str | None = None
    order: bool = False
    attemptId: str | None = None
    bname: str | None = None


class PopMessageAnswerHeader(Header):
    """With the codes 0, 209, 210 and 19; `restNum` is how many messages are left for the group."""

    popTime: Long
    invisibleTime: Long
    reviveQid: Int
    restNum: Long
    startOffsetInfo: str | None = None
    msgOffsetInfo: str | None = None
    orderCountInfo: str | None = None


class AckMessageHeader(Header):
    """200051. `extraInfo` is the receipt handle of the message (`common/receipt_handle.py`)."""

    queueId: Int
    offset: Long
    consumerGroup: str = ""
    topic: str = ""
    extraInfo: str = ""
    bname: str | None = None


class ChangeInvisibleTimeHeader(Header):
    """200053: the message is redelivered `invisibleTime` ms from now, unless it is acknowledged before."""

    queueId: Int
    offset: Long
    invisibleTime: Long
    consumerGroup: str = ""
    topic: str = ""
    extraInfo: str = ""
    bname: str | None = None


class ChangeInvisibleTimeAnswerHeader(Header):
    """The answer to 200053: the new values of these parts of the handle."""

    popTime: Long
    invisibleTime: Long
    reviveQid: Int


class NotificationHeader(Header):
    """200054: answered as soon as there is something to pop."""

    consumerGroup: str = ""
    topic: str = ""
    queueId: Int = ANY_QUEUE
    pollTime: Long = 0
    bornTime: Long = 0
    order: bool = False
    attemptId: str | None = None
    expType: str | None = None
    exp: str | None = None
    bname: str | None = None


class NotificationAnswerHeader(Header):
    """The answer to 200054."""

    hasMsg: bool = False
    pollingFull: bool = False


class PeekMessageHeader(Header):
    """200052: what a pop would return, without taking it."""

    consumerGroup: str = ""
    topic: str = ""
    queueId: Int = ANY_QUEUE
    maxMsgNums: Int = 1
    bname: str | None = None


class PollingInfoHeader(Header):
    """200055."""

    consumerGroup: str = ""
    topic: str = ""
    queueId: Int = ANY_QUEUE


class PollingInfoAnswerHeader(Header):
    """The answer to 200055: how many pops wait."""

    pollingNum: Int


class RecallMessageHeader(Header):
    """370. The handle comes from the answer to the send of a delayed message."""

    producerGroup: str = ""
    topic: str = ""
    recallHandle: str = ""
    bname: str | None = None


class RecallMessageAnswerHeader(Header):
    """The answer to 370: the unique key of the message that will not be delivered."""

    msgId: str


class BatchAck(Body, rename={
    "group": "c", "topic": "t", "retry": "r", "startOffset": "so", "queueId": "q", "reviveQueue": "rq",
    "popTime": "pt", "invisibleTime": "it", "bits": "b",
}):  # fmt: skip
    """Messages of one pop from one queue. `bits`: base64 of a bit set, bit n (the lowest first) for startOffset + n."""

    group: str = ""
    topic: str = ""
    retry: str = "0"
    startOffset: Long = 0
    queueId: Int = 0
    reviveQueue: Int = 0
    popTime: Long = 0
    invisibleTime: Long = 0
    bits: str = ""

    def offsets(self, limit: int) -> Sequence[int]:
        """The acknowledged offsets; a range if they are consecutive. Raises BodyError for more than `limit`, or invalid
        base64."""
        try:
            raw = base64.b64decode(self.bits, validate=True) if len(self.bits) <= _LONGEST_BITS else b""
        except (binascii.Error, ValueError):
            raise BodyError(f"the bits {self.bits[:40]!r} of a batch of acks are no base64") from None
        number = int.from_bytes(raw, "little")
        if len(self.bits) > _LONGEST_BITS or number.bit_count() > limit:
            raise BodyError(f"a batch of more than {limit} acks")
        first = (number & -number).bit_length() - 1
        if number and not number >> first & (number >> first) + 1:
            return range(self.startOffset + first, self.startOffset + number.bit_length())
        result = []
        while number:
            lowest = number & -number
            result.append(self.startOffset + lowest.bit_length() - 1)
            number ^= lowest
        return result

    @staticmethod
    def bits_of(start: int, offsets: Iterable[int]) -> str:
        """Offsets as `bits`. REQUIRES that none lies before the start."""
        number = 0
        for offset in offsets:
            number |= 1 << (offset - start)
        return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


_LONGEST_BITS = 4096  # characters; one pop of a queue spans far less, even with a filter that rejects most messages


class BatchAckBody(Body):
    """The body of 200151."""

    most_objects = MANY_OBJECTS

    brokerName: str = ""
    acks: list[BatchAck] = field(default_factory=list)


class QueryAssignmentBody(Body):
    """The body of 400."""

    topic: str = ""
    consumerGroup: str = ""
    clientId: str = ""
    strategyName: str = "AVG"
    messageModel: str = "CLUSTERING"


class Assignment(Body):
    """A queue, or with id -1 all queues of a broker, and how to receive from it."""

    messageQueue: WireQueue
    mode: str = PULL_MODE
    attachments: dict[str, str] | UnsetType = UNSET


class AssignmentsBody(Body):
    """The answer to 400."""

    odd_values = ODD_VALUES_OF_ANSWERS

    messageQueueAssignments: list[Assignment] = field(default_factory=list)


class RequestMode(Body):
    """The body of 401, and how a group receives messages of a topic. `popShareQueueNum`: how many queues beyond its own
    a client pops from; 0 or less for all."""

    topic: str = ""
    consumerGroup: str = ""
    mode: str = PULL_MODE
    popShareQueueNum: Int = 0


class RequestModeTable(Body):
    """The answer to 402, and config/messageRequestMode.json: topic, group, mode."""

    messageRequestModeMap: dict[str, dict[str, RequestMode]] = field(default_factory=dict)


class InFlightHeader(Header):
    """30021, ours: popped and unacknowledged messages, of a topic, a group, or all."""

    topic: str = ""
    group: str = ""


class InFlightQueue(Body):
    """One queue of one group. `due` may be popped again, `held` wait for others of their message group; `waiting` are
    the waiting pops of the group and topic."""

    topic: str
    group: str
    queueId: Int
    invisible: Int = 0
    due: Int = 0
    held: Int = 0
    nextOffset: Long = 0
    waiting: Int = 0


class DelayedMessages(Body):
    """Messages that wait for their delivery time, and counts of others since the start; `lateMs` in total."""

    pending: Int = 0
    nextDue: Long = 0
    delivered: Long = 0
    recalled: Long = 0
    skipped: Long = 0
    lateMs: Long = 0


class InFlightTable(Body):
    """The answer to 30021; `more`: some queues are left out."""

    odd_values = ODD_VALUES_OF_ANSWERS

    queues: list[InFlightQueue] = field(default_factory=list)
    timers: DelayedMessages = field(default_factory=DelayedMessages)
    more: bool = False


def info_text(values: Mapping[tuple[int, int], object] | Iterable[tuple[tuple[int, int], object]]) -> str:
    """An `...Info` field of ((retry, queue id), value) pairs."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return ";".join(f"{retry} {queue_id} {value}" for (retry, queue_id), value in pairs)


def parse_info(text: str | None) -> dict[tuple[int, int], str]:
    """The values of an `...Info` field by (retry, queue id). Raises BodyError."""
    result = {}
    for part in filter(None, (text or "").split(";")):
        words = part.split(" ")
        # `isdecimal`, because int() does not read every digit: not ², nor more than 4,300 of them.
        if len(words) != 3 or not all(word.isdecimal() and len(word) < 12 for word in words[:2]):
            raise BodyError(f"{part[:80]!r} in the answer to a pop does not consist of three words")
        result[int(words[0]), int(words[1])] = words[2]
    return result
