"""The port: TLS and plain, peers that are silent, read nothing, or send something other than requests."""

from __future__ import annotations

import ssl

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlet.common.clock import TrioWallClock, system_clock
from rocketlet.proxy.connection import (
    GREETING_SECONDS,
    IDLE_SECONDS,
    MAX_UNREAD,
    REQUEST_SECONDS,
    SILENT_SECONDS,
    STUCK_SECONDS,
)
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.tls import secured
from tests.proxy.test_proxy import message, send
from tests.proxy.test_receiving import asking
from tests.support.grpc_client import (
    DATA,
    PING,
    CallFailed,
    GrpcClient,
    RawConnection,
    frame,
    framed,
    grpc_client,
)
from tests.support.properties import examples
from tests.support.proxied import Proxied, proxied


async def raw(stack: Proxied, *, greet: bool = True) -> RawConnection:
    connection = RawConnection(await stack.network.dial(stack.address))
    if greet:
        await connection.greet()
    return connection


async def ended(connection: RawConnection) -> None:
    while await connection.frame() is not None:
        pass


async def still_serves(stack: Proxied) -> None:
    async with grpc_client(stack.network, stack.address) as client:
        beat = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))
        assert beat.status.code == Code.OK


async def test_a_peer_that_does_not_speak_http2_is_closed(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack:
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x10remoting", b"PRI * HTTP/1.0\r\n"):
            connection = await raw(stack, greet=False)
            await connection.send(greeting)
            await ended(connection)
        await still_serves(stack)


async def test_a_silent_peer_is_closed(autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock) -> None:
    async with proxied(wall_clock) as stack:
        for greeting in (b"", b"PRI * HT"):
            began = trio.current_time()
            connection = await raw(stack, greet=False)
            await connection.send(greeting)
            await ended(connection)
            assert trio.current_time() - began <= GREETING_SECONDS + 6


@pytest.mark.slow
async def test_a_connection_without_calls_is_closed_unless_it_has_telemetry(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack:
        idle = await raw(stack)
        async with grpc_client(stack.network, stack.address) as client:
            publishing = m.Publishing(topics=[m.Resource(name="T")])
            _, answers = await client.telemetry(m.Settings(client_type=m.PRODUCER, publishing=publishing))
            await anext(answers)
            await trio.sleep(IDLE_SECONDS + 6)
            assert (await idle.goaway())[0] == 0
            await trio.sleep(5 * IDLE_SECONDS)
            beat = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))
            assert beat.status.code == Code.OK
            assert len(stack.proxy.clients) == 1
        await trio.sleep(1)
        assert len(stack.proxy.clients) == 0


@pytest.mark.slow
async def test_the_telemetry_of_a_terminated_client_does_not_keep_its_connection(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        publishing = m.Publishing(topics=[m.Resource(name="T")])
        _, answers = await client.telemetry(m.Settings(client_type=m.PRODUCER, publishing=publishing))
        await anext(answers)
        await client.call("NotifyClientTermination", m.NotifyClientTerminationRequest())
        await trio.sleep(IDLE_SECONDS - 6)
        assert (await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))).status.code == Code.OK
        assert len(stack.proxy.clients) == 1
        await trio.sleep(IDLE_SECONDS + 6)
        assert len(stack.proxy.clients) == len(stack.proxy.server.connections) == 0


async def test_a_peer_that_vanished_is_noticed(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack:
        connection = await raw(stack)
        await connection.send(connection.headers(1, "Telemetry"))  # a call that stays open, and then nothing
        began = trio.current_time()
        asked = 0
        while (found := await connection.frame()) is not None:
            asked += found.kind == PING
        assert asked == 1
        assert trio.current_time() - began < SILENT_SECONDS + 60


async def test_an_incomplete_request_ends_only_its_call(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        number, head = client.open("SendMessage")
        await client.raw.send(head + frame(DATA, 0, number, b"\0\0\0\x10\0half"))
        began = trio.current_time()
        with pytest.raises(CallFailed) as failed:
            await anext(client.messages(number, m.SendMessageResponse))
        assert failed.value.status == 4
        assert trio.current_time() - began < REQUEST_SECONDS + 10
        beat = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))
        assert beat.status.code == Code.OK


async def test_an_oversized_body_is_refused_before_it_arrives(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        number, head = client.open("SendMessage")
        await client.raw.send(head + frame(DATA, 0, number, b"\0" + (1 << 30).to_bytes(4, "big")))
        answer = await anext(client.messages(number, m.SendMessageResponse))
        assert answer.status.code == Code.MESSAGE_BODY_TOO_LARGE
        number, head = client.open("Heartbeat")
        await client.raw.send(head + frame(DATA, 0, number, b"\0" + (1 << 20).to_bytes(4, "big")))
        answer = await anext(client.messages(number, m.HeartbeatResponse))
        assert answer.status.code == Code.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 13),
        (b"\0\0\0\0\x05ab", 13),
        (framed(b"") + b"x", 13),
        (framed(b"") * 2, 13),
        (b"\x01\0\0\0\0", 13),
        (framed(b"\xff\xff\xff"), 13),
    ],
)
async def test_a_malformed_body_ends_only_its_call(
    body: bytes, status: int, autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        number, head = client.open("SendMessage")
        await client.raw.send(head + frame(DATA, 1, number, body))
        with pytest.raises(CallFailed) as failed:
            await anext(client.messages(number, m.SendMessageResponse))
        assert failed.value.status == status
        beat = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))
        assert beat.status.code == Code.OK


@pytest.mark.slow
async def test_a_peer_that_does_not_read_is_bounded_and_then_closed(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack:
        await stack.make_topic("T", queues=1)
        async with grpc_client(stack.network, stack.address) as client:
            for number in range(12):
                await send(client, message("T", bytes(3 << 20), message_id=str(number)))
        connection = RawConnection(await stack.network.dial(stack.address))
        await connection.greet(window=0)  # no stream may send anything
        for number in range(1, 60, 2):
            request = framed(asking("T", batch=1).SerializeToString())
            await connection.send(connection.headers(number, "ReceiveMessage") + frame(DATA, 1, number, request))
            await trio.sleep(0.1)
        unread = max((one.unread for one in stack.proxy.server.connections), default=0)
        assert MAX_UNREAD < unread < 2 * MAX_UNREAD
        began = trio.current_time()
        await ended(connection)
        assert trio.current_time() - began < STUCK_SECONDS + 10
        await still_serves(stack)


async def test_connections_above_the_limit_are_refused(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock, grpcMaxConnections="3") as stack:
        held = [await raw(stack) for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        await ended(await raw(stack, greet=False))
        assert stack.proxy.server.refused == 1
        await held[0].stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        await still_serves(stack)


@pytest.mark.slow
async def test_requests_of_all_connections_together_are_limited(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock, grpcMaxHeldBytes=str(64 << 20)) as stack:
        connections = []
        for _ in range(16):
            connection = await raw(stack)
            connections.append(connection)
            await connection.send(connection.headers(1, "SendMessage") + frame(DATA, 0, 1, b"\0\0\x4f\0\0"))
            for _ in range(39):
                await connection.send(frame(DATA, 0, 1, bytes(1 << 17)))
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.1)
        left = list(stack.proxy.server.connections)
        assert 0 < len(left) < 16
        assert sum(one.held for one in left) <= 64 << 20
        await still_serves(stack)


async def over_tls(stack: Proxied) -> GrpcClient:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return GrpcClient(await secured(await stack.network.dial(stack.address), context, server_side=False))


@pytest.mark.slow
async def test_tls_shares_the_port_with_a_self_made_certificate() -> None:
    async with proxied(system_clock) as stack:
        await stack.make_topic("T")
        client = await over_tls(stack)
        async with trio.open_nursery() as nursery:
            await client.raw.greet()
            nursery.start_soon(client.read)
            assert (await send(client, message("T", bytes(1 << 20)))).status.code == Code.OK
            nursery.cancel_scope.cancel()
        await still_serves(stack)


HANDLE = "0 1 2 3 0 broker-a 0 0 0"
HOSTILE = st.one_of(
    st.binary(max_size=60).map(lambda body: framed(body)),
    st.sampled_from(
        [
            m.SendMessageRequest(messages=[message("T")]).SerializeToString(),
            m.ReceiveMessageRequest().SerializeToString(),
            m.TelemetryCommand(settings=m.Settings(publishing=m.Publishing())).SerializeToString(),
            m.AckMessageRequest(entries=[m.AckMessageEntry(receipt_handle=HANDLE)]).SerializeToString(),
        ]
    )
    .flatmap(lambda whole: st.tuples(st.just(whole), st.integers(0, len(whole)), st.integers(0, 255)))
    .map(lambda one: framed(one[0][: one[1]] + bytes([one[2]]) + one[0][one[1] + 1 :])),
    st.binary(max_size=30),
)
METHODS = [
    "QueryRoute", "QueryAssignment", "Heartbeat", "Telemetry", "NotifyClientTermination", "SendMessage",
    "RecallMessage", "EndTransaction", "ReceiveMessage", "AckMessage", "ChangeInvisibleDuration",
    "ForwardMessageToDeadLetterQueue", "None",
]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.sampled_from(METHODS), HOSTILE, st.booleans()), min_size=1, max_size=12))
def test_mutated_requests_end_only_their_own_calls(calls: list[tuple[str, bytes, bool]]) -> None:
    async def main() -> None:
        async with proxied(TrioWallClock(1_700_000_000_000)) as stack:
            await stack.make_topic("T")
            async with grpc_client(stack.network, stack.address) as client:
                for method, body, ends in calls:
                    number, head = client.open(method, ("grpc-timeout", "6S"))
                    await client.raw.send(head + frame(DATA, int(ends), number, body))
                beat = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))
                assert beat.status.code == Code.OK

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
