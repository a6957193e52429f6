"""Receive, acknowledge, extend, give up: pops through gRPC, in virtual time."""

from __future__ import annotations

import hashlib

import pytest
import trio
import trio.testing

from rocketlet.common.clock import TrioWallClock
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from tests.proxy.test_proxy import message, send
from tests.support.grpc_client import CallFailed, GrpcClient, grpc_client
from tests.support.proxied import proxied

GROUP = "readers"


def asking(
    topic: str,
    *,
    invisible: int = 10,
    batch: int = 32,
    poll: int = 5,
    tags: str = "*",
    kind: int = m.TAG,
    auto_renew: bool = False,
) -> m.ReceiveMessageRequest:
    return m.ReceiveMessageRequest(
        group=m.Resource(name=GROUP),
        message_queue=m.MessageQueue(topic=m.Resource(name=topic), broker=m.Broker(name="broker-a")),
        filter_expression=m.FilterExpression(type=kind, expression=tags),
        batch_size=batch,
        invisible_duration=None if auto_renew else m.Duration(seconds=invisible),
        long_polling_timeout=m.Duration(seconds=poll),
        auto_renew=auto_renew,
    )


async def receive(client: GrpcClient, request: m.ReceiveMessageRequest) -> tuple[int, list[m.Message]]:
    """The status and the messages of a receive; it ends with the delivery time."""
    answers = await client.receive(request)
    assert answers[0].WhichOneof("content") == "status"
    assert answers[-1].WhichOneof("content") in ("status", "delivery_timestamp")
    return answers[0].status.code, [answer.message for answer in answers[1:-1]]


async def ack(client: GrpcClient, one: m.Message, handle: str = "") -> int:
    entry = m.AckMessageEntry(
        message_id=one.system_properties.message_id, receipt_handle=handle or one.system_properties.receipt_handle
    )
    answer = await client.call(
        "AckMessage", m.AckMessageRequest(group=m.Resource(name=GROUP), topic=one.topic, entries=[entry])
    )
    assert {entry.status.code for entry in answer.entries} <= {answer.status.code}
    code: int = answer.status.code
    return code


async def change(client: GrpcClient, one: m.Message, seconds: int) -> m.ChangeInvisibleDurationResponse:
    answer: m.ChangeInvisibleDurationResponse = await client.call(
        "ChangeInvisibleDuration",
        m.ChangeInvisibleDurationRequest(
            group=m.Resource(name=GROUP),
            topic=one.topic,
            receipt_handle=one.system_properties.receipt_handle,
            invisible_duration=m.Duration(seconds=seconds),
        ),
    )
    return answer


async def test_a_message_is_received_as_sent(autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T", queues=1)
        sent = message("T", b"body", "0102AB", tag="red", keys=["a", "b"])
        sent.user_properties["colour"] = "blue"
        await send(client, sent)
        code, (got,) = await receive(client, asking("T"))
        assert code == Code.OK
        assert (got.topic.name, got.body, dict(got.user_properties)) == ("T", b"body", {"colour": "blue"})
        system = got.system_properties
        assert (system.message_id, system.tag, list(system.keys)) == ("0102AB", "red", ["a", "b"])
        assert (system.delivery_attempt, system.queue_id, system.queue_offset) == (1, 0, 0)
        assert (system.message_type, system.body_encoding) == (m.NORMAL, m.IDENTITY)
        assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
        assert abs(system.born_timestamp.seconds - wall_clock() // 1000) < 60
        assert system.receipt_handle.split(" ")[5] == "broker-a"
        assert len(system.receipt_handle.split(" ")) == 9


async def test_a_receive_waits_for_a_message_and_may_end_empty(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        began = trio.current_time()
        assert await receive(client, asking("T", poll=7)) == (Code.MESSAGE_NOT_FOUND, [])
        assert 6.5 <= trio.current_time() - began <= 8
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_later, client, 4)
            began = trio.current_time()
            _, (got,) = await receive(client, asking("T", poll=20))
            assert trio.current_time() - began < 4.2
            assert got.body == b"later"


async def send_later(client: GrpcClient, seconds: float) -> None:
    await trio.sleep(seconds)
    await send(client, message("T", b"later"))


async def test_only_unacknowledged_messages_are_redelivered(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        await send(client, message("T"))
        await receive(client, asking("T", invisible=10))
        began = trio.current_time()
        _, (second,) = await receive(client, asking("T", invisible=10, poll=20))
        assert 9.5 <= trio.current_time() - began <= 12
        assert second.system_properties.delivery_attempt == 2
        assert await ack(client, second) == Code.OK
        assert await receive(client, asking("T", poll=20)) == (Code.MESSAGE_NOT_FOUND, [])


async def test_a_change_counts_from_now_and_returns_a_new_handle(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        await send(client, message("T"))
        _, (one,) = await receive(client, asking("T", invisible=60))
        changed = await change(client, one, 3)
        assert changed.status.code == Code.OK
        assert changed.receipt_handle != one.system_properties.receipt_handle
        began = trio.current_time()
        _, (again,) = await receive(client, asking("T", poll=20))
        assert 2.5 <= trio.current_time() - began <= 4.5
        assert again.system_properties.delivery_attempt == 2
        assert (await change(client, again, 13 * 3600)).status.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_a_forged_handle_is_refused(autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        one = message("T")
        for handle in ("nonsense", "0 1 2 3 4 5 6", "0 1 1 0 0 nowhere 0 0 0", "0 1 1 0 0 broker-a 0 7 0"):
            assert await ack(client, one, handle) in (Code.INVALID_RECEIPT_HANDLE, Code.INTERNAL_SERVER_ERROR), handle


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (asking("T", invisible=9), Code.ILLEGAL_INVISIBLE_TIME),
        (asking("T", invisible=13 * 3600), Code.ILLEGAL_INVISIBLE_TIME),
        (asking("T", tags="||"), Code.ILLEGAL_FILTER_EXPRESSION),
        (asking("TBW102"), Code.ILLEGAL_TOPIC),
        (asking("nowhere"), Code.TOPIC_NOT_FOUND),
    ],
)
async def test_an_invalid_receive_is_refused_with_its_code(
    request_: m.ReceiveMessageRequest,
    code: Code,
    autojump_clock: trio.testing.MockClock,
    wall_clock: TrioWallClock,
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        (answer,) = await client.receive(request_)
        assert answer.status.code == code


async def test_a_deadline_too_near_for_a_poll_is_refused(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        (answer,) = await client.receive(asking("T"), timeout="4S")
        assert answer.status.code == Code.ILLEGAL_POLLING_TIME


async def test_unwanted_tags_are_not_delivered(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        for tag in ("A", "B", "C"):
            await send(client, message("T", tag.encode(), tag=tag))
        # "Aa" and "BB" have equal Java hashes, by which brokers filter.
        await send(client, message("T", b"BB", tag="BB"))
        bodies = set()
        while (found := await receive(client, asking("T", tags="A || C || Aa")))[0] == Code.OK:
            bodies |= {one.body for one in found[1]}
            for one in found[1]:
                await ack(client, one)
        assert bodies == {b"A", b"C"}


async def test_a_push_consumers_messages_stay_invisible_as_long_as_it_needs(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        await send(client, message("T"))
        subscription = m.Subscription(group=m.Resource(name=GROUP))
        _, answers = await client.telemetry(m.Settings(client_type=m.PUSH_CONSUMER, subscription=subscription))
        await anext(answers)
        _, (one,) = await receive(client, asking("T", auto_renew=True))
        await trio.sleep(600)
        assert len(stack.proxy.renewals) == 1
        assert await receive(client, asking("T")) == (Code.MESSAGE_NOT_FOUND, [])
        assert await ack(client, one) == Code.OK  # with the first handle
        assert len(stack.proxy.renewals) == 0
        await trio.sleep(100)
        assert await receive(client, asking("T")) == (Code.MESSAGE_NOT_FOUND, [])


async def test_a_lost_push_consumers_messages_are_redelivered_soon(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack:
        async with grpc_client(stack.network, stack.address) as client:
            await stack.make_topic("T")
            await send(client, message("T"))
            await receive(client, asking("T", auto_renew=True))
        async with grpc_client(stack.network, stack.address) as client:
            began = trio.current_time()
            _, (again,) = await receive(client, asking("T", poll=20))
            assert trio.current_time() - began < 3
            assert again.system_properties.delivery_attempt == 2


async def test_messages_popped_for_a_client_that_left_are_returned(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack:
        await stack.make_topic("T")
        async with grpc_client(stack.network, stack.address) as client, trio.open_nursery() as nursery:
            nursery.start_soon(give_up_waiting, client)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        async with grpc_client(stack.network, stack.address) as client:
            await send(client, message("T"))  # the pop of the client that left is still parked at the broker
            began = trio.current_time()
            _, (one,) = await receive(client, asking("T", poll=20))
            assert trio.current_time() - began < 3
            assert one.body == b"hello"


async def give_up_waiting(client: GrpcClient) -> None:
    with pytest.raises(CallFailed):
        await client.receive(asking("T", poll=20, invisible=3600))


async def test_a_terminating_client_gets_its_receives_answered(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T")
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                began = trio.current_time()
                assert await receive(client, asking("T", poll=20)) == (Code.MESSAGE_NOT_FOUND, [])
                assert trio.current_time() - began < 2

            nursery.start_soon(wait)
            await trio.sleep(1)
            await client.call("NotifyClientTermination", m.NotifyClientTerminationRequest())


async def test_a_message_given_up_becomes_a_dead_letter_and_the_group_continues(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T", "FIFO", queues=1)
        await stack.make_group(GROUP, orderly=True)
        for body in (b"bad", b"good"):
            await send(client, message("T", body, message_group="one"))
        _, (bad,) = await receive(client, asking("T", batch=1))
        assert bad.system_properties.message_type == m.FIFO
        answer = await client.call(
            "ForwardMessageToDeadLetterQueue",
            m.ForwardMessageToDeadLetterQueueRequest(
                group=m.Resource(name=GROUP),
                topic=bad.topic,
                receipt_handle=bad.system_properties.receipt_handle,
                message_id=bad.system_properties.message_id,
                delivery_attempt=17,
                max_delivery_attempts=17,
            ),
        )
        assert answer.status.code == Code.OK
        _, (good,) = await receive(client, asking("T"))
        assert good.body == b"good"
        assert stack.stack.brokers["broker-a"].store.queue_end(f"%DLQ%{GROUP}", 0) == 1


async def test_assignments_name_brokers_or_queues_for_an_orderly_group(
    autojump_clock: trio.testing.MockClock, wall_clock: TrioWallClock
) -> None:
    async with proxied(wall_clock, brokers=2) as stack, grpc_client(stack.network, stack.address) as client:
        await stack.make_topic("T", queues=2)
        await stack.make_group("orderly", orderly=True)
        for group, wanted in ((GROUP, [-1, -1]), ("orderly", [0, 1, 0, 1])):
            answer = await client.call(
                "QueryAssignment",
                m.QueryAssignmentRequest(topic=m.Resource(name="T"), group=m.Resource(name=group)),
            )
            assert [one.message_queue.id for one in answer.assignments] == wanted
