"""The contract between a server and its handlers: a table from request code to handler, and the forms of an answer.

A handler is a function of one `Request`. A plain `def` runs inside the turn that read the request and must not wait; an
`async def` becomes a task of the connection, and is cancelled when the connection ends. What it may return:

- a `Reply`;
- bytes, or a list of buffers: a complete frame, made by one of the `*_answer` functions of `remoting/ready_answers.py`,
  for requests so frequent that a Reply would cost too much;
- None: no answer at all;
- `DEFERRED`, from a plain handler: the answer follows by `request.reply(...)`, once, whenever it is known.

`raise Refused(code, remark)` anywhere below a handler answers with that code. `raise Later(until)`, by a handler that
has changed nothing yet, has the request served again once `until` is over. Any other exception is a bug: it is logged
with its traceback and answered with code 1. A one-way request is never answered.

Buffers in an answer (slices of the log) may be views: they are copied once, when the answers of the turn are joined.

Java: remoting/netty/NettyRequestProcessor.java, remoting/RPCHook.java
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from rocketlet.common.errors import RocketletError
from rocketlet.remoting.access import ADMIN, Access
from rocketlet.remoting.command import ONEWAY, Command, Language, language_of
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.frame_codec import Buffer, decode_header
from rocketlet.remoting.protocol.header import Header
from rocketlet.remoting.response_codes import ResponseCode, response_name

LONGEST_BODY = 1 << 20

Ext = Header | Mapping[str, str] | None


class Request(Struct, gc=False, eq=False):
    """One request as its handler sees it.

    `header` is the struct that the table names for the code, or None. `body` is a view of the received bytes: it stays
    valid as long as it is held, but holds its whole chunk, so whatever outlives the request copies it.
    A handler that returns DEFERRED is done with the body: it is dropped then. `received_at` is `trio.current_time()` of
    the turn. `gc=False`: nothing that a request refers to refers back to it; see `Connection.failure`.
    """

    code: int
    opaque: int
    flag: int
    version: int
    announced_language: str | int | None
    remark: str | None
    header: Any
    raw_header: bytes
    body: bytes | memoryview
    header_type: int
    connection: Connection
    received_at: float
    account: str = ""
    """Who sent it, where access control has found out."""
    ready: Any = None
    """What `Later.until` returned, where the handler has raised it."""

    @property
    def is_oneway(self) -> bool:
        """Whether no answer is expected."""
        return self.flag & ONEWAY != 0

    @property
    def language(self) -> Language:
        """The sender's language; some answers differ for C++ clients."""
        return language_of(self.announced_language)

    @property
    def ext(self) -> dict[str, str]:
        """Every header field as text, including those that no typed header knows. Decoded at each call: the slow
        path."""
        return decode_header(self.header_type, self.raw_header).ext or {}

    def reply(self, reply: Answer) -> None:
        """Answer a request whose handler returned DEFERRED. No effect once the connection has closed.

        Requires: at most one call per request; `reply(None)` for no answer after all.
        """
        self.connection.answer_deferred(self, reply)


class Reply(Struct, gc=False, eq=False):
    """An answer. `header` is a typed header or a map of text; `body` one buffer, or several to be joined."""

    code: int = ResponseCode.SUCCESS
    header: Ext = None
    body: Buffer | Sequence[Buffer] = b""
    remark: str | None = None


class Deferred:
    """The type of DEFERRED."""

    def __repr__(self) -> str:
        return "DEFERRED"


DEFERRED: Final = Deferred()

Answer = Reply | bytes | list[Buffer] | None
PlainFunction = Callable[[Request], Answer | Deferred]
AsyncFunction = Callable[[Request], Awaitable[Answer]]


FEW = 16
"""From so many requests on it is faster to serve alike ones together."""


class Frames(NamedTuple):
    """The frames of a turn: the bytes, and of each (header type, begin of header, begin of body, end). `admits` tells
    whether access control lets a request pass, where there is access control."""

    data: bytes
    frames: Sequence[tuple[int, int, int, int]]
    admits: Callable[[Request], bool] | None = None


@dataclass(frozen=True, slots=True)
class Together:
    """How many requests were served together, and their answers: the frames, or DEFERRED."""

    count: int
    answers: bytes | Deferred


@dataclass(frozen=True, slots=True)
class JoinedAnswers:
    """The frames that answer deferred requests which were served together."""

    frames: bytes
    count: int


TogetherFunction = Callable[[Request, Frames], Together | None]


@dataclass(frozen=True, slots=True)
class Handler:
    """How one request code is served: the function, the typed header, the family whose limit applies, and who may send
    it.

    `together`, if there is one, is offered the frames of a turn that begin with such a request, and may serve the first
    of them at once; None, with nothing changed, where they have to be served one by one. `parks`: its deferred requests
    wait for something that may never happen (a message), so a stopping server does not wait for them. `longest_body` in
    bytes: a longer body is refused unread; None if a frame's limit is enough.
    """

    function: PlainFunction | AsyncFunction
    header: type[Header] | None = None
    family: str = "admin"
    parks: bool = False
    access: Access = ADMIN
    longest_body: int | None = LONGEST_BODY
    together: TogetherFunction | None = None

    def wrapped(self, function: PlainFunction | AsyncFunction) -> Handler:
        """The same with another function around this one's, so that no request gets past it."""
        return replace(self, function=function, together=None)


HandlerTable = Mapping[int, Handler]


class HasTable(Protocol):
    """Serves some request codes."""

    def table(self) -> HandlerTable:
        """Its codes, each with the header, family and access of the handler."""


def handler_table(parts: Iterable[HasTable]) -> HandlerTable:
    """The table of a whole server. Raises ValueError if two parts claim one code."""
    table: dict[int, Handler] = {}
    for part in parts:
        served = part.table()
        duplicates = sorted(table.keys() & served.keys())
        if duplicates:
            raise ValueError(f"{type(part).__name__} serves what another part serves already: {duplicates}")
        table.update(served)
    return table


class Refused(RocketletError):
    """Answers the request with this code and remark. Some refusals still carry header fields (codes 11 and 310)."""

    def __init__(self, code: int, remark: str = "", header: Ext = None) -> None:
        super().__init__(f"{response_name(code)}: {remark}")
        self.code = code
        self.remark = remark
        self.header = header


class Later(RocketletError):
    """A request that cannot be served without waiting, which few of its kind have to: for a disk, say.

    Its body is dropped, as where a handler returns DEFERRED; what the handler needs when it runs again is in
    `Request.ready`.
    """

    def __init__(self, until: Callable[[], Awaitable[object]]) -> None:
        super().__init__("the request has to wait")
        self.until = until


class ServerHook(Protocol):
    """Around every request that we serve (around calls that we make: `hooks.ClientHook`). Must not wait.

    Hooks run in the order of their list, before the handler and before its answer is written.
    """

    def before(self, request: Request) -> None:
        """The request is about to be handled; raising Refused answers it instead."""

    def after(self, request: Request, answer: Command) -> None:
        """The request is about to be answered. Not called for one-way requests."""
