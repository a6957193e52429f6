"""What the client refuses before anything is sent: names, sizes, empty bodies, properties that no reader would see.

Java: client/Validators.java
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Final, TypeVar

from rocketlet.client.errors import InvalidMessage, InvalidUse, shown
from rocketlet.common import message_properties as names
from rocketlet.common import topic as topics
from rocketlet.common.message import Message, MessageQueue, ReceivedMessage

Hook = TypeVar("Hook")

MAX_MESSAGE_SIZE = 4 << 20  # RocketMQ's maxMessageSize, of client and broker


@lru_cache(10_000)  # of legal names: one look-up instead of a pattern on each send
def check_topic(topic: str) -> None:
    """Raises InvalidMessage for a name that no broker accepts or that clients may not send to."""
    try:
        topics.check_topic_name(topic)
    except topics.InvalidName as error:
        raise InvalidMessage(str(error), topic=topic) from None
    if topic in topics.NOT_SENDABLE:
        raise InvalidMessage(
            "clients may not send to this system topic", topic=topic, advice="send to a topic of yours"
        )


def check_message(message: Message, max_size: int = MAX_MESSAGE_SIZE) -> None:
    """Raises InvalidMessage if no broker would take the message, or no reader could read it."""
    if not (
        type(message) is Message
        and type(message.topic) is str
        and type(message.body) is bytes
        and (message.tags is None or type(message.tags) is str)
        and type(message.delay_level) is int
        and type(message.flag) is int
        and type(message.properties) is dict
        and (message.sharding_key is None or type(message.sharding_key) is str)
        and (message.deliver_at is None or type(message.deliver_at) in (float, int))
        and type(message.wait_store) is bool
        and message.reply_to is None
    ):
        check_types(message)
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
    if not -(1 << 31) <= message.flag < 1 << 31:
        raise InvalidMessage(f"the flag {message.flag} has more than 32 bits", topic=message.topic)
    if not 0 <= message.delay_level < 1 << 31:
        raise InvalidMessage(
            f"the delay level is {message.delay_level}", topic=message.topic, advice="levels begin at 1"
        )
    if message.deliver_at is not None and not 0 <= message.deliver_at < 1e11:
        raise InvalidMessage(
            f"deliver_at is {message.deliver_at}",
            topic=message.topic,
            advice="give seconds since 1970, not milliseconds",
        )


_WANTED: dict[str, tuple[type | tuple[type, ...], str]] = {
    "topic": (str, "a str"),
    "body": ((bytes, bytearray, memoryview), "bytes: encode text, or use Message.json() for a value"),
    "tags": ((str, type(None)), "a str"),
    "keys": (Sequence, "a str, or a sequence of them"),
    "delay_level": (int, "an int, one of the broker's delay levels"),
    "flag": (int, "an int of 32 bits"),
    "properties": (Mapping, "a dict of str to str"),
    "wait_store": (bool, "True or False"),
    "sharding_key": ((str, type(None)), "a str"),
    "reply_to": ((str, type(None)), "a str"),
    "deliver_at": (
        (float, int, type(None)),
        "a number of seconds since 1970: time.time() + 90, or a datetime's timestamp()",
    ),
}


def check_types(message: Message) -> None:
    """Raises InvalidMessage, with what is expected, for a field of another type."""
    if not isinstance(message, Message):
        raise InvalidMessage(f"{_shown(message)} is no message", advice='send Message("topic", b"body")')
    for name, (kind, expected) in _WANTED.items():
        value = getattr(message, name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidMessage(
                f"the message's {name} is {_shown(value)}",
                topic=message.topic if isinstance(message.topic, str) else "",
                advice=f"it must be {expected}",
            )
    if not isinstance(message.keys, str) and not all(isinstance(key, str) for key in message.keys):
        raise InvalidMessage("the keys are no str", topic=message.topic, advice="keys=[str(key)]")


def _shown(value: object) -> str:
    return f"of type {type(value).__name__}: {_cut(value)}"


def _cut(value: object) -> str:
    text = shown(value)
    return text if len(text) <= 60 else text[:60] + "..."


def check_queue(queue: MessageQueue) -> None:
    """Raises InvalidUse for anything but a queue."""
    if not isinstance(queue, MessageQueue):
        raise InvalidUse(f"the queue is {_shown(queue)}", advice="give a MessageQueue, one of those of queues(topic)")
    # Its fields are as the user made them. A send to a queue comes here, so whole checks are made only where they fail.
    (_check_name_once if type(queue.topic) is str else check_name)(queue.topic)
    if type(queue.broker_name) is not str:
        check_text("queue's broker_name", queue.broker_name)
    if type(queue.queue_id) is not int or not -1 <= queue.queue_id < 1 << 31:
        check_whole("the queue's queue_id", queue.queue_id, -1, (1 << 31) - 1)


def checked_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """A copy. Raises InvalidUse for anything but queues."""
    if not isinstance(queues, Iterable):
        raise InvalidUse(f"the queues are {_shown(queues)}", advice="give a list of those of queues(topic)")
    result = list(queues)
    for queue in result:
        check_queue(queue)
    return result


def check_name(topic: str) -> None:
    """Raises InvalidUse for anything but the name of a topic."""
    if not isinstance(topic, str):
        raise InvalidUse(f"the topic {_cut(topic)} is no str", advice="give its name")
    try:
        topics.check_topic_name(topic)
    except topics.InvalidName as error:
        raise InvalidUse(str(error)) from None


_check_name_once = lru_cache(10_000)(check_name)  # of legal names: one look-up instead of a pattern


def check_text(name: str, text: str) -> None:
    """Raises InvalidUse for what is no text, or cannot be sent as one."""
    if not isinstance(text, str):
        raise InvalidUse(f"the {name} is {_shown(text)}", advice="give a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidUse(f"the {name} is no valid text: {error}") from None


def check_flag(name: str, value: bool) -> None:
    """Raises InvalidUse for anything but True and False."""
    if not isinstance(value, bool):
        raise InvalidUse(f"{name} is {_shown(value)}", advice="give True or False")


def check_whole(name: str, number: int, least: int = 0, most: int = (1 << 63) - 1) -> None:
    """Raises InvalidUse for anything but a whole number within these bounds."""
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise InvalidUse(f"{name} is {_shown(number)}", advice=f"give an int of {least} to {most}")


def check_received(message: ReceivedMessage) -> None:
    """Raises InvalidUse for anything but a message that a consumer was given, with what the client needs of it."""
    if not isinstance(message, ReceivedMessage):
        raise InvalidUse(f"the message is {_shown(message)}", advice="give one that was received")
    for name, kind in _OF_RECEIVED.items():
        value = getattr(message, name, None)
        if not isinstance(value, kind):
            raise InvalidUse(f"the message's {name} is {_shown(value)}", advice="give the message as it was received")


_OF_RECEIVED: Final[dict[str, type]] = {
    "topic": str, "queue": MessageQueue, "queue_offset": int, "log_offset": int, "message_id": str,
    "store_host": str, "reconsume_times": int, "properties": dict,
}  # fmt: skip


def check_seconds(name: str, value: float) -> None:
    """Raises InvalidUse for anything but a time that can be waited for."""
    if type(value) not in (int, float) or not 0 <= value < 1e9:
        raise InvalidUse(f"{name} is {_shown(value)}", advice="give a number of seconds")


def check_callable(name: str, value: object, *, in_threads: bool = False) -> None:
    """Raises InvalidUse for what cannot be called, or would only return a coroutine in a thread."""
    if not callable(value):
        raise InvalidUse(f"the {name} is {_shown(value)}", advice="give a function")
    if in_threads and (iscoroutinefunction(value) or iscoroutinefunction(getattr(value, "__call__", None))):  # noqa: B004
        raise InvalidUse(
            f"the {name} is an async function, which a client for threads cannot await",
            advice="make it a plain function, or use the Async class",
        )


def checked_hooks(hooks: Iterable[Hook], *methods: str) -> tuple[Hook, ...]:
    """A copy. Raises InvalidUse for what lacks one of these methods."""
    if not isinstance(hooks, Iterable):
        raise InvalidUse(f"the hooks are {_shown(hooks)}", advice="give a list of them")
    result = tuple(hooks)
    for hook in result:
        for name in methods:
            check_callable(f"{name} of the hook of type {type(hook).__name__}", getattr(hook, name, None))
    return result


def check_properties(message: Message) -> None:
    """Names and values of the user's own properties."""
    for name, value in message.properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessage(
                f"property {name!r} is {_shown(value)}", topic=message.topic, advice="names and values are str"
            )
        try:
            names.check_property(name, value)
        except names.InvalidProperty as error:
            raise InvalidMessage(str(error), topic=message.topic) from None


def check_group(group: str, reserved: str = "") -> None:
    """Raises InvalidUse for a group name that no broker accepts, and for the default one, which all would share."""
    if not isinstance(group, str):
        raise InvalidUse(f"the group is {_shown(group)}", advice="give it a name, a str")
    try:
        topics.check_group_name(group)
    except topics.InvalidName as error:
        raise InvalidUse(str(error)) from None
    if group == reserved:
        raise InvalidUse(f"the group name {group} is the default of every client", advice="choose a name of your own")
