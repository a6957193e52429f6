"""The work of one turn: cut all frames of a chunk, run each handler, collect the answers.

The one place where an error becomes a response code:

    no handler for the code                       3   ` request type N not supported`
    a header field missing, or not a number             1   the field
    a body that cannot be read (BodyError)        1   what is wrong with it
    the family's limit of requests in progress    2   `[OVERLOAD]...`, naming the setting
    more requests a second than its address may   2   `[FLOW_CONTROL]...`, naming the setting (`peers.py`)
    the bytes that requests in progress may hold  2   `[OVERLOAD]...`
    a body longer than its code allows            1   the limit
    Refused                                       its code, its remark
    any other exception of a handler              1   its class and text; logged with its traceback
    an answer that is too large for a frame       1   its size

The family limits count requests in progress: deferred ones and those that became tasks. A plain handler that answers at
once is never in progress for another peer. What requests in progress hold is counted in bytes too, by connection and in
total; a deferred request keeps its header but not its body.

A turn ends early, and continues after other tasks have run, once it has taken TURN_SECONDS or its unsent answers exceed
the connection's high-water mark. While several connections have more to do than a turn holds, they share that time, so
that others do not wait for as many whole turns.

Java: remoting/netty/NettyRemotingAbstract.java (processRequestCommand), broker/latency/BrokerFastFailure.java
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

import trio

from rocketlet.remoting.access import Access
from rocketlet.remoting.command import ONEWAY, Command
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import BodyError, FrameError
from rocketlet.remoting.family_limits import DEFAULT_LIMITS, OTHER_FAMILIES, FamilyLimit
from rocketlet.remoting.frame_codec import (
    FRAME_LIMIT,
    REQUEST_HEADER_LIMIT,
    Buffer,
    cut,
    decode,
    encode_answer,
)
from rocketlet.remoting.handler import (
    DEFERRED,
    FEW,
    Answer,
    AsyncFunction,
    Deferred,
    Frames,
    Handler,
    HandlerTable,
    JoinedAnswers,
    Later,
    PlainFunction,
    Refused,
    Reply,
    Request,
    ServerHook,
    TogetherFunction,
)
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.request_codes import request_name
from rocketlet.remoting.request_reader import RequestReader, UnreadableRequest
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.remoting.dispatch")

_FAILED = "the handler of %s, asked by %s, failed"

TURN_SECONDS = 0.010
_SHORTEST_TURN_SECONDS = 0.001  # a shorter one costs more in going from task to task
_FRAMES_BETWEEN_LOOKS = 4  # at the clock, 0.1 µs each; a first send to a topic creates files: a millisecond

# What requests in progress may hold, in bytes: their headers as text and as structs, the bodies of those in tasks, and
# their overhead. A parked pull holds 2 KiB.
MAX_HELD = 256 << 20
MAX_HELD_BY_CONNECTION = 32 << 20
_HELD_BY_EACH = 1024

_LONG_FRAME = 1 << 20


@dataclass(slots=True, eq=False)
class _Family:
    name: str
    limit: FamilyLimit
    in_flight: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    """A handler, prepared for the turn."""

    function: PlainFunction
    task: AsyncFunction | None
    family: _Family
    parks: bool
    longest_body: int | None
    access: Access
    together: TogetherFunction | None


class Admission(Protocol):
    """Asked before each handler whether the request may be served, by its entry in the table."""

    def admit(self, request: Request, access: Access) -> None:
        """Raises Refused, BodyError."""

    def admits(self, request: Request, access: Access) -> bool:
        """Whether `admit` would certainly let it pass; nothing is counted, logged or used up."""


class Dispatch:
    """The handlers of one server or client; the `Turn` of its connections."""

    def __init__(
        self,
        handlers: HandlerTable,
        *,
        hooks: Sequence[ServerHook] = (),
        before_answers: Callable[[], None] | None = None,
        after_turn: Callable[[], None] | None = None,
        limits: Mapping[str, FamilyLimit] = DEFAULT_LIMITS,
        frame_limit: int = FRAME_LIMIT,
        header_limit: int = REQUEST_HEADER_LIMIT,
        admission: Admission | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._hooks = tuple(hooks)
        self._admission = admission
        self._peers = peers or Peers()
        self._before_answers = before_answers
        self._after_turn = after_turn
        self._frame_limit = frame_limit
        self._header_limit = header_limit
        self._held_size = 0
        self._unfinished: set[Connection] = set()  # whose last turn has taken too long
        self._families: dict[str, _Family] = {}
        self._entries = {int(code): self._entry(handler, limits) for code, handler in handlers.items()}
        self._reader = RequestReader({int(code): handler.header for code, handler in handlers.items()})

    def _entry(self, handler: Handler, limits: Mapping[str, FamilyLimit]) -> _Entry:
        name = handler.family
        family = self._families.setdefault(name, _Family(name, limits.get(name, OTHER_FAMILIES)))
        task = cast(AsyncFunction, handler.function) if inspect.iscoroutinefunction(handler.function) else None
        function = cast(PlainFunction, handler.function)
        return _Entry(function, task, family, handler.parks, handler.longest_body, handler.access, handler.together)

    def in_flight(self) -> dict[str, int]:
        """Requests in progress by family: deferred, or running as tasks."""
        return {family.name: family.in_flight for family in self._families.values()}

    def turn(self, connection: Connection, data: bytes) -> tuple[int, int, FrameError | None]:
        """Handle every complete frame in `data`. See `connection.Turn`."""
        frames, rest, need, error = cut(data, self._frame_limit, self._header_limit)
        now = trio.current_time()
        look_in = _FRAMES_BETWEEN_LOOKS
        view = memoryview(data)
        read, serve = self._reader.read, self._serve
        request: Request | Command | None = None
        is_unfinished = False
        if len(frames) >= FEW and (count := self._serve_together(frames, data, connection, now)):
            frames = frames[count:]
        for header_type, header, body, end in frames:
            try:
                request = read(header_type, data[header:body], view[body:end] if body < end else b"", connection, now)
            except UnreadableRequest as unreadable:
                self._refuse(unreadable.request, ResponseCode.SYSTEM_ERROR, str(unreadable))
                continue
            except FrameError as broken:
                # Another one, for the frames of `broken` refer to this one: what was received would stay in memory
                # until garbage is collected.
                error = FrameError(str(broken))
                break
            if isinstance(request, Request):
                serve(request)
            else:
                connection.answered(request)
            look_in -= 1
            if look_in == 0 or connection.gathered:
                look_in = _FRAMES_BETWEEN_LOOKS
                if end < rest:
                    is_unfinished = trio.current_time() - now > self._turn_seconds()
                    if is_unfinished or connection.is_congested:
                        rest, need, error = end, 0, None
                        break
        if is_unfinished:
            self._unfinished.add(connection)
        elif self._unfinished:
            self._unfinished.discard(connection)
        if isinstance(request, Request) and request.header_type != connection.header_type:
            connection.peer_speaks(request.header_type)
        if self._before_answers is not None:
            self._before_answers()
        if connection.receiving:
            self._count_received(connection, 0)
        return rest, need, error

    def _turn_seconds(self) -> float:
        busy = len(self._unfinished)
        return max(TURN_SECONDS / busy, _SHORTEST_TURN_SECONDS) if busy else TURN_SECONDS

    def _serve_together(
        self, frames: list[tuple[int, int, int, int]], data: bytes, connection: Connection, now: float
    ) -> int:
        """Serve the first frames at once, if they are alike and nothing has to look at each. Returns how many."""
        header_type, header, body, end = frames[0]
        if frames[FEW - 1][2] - frames[FEW - 1][1] != body - header:
            return 0
        try:
            view = memoryview(data)[body:end]
            request = self._reader.read(header_type, data[header:body], view, connection, now)
        except (UnreadableRequest, FrameError):
            return 0
        entry = self._entries.get(request.code) if isinstance(request, Request) else None
        if (
            entry is None
            or entry.together is None
            or self._hooks
            or self._peers.limits_requests
            or entry.family.in_flight + len(frames) > entry.family.limit.most
            or connection.held_size > MAX_HELD_BY_CONNECTION
        ):
            return 0
        assert isinstance(request, Request)
        admits = partial(self._admission.admits, access=entry.access) if self._admission is not None else None
        served = entry.together(request, Frames(data, frames, admits))
        if served is None:
            return 0
        if isinstance(served.answers, Deferred):
            self._count(connection, entry, served.count, served.count * _held_by(request, entry))
        else:
            connection.out.append(served.answers)
        connection.peer_speaks(header_type)
        return served.count

    def received(self, connection: Connection, size: int) -> FrameError | None:
        """See `connection.Turn`."""
        if size > _LONG_FRAME:
            self._count_received(connection, size)
            if limit := self._peers.unfinished_limit_exceeded():
                return FrameError(
                    f"{size} bytes of a frame whose end has not come, while {self._peers.unfinished - size} bytes of"
                    f" others wait for theirs; unfinishedFramesMax={limit} allows no more"
                )
        return None

    def _count_received(self, connection: Connection, size: int) -> None:
        self._peers.unfinished += size - connection.receiving
        connection.receiving = size

    def finish(self) -> None:
        """See `connection.Turn`."""
        if self._after_turn is not None:
            self._after_turn()

    def _serve(self, request: Request) -> None:
        entry = self._entries.get(request.code)
        if entry is None:
            self._refuse(
                request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
            )
            return
        family = entry.family
        answer: Answer | Deferred
        try:
            for hook in self._hooks:
                hook.before(request)
            if family.in_flight >= family.limit.most:
                raise _overloaded(family)
            if request.connection.held_size > MAX_HELD_BY_CONNECTION or (
                self._held_size > MAX_HELD and (entry.parks or entry.task)
            ):
                raise _holds_too_much(request.connection, self._held_size)
            if entry.longest_body is not None and len(request.body) > entry.longest_body:
                raise BodyError(
                    f"the body of {request_name(request.code)} has {len(request.body)} bytes, at most"
                    f" {entry.longest_body} are allowed"
                )
            if self._peers.limits_requests:
                self._check_rate(request)
            if self._admission is not None:
                self._admission.admit(request, entry.access)
            if entry.task is not None:
                request.body = bytes(request.body)  # a view would hold the whole chunk
                self._begin_request(request, entry)
                request.connection.start_task(self._run_task, entry.task, request)
                return
            answer = entry.function(request)
        except Later as later:
            request.body = b""
            self._begin_request(request, entry)
            request.connection.start_task(self._serve_later, entry, request, later)
            return
        except (Refused, BodyError) as error:
            answer = _refusal(error)
        except Exception as error:
            log.exception(_FAILED, request_name(request.code), request.connection.peer)
            answer = _error_answer(error)
        if answer is DEFERRED:
            request.body = b""
            self._begin_request(request, entry)
        elif answer is not None and not request.flag & ONEWAY:
            if isinstance(answer, bytes) and not self._hooks:
                request.connection.out.append(answer)
            elif isinstance(answer, list) and not self._hooks:
                request.connection.gathered += sum(map(len, answer))  # messages, far more than their request
                request.connection.out.extend(answer)
            else:
                request.connection.out.extend(self._buffers(request, cast(Answer, answer)))

    def _check_rate(self, request: Request) -> None:
        host = request.connection.host
        limit = self._peers.may_ask(host, request.received_at)
        if limit is not None:
            raise Refused(
                ResponseCode.SYSTEM_BUSY, f"[FLOW_CONTROL]{host} sends more requests a second than {limit} allows"
            )

    async def _serve_later(self, entry: _Entry, request: Request, later: Later) -> None:
        answer: Answer | Deferred
        while True:
            try:
                request.ready = await later.until()
                if self._admission is not None:
                    self._admission.admit(request, entry.access)
                answer = entry.function(request) if entry.task is None else await entry.task(request)
            except Later as again:
                later = again
                continue
            except (Refused, BodyError) as error:
                answer = _refusal(error)
            except Exception as error:
                log.exception(_FAILED, request_name(request.code), request.connection.peer)
                answer = _error_answer(error)
            # As in a turn, which this stands for.
            if self._before_answers is not None:
                self._before_answers()
            if not isinstance(answer, Deferred):
                request.connection.answer_deferred(request, answer)
            await trio.lowlevel.cancel_shielded_checkpoint()
            self.finish()
            return

    async def _run_task(self, function: AsyncFunction, request: Request) -> None:
        try:
            answer = await function(request)
        except (Refused, BodyError) as error:
            answer = _refusal(error)
        except Exception as error:
            log.exception(_FAILED, request_name(request.code), request.connection.peer)
            answer = _error_answer(error)
        request.connection.answer_deferred(request, answer)

    def answer(self, request: Request, answer: Answer) -> list[Buffer]:
        """See `connection.Turn`."""
        if answer is None or request.flag & ONEWAY:
            return []
        if isinstance(answer, list) and not self._hooks:
            request.connection.gathered += sum(map(len, answer))
            return answer
        return self._buffers(request, answer)

    def answer_later(self, request: Request, answer: Answer) -> list[Buffer]:
        """See `connection.Turn`."""
        self._end_request(request)
        if answer is None or request.flag & ONEWAY:
            return []
        return self._buffers(request, answer)

    def answer_all_later(self, answers: Sequence[tuple[Request, Answer | JoinedAnswers]]) -> list[Buffer]:
        """See `connection.Turn`. Ready-made answers to requests of one code, as deferred sends get them, cost a third
        of `answer_later`."""
        code = answers[0][0].code
        connection, entry = answers[0][0].connection, self._entries[code]
        if self._hooks or entry.task is not None:
            code = -1
        buffers: list[Buffer] = []
        count = size = header_size = 0
        for request, answer in answers:
            if type(answer) is bytes and request.code == code and not request.flag & ONEWAY:
                buffers.append(answer)
                count += 1
                size += len(answer)
                header_size += len(request.raw_header)
            elif isinstance(answer, JoinedAnswers):
                buffers.append(answer.frames)
                count += answer.count
                size += len(answer.frames)
                header_size += answer.count * len(request.raw_header)
            else:
                buffers += self.answer_later(request, answer)
        connection.gathered += size
        self._count(connection, entry, -count, -(count * _HELD_BY_EACH + 2 * header_size))
        return buffers

    def _buffers(self, request: Request, answer: Answer) -> list[Buffer]:
        """Every answer of a turn, except ready-made ones, passes through here."""
        if answer is None:
            return []
        if isinstance(answer, Reply):
            try:
                buffers = encode_answer(
                    request.header_type, request.opaque, answer.code, answer.header, answer.body, answer.remark
                )
            except FrameError as error:
                log.warning("the answer to %s of %s: %s", request_name(request.code), request.connection.peer, error)
                buffers = encode_answer(
                    request.header_type, request.opaque, ResponseCode.SYSTEM_ERROR, None, b"", str(error)
                )
        else:
            buffers = [answer] if isinstance(answer, bytes) else answer
        request.connection.gathered += sum(map(len, buffers))
        if self._hooks:
            command = _command_of(b"".join(buffers))
            for hook in self._hooks:
                hook.after(request, command)
        return buffers

    def _refuse(self, request: Request, code: int, remark: str) -> None:
        if not request.is_oneway:
            request.connection.out.extend(self._buffers(request, Reply(code, None, b"", remark)))

    # -- requests in progress

    def _begin_request(self, request: Request, entry: _Entry) -> None:
        self._count(request.connection, entry, 1, _held_by(request, entry))

    def _end_request(self, request: Request) -> None:
        """Requires: the connection is open; the requests of a closed one have been released."""
        entry = self._entries[request.code]
        self._count(request.connection, entry, -1, -_held_by(request, entry))

    def _count(self, connection: Connection, entry: _Entry, more: int, size: int) -> None:
        """So many more requests of an entry are in progress, and hold so many more bytes; or fewer, below zero."""
        family = entry.family
        family.in_flight += more
        connection.in_flight += 0 if entry.parks else more
        counts = connection.in_flight_by_family
        counts[family] = counts.get(family, 0) + more  # below zero if the answer was given before the handler returned
        connection.held_size += size
        self._held_size += size

    def release(self, connection: Connection) -> None:
        """See `connection.Turn`."""
        for family, count in connection.in_flight_by_family.items():
            family.in_flight -= count
        connection.in_flight_by_family.clear()
        connection.in_flight = 0
        self._held_size -= connection.held_size
        self._peers.unfinished -= connection.receiving
        connection.held_size = connection.receiving = 0
        self._unfinished.discard(connection)


def _held_by(request: Request, entry: _Entry) -> int:
    size = _HELD_BY_EACH + 2 * len(request.raw_header)
    return size if entry.task is None else size + len(request.body)


def _holds_too_much(connection: Connection, held: int) -> Refused:
    return Refused(
        ResponseCode.SYSTEM_BUSY,
        f"[OVERLOAD]system busy, start flow control for a while: requests in progress hold {held} bytes,"
        f" {connection.held_size} of them for {connection.peer}; at most {MAX_HELD} and {MAX_HELD_BY_CONNECTION} are"
        " allowed",
    )


def _overloaded(family: _Family) -> Refused:
    limit = family.limit
    return Refused(
        ResponseCode.SYSTEM_BUSY,
        f"[OVERLOAD]system busy, start flow control for a while: {family.in_flight} {family.name} requests are in"
        f" progress, {limit.setting}={limit.most} allows no more",
    )


def _refusal(error: Refused | BodyError) -> Reply:
    if isinstance(error, Refused):
        return Reply(error.code, error.header, b"", error.remark or None)
    return Reply(ResponseCode.SYSTEM_ERROR, None, b"", str(error))


def _error_answer(error: Exception) -> Reply:
    return Reply(ResponseCode.SYSTEM_ERROR, None, b"", f"{type(error).__name__}: {error}")


def _command_of(frame: bytes) -> Command:
    """A ready-made answer as hooks see it."""
    header_type, header, body, end = cut(frame, len(frame) + 4).frames[0]
    return decode(header_type, frame[header:body], frame[body:end])
