"""A message's delivery time, from its properties; and its form until then. Pure.

One property of three: TIMER_DELIVER_MS (ms since 1970), TIMER_DELAY_MS, TIMER_DELAY_SEC (from now). A delay level
overrides them. A time in the past means now. The waiting form is in the timer's topic; it keeps its properties and gets
three more: TIMER_OUT_MS, the time, and REAL_TOPIC and REAL_QID, the destination. All stay in the text when it is
delivered.

Java: store/hook/PutMessageHook (HookUtils.java#handleScheduleMessage, #transformTimerMessage)
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Final

from rocketlet.broker.property_text import rewritten
from rocketlet.common.errors import RocketletError
from rocketlet.common.message_properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from rocketlet.common.topic import TIMER_TOPIC
from rocketlet.store.message import Put

PROPERTIES: Final = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)
QUEUE: Final = 0
_LONGEST_NUMBER: Final = 19


class InvalidMoment(RocketletError):
    """A time that is not a number, or too far ahead; the message was not stored."""


def moment(properties: Mapping[str, str], now: int, most_seconds: int) -> int | None:
    """The delivery time, in ms since 1970; None for at once. Raises InvalidMoment."""
    for name, unit, begin in ((TIMER_DELIVER_MS, 1, 0), (TIMER_DELAY_MS, 1, now), (TIMER_DELAY_SEC, 1000, now)):
        text = properties.get(name)
        if text is None:
            continue
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(text) > _LONGEST_NUMBER:
            raise InvalidMoment(f"the property {name} is {text[:40]!r}; it must be a number")
        due = begin + int(text) * unit
        if due - now > most_seconds * 1000:
            raise InvalidMoment(
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{most_seconds * 1000}ms (timerMaxDelaySec); {name} asks for {due - now} ms"
            )
        return due if due > now else None
    return None


def postpone(message: Put, properties: MutableMapping[str, str], due: int) -> None:
    """Convert a message to be stored into its waiting form. `properties` are the message's own."""
    properties[TIMER_OUT_MS] = str(due)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.topic = TIMER_TOPIC
    message.queue_id = QUEUE
    message.properties = rewritten(properties)
