"""The errors of the client: one small tree, by whose fault it is and what to do.

Every error says what failed, about which topic and at which broker, after how long and how many tries, and what to do
about it. The parts are attributes too (`error.topic`, `error.tries`), so that a program need not read the text.

InvalidUse and ClientClosed are mistakes of the caller, ListenerFailed is one of a function that he gave us, and
EngineFailed one of ours. All others are the servers' or the network's.

Java: client/exception/MQClientException.java, MQBrokerException.java, RequestTimeoutException.java
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

from rocketlet.common.errors import RocketletError

_LONGEST = 2000

RAISED_BY_USERS = (Exception, SystemExit)
"""What a user's function may raise where an engine calls it: `sys.exit` in a callback ends no thread of ours."""


def shown(value: object) -> str:
    """What a user's function returned or raised, as text for a log or a broker, whatever its `repr` does."""
    try:
        text = repr(value)
    except RAISED_BY_USERS:
        text = f"<{type(value).__name__}>"
    return text.encode(errors="backslashreplace").decode()


def shortened(text: str) -> str:
    """A text that a server may have had a part in, no longer than somebody would read: a remark may have megabytes."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... ({len(text)} characters)"


@dataclass(eq=False, repr=False)
class ClientError(RocketletError):
    """Base class of all errors of the client. An exception of your own listener is logged, not raised as this."""

    what: str
    _: KW_ONLY
    topic: str = ""
    broker: str = ""
    elapsed_ms: float | None = None
    tries: int = 0
    advice: str = ""

    def __post_init__(self) -> None:
        self.args = (self._text(),)

    def after(self, elapsed_ms: float, tries: int) -> Self:
        """The same error, with the time and the number of tries filled in."""
        self.elapsed_ms = elapsed_ms
        self.tries = tries
        self.args = (self._text(),)
        return self

    def _text(self) -> str:
        parts = []
        if self.topic:
            parts.append(f"topic {self.topic}")
        if self.broker:
            parts.append(f"broker {self.broker}")
        if self.elapsed_ms is not None:
            parts.append(f"after {self.elapsed_ms:.0f} ms")
        if self.tries > 1:
            parts.append(f"{self.tries} tries")
        details = f" ({', '.join(parts)})" if parts else ""
        return f"{shortened(self.what)}{details}{f'; {self.advice}' if self.advice else ''}"


class InvalidUse(ClientError):
    """The call cannot work as it is, and nothing was sent. Change the call."""


class InvalidMessage(InvalidUse):
    """The message breaks a rule of RocketMQ: its topic's name, its size, its properties. Nothing was sent."""


class ClientClosed(ClientError):
    """The client is not running: not started yet, or shut down, or its `with` block has ended."""


class EngineFailed(ClientError):
    """A background task died of an unexpected error, and the client with it. The cause is chained."""


class NoRoute(ClientError):
    """No name server knows a broker that serves the topic. Not raised while an old route is still usable."""


class TooManyInFlight(ClientError):
    """As many sends as `max_in_flight` allows are in flight. A blocking call waits instead of raising this."""


@dataclass(eq=False, repr=False, kw_only=True)
class Refused(ClientError):
    """A broker or name server answered with an error; `code` is its response code, `remark` what it said."""

    code: int
    remark: str = ""


class BadAnswer(ClientError):
    """A broker or name server sent an answer that cannot be read or makes no sense. A send may have been stored."""


class Unreachable(ClientError):
    """No connection to the address, or it broke before the answer arrived. A send may have been stored all the same."""


class TimedOut(ClientError):
    """No answer in time. Whether the request was carried out is not known."""


@dataclass(eq=False, repr=False, kw_only=True)
class SendFailed(ClientError):
    """All tries of a send failed; `causes` holds their errors in order, and the last one is chained."""

    causes: tuple[ClientError, ...] = ()

    @property
    def code(self) -> int | None:
        """The response code of the last try, if a broker refused it."""
        last = self.causes[-1] if self.causes else None
        return last.code if isinstance(last, Refused) else None


class RequestTimedOut(TimedOut):
    """The request was delivered to the broker, but no reply to it arrived in time."""


class ListenerFailed(ClientError):
    """Your own code raised where its result was needed: a selector, or the local executor of a transaction."""
