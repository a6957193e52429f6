"""Splits many messages into batches that a broker takes, and says what may be in one batch at all.

A batch is one request: messages of one topic, with one `wait_store`, none delayed, none to a retry topic; its body is
at most the largest message a broker takes. RocketMQ's client refuses a batch that is too large and leaves the cutting
to the user; here `send_batch` refuses as well, and `split` cuts.

Java: common/message/MessageBatch.java, example/batch/SplitBatchProducer.java
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from rocketlet.client.errors import InvalidMessage, InvalidUse
from rocketlet.client.validators import check_message, check_types, check_whole
from rocketlet.common import topic as topics
from rocketlet.common.message import Message

BATCH_SIZE = 1 << 20  # bytes that one batch of `split` aims at: large enough to be cheap, and under every limit
_FIXED = 22  # total, magic, crc, flag, body length: 4 bytes each; properties length: 2
_ADDED_PROPERTIES = 64  # UNIQ_KEY and WAIT with their separators, and room for a batch-level property


def check_batch(messages: Sequence[Message]) -> None:
    """Raises InvalidMessage if these cannot be one batch."""
    if not messages:
        raise InvalidMessage("the batch is empty", advice="send at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise InvalidMessage(f"a batch has one topic, not also {message.topic}", topic=first.topic)
        if message.wait_store != first.wait_store:
            raise InvalidMessage("wait_store differs within the batch", topic=first.topic)
        if message.delay_level or message.deliver_at is not None:
            raise InvalidMessage("a delayed message cannot be in a batch", topic=first.topic, advice="send it alone")
    if topics.is_retry_topic(first.topic):
        raise InvalidMessage("a batch cannot go to a retry topic", topic=first.topic)


def size_in_batch(message: Message) -> int:
    """An upper bound of the bytes that the message takes in a batch."""
    texts = (f"{name}{value}" for name, value in message.all_properties().items())
    properties = sum(len(text.encode(errors="surrogatepass")) + 2 for text in texts)  # a send refuses surrogates
    return _FIXED + len(message.body) + properties + _ADDED_PROPERTIES


def split(messages: Iterable[Message], max_bytes: int = BATCH_SIZE) -> Iterator[list[Message]]:
    """Batches in the order of the messages; a new one begins with each change of topic or `wait_store`.

    A message that is larger than `max_bytes` by itself is a batch of its own. Raises InvalidUse.

        for batch in split(messages):
            producer.send_batch(batch)
    """
    batch: list[Message] = []
    size = 0
    check_whole("max_bytes", max_bytes, 1)
    if isinstance(messages, Message) or not isinstance(messages, Iterable):
        raise InvalidUse(f"the messages are of type {type(messages).__name__}", advice="give a list of messages")
    for message in messages:
        check_types(message)
        check_message(message, sys.maxsize)
        needed = size_in_batch(message)
        shared = (message.topic, message.wait_store)
        if batch and (size + needed > max_bytes or shared != (batch[0].topic, batch[0].wait_store)):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += needed
    if batch:
        yield batch
