"""A message with a delay level passes through SCHEDULE_TOPIC_XXXX: queue = level - 1, origin in two properties.

A level above the last becomes the last, and is stored as such. The origin is in REAL_TOPIC and REAL_QID, and both stay
in the text, with DELAY, when the message is delivered: DELAY does not mean "still delayed".

Java: store/CommitLog.java#asyncPutMessage, common/message/Message.java#getDelayTimeLevel
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from rocketlet.broker.property_text import rewritten
from rocketlet.common.errors import RocketletError
from rocketlet.common.message_properties import DELAY, REAL_QID, REAL_TOPIC
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.message import Put


class InvalidDelay(RocketletError):
    """DELAY is not a number. The message was not stored; its sender must change it."""


def delay_level(properties: Mapping[str, str]) -> int:
    """The delay level of a message; 0 for none. Raises InvalidDelay."""
    text = properties.get(DELAY)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        raise InvalidDelay(f"the property DELAY is {text[:40]!r}; it must be a level, 1 or more") from None


def delay(message: Put, properties: MutableMapping[str, str], level: int, levels: int) -> None:
    """Convert a message to be stored into its delayed form. REQUIRES 0 < level; `properties` are the message's own.

    Its tags code is not used: the store keeps the delivery time in its place.
    """
    if level > levels:
        properties[DELAY] = str(levels)
        level = levels
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.topic = SCHEDULE_TOPIC
    message.queue_id = level - 1
    message.properties = rewritten(properties)
