"""What a listener gets and what it may return.

A listener of one message returns nothing when the message is consumed, and raises, or returns `Later()`, when it
should be redelivered. A concurrent consumer hands such a message to the group's retry topic (after 10 s, 30 s, 1 min
... 2 h, and into the dead letters in the end); an orderly one pauses its queue for a second and repeats the message; a
broadcasting one logs this and continues.

A listener of batches gets a `ConsumeContext` as well and may say how far it came.

Java: client/consumer/listener/ConsumeConcurrentlyStatus.java, ConsumeOrderlyStatus.java, *Context.java
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rocketlet.client.errors import InvalidUse, shown
from rocketlet.client.validators import check_seconds, check_whole
from rocketlet.common.message import MessageQueue, ReceivedMessage

DEAD_LETTER = -1  # as a delay level: no further tries
_MOST_INT = (1 << 31) - 1


def check_again(delay_level: int, suspend: float | None) -> None:
    """Raises InvalidUse for what does not say when a message shall come again."""
    check_whole("delay_level", delay_level, DEAD_LETTER, _MOST_INT)
    if suspend is not None:
        check_seconds("suspend", suspend)


class ConsumeStatus(enum.Enum):
    """The two answers in RocketMQ's words; `None` and `True` mean the first, `False` and `Later()` the second."""

    SUCCESS = "CONSUME_SUCCESS"
    LATER = "RECONSUME_LATER"


@dataclass(frozen=True, slots=True)
class Later:
    """Not consumed, deliver it again.

    `delay_level` 0 lets the broker choose (3 plus the number of tries), 1 to 18 is one of its delay levels, -1 sends
    the message to the dead letters now. `suspend` is for orderly listeners: seconds for which the queue stops.

        return Later(delay_level=2)      # again in 5 s
    """

    delay_level: int = 0
    suspend: float | None = None

    def __post_init__(self) -> None:
        check_again(self.delay_level, self.suspend)


ListenerAnswer: TypeAlias = ConsumeStatus | Later | bool | None


@dataclass(slots=True)
class ConsumeContext:
    """What a listener of batches may look at and change.

    `delay_level` and `suspend` mean what they mean in `Later`. `consumed` is how many messages from the front of the
    batch are consumed when the listener returns success; None: all (concurrent listeners only).
    """

    queue: MessageQueue
    orderly: bool
    delay_level: int = 0
    suspend: float | None = None
    consumed: int | None = None

    def check(self) -> None:
        """Raises InvalidUse where a listener has written what makes no sense."""
        if self.delay_level != 0 or self.suspend is not None:
            check_again(self.delay_level, self.suspend)
        if self.consumed is not None:
            check_whole("consumed", self.consumed, -_MOST_INT)


Listener: TypeAlias = Callable[[ReceivedMessage], ListenerAnswer]
BatchListener: TypeAlias = Callable[[Sequence[ReceivedMessage], ConsumeContext], ListenerAnswer]
AsyncListener: TypeAlias = Callable[[ReceivedMessage], Awaitable[ListenerAnswer]]
AsyncBatchListener: TypeAlias = Callable[[Sequence[ReceivedMessage], ConsumeContext], Awaitable[ListenerAnswer]]


def consumed(answer: object) -> bool:
    """Whether a listener's answer means that the message is consumed. Raises InvalidUse where it says neither."""
    if answer is None or answer is True or answer is ConsumeStatus.SUCCESS:
        return True
    if answer is False or answer is ConsumeStatus.LATER or isinstance(answer, Later):
        return False
    raise InvalidUse(
        f"the listener returned {shown(answer)}",
        advice="return nothing when the message is consumed, Later() when it shall come again",
    )
