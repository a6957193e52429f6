"""Messages that were delivered as often as their group allows without being acknowledged go to %DLQ%group.

Written like those that a consumer sends back for the last time (`handlers/send_back.py`). The copy is written before
the fact that the message is done; after a crash between the two, the newest dead letter of the group is that message
(`Pops.run`), and is not written twice.

Java: proxy/processor/ConsumerProcessor.java (forwardMessageToDeadLetterQueue)
"""

from __future__ import annotations

import logging

from rocketlet.broker.property_text import rewritten
from rocketlet.broker.put_again import FilterBits, put_again
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.message_id import InvalidMessageId, offset_message_id, parse_offset_message_id
from rocketlet.common.message_properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, WAIT, decode_bytes
from rocketlet.common.message_record import Record, decode
from rocketlet.common.topic import dlq_topic
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.popping.dead_letters")


class DeadLetters:
    """Writes dead letters."""

    def __init__(self, store: MessageStore, topics: TopicTable, filter_bits: FilterBits) -> None:
        self._store = store
        self._topics = topics
        self._filter_bits = filter_bits

    def move(self, group: str, log_offset: int, times: int) -> bool:
        """Store the dead letter of a message that was delivered that many times; False if it no longer exists or can
        never be stored. Raises NotWritable."""
        raw = self._store.record_at(log_offset)
        topic = self._topics.create(dlq_topic(group), 1, reason="for dead letters")
        if raw is None or topic is None:
            log.error("group %s: the message at %d is dead, and cannot be kept", group, log_offset)
            return False
        record = decode(raw)
        log.info("group %s: the message at %d is dead after %d deliveries", group, log_offset, times)
        self._store.put(self._letter(record, topic.name, times))
        return True

    def _letter(self, record: Record, topic: str, times: int) -> Put:
        properties = decode_bytes(record.properties)
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties[WAIT] = "false"
        properties.setdefault(ORIGIN_MESSAGE_ID, offset_message_id(record.store_host, record.log_offset))
        message = put_again(record, topic, 0, rewritten(properties))
        message.reconsume_times = record.reconsume_times + times
        message.filter_bits = self._filter_bits(topic, message.properties)
        return message

    def newest(self, group: str) -> Record | None:
        """The original message of the group's newest dead letter."""
        queue = self._store.queue(dlq_topic(group), 0)
        entry = queue.entry(queue.end - 1) if queue is not None and queue.end else None
        raw = self._store.record_at(entry[0]) if entry is not None else None
        origin = decode_bytes(decode(raw).properties).get(ORIGIN_MESSAGE_ID, "") if raw is not None else ""
        try:
            sent = self._store.record_at(parse_offset_message_id(origin)[2])
        except InvalidMessageId:
            return None
        return decode(sent) if sent is not None else None
