"""The endpoint in front of a whole stack: clients' calls, in their usual order."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketlet.common.clock import TrioWallClock
from rocketlet.proxy.service.transactions import SETTLED_SECONDS
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from tests.support.grpc_client import CallFailed, GrpcClient, grpc_client
from tests.support.proxied import Proxied, proxied


def message(topic: str, body: bytes = b"hello", message_id: str = "0102", **system: object) -> m.Message:
    return m.Message(
        topic=m.Resource(name=topic),
        body=body,
        system_properties=m.SystemProperties(message_id=message_id, **system),  # type: ignore[arg-type]
    )


async def send(client: GrpcClient, *messages: m.Message) -> m.SendMessageResponse:
    answer: m.SendMessageResponse = await client.call("SendMessage", m.SendMessageRequest(messages=messages))
    return answer


async def route(client: GrpcClient, topic: str) -> m.QueryRouteResponse:
    answer: m.QueryRouteResponse = await client.call(
        "QueryRoute", m.QueryRouteRequest(topic=m.Resource(name=topic), endpoints=ENDPOINTS)
    )
    return answer


ENDPOINTS = m.Endpoints(scheme=m.DOMAIN_NAME, addresses=[m.Address(host="outside.example", port=31)])


async def test_a_route_names_the_address_that_the_client_uses(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock, brokers=2) as stack, grpc_client(stack.network, stack.address) as client:
        topic = await stack.make_topic("T", "FIFO", queues=3)
        answer = await route(client, topic)
        assert answer.status.code == Code.OK
        assert [(queue.broker.name, queue.id) for queue in answer.message_queues] == [
            (broker, number) for broker in ("broker-a", "broker-b") for number in range(3)
        ]
        for queue in answer.message_queues:
            assert queue.permission == m.READ_WRITE
            assert list(queue.accept_message_types) == [m.FIFO]
            assert queue.broker.endpoints == ENDPOINTS
            assert queue.broker.id == 0


async def test_a_topic_that_does_not_exist_has_no_route_until_it_does(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        assert (await route(client, "T")).status.code == Code.TOPIC_NOT_FOUND
        assert (await send(client, message("T"))).status.code == Code.TOPIC_NOT_FOUND
        await stack.make_topic("T")
        assert (await route(client, "T")).status.code == Code.OK
        assert (await route(client, "TBW102")).status.code == Code.ILLEGAL_TOPIC
        assert (await route(client, "no/name")).status.code == Code.ILLEGAL_TOPIC


async def test_a_send_is_answered_with_id_queue_and_offset(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        topic = await stack.make_topic("T", queues=1)
        for place in range(3):
            answer = await send(client, message(topic, message_id=f"01{place}"))
            (entry,) = answer.entries
            assert (answer.status.code, entry.message_id, entry.offset) == (Code.OK, f"01{place}", place)
        several = await send(client, *(message(topic, message_id=f"02{n}") for n in range(3)))
        assert [(entry.message_id, entry.offset) for entry in several.entries] == [("020", 3), ("021", 4), ("022", 5)]


async def test_a_message_of_another_type_than_its_topic_is_refused(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        for kind in ("NORMAL", "FIFO", "MIXED"):
            await stack.make_topic(kind, kind)
        for kind, given, code in (
            ("NORMAL", message("NORMAL", message_group="g"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            ("FIFO", message("FIFO"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            ("FIFO", message("FIFO", message_group="g"), Code.OK),
            ("MIXED", message("MIXED"), Code.OK),
            ("MIXED", message("MIXED", message_group="g"), Code.OK),
        ):
            assert (await send(client, given)).status.code == code, kind


async def test_producers_get_their_settings_and_consumers_their_groups(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_group("orderly", orderly=True, retries=3)
        publishing = m.Publishing(topics=[m.Resource(name="T"), m.Resource(name="TBW102")])
        _, answers = await client.telemetry(m.Settings(client_type=m.PRODUCER, publishing=publishing))
        settings = (await anext(answers)).settings
        assert settings.backoff_policy.max_attempts == 3
        assert settings.backoff_policy.exponential_backoff.initial.nanos == 10_000_000
        assert settings.publishing.max_body_size == 4 << 20
        assert settings.publishing.validate_message_type
        assert settings.HasField("metric")
        assert not settings.metric.on
        subscription = m.Subscription(group=m.Resource(name="orderly"))
        _, answers = await client.telemetry(m.Settings(client_type=m.PUSH_CONSUMER, subscription=subscription))
        settings = (await anext(answers)).settings
        assert settings.backoff_policy.max_attempts == 4
        assert [step.seconds for step in settings.backoff_policy.customized_backoff.next][:4] == [1, 5, 10, 30]
        assert settings.subscription.fifo
        assert settings.subscription.long_polling_timeout.seconds == 20


async def test_empty_settings_end_the_telemetry_stream(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        _, answers = await client.telemetry(m.Settings(client_type=m.PRODUCER))
        with pytest.raises(CallFailed) as failed:
            await anext(answers)
        assert failed.value.status == 3


async def test_a_client_without_settings_is_served(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    """After our restart some clients repeat their settings only every five minutes."""
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        beat = await client.call("Heartbeat", m.HeartbeatRequest(client_type=m.PRODUCER))
        assert beat.status.code == Code.OK
        unknown = await client.call("Heartbeat", m.HeartbeatRequest())
        assert unknown.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        left = await client.call("NotifyClientTermination", m.NotifyClientTerminationRequest())
        assert left.status.code == Code.OK


async def test_an_unserved_call_is_unimplemented(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        number, head = client.open("PullMessage")
        await client.raw.send(head)
        with pytest.raises(CallFailed) as failed:
            await anext(client.messages(number, m.SendMessageResponse))
        assert failed.value.status == 12


async def test_metrics_count_calls_by_code(autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock) -> None:
    from rocketlet.metrics.page import Page

    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        await send(client, message("T"))
        await send(client, message("T", body=b""))
        page = Page(1000)
        for _ in stack.proxy.metrics.fill(page):
            pass
        samples = {family.name: family.samples for family in page}
        calls = samples["rocketlet_proxy_calls_total"]
        assert calls["", ("SendMessage", "20000")] == 1
        assert calls["", ("SendMessage", "41302")] == 1
        assert samples["rocketlet_proxy_connections"]["", ()] == 1
        assert list(stack.proxy.metrics.not_ready()) == []


async def committed(stack: Proxied, client: GrpcClient, resolution: int) -> m.EndTransactionResponse:
    sent = await send(client, message("X", message_type=m.TRANSACTION))
    assert sent.status.code == Code.OK, sent
    answer: m.EndTransactionResponse = await client.call(
        "EndTransaction",
        m.EndTransactionRequest(
            topic=m.Resource(name="X"),
            message_id="0102",
            transaction_id=sent.entries[0].transaction_id,
            resolution=resolution,
            source=m.SOURCE_CLIENT,
        ),
    )
    return answer


async def test_a_transaction_is_ended_by_its_id(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("X", "TRANSACTION", queues=1)
        store = stack.stack.brokers["broker-a"].store
        assert (await committed(stack, client, m.ROLLBACK)).status.code == Code.OK
        assert store.queue_end("X", 0) == 0
        assert (await committed(stack, client, m.COMMIT)).status.code == Code.OK
        assert store.queue_end("X", 0) == 1
        unknown = await client.call(
            "EndTransaction", m.EndTransactionRequest(topic=m.Resource(name="X"), transaction_id="what")
        )
        assert unknown.status.code == Code.INVALID_TRANSACTION_ID


async def test_a_producer_is_checked_about_an_open_transaction(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    settings = {"transactionTimeOut": "2000", "transactionCheckInterval": "3000"}
    async with (
        proxied(wall_clock, settings=settings) as stack,
        grpc_client(stack.network, stack.address) as client,
    ):
        await stack.make_topic("X", "TRANSACTION", queues=1)
        publishing = m.Publishing(topics=[m.Resource(name="X")])
        _, answers = await client.telemetry(m.Settings(client_type=m.PRODUCER, publishing=publishing))
        await anext(answers)
        began = trio.current_time()
        sent = await send(client, message("X", message_type=m.TRANSACTION))
        command = (await anext(answers)).recover_orphaned_transaction_command
        assert trio.current_time() - began >= SETTLED_SECONDS
        assert command.transaction_id == sent.entries[0].transaction_id
        assert command.message.body == b"hello"
        assert command.message.topic.name == "X"
        ended = await client.call(
            "EndTransaction",
            m.EndTransactionRequest(
                topic=m.Resource(name="X"),
                message_id=command.message.system_properties.message_id,
                transaction_id=command.transaction_id,
                resolution=m.COMMIT,
                source=m.SOURCE_SERVER_CHECK,
            ),
        )
        assert ended.status.code == Code.OK
        assert stack.stack.brokers["broker-a"].store.queue_end("X", 0) == 1
