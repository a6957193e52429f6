"""The handles that consumers and producers carry for the broker: of a delivery (POP_CK), and of a delayed message.

A receipt handle is what a message's property POP_CK says of its delivery, eight or nine words with blanks between:

    startOffset popTime invisibleTime reviveQid retry brokerName queueId queueOffset [logOffset]

`popTime` is what tells one delivery of a message from the next. `retry` is 0 for the topic itself, 1 or 2 for a retry
topic of RocketMQ's. The ninth word comes with gRPC alone. A recall handle is the URL-safe base64 of

    v1 topic brokerName deliverMs messageId

Java: remoting/protocol/header/ExtraInfoUtil.java, common/consumer/ReceiptHandle.java,
common/producer/RecallMessageHandle.java
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from typing import Final

from rocketlet.common.errors import RocketletError
from rocketlet.common.java_numbers import INT32_MAX, INT64_MAX

LONGEST_HANDLE: Final = 1024
ORDERLY_REVIVE_QUEUE: Final = 999  # reviveQid of a delivery in order


class InvalidHandle(RocketletError):
    """A handle that no broker has assigned; hand back the one of the message, whole."""


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """One delivery of one message."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    retry: int
    broker_name: str
    queue_id: int
    offset: int
    log_offset: int | None = None

    @property
    def visible_at(self) -> int:
        """When the message comes again unless it is acknowledged, in ms since 1970."""
        return self.pop_time + self.invisible_time

    def changed(self, pop_time: int, invisible_time: int, revive_queue: int) -> ReceiptHandle:
        """The handle after a change of the invisible time, of what the broker answered to it."""
        return replace(self, pop_time=pop_time, invisible_time=invisible_time, revive_queue=revive_queue)

    def __str__(self) -> str:
        words = [
            self.start_offset, self.pop_time, self.invisible_time, self.revive_queue, self.retry, self.broker_name,
            self.queue_id, self.offset,
        ]  # fmt: skip
        if self.log_offset is not None:
            words.append(self.log_offset)
        return " ".join(map(str, words))


def parse_receipt_handle(text: str) -> ReceiptHandle:
    """Raises InvalidHandle."""
    words = text.split(" ") if len(text) <= LONGEST_HANDLE else []
    if len(words) not in (8, 9) or not words[5]:
        raise InvalidHandle(f"the receipt handle {text[:80]!r} does not consist of eight or nine words")
    limits = (INT64_MAX, INT64_MAX, INT64_MAX, INT32_MAX, 2, 0, INT32_MAX, INT64_MAX, INT64_MAX)
    try:
        numbers = [0 if at == 5 else _number(word, limits[at]) for at, word in enumerate(words)]
    except ValueError:
        raise InvalidHandle(
            f"the receipt handle {text[:80]!r} has a word that should be a number and is none"
        ) from None
    return ReceiptHandle(
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], words[5], numbers[6], numbers[7],
        numbers[8] if len(numbers) == 9 else None,
    )  # fmt: skip


def _number(word: str, limit: int) -> int:
    if not word.isascii() or not word.isdigit() or len(word) > 19:
        raise ValueError(word)
    number = int(word)
    if number > limit:
        raise ValueError(word)
    return number


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """One delayed message that has not been delivered yet."""

    topic: str
    broker_name: str
    deliver_ms: int
    message_id: str

    def __str__(self) -> str:
        raw = f"v1 {self.topic} {self.broker_name} {self.deliver_ms} {self.message_id}"
        return base64.urlsafe_b64encode(raw.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    """Raises InvalidHandle."""
    try:
        if len(text) > LONGEST_HANDLE:
            raise ValueError(text)
        raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, topic, broker, deliver, message_id = raw.decode().split(" ")
        if version != "v1" or not (topic and broker and message_id):
            raise ValueError(text)
        return RecallHandle(topic, broker, _number(deliver, INT64_MAX), message_id)
    except (ValueError, binascii.Error):
        raise InvalidHandle(f"{text[:80]!r} is no handle of a delayed message") from None
