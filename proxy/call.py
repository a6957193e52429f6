"""One gRPC call as a handler sees it, and the table of methods.

A handler is a plain or an async function of call and request. A plain one answers with `reply`, at once or later, from
any task; an async one returns its answer. Both may instead `send` several messages and then `end`. The handler of a
two-way stream is called for each message; at the end `call.when_over` is called.

A handler refuses by raising Refusal: every answer of this service has a `status`, and the refusal goes there.

Java: proxy/grpc/v2/DefaultGrpcMessingActivity.java, io.grpc.stub.ServerCalls
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rocketlet.common.errors import RocketletError
from rocketlet.proxy.grpc_wire import GrpcStatus, framed
from rocketlet.proxy.http2.protocol import Stream
from rocketlet.proxy.wire.codes import Code
from rocketlet.proxy.wire.messages import Status

SMALL_REQUEST = 64 << 10
LARGEST_REQUEST = 256 << 10
"""Of all requests but sends. What protobuf makes of bytes may be fifty times as large as they are."""


class Refusal(RocketletError):
    """The request is answered with this code and text."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC's handler. `check` inspects the bytes of large requests before they are decoded; it raises Refusal."""

    name: str
    request: type[Any]
    answer: type[Any]
    serve: Callable[[Call, Any], Awaitable[Any] | None]
    is_stream: bool = False
    """Whether the client may send further messages."""
    largest: int = LARGEST_REQUEST
    check: Callable[[bytes], None] | None = None


class Owner(Protocol):
    """What calls need from their connection."""

    peer: str
    local: str
    when_closed: list[Callable[[], None]]

    def start(self, call: Call, awaitable: Awaitable[Any]) -> None: ...

    def send_message(self, call: Call, message: bytes, *, last: bool) -> None: ...

    def end(self, call: Call, status: GrpcStatus, reason: str = "") -> None: ...


class Call:
    """See the module. Once it is over, by answer, reset or the end of the connection, nothing more is sent."""

    __slots__ = (
        "began", "body", "code", "deadline", "has_answered", "is_abandoned", "is_over", "metadata", "method", "owner",
        "scope", "stream", "when_over",
    )  # fmt: skip

    def __init__(
        self,
        owner: Owner,
        stream: Stream,
        method: Method,
        metadata: Mapping[bytes, bytes],
        now: float,
        timeout: float | None,
    ) -> None:
        self.owner = owner
        self.stream = stream
        self.method = method
        self.metadata = metadata
        self.began = now
        self.deadline = None if timeout is None else now + timeout
        self.body = bytearray()
        self.has_answered = False
        self.is_over = False
        self.is_abandoned = False
        """Whether the client has announced its end, and has no use for the call any more."""
        self.code = 0
        """What the answer's status said, for the metrics."""
        self.scope: Any = None
        self.when_over: Callable[[Call], None] | None = None

    def header(self, name: bytes) -> str:
        """A value of the metadata; empty if missing."""
        return self.metadata.get(name, b"").decode("utf-8", "replace")

    @property
    def client_id(self) -> str:
        """The id of the calling client. Raises Refusal if the call has none."""
        value = self.metadata.get(b"x-mq-client-id")
        if not value:
            raise Refusal(Code.CLIENT_ID_REQUIRED, "the metadata has no x-mq-client-id")
        return value.decode("utf-8", "replace")[:255]

    def reply(self, answer: Any) -> None:
        """Send the only message of an answer, and end it."""
        if not self.is_over:
            self.owner.send_message(self, framed(answer.SerializeToString()), last=True)

    def refuse(self, code: Code, reason: str) -> None:
        """Answer with a status only."""
        self.code = code
        self.reply(self.method.answer(status=Status(code=code, message=reason)))

    def send(self, answer: Any) -> None:
        """Send one message of several."""
        if not self.is_over:
            self.owner.send_message(self, framed(answer.SerializeToString()), last=False)

    def end(self, status: GrpcStatus = GrpcStatus.OK, reason: str = "") -> None:
        """End the answer, or the call if there is no answer."""
        if not self.is_over:
            self.owner.end(self, status, reason)
