"""A server: answers, errors that end a connection, limits, order, idleness, draining."""

from __future__ import annotations

import errno
import logging
import re
import struct

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.remoting import dispatch
from rocketlet.remoting.command import ONEWAY, Command, HeaderType, Language
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import BodyError, ConnectFailed, ListenFailed
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.family_limits import FamilyLimit
from rocketlet.remoting.frame_codec import FRAME_LIMIT, encode, encode_answer
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Handler, Later, Refused, Reply, Request, ServerHook
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.offsets import OffsetAnswerHeader, QueryConsumerOffsetHeader
from rocketlet.remoting.server import Server
from rocketlet.remoting.transport import ByteStream, Listener
from tests.support.raw_client import RawClient
from tests.support.serving import serving

EXT = {"queueId": "3", "topic": "T", "consumerGroup": "G"}


def ask(opaque: int = 1, header_type: HeaderType = HeaderType.JSON) -> Command:
    return Command(14, opaque, ext=EXT, header_type=header_type)


def offset(request: Request) -> Reply:
    header: QueryConsumerOffsetHeader = request.header
    return Reply(header=OffsetAnswerHeader(header.queueId + 100))


OFFSET = Handler(offset, QueryConsumerOffsetHeader, "consumer")


class Events(ConnectionEvents):
    """Records its events."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def connected(self, connection: Connection) -> None:
        self.seen.append("connected")

    def closed(self, connection: Connection) -> None:
        assert connection.closed
        self.seen.append("closed")

    def idle(self, connection: Connection) -> None:
        assert not connection.closed
        self.seen.append("idle")

    def failed(self, connection: Connection) -> None:
        self.seen.append("failed")


class Parking:
    """A handler that answers on request."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Deferred:
        self.requests.append(request)
        return DEFERRED


# -- what is answered


@pytest.mark.parametrize("header_type", HeaderType)
async def test_an_answer_comes_in_the_type_of_its_request(nursery: trio.Nursery, header_type: HeaderType) -> None:
    client = await (await serving(nursery, {14: OFFSET})).client()
    answer = await client.ask(ask(1, header_type))
    assert (answer.code, answer.opaque, answer.flag, answer.ext) == (0, 1, 1, {"offset": "103"})
    assert (answer.header_type, answer.version, answer.language) == (header_type, 409, Language.JAVA)
    unknown = await client.ask(Command(9999, 2, header_type=header_type))
    assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
    assert unknown.header_type is header_type


async def test_frames_are_served_byte_by_byte_and_many_at_once(nursery: trio.Nursery) -> None:
    for network in (MemoryNetwork(chunk_size=1), MemoryNetwork()):
        client = await (await serving(nursery, {14: OFFSET}, network=network)).client()
        await client.send(*[ask(number) for number in range(5)])
        assert [(await client.receive()).opaque for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_large_body_arrives_whole(nursery: trio.Nursery) -> None:
    def echo(request: Request) -> Reply:
        return Reply(body=[b"<", request.body, b">"])

    client = await (await serving(nursery, {1: Handler(echo, longest_body=None)})).client()
    body = bytes(range(256)) * 8000
    nursery.start_soon(client.send, Command(1, body=body))
    assert (await client.receive()).body == b"<" + body + b">"


async def test_one_way_requests_are_never_answered(nursery: trio.Nursery) -> None:
    served = []

    async def later(request: Request) -> Reply:
        served.append(request.code)
        return Reply()

    def parked(request: Request) -> Deferred:
        served.append(request.code)
        waiting.append(request)
        return DEFERRED

    def at_once(request: Request) -> Answer:
        served.append(request.code)
        return Reply() if request.code != 5 else encode_answer(0, request.opaque, 0, None, b"", None)

    def refused(request: Request) -> Answer:
        served.append(request.code)
        raise Refused(1, "no")

    waiting: list[Request] = []
    functions = {1: later, 2: parked, 3: at_once, 4: refused, 5: at_once, 14: offset}
    table = {code: Handler(function, OFFSET.header if code == 14 else None) for code, function in functions.items()}
    client = await (await serving(nursery, table)).client()
    await client.send(*[Command(code, flag=ONEWAY) for code in (1, 2, 3, 4, 5, 6, 14)])
    await wait_all_tasks_blocked()
    assert sorted(served) == [1, 2, 3, 4, 5]
    waiting[0].reply(Reply())
    assert (await client.ask(ask(77))).opaque == 77


@pytest.mark.parametrize(
    ("error", "code", "remark", "ext"),
    [
        (Refused(17, "no such topic"), 17, "no such topic", None),
        (Refused(13, "too long", {"MSG_REGION": "R"}), 13, "too long", {"MSG_REGION": "R"}),
        (Refused(24), 24, None, None),
        (BodyError("the body is no HeartbeatData"), 1, "the body is no HeartbeatData", None),
        (ZeroDivisionError("oops"), 1, "ZeroDivisionError: oops", None),
    ],
)
@pytest.mark.parametrize("as_task", [False, True])
async def test_errors_become_codes(
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: int,
    remark: str | None,
    ext: dict[str, str] | None,
    as_task: bool,
) -> None:
    def fail(request: Request) -> Answer:
        raise error

    async def fail_as_task(request: Request) -> Answer:
        raise error

    client = await (await serving(nursery, {1: Handler(fail_as_task if as_task else fail), 14: OFFSET})).client()
    answer = await client.ask(Command(1, 5))
    assert (answer.code, answer.remark, answer.ext, answer.opaque) == (code, remark, ext, 5)
    assert ("Traceback" in caplog.text) is isinstance(error, ZeroDivisionError)
    assert (await client.ask(ask())).code == 0


async def test_a_missing_header_field_is_named(nursery: trio.Nursery) -> None:
    client = await (await serving(nursery, {14: OFFSET})).client()
    for ext in (None, {}, {"topic": "T"}, {"queueId": "x"}):
        answer = await client.ask(Command(14, ext=ext))
        assert answer.code == 1
        assert "queueId" in (answer.remark or "")


async def test_an_answer_too_large_for_a_frame_is_an_error(nursery: trio.Nursery) -> None:
    table = {1: Handler(lambda request: Reply(body=bytes(FRAME_LIMIT)))}
    client = await (await serving(nursery, table)).client()
    answer = await client.ask(Command(1))
    assert (answer.code, "receivers take" in (answer.remark or "")) == (1, True)


async def test_a_handler_may_give_no_answer(nursery: trio.Nursery) -> None:
    client = await (await serving(nursery, {1: Handler(lambda request: None), 14: OFFSET})).client()
    await client.send(Command(1, 1), ask(2))
    assert (await client.receive()).opaque == 2


async def test_ready_made_answers(nursery: trio.Nursery) -> None:
    def ready(request: Request) -> bytes:
        return encode(
            Command(0, request.opaque, 1, body=bytes(request.body), header_type=HeaderType(request.header_type))
        )

    def in_parts(request: Request) -> Answer:
        return encode_answer(request.header_type, request.opaque, 0, None, [b"a", memoryview(b"b")], None)

    client = await (await serving(nursery, {1: Handler(ready), 2: Handler(in_parts)})).client()
    await client.send(Command(1, 1, body=b"x"), Command(2, 2))
    assert [((answer := await client.receive()).opaque, answer.body) for _ in range(2)] == [(1, b"x"), (2, b"ab")]


async def test_a_request_carries_its_context(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    seen: list[Request] = []

    def look(request: Request) -> Reply:
        seen.append(request)
        return offset(request)

    running = await serving(nursery, {14: Handler(look, QueryConsumerOffsetHeader)})
    client = await running.client()
    await trio.sleep(5)
    command = Command(14, 9, language=Language.CPP, version=333, remark="why", ext={**EXT, "bname": "b"}, body=b"body")
    for header_type in HeaderType:
        command.header_type = header_type
        await client.ask(command)
        request = seen.pop()
        assert request.header == QueryConsumerOffsetHeader(3, "T", "G", "b")
        assert request.ext == command.ext
        assert (request.code, request.opaque, request.version, request.remark) == (14, 9, 333, "why")
        assert (request.language, bytes(request.body), request.is_oneway) == (Language.CPP, b"body", False)
        assert request.received_at == trio.current_time()
        assert request.connection.header_type is header_type


# -- deferred answers and tasks


async def test_answers_given_later(nursery: trio.Nursery) -> None:
    parking = Parking()
    running = await serving(nursery, {11: Handler(parking, family="pull"), 14: OFFSET})
    client = await running.client()
    await client.send(Command(11, 1), Command(11, 2), ask(3))
    assert (await client.receive()).opaque == 3
    assert running.server.statistics().in_flight["pull"] == 2
    parking.requests[1].reply(Reply(19, remark="nothing"))
    parking.requests[0].reply(Reply(0, body=[memoryview(b"a"), b"b"]))
    answers = [await client.receive(), await client.receive()]
    assert [(answer.opaque, answer.code, answer.body) for answer in answers] == [(2, 19, b""), (1, 0, b"ab")]
    assert running.server.statistics().in_flight["pull"] == 0


async def test_an_answer_given_before_the_handler_returns(nursery: trio.Nursery) -> None:
    """A flush may already be done when somebody starts waiting for it."""

    def at_once(request: Request) -> Deferred:
        request.reply(Reply(body=b"done"))
        return DEFERRED

    running = await serving(nursery, {10: Handler(at_once, family="send")})
    client = await running.client()
    for _ in range(3):
        assert (await client.ask(Command(10))).body == b"done"
    assert running.server.statistics().in_flight["send"] == 0


async def test_requests_of_a_lost_connection_are_released(nursery: trio.Nursery) -> None:
    parking = Parking()
    cancelled = trio.Event()

    async def slow(request: Request) -> Answer:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    running = await serving(nursery, {11: Handler(parking, family="pull"), 1: Handler(slow)})
    client = await running.client()
    await client.send(Command(11), Command(11), Command(1))
    await wait_all_tasks_blocked()
    assert running.server.statistics().in_flight == {"pull": 2, "admin": 1}
    await client.stream.aclose()
    await cancelled.wait()
    await wait_all_tasks_blocked()
    assert running.server.statistics() == type(running.server.statistics())(0, {"pull": 0, "admin": 0})
    parking.requests[0].reply(Reply())  # too late, and harmless
    assert running.server.statistics().in_flight["pull"] == 0


async def test_a_family_at_its_limit_is_refused_at_once_naming_the_setting(nursery: trio.Nursery) -> None:
    parking = Parking()
    limits = {"pull": FamilyLimit(2, "pullThreadPoolQueueCapacity")}
    running = await serving(nursery, {11: Handler(parking, family="pull"), 14: OFFSET}, limits=limits)
    client, other = await running.client(), await running.client()
    await client.send(Command(11, 1), Command(11, 2))
    await wait_all_tasks_blocked()
    refused = await other.ask(Command(11, 3))
    assert refused.code == 2
    assert refused.remark is not None
    assert refused.remark.startswith("[OVERLOAD]")
    assert "pullThreadPoolQueueCapacity=2" in refused.remark
    assert (await other.ask(ask())).code == 0  # another family
    parking.requests[0].reply(Reply())
    await other.send(Command(11, 4))
    await wait_all_tasks_blocked()
    assert len(parking.requests) == 3


# -- turns


async def test_callbacks_run_after_a_turns_answers(nursery: trio.Nursery) -> None:
    steps: list[str] = []

    def handler(request: Request) -> Reply:
        steps.append("handled")
        return Reply()

    def after_turn() -> None:
        assert running.network.bytes_in_flight > 0
        steps.append("settled")

    running = await serving(nursery, {1: Handler(handler)}, after_turn=after_turn)
    client = await running.client()
    await client.send(Command(1, 1), Command(1, 2), Command(1, 3))
    assert [(await client.receive()).opaque for _ in range(3)] == [1, 2, 3]
    assert steps.count("handled") == 3
    # One turn, or several: on a busy machine a turn's time is up before it has done much.
    assert re.fullmatch("((handled )+settled ?)+", " ".join(steps))


async def test_answers_given_together_leave_together(nursery: trio.Nursery) -> None:
    held: list[Request] = []

    def handler(request: Request) -> Deferred:
        held.append(request)
        return DEFERRED

    running = await serving(nursery, {1: Handler(handler)})
    client = await running.client()
    await client.send(Command(1, 1), Command(1, 2), Command(1, 3, ONEWAY), Command(1, 4))
    await trio.testing.wait_all_tasks_blocked()
    connection = held[0].connection
    assert (connection.in_flight, connection.held_size > 0) == (4, True)
    replies = {1: Reply(remark="1"), 4: Reply(remark="4")}
    ready = b"".join(encode_answer(0, 2, 0, None, b"", "2"))
    connection.answer_together([(request, replies.get(request.opaque, ready)) for request in held])
    assert (connection.in_flight, connection.held_size, running.server.statistics().in_flight["admin"]) == (0, 0, 0)
    assert [(await client.receive()).remark for _ in range(3)] == ["1", "2", "4"]
    await client.send(Command(1, 5))
    await trio.testing.wait_all_tasks_blocked()
    connection.close()
    connection.answer_together([(held[4], Reply())])  # without effect


async def test_hooks_run_before_and_after_a_handler(nursery: trio.Nursery) -> None:
    class Hook(ServerHook):
        def before(self, request: Request) -> None:
            steps.append(f"before {request.code} {request.ext.get('AccessKey')}")
            if "AccessKey" not in request.ext:
                raise Refused(1, "AclException: No accessKey is configured")

        def after(self, request: Request, answer: Command) -> None:
            steps.append(f"after {request.code} {answer.code} {answer.ext}")

    async def task(request: Request) -> Reply:
        return Reply(19)

    def ready(request: Request) -> bytes:
        return encode(Command(22, request.opaque, 1))

    steps: list[str] = []
    running = await serving(nursery, {14: OFFSET, 1: Handler(task), 2: Handler(ready)}, hooks=[Hook()])
    client = await running.client()
    assert (await client.ask(ask())).remark == "AclException: No accessKey is configured"
    signed = {**EXT, "AccessKey": "ak"}
    assert [(await client.ask(Command(code, ext=signed))).code for code in (14, 1, 2)] == [0, 19, 22]
    await client.send(Command(14, ext=signed, flag=ONEWAY))
    await wait_all_tasks_blocked()
    assert steps == [
        "before 14 None", "after 14 1 None", "before 14 ak", "after 14 0 {'offset': '103'}", "before 1 ak",
        "after 1 19 None", "before 2 ak", "after 2 22 None", "before 14 ak",
    ]  # fmt: skip


# -- what ends a connection, and only that


@pytest.mark.parametrize(
    "nonsense",
    [
        struct.pack(">II", FRAME_LIMIT, 0),
        struct.pack(">iI", -5, 0),
        struct.pack(">II", 4, 100),
        struct.pack(">II", 6, 2) + b"xx",
        struct.pack(">II", 6, 9 << 24 | 2) + b"{}",
        encode(Command(14, ext=EXT, body=b"abc", header_type=HeaderType.MSGPACK))[:-1] + b"x",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_garbage_ends_its_own_connection_with_a_log_line(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, nonsense: bytes
) -> None:
    events = Events()
    running = await serving(nursery, {14: OFFSET}, events=[events])
    good, bad = await running.client(), await running.client()
    assert (await good.ask(ask())).code == 0
    await bad.send(ask(5), nonsense)
    assert (await bad.receive()).opaque == 5  # requests before it are answered
    await bad.until_closed()
    assert (await good.ask(ask())).code == 0
    assert [record.levelname for record in caplog.records if record.name == "rocketlet.remoting.connection"] == [
        "WARNING"
    ]
    assert events.seen == ["connected", "connected", "failed", "closed"]


async def test_a_claimed_length_reserves_no_memory(nursery: trio.Nursery) -> None:
    """A thousand connections that announce the longest frame each hold only the few bytes they sent."""
    running = await serving(nursery, {14: OFFSET})
    clients = [await running.client() for _ in range(1000)]
    for client in clients:
        await client.send(struct.pack(">II", FRAME_LIMIT - 4, 20) + b"x")
    await wait_all_tasks_blocked()
    assert running.server.statistics().connections == 1000
    assert (await (await running.client()).ask(ask())).code == 0


async def test_silent_and_broken_connections(nursery: trio.Nursery) -> None:
    events = Events()
    running = await serving(nursery, {14: OFFSET}, events=[events])
    silent = await running.client()
    await silent.stream.aclose()
    broken = await running.client()
    await broken.ask(ask())
    running.network.cut(broken.stream.local)
    await wait_all_tasks_blocked()
    assert events.seen == ["connected", "failed", "closed"]
    assert running.server.statistics().connections == 0


async def test_a_peer_that_closes_mid_frame(nursery: trio.Nursery, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    running = await serving(nursery, {14: OFFSET})
    client = await running.client()
    await client.send(encode(ask())[:-1])
    await client.stream.aclose()
    await wait_all_tasks_blocked()
    assert "inside a frame" in caplog.text


# -- idleness


async def test_an_idle_connection_is_closed_after_120_seconds(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    events = Events()
    running = await serving(nursery, {14: OFFSET}, events=[events])
    busy, idle = await running.client(), await running.client()
    began = trio.current_time()
    await idle.ask(ask())

    async def keep_busy() -> None:
        for _ in range(10):
            await trio.sleep(50)
            await busy.ask(ask())

    nursery.start_soon(keep_busy)
    await idle.until_closed()
    assert trio.current_time() - began == 120
    assert "idle" in events.seen
    assert (await busy.ask(ask())).code == 0


async def test_a_connection_that_never_sends_is_closed_too(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    running = await serving(nursery, {14: OFFSET})
    client = await running.client()
    await client.until_closed()
    assert trio.current_time() == pytest.approx(120)


# -- backpressure


async def test_a_peer_that_does_not_read_is_no_longer_read_from(nursery: trio.Nursery) -> None:
    served = 0

    def big(request: Request) -> Reply:
        nonlocal served
        served += 1
        return Reply(body=bytes(100_000))

    config = ServerConfig(
        write_buffer_high_water_mark=500_000, write_buffer_low_water_mark=100_000, server_drain_seconds=0.0
    )
    running = await serving(nursery, {1: Handler(big)}, config)
    client = await running.client()
    for number in range(100):
        await client.send(Command(1, number))
        await wait_all_tasks_blocked()
    (connection,) = running.server.connections
    assert 5 < served < 15
    assert connection.statistics().unsent < 1_000_000
    assert [(await client.receive()).opaque for _ in range(100)] == list(range(100))


# -- requests of the server


async def test_a_server_calls_clients_in_their_header_type(nursery: trio.Nursery) -> None:
    running = await serving(nursery, {14: OFFSET})
    for header_type in HeaderType:
        client = await running.client()
        await client.ask(ask(1, header_type))
        connection = max(running.server.connections, key=lambda one: one.id)
        answers: list[Command] = []

        async def call(connection: Connection = connection, answers: list[Command] = answers) -> None:
            answers.append(await connection.call(Command(307, ext={"clientId": "c"}), 5))

        nursery.start_soon(call)
        asked = await client.receive()
        assert (asked.code, asked.header_type, asked.flag) == (307, header_type, 0)
        await client.send(Command(0, asked.opaque, 1, body=b"info", header_type=header_type))
        await wait_all_tasks_blocked()
        assert answers[0].body == b"info"
        connection.send_oneway(Command(40, ext={"consumerGroup": "G"}))
        notified = await client.receive()
        assert (notified.code, notified.flag) == (40, ONEWAY)


# -- stopping


async def stopped_while(parks: bool) -> tuple[float, list[int]]:
    """How long a stop took with one parked request and a task with one second left; and the answers."""
    parking = Parking()

    async def slow(request: Request) -> Reply:
        await trio.sleep(2)
        return Reply()

    answered: list[int] = []
    network, stop = MemoryNetwork(), trio.CancelScope()
    table = {1: Handler(slow), 11: Handler(parking, parks=parks), 14: OFFSET}
    server = Server(table, network, ServerConfig(server_drain_seconds=10.0))

    async def serve(task_status: trio.TaskStatus[str]) -> None:
        with stop:
            await server.serve("h", 1, task_status=task_status)

    async def read(client: RawClient) -> None:
        try:
            while True:
                answered.append((await client.receive()).opaque)
        except EOFError:
            pass  # closed by the server, in the end

    async with trio.open_nursery() as nursery:
        client = RawClient(await network.dial(await nursery.start(serve)))
        nursery.start_soon(read, client)
        await client.send(Command(1, 1), Command(11, 2))
        await trio.sleep(1)
        began = trio.current_time()
        stop.cancel()
        await trio.sleep(0.1)
        with pytest.raises(ConnectFailed, match="refused"):
            await network.dial("h:1")
        await client.send(ask(3))  # too late to be read
    return trio.current_time() - began, answered


async def test_a_stop_waits_for_requests_in_progress(autojump_clock: MockClock) -> None:
    took, answered = await stopped_while(parks=True)
    assert took == pytest.approx(1.0)
    assert answered == [1]


async def test_a_stop_waits_no_longer_than_its_setting(autojump_clock: MockClock) -> None:
    took, answered = await stopped_while(parks=False)
    assert took == pytest.approx(10.0)
    assert answered == [1]


async def test_one_server_on_two_ports(nursery: trio.Nursery) -> None:
    running = await serving(nursery, {14: OFFSET})
    second = await nursery.start(running.server.serve, "10.0.0.5", 0)
    assert second != running.address
    client = RawClient(await running.network.dial(second))
    assert (await client.ask(ask())).code == 0
    with pytest.raises(ListenFailed, match="already in use"):
        await running.server.serve("10.0.0.5", int(second.rpartition(":")[2]))


async def test_a_bug_ends_the_server_loudly() -> None:
    def after_turn() -> None:
        raise AssertionError("the store is broken")

    with pytest.RaisesGroup(pytest.RaisesExc(AssertionError, match="broken"), flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            network = MemoryNetwork()
            server = Server({14: OFFSET}, network, after_turn=after_turn)
            client = RawClient(await network.dial(await nursery.start(server.serve, "h", 1)))
            await client.send(ask())


# -- effects on other peers


class FailingEvents(ConnectionEvents):
    """A failing subscriber."""

    def __init__(self, event: str) -> None:
        self._event = event

    def connected(self, connection: Connection) -> None:
        self._fail("connected")

    def closed(self, connection: Connection) -> None:
        self._fail("closed")

    def failed(self, connection: Connection) -> None:
        self._fail("failed")

    def _fail(self, event: str) -> None:
        if event == self._event:
            raise UnicodeEncodeError("utf-8", "g\ud800", 1, 2, "surrogates not allowed")


@pytest.mark.parametrize("event", ["connected", "closed", "failed"])
async def test_a_failing_subscriber_affects_nobody_else(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, event: str
) -> None:
    others = Events()
    server = await serving(nursery, {14: OFFSET}, events=[FailingEvents(event), others])
    first, second = await server.client(), await server.client()
    await second.ask(ask())
    await first.send(b"\xff" * 100)
    await first.until_closed()
    await wait_all_tasks_blocked()
    assert (await second.ask(ask(2))).code == 0
    assert "closed" in others.seen
    assert "FailingEvents failed at the event" in caplog.text


@pytest.mark.parametrize("steps", range(12))
async def test_a_start_may_be_cancelled_at_any_moment(autojump_clock: MockClock, steps: int) -> None:
    network = MemoryNetwork()
    server = Server({}, network, ServerConfig())
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

            nursery.start_soon(cancel)
            await nursery.start(server.serve, "10.0.0.5", 9876)
            await trio.sleep_forever()
    with pytest.raises(ConnectFailed):
        await network.dial("10.0.0.5:9876")


class RefusingListener:
    """Raises these errors at the first calls of accept, then waits forever."""

    address = "10.0.0.5:1"

    def __init__(self, errors: list[OSError]) -> None:
        self.errors = errors

    async def accept(self) -> ByteStream:
        if not self.errors:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        raise self.errors.pop(0)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class RefusingNetwork(MemoryNetwork):
    """A network whose listener refuses."""

    def __init__(self, errors: list[OSError]) -> None:
        super().__init__()
        self.listener = RefusingListener(errors)

    async def listen(self, host: str, port: int) -> Listener:
        await trio.lowlevel.checkpoint()
        return self.listener


@pytest.mark.parametrize(
    ("code", "seconds"),
    [(errno.ENOTCONN, 0), (errno.ECONNABORTED, 0), (errno.EPROTO, 0), (errno.EMFILE, 10), (errno.ENOBUFS, 10)],
)
async def test_only_resource_exhaustion_pauses_accepting(
    nursery: trio.Nursery, autojump_clock: MockClock, code: int, seconds: float
) -> None:
    network = RefusingNetwork([OSError(code, "refused") for _ in range(100)])
    begin = trio.current_time()
    await serving(nursery, {}, network=network)
    while network.listener.errors:
        await trio.sleep(0.001)
    assert trio.current_time() - begin == pytest.approx(seconds, abs=0.2)


async def test_a_request_with_too_long_a_header_ends_its_connection(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    client = await (await serving(nursery, {14: OFFSET})).client()
    await client.send(struct.pack(">II", 300_004, 300_000))
    await client.until_closed()
    assert "a header of 300000 bytes, where 262144 are the limit" in caplog.text


async def test_a_body_longer_than_its_code_allows_is_refused(nursery: trio.Nursery) -> None:
    seen: list[int] = []

    def handle(request: Request) -> Reply:
        seen.append(len(request.body))
        return Reply()

    client = await (await serving(nursery, {1: Handler(handle, longest_body=1000)})).client()
    assert (await client.ask(Command(1, body=b"x" * 1000))).code == 0
    refused = await client.ask(Command(1, body=b"x" * 1001))
    assert (refused.code, refused.remark) == (1, "the body of request 1 has 1001 bytes, at most 1000 are allowed")
    assert seen == [1000]


async def test_answers_are_counted_before_the_next_request_of_a_chunk(nursery: trio.Nursery) -> None:
    # 1,000 requests in one chunk, 100 KB of answer each: without checking the backlog, 100 MB for one peer.
    served = 0

    def large(request: Request) -> Reply:
        nonlocal served
        served += 1
        return Reply(body=[bytes(50_000), bytes(50_000)])

    config = ServerConfig(write_buffer_high_water_mark=1 << 20, server_drain_seconds=0.0)
    server = await serving(nursery, {1: Handler(large)}, config)
    client = await server.client()
    await client.send(*[Command(1, number) for number in range(1000)])
    await wait_all_tasks_blocked()
    assert served < 20
    (connection,) = server.server.connections
    assert connection.statistics().unsent < 2 << 20
    assert [(await client.receive()).opaque for _ in range(1000)] == list(range(1000))
    assert served == 1000
    assert connection.statistics().unsent == 0


async def test_large_deferred_answers_stay_slices_until_there_is_room(nursery: trio.Nursery) -> None:
    parking = Parking()
    log = memoryview(bytes(1 << 20))
    server = await serving(nursery, {1: Handler(parking, parks=True)})
    client = await server.client()
    await client.send(*[Command(1, number) for number in range(200)])
    await wait_all_tasks_blocked()
    (connection,) = server.server.connections
    for request in parking.requests:
        request.reply(Reply(body=[log]))
    await wait_all_tasks_blocked()
    assert connection.is_congested
    assert sum(len(one) for one in connection.out if isinstance(one, bytes)) < 1 << 20
    assert sum(isinstance(one, memoryview) for one in connection.out) > 190
    assert [len((await client.receive()).body) for _ in range(200)] == [1 << 20] * 200
    assert not connection.is_congested


async def test_a_deferred_request_keeps_no_body(nursery: trio.Nursery) -> None:
    parking = Parking()
    client = await (await serving(nursery, {1: Handler(parking, parks=True)})).client()
    nursery.start_soon(client.send, Command(1, body=bytes(900_000)))
    await wait_all_tasks_blocked()
    (request,) = parking.requests
    assert request.body == b""
    request.reply(Reply())
    assert (await client.receive()).code == 0


async def test_requests_in_progress_are_counted_in_bytes(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MAX_HELD_BY_CONNECTION", 200_000)
    parking = Parking()
    server = await serving(nursery, {1: Handler(parking, parks=True)})
    client, other = await server.client(), await server.client()
    await client.send(*[Command(1, number, ext={"a": "x" * 20_000}) for number in range(10)])
    await wait_all_tasks_blocked()
    assert len(parking.requests) == 5
    refused = await client.receive()
    assert refused.code == 2
    assert refused.remark is not None
    assert "requests in progress hold" in refused.remark
    await other.send(Command(1, 77))
    await wait_all_tasks_blocked()
    assert len(parking.requests) == 6
    for request in parking.requests:
        request.reply(Reply())
    await wait_all_tasks_blocked()
    assert {connection.held_size for connection in server.server.connections} == {0}


async def test_a_closed_connection_releases_its_requests_bytes(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MAX_HELD", 200_000)
    parking = Parking()
    server = await serving(nursery, {1: Handler(parking, parks=True)})
    for _ in range(5):
        client = await server.client()
        await client.send(*[Command(1, number, ext={"a": "x" * 20_000}) for number in range(10)])
        await wait_all_tasks_blocked()
        assert (await client.receive()).code == 2
        await client.stream.aclose()
        await wait_all_tasks_blocked()
    assert len(parking.requests) == 25


async def test_a_long_turn_yields(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "TURN_SECONDS", -1.0)
    monkeypatch.setattr(dispatch, "_SHORTEST_TURN_SECONDS", -1.0)
    order: list[int] = []

    def handle(request: Request) -> Reply:
        order.append(request.opaque)
        return Reply()

    server = await serving(nursery, {1: Handler(handle)})
    first, second = await server.client(), await server.client()
    await first.send(*[Command(1, number) for number in range(64)])
    await second.send(Command(1, 1000))
    await wait_all_tasks_blocked()
    assert sorted(order) == [*range(64), 1000]
    assert order.index(1000) < 63
    assert [(await first.receive()).opaque for _ in range(64)] == list(range(64))


async def test_many_busy_connections_share_the_time_of_a_turn(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    """60 peers with 3,000 requests each made others wait for half a second."""
    order: list[int] = []

    def handle(request: Request) -> Reply:
        order.append(request.opaque)
        mock_clock.jump(0.0005)
        return Reply()

    server = await serving(nursery, {1: Handler(handle)})
    busy = [await server.client() for _ in range(20)]
    for client in busy:
        await client.send(*[Command(1, number) for number in range(200)])
    while len(order) < 1000:
        await trio.lowlevel.checkpoint()
    other, before = await server.client(), len(order)
    await other.send(Command(1, 1000))
    while 1000 not in order:
        await trio.lowlevel.checkpoint()
    assert order.index(1000) - before <= 3 * 20 * dispatch._FRAMES_BETWEEN_LOOKS, (
        "of the 20 to 28 that fit into a whole turn each"
    )
    await wait_all_tasks_blocked()
    assert len(order) == 20 * 200 + 1
    assert not server.server._dispatch._unfinished


async def test_incomplete_long_frames_are_counted_in_total(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serving(nursery, {14: OFFSET}, ServerConfig(unfinished_frames_max=20 << 20))
    begin = struct.pack(">II", (16 << 20) - 4, 100) + bytes(8 << 20)
    clients = []
    for _ in range(2):
        clients.append(await server.client())
        await clients[-1].send(begin)
    await wait_all_tasks_blocked()
    assert len(server.server.connections) == 2
    third = await server.client()
    with pytest.raises(trio.BrokenResourceError):
        await third.send(begin)
    assert "bytes of others wait for theirs" in caplog.text
    await clients[0].stream.aclose()
    await wait_all_tasks_blocked()
    await (await server.client()).send(begin)
    assert (await (await server.client()).ask(ask())).code == 0
    assert len(server.server.connections) == 3


# -- requests that have to wait before they can be served


async def test_a_request_that_has_to_wait_is_served_again_and_answered_once(nursery: trio.Nursery) -> None:
    ready, served, admitted = trio.Event(), [], []

    def handle(request: Request) -> Reply:
        served.append(request.header.queueId)
        if len(served) == 1:
            raise Later(ready.wait)
        return Reply(remark="served")

    class Admission:
        def admit(self, request: Request, _: object) -> None:
            admitted.append(request.code)
            if len(admitted) == 3:  # that of the other request is the second
                raise Later(ready.wait)

    table = {14: Handler(handle, QueryConsumerOffsetHeader, "consumer"), 15: Handler(lambda _: Reply())}
    running = await serving(nursery, table, admission=Admission())
    client = await running.client()
    await client.send(ask())
    await wait_all_tasks_blocked()
    assert running.server.statistics().in_flight["consumer"] == 1
    await client.send(Command(15, 2))
    assert (await client.receive()).opaque == 2  # others are served meanwhile
    ready.set()
    answer = await client.receive()
    assert (answer.opaque, answer.remark, served) == (1, "served", [3, 3])
    assert running.server.statistics().in_flight["consumer"] == 0


async def test_a_waiting_request_ends_with_its_connection(nursery: trio.Nursery) -> None:
    def handle(_: Request) -> Reply:
        raise Later(trio.sleep_forever)

    running = await serving(nursery, {14: Handler(handle, QueryConsumerOffsetHeader, "consumer")})
    client = await running.client()
    await client.send(ask())
    await wait_all_tasks_blocked()
    await client.stream.aclose()
    await wait_all_tasks_blocked()
    assert running.server.statistics().in_flight["consumer"] == 0


async def test_a_refusal_after_waiting_is_answered(nursery: trio.Nursery) -> None:
    tries = []

    def handle(_: Request) -> Reply:
        tries.append(1)
        if len(tries) == 1:
            raise Later(trio.lowlevel.checkpoint)
        raise Refused(17, "not there")

    running = await serving(nursery, {14: Handler(handle, QueryConsumerOffsetHeader, "consumer")})
    answer = await (await running.client()).ask(ask())
    assert (answer.code, answer.remark) == (17, "not there")
