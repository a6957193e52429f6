"""What a client can fail with: one small tree, cut by whose fault it is and what to do.

Every error says what failed, about which topic and at which broker, after how long and how many tries, and what to do
about it. The parts are attributes too (`error.topic`, `error.tries`), so that a program need not read the text.

    ClientError
      InvalidUse          yours: a message, a name or a setting that cannot work; nothing was sent
        InvalidMessage
      ClientClosed        yours: used before its start or after its end
      EngineFailed        ours: a background task died of a mistake; the cause is chained
      NoRoute             nobody serves the topic, or no name server could be asked
      TooManyInFlight     more sends are on their way than the client holds; slow down or raise the limit
      Refused             a broker or name server answered with an error code (`error.code`, `error.remark`)
      BadAnswer           a broker or name server answered with what cannot be read
      Unreachable         a connection could not be made, or broke before the answer
      TimedOut            no answer came in time; a send may have been stored all the same
      SendFailed          every try of a send failed; `error.causes` has one error a try
      RequestTimedOut     the request was stored, but nobody replied in time
      ListenerFailed      a listener or executor of yours raised where its result was needed at once

Java: client/exception/MQClientException.java, MQBrokerException.java, RequestTimeoutException.java
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rocketlet.common.errors import RocketletError


class ClientError(RocketletError):
    """Root of what the client raises. You do not get it for an exception of your own listener: that is logged."""

    def __init__(
        self,
        what: str,
        *,
        topic: str = "",
        broker: str = "",
        elapsed_ms: float | None = None,
        tries: int = 0,
        advice: str = "",
    ) -> None:
        self.what = what
        self.topic = topic
        self.broker = broker
        self.elapsed_ms = elapsed_ms
        self.tries = tries
        self.advice = advice
        super().__init__(self._text())

    def after(self, elapsed_ms: float, tries: int) -> Self:
        """The same error, that now knows how long and how often it was tried."""
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
        circumstances = f" ({', '.join(parts)})" if parts else ""
        return f"{self.what}{circumstances}{f'; {self.advice}' if self.advice else ''}"


class InvalidUse(ClientError):
    """The call cannot work as it is, and nothing has left the client. Change the call."""


class InvalidMessage(InvalidUse):
    """The message breaks a rule of RocketMQ: its topic's name, its size, its properties. Nothing was sent."""


class ClientClosed(ClientError):
    """The client is not running: not started yet, or shut down, or its `with` block has ended."""


class EngineFailed(ClientError):
    """A background task of the client died of something unforeseen, and the client with it. The cause is chained."""


class NoRoute(ClientError):
    """No name server knows a broker that serves the topic. You do not get it while an old route is still usable."""


class TooManyInFlight(ClientError):
    """As many sends as `max_in_flight` allows are on their way. A blocking call waits instead of raising this."""


class Refused(ClientError):
    """A broker or name server answered with an error; `code` is its response code, `remark` what it said."""

    def __init__(
        self,
        what: str,
        *,
        code: int,
        remark: str = "",
        topic: str = "",
        broker: str = "",
        elapsed_ms: float | None = None,
        tries: int = 0,
        advice: str = "",
    ) -> None:
        self.code = code
        self.remark = remark
        super().__init__(what, topic=topic, broker=broker, elapsed_ms=elapsed_ms, tries=tries, advice=advice)


class BadAnswer(ClientError):
    """A broker or name server answered with what cannot be read, or cannot be meant. A send may have been stored."""


class Unreachable(ClientError):
    """No connection to the address, or it broke before the answer came. A send may have been stored all the same."""


class TimedOut(ClientError):
    """No answer in time. Whether the other side has done what it was asked is not known."""


class SendFailed(ClientError):
    """All tries of a send failed; `causes` holds their errors in order, the last one is also chained."""

    def __init__(
        self,
        what: str,
        *,
        causes: Sequence[ClientError] = (),
        topic: str = "",
        broker: str = "",
        elapsed_ms: float | None = None,
        tries: int = 0,
        advice: str = "",
    ) -> None:
        self.causes = tuple(causes)
        super().__init__(what, topic=topic, broker=broker, elapsed_ms=elapsed_ms, tries=tries, advice=advice)

    @property
    def code(self) -> int | None:
        """The response code of the last try, if a broker refused it."""
        last = self.causes[-1] if self.causes else None
        return last.code if isinstance(last, Refused) else None


class RequestTimedOut(TimedOut):
    """The request was delivered to the broker, but no reply to it arrived in time."""


class ListenerFailed(ClientError):
    """An exception of your own code where its result was needed: a selector, a transaction's local executor."""
