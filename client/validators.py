"""What the client refuses before anything is sent: names, sizes, empty bodies, properties no reader would see.

Java: client/Validators.java
"""

from __future__ import annotations

from rocketlet.client.errors import InvalidMessage, InvalidUse
from rocketlet.common import message_properties as names
from rocketlet.common import topic as topics
from rocketlet.common.message import Message

MAX_MESSAGE_SIZE = 4 << 20  # RocketMQ's maxMessageSize, of client and broker

_checked_topics: set[str] = set()  # legal names met before: one set look-up instead of a pattern on each send
_MOST_CHECKED = 10_000


def check_topic(topic: str) -> None:
    """Raises InvalidMessage for a name that no broker accepts or that clients may not send to."""
    if topic in _checked_topics:
        return
    try:
        topics.check_topic_name(topic)
    except topics.InvalidName as error:
        raise InvalidMessage(str(error), topic=topic) from None
    if topic in topics.NOT_SENDABLE:
        raise InvalidMessage(
            "clients may not send to this system topic", topic=topic, advice="send to a topic of yours"
        )
    if len(_checked_topics) < _MOST_CHECKED:
        _checked_topics.add(topic)


def check_message(message: Message, max_size: int = MAX_MESSAGE_SIZE) -> None:
    """Raises InvalidMessage if no broker would take the message, or no reader could read it."""
    check_topic(message.topic)
    if not message.body:
        raise InvalidMessage("the message has no body", topic=message.topic, advice="send at least one byte")
    if len(message.body) > max_size:
        raise InvalidMessage(
            f"the body has {len(message.body)} bytes, the limit is {max_size}",
            topic=message.topic,
            advice="send less, or raise max_message_size here and maxMessageSize at the broker",
        )
    if message.properties:
        check_properties(message)


def check_properties(message: Message) -> None:
    """Names and values of the user's own properties."""
    for name, value in message.properties.items():
        try:
            names.check_property(name, value)
        except names.InvalidProperty as error:
            raise InvalidMessage(str(error), topic=message.topic) from None


def check_group(group: str, reserved: str = "") -> None:
    """Raises InvalidUse for a group name that no broker accepts, and for the default one, which all would share."""
    try:
        topics.check_group_name(group)
    except topics.InvalidName as error:
        raise InvalidUse(str(error)) from None
    if group == reserved:
        raise InvalidUse(f"the group name {group} is the default of every client", advice="choose a name of your own")
