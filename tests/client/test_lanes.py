"""Sends that wait for a busy queue leave together, which shows only in the speed."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlet.client import AsyncProducer, Message, MessageQueue, Refused, SendStatus, TimedOut
from rocketlet.client.sending.lanes import MAX_BYTES
from rocketlet.remoting.handler import Reply, Request
from rocketlet.remoting.request_codes import RequestCode
from tests.support.properties import examples
from tests.support.scripted_broker import CUT, DROP, Script, scripted_brokers, send_reply

ONE = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


@asynccontextmanager
async def producer_at(script: Script, **config: Any) -> AsyncIterator[AsyncProducer]:
    """A producer with its route and connections."""
    async with AsyncProducer("p", namesrv=script.namesrv, world=script.world(), **config) as producer:
        for _ in range(script.queues * len(script.names)):
            await producer.send(Message("T", b"first"))
        script.requests.clear()
        script.bodies.clear()
        script.network.delay = 0.01
        yield producer


def numbers(*count: int) -> list[bytes]:
    return [b"%d" % number for number in range(*count)]


async def test_sends_during_a_request_leave_as_one_batch(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script) as producer:
        pending = [producer.send_soon(Message("T", body)) for body in numbers(50)]
        results = [await each for each in pending]
        assert script.sent() == [[b"0"], numbers(1, 50)]
        assert [result.queue_offset for result in results] == list(range(1, 51))
        assert [result.message_id for result in results] == [each.message_id for each in pending]
        assert len({result.offset_message_id for result in results}) == 50
        assert {result.queue for result in results} == {MessageQueue("T", "a", 0)}


async def test_an_idle_queue_sends_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=4) as script, producer_at(script) as producer:
        for each in [producer.send_soon(Message("T", body)) for body in numbers(4)]:
            await each
        assert script.sent() == [[body] for body in numbers(4)]


async def test_sends_of_one_turn_share_a_batch_even_to_an_idle_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script) as producer:
        engine, _ = producer._sending()
        messages = [Message("T", body, wait_store=body != b"30") for body in numbers(50)]
        sends = deque(map(engine.prepare, messages))
        engine.pipeline.submit_all(sends)
        await engine.pipeline.drain()
        assert script.sent() == [numbers(30), [b"30"], numbers(31, 50)]
        assert not sends


async def test_a_batch_stays_within_its_byte_limit(autojump_clock: trio.testing.MockClock) -> None:
    body = bytes(MAX_BYTES // 4)
    async with scripted_brokers("a", queues=1) as script, producer_at(script, compress_over=1 << 20) as producer:
        for each in [producer.send_soon(Message("T", body)) for _ in range(9)]:
            await each
        assert [len(bodies) for bodies in script.sent()] == [1, 3, 3, 2]


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", delay_level=3),
        Message("T", b"x", wait_store=False),
        Message("T", b"x", properties={"TIMER_DELAY_SEC": "7"}),
        Message("T", bytes(5000)),
    ],
    ids=["delayed", "does not wait", "timed", "compressed"],
)
async def test_unbatchable_messages_go_alone_and_in_order(
    autojump_clock: trio.testing.MockClock, message: Message
) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script) as producer:
        queue = MessageQueue("T", "a", 0)
        sends = [*(Message("T", body) for body in numbers(3)), message, *[Message("T", b"after")] * 2]
        for each in [producer.send_soon(one, queue=queue) for one in sends]:
            await each
        assert [len(bodies) for bodies in script.sent()] == [1, 2, 1, 2]
        assert [ext["m"] for _, _, ext in script.requests] == ["false", "true", "false", "true"]


async def test_batching_can_be_disabled(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script, batching=False) as producer:
        for each in [producer.send_soon(Message("T", body)) for body in numbers(5)]:
            await each
        assert script.sent() == [[body] for body in numbers(5)]


async def test_lingering_waits_even_at_an_idle_queue(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script, linger=0.5) as producer:
        began = trio.current_time()
        pending = [producer.send_soon(Message("T", body)) for body in numbers(5)]
        await trio.sleep(0.4)
        assert script.sent() == []
        pending.append(producer.send_soon(Message("T", b"5")))
        for each in pending:
            await each
        assert script.sent() == [numbers(6)]
        assert 0.5 <= trio.current_time() - began < 0.6


async def test_a_lost_batch_is_retried_message_by_message(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", "b", queues=1) as script, producer_at(script) as producer:
        script.next("a", BATCH, CUT)
        queues = await producer.publish_queues("T")
        at_a = next(queue for queue in queues if queue.broker_name == "a")
        first = producer.send_soon(Message("T", b"first"), queue=at_a)
        pending = [producer.send_soon(Message("T", body)) for body in numbers(20)]
        results = [await each for each in pending]
        assert (await first).queue == at_a
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert sorted(chain.from_iterable(script.sent("b")), key=int) == numbers(20)


async def test_only_the_bad_message_of_a_refused_batch_fails(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script, retry_codes=frozenset()) as producer:

        def strict(request: Request) -> Reply:
            if b"2" in bytes(request.body):
                return Reply(13, remark="the message is illegal")
            return send_reply(script, "a", request)

        script.next("a", BATCH, strict)
        script.next("a", ONE, *[strict] * 6)
        pending = [producer.send_soon(Message("T", body)) for body in numbers(6)]
        with pytest.raises(Refused, match="illegal") as caught:
            await pending[2]
        assert caught.value.tries == 1
        good = [await each for each in pending if each is not pending[2]]
        assert [result.queue_offset for result in good] == [1, 2, 3, 4, 5]
        assert [len(bodies) for bodies in script.sent()] == [1, 5, 1, 1, 1, 1, 1]


async def test_a_busy_broker_refuses_a_batch_once(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script) as producer:
        script.next("a", BATCH, Reply(2, remark="busy"))
        pending = [producer.send_soon(Message("T", body)) for body in numbers(6)]
        await pending[0]
        for each in pending[1:]:
            with pytest.raises(Refused, match="busy"):
                await each
        assert len(script.sent()) == 2


async def test_one_timeout_leaves_the_rest_of_its_batch_unaffected(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script) as producer:
        script.network.delay = 1.0
        pending = [producer.send_soon(Message("T", body), timeout=3.5 if body == b"2" else 9) for body in numbers(5)]
        with pytest.raises(TimedOut):
            await pending[2]
        results = [await each for number, each in enumerate(pending) if number != 2]
        assert [result.queue_offset for result in results] == [1, 2, 4, 5]


async def test_sends_queued_behind_an_unanswered_send_leave_at_its_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script, retries=0) as producer:
        script.next("a", ONE, DROP)
        first = producer.send_soon(Message("T", b"x"), timeout=2)
        rest = [producer.send_soon(Message("T", body), timeout=6) for body in numbers(3)]
        with pytest.raises(TimedOut):
            await first
        assert [(await each).queue_offset for each in rest] == [1, 2, 3]
        assert script.sent() == [[b"x"], numbers(3)]


@settings(max_examples=examples(30), deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60_000), min_size=1, max_size=30),
    alone=st.sets(st.integers(0, 29)),
    late=st.sets(st.integers(0, 29)),
    cuts=st.integers(0, 2),
)
def test_every_send_ends_by_itself(sizes: list[int], alone: set[int], late: set[int], cuts: int) -> None:
    """Whatever is sent, disconnected or late: a result has the offset at which its message was stored."""

    async def run() -> None:
        async with (
            scripted_brokers("a", "b", queues=1) as script,
            producer_at(script, compress_over=1 << 20) as producer,
        ):
            script.next("a", BATCH, *[CUT] * cuts)
            stored: dict[tuple[str, int], bytes] = {}
            pending = [
                producer.send_soon(
                    Message("T", b"%05d" % number + bytes(size), delay_level=int(number in alone)),
                    timeout=0.02 if number in late else 3,
                )
                for number, size in enumerate(sizes)
            ]
            offsets = {"a": 1, "b": 1}
            ends = []
            for each in pending:
                try:
                    ends.append(await each)
                except TimedOut:
                    ends.append(None)
            lost = cuts
            for (name, code, _), bodies in zip(
                [one for one in script.requests if one[1] in (ONE, BATCH)], script.sent(), strict=True
            ):
                if code == BATCH and name == "a" and lost:
                    lost -= 1
                    continue
                for body in bodies:
                    stored[name, offsets[name]] = body[:5]
                    offsets[name] += 1
            for number, end in enumerate(ends):
                if end is None:
                    assert number in late
                else:
                    assert stored[end.queue.broker_name, end.queue_offset] == b"%05d" % number

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
