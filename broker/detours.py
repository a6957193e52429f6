"""The two ways on which a message does not go straight into its queue: delayed, and half of a transaction.

Both start in the same place of a send, and both write its properties again. WAIT, which the text of a plain send does
not keep, stays in theirs, behind the others.

Java: broker/processor/SendMessageProcessor.java, store/CommitLog.java
"""

from __future__ import annotations

from rocketlet.broker.delay_levels import delay, delay_level
from rocketlet.broker.half_messages import prepare
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.message_properties import WAIT, decode_bytes
from rocketlet.common.topic import HALF_TOPIC
from rocketlet.store.message import Put


class Detours:
    """What becomes of a delayed or a transactional message before it is stored. `levels`: how many there are."""

    def __init__(self, levels: int, topics: TopicTable) -> None:
        self._levels = levels
        self._topics = topics

    def delayed(self, put: Put) -> Put:
        """A message with DELAY, on its way through the schedule topic. REQUIRES: the level is a number above 0."""
        properties = _properties_of(put)
        delay(put, properties, delay_level(properties), self._levels)
        return put

    def half(self, put: Put) -> Put:
        """A message with TRAN_MSG, on its way through the half topic."""
        self._topics.create(HALF_TOPIC, 1, reason="for transactions")
        prepare(put, _properties_of(put))
        return put


def _properties_of(put: Put) -> dict[str, str]:
    properties = decode_bytes(put.properties)
    wait = properties.pop(WAIT, None)
    if wait is not None:
        properties[WAIT] = wait
    return properties
