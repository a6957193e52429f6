"""Access control of gRPC calls: signatures of RocketMQ 5's clients, with the brokers' accounts."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime

import pytest
import trio.testing

from rocketlet.common.clock import TrioWallClock
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.command import Command
from tests.proxy.test_proxy import message
from tests.support.grpc_client import CallFailed, GrpcClient, grpc_client
from tests.support.memory_folder import MemoryFolder, account, accounts
from tests.support.proxied import proxied

ACCOUNTS = accounts(
    account("sender-1", topics=("T=PUB",)),
    account("reader-1", topics=("T=SUB",), groups=("readers=SUB",)),
    account("operator", secret="battery-staple", admin=True),
)


def signed(key: str, secret: str, at_ms: int) -> tuple[tuple[str, str], ...]:
    """The metadata that a client of RocketMQ 5 signs with."""
    when = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.new(secret.encode(), when.encode(), hashlib.sha1).hexdigest()
    words = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return ("x-mq-date-time", when), ("authorization", words)


async def send(client: GrpcClient, topic: str, *metadata: tuple[str, str]) -> tuple[int, str]:
    request = m.SendMessageRequest(messages=[message(topic)])
    answer = await client.call("SendMessage", request, *metadata)
    return answer.status.code, answer.status.message


async def test_an_account_may_do_what_its_permissions_allow(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    folder = MemoryFolder(ACCOUNTS)
    async with (
        proxied(wall_clock, accounts=folder) as stack,
        grpc_client(stack.network, stack.address) as client,
    ):
        for topic in ("T", "U"):
            await stack.make_topic(topic)
        now = wall_clock()
        sender, reader = signed("sender-1", "correct-horse", now), signed("reader-1", "correct-horse", now)
        assert (await send(client, "T", *sender))[0] == Code.OK
        assert (await send(client, "T", *signed("operator", "battery-staple", now)))[0] == Code.OK
        assert (await send(client, "T", *signed("sender-1", "wrong-horse", now)))[0] == Code.UNAUTHORIZED
        assert (await send(client, "T"))[0] == Code.UNAUTHORIZED
        assert (await send(client, "T", *signed("nobody-1", "correct-horse", now)))[0] == Code.UNAUTHORIZED
        code, why = await send(client, "U", *sender)
        assert code == Code.FORBIDDEN
        assert "sender-1" in why
        assert (await send(client, "T", *reader))[0] == Code.FORBIDDEN
        for metadata in (sender, reader):  # a route needs either
            route = await client.call("QueryRoute", m.QueryRouteRequest(topic=m.Resource(name="T")), *metadata)
            assert route.status.code == Code.OK
        handle = m.AckMessageEntry(receipt_handle="x")
        ack = m.AckMessageRequest(group=m.Resource(name="readers"), topic=m.Resource(name="T"), entries=[handle])
        assert (await client.call("AckMessage", ack, *sender)).status.code == Code.FORBIDDEN
        assert (await client.call("AckMessage", ack, *reader)).status.code == Code.INVALID_RECEIPT_HANDLE
        assert stack.proxy.access.gate.denied.total() >= 5


@pytest.mark.parametrize(
    "words",
    [
        "MQv2-HMAC-SHA1 Credential=,",
        "MQv2-HMAC-SHA1 Credential=sender-1, SignedHeaders=x-mq-date-time, Signature=xyz",
        "Basic c2VuZGVy",
        "MQv2-HMAC-SHA1 " * 50,
    ],
)
async def test_an_invalid_signature_is_refused(
    words: str, autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with (
        proxied(wall_clock, accounts=MemoryFolder(ACCOUNTS)) as stack,
        grpc_client(stack.network, stack.address) as client,
    ):
        when = signed("sender-1", "x", wall_clock())[0]
        assert (await send(client, "T", when, ("authorization", words)))[0] == Code.UNAUTHORIZED


async def test_a_signature_of_another_day_is_refused(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with (
        proxied(wall_clock, accounts=MemoryFolder(ACCOUNTS)) as stack,
        grpc_client(stack.network, stack.address) as client,
    ):
        await stack.make_topic("T")
        old = signed("sender-1", "correct-horse", wall_clock() - 25 * 3600 * 1000)
        code, why = await send(client, "T", *old)
        assert code == Code.UNAUTHORIZED
        assert "more than a day" in why
        recent = signed("sender-1", "correct-horse", wall_clock() - 14 * 3600 * 1000)
        assert (await send(client, "T", *recent))[0] == Code.OK


async def test_an_unsigned_telemetry_stream_ends(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with (
        proxied(wall_clock, accounts=MemoryFolder(ACCOUNTS)) as stack,
        grpc_client(stack.network, stack.address) as client,
    ):
        publishing = m.Publishing(topics=[m.Resource(name="T")])
        _, answers = await client.telemetry(m.Settings(client_type=m.PRODUCER, publishing=publishing))
        with pytest.raises(CallFailed):
            await anext(answers)


async def test_the_endpoint_signs_its_broker_requests_with_its_own_account(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = MemoryFolder(ACCOUNTS)
    folder.contents[folder.tools_path] = b"accessKey: operator\nsecretKey: battery-staple\n"
    async with (
        proxied(wall_clock, accounts=folder) as stack,
        grpc_client(stack.network, stack.address) as client,
    ):
        await stack.make_topic("T")
        own, seen = stack.proxy.access.own, list[dict[str, str]]()
        sign = own.before

        def look(address: str, command: Command) -> None:
            sign(address, command)
            seen.append(command.ext or {})

        monkeypatch.setattr(own, "before", look)
        assert (await send(client, "T", *signed("sender-1", "correct-horse", wall_clock())))[0] == Code.OK
        sends = [ext for ext in seen if ext.get("b") == "T"]
        assert sends
        assert all(ext["AccessKey"] == "operator" and ext["Signature"] for ext in sends)
