"""How sends fail and are retried, with scripted brokers."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain, count
from typing import Any

import pytest
import trio

from rocketlet.client import (
    AsyncProducer,
    ClientClosed,
    InvalidMessage,
    Message,
    MessageQueue,
    NoRoute,
    Refused,
    SendFailed,
    SendStatus,
    TimedOut,
    TooManyInFlight,
    Unreachable,
)
from rocketlet.client.errors import ListenerFailed
from rocketlet.client.hooks import SendContext
from rocketlet.common import message_properties
from rocketlet.common.message_record import decode_batch
from rocketlet.remoting.handler import Reply
from rocketlet.remoting.request_codes import RequestCode
from tests.support.scripted_broker import CUT, DROP, Script, scripted_brokers, send_reply

SEND = RequestCode.SEND_MESSAGE_V2


@asynccontextmanager
async def producer_at(script: Script, **settings: Any) -> AsyncIterator[AsyncProducer]:
    async with AsyncProducer("p", namesrv=script.namesrv, world=script.world(), **settings) as producer:
        yield producer


def sent_bodies(script: Script, code: RequestCode = SEND) -> list[bytes]:
    return [body for (_, asked, _), body in zip(script.requests, script.bodies, strict=True) if asked == code]


@pytest.mark.parametrize("code", [1, 14, 16, 17, 204, 205])
async def test_a_code_rocketmq_retries_is_retried_at_another_broker(
    autojump_clock: trio.testing.MockClock, code: int
) -> None:
    async with scripted_brokers("a", "b") as script, producer_at(script) as producer:
        script.next("a", SEND, Reply(code, remark="no"))
        script.next("b", SEND, Reply(code, remark="no"))
        result = await producer.send(Message("T", b"x"))
        assert result.status is SendStatus.SEND_OK
        tried = [broker for broker, asked, _ in script.requests if asked == SEND]
        assert len(tried) == 3
        assert tried[0] != tried[1] != tried[2]


@pytest.mark.parametrize("code", [2, 13, 26])
async def test_a_final_code_is_raised_at_once(autojump_clock: trio.testing.MockClock, code: int) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        script.next("a", SEND, Reply(code, remark="not like this"))
        with pytest.raises(Refused, match="not like this") as caught:
            await producer.send(Message("T", b"x"))
        assert (caught.value.code, caught.value.topic, caught.value.tries) == (code, "T", 1)
        assert "a at 10.1.0.1:10911" in str(caught.value)
        assert script.count(SEND) == 1


async def test_busy_can_be_made_retriable(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script, retry_codes=frozenset({2})) as producer:
        script.next("a", SEND, Reply(2, remark="busy"))
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_the_last_error_lists_all_attempts(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        script.next("a", SEND, Reply(1, remark="first"), CUT, Reply(1, remark="last"))
        with pytest.raises(SendFailed, match=r"failed 3 times, lastly: .*last") as caught:
            await producer.send(Message("T", b"x"))
        assert [type(cause) for cause in caught.value.causes] == [Refused, Unreachable, Refused]
        assert (caught.value.code, caught.value.tries) == (1, 3)
        assert caught.value.__cause__ is caught.value.causes[-1]


async def test_the_timeout_covers_all_attempts(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", "b") as script, producer_at(script, try_timeout=0.7) as producer:
        for name in ("a", "b"):
            script.next(name, SEND, DROP, DROP)
        began = trio.current_time()
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"x"), timeout=1.0)
        assert trio.current_time() - began == pytest.approx(1.0, abs=0.02)
        assert caught.value.tries == 2


async def test_without_its_own_timeout_an_attempt_may_take_it_all(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", "b") as script, producer_at(script) as producer:
        for name in ("a", "b"):
            script.next(name, SEND, DROP)
        began = trio.current_time()
        with pytest.raises(TimedOut):
            await producer.send(Message("T", b"x"))
        assert trio.current_time() - began == pytest.approx(3.0, abs=0.02)


async def test_a_late_answer_is_dropped(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        script.network.delay = 0.4
        with pytest.raises(TimedOut):
            await producer.send(Message("T", b"x"), timeout=1.0)
        script.network.delay = 0
        await trio.sleep(2)
        assert (await producer.send(Message("T", b"y"))).queue_offset >= 0


async def test_each_send_has_its_own_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        await producer.send(Message("T", b"warm"))
        script.next("a", SEND, DROP, DROP, DROP)
        began = trio.current_time()
        ended: dict[float, float] = {}

        async def send(timeout: float) -> None:
            with pytest.raises(TimedOut):
                await producer.send(Message("T", b"x"), timeout=timeout)
            ended[timeout] = trio.current_time() - began

        async with trio.open_nursery() as nursery:
            for timeout in (5.0, 0.5, 2.0):
                nursery.start_soon(send, timeout)
        assert ended == pytest.approx({5.0: 5.0, 0.5: 0.5, 2.0: 2.0}, abs=0.01)


async def test_a_chosen_queue_is_never_replaced(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", "b") as script, producer_at(script) as producer:
        queue = MessageQueue("T", "a", 1)
        script.next("a", SEND, Reply(1, remark="no"), Reply(1, remark="no"))
        with pytest.raises(Refused):
            await producer.send(Message("T", b"x"), queue=queue)
        with pytest.raises(Refused):
            await producer.send(Message("T", b"x"), selector=lambda queues, message, argument: queue)
        assert [(name, ext["e"]) for name, code, ext in script.requests if code == SEND] == [("a", "1"), ("a", "1")]


async def test_a_failing_or_wrong_selector_is_reported(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        with pytest.raises(ListenerFailed, match="ZeroDivisionError"):
            await producer.send(Message("T", b"x"), selector=lambda queues, message, argument: queues[1 // 0])
        with pytest.raises(ListenerFailed, match="no queue of the topic"):
            await producer.send(Message("T", b"x"), selector=lambda *_: MessageQueue("T", "z", 0))
        assert script.count(SEND) == 0


async def test_one_sharding_key_maps_to_one_queue(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", "b", queues=4) as script, producer_at(script) as producer:
        queues = {(await producer.send(Message("T", b"x", sharding_key="k"))).queue for _ in range(10)}
        assert len(queues) == 1


async def test_sends_take_queues_in_turn(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", "b", queues=3) as script, producer_at(script) as producer:
        queues = [(await producer.send(Message("T", b"x"))).queue for _ in range(6)]
        assert len(set(queues)) == 6


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, SendStatus.FLUSH_DISK_TIMEOUT), (11, SendStatus.SLAVE_NOT_AVAILABLE), (12, SendStatus.FLUSH_SLAVE_TIMEOUT)],
)
async def test_stored_but_not_yet_durable_is_a_result(
    autojump_clock: trio.testing.MockClock, code: int, status: SendStatus
) -> None:
    async with scripted_brokers("a") as script:
        script.next("a", SEND, *[lambda request: send_reply(script, "a", request, code)] * 2)
        async with producer_at(script) as producer:
            assert (await producer.send(Message("T", b"x"))).status is status
        async with producer_at(script, retry_when_not_stored_safely=True) as producer:
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_a_topic_without_a_route_uses_the_default_topics(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=8) as script, producer_at(script) as producer:
        script.topics = {"TBW102"}
        queues = {(await producer.send(Message("T", b"x"))).queue.queue_id for _ in range(8)}
        assert queues == {0, 1, 2, 3}
        header = script.headers(SEND)[0]
        assert (header["b"], header["c"], header["d"]) == ("T", "TBW102", "4")
        script.topics = {"TBW102", "T"}
        await trio.sleep(35)
        queues = {(await producer.send(Message("T", b"x"))).queue.queue_id for _ in range(8)}
        assert len(queues) == 8, "the topic's own route is found"


async def test_an_unserved_topic_is_an_error_with_advice(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        script.topics = set()
        with pytest.raises(NoRoute, match=r"nor the default topic TBW102, say the name servers 10\.1\.0\.1:9876"):
            await producer.send(Message("T", b"x"))


async def test_a_read_only_topic_is_an_error(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        script.perm = 4
        with pytest.raises(NoRoute, match="no queue that can be written"):
            await producer.send(Message("T", b"x"))


async def test_sends_waiting_for_a_route_leave_in_order(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=1) as script, producer_at(script) as producer:
        script.network.delay = 0.01
        pending = [producer.send_soon(Message("T", b"%d" % n)) for n in range(50)]
        results = [await each for each in pending]
        assert [result.queue_offset for result in results] == list(range(50))
        assert list(chain.from_iterable(script.sent())) == [b"%d" % n for n in range(50)]


async def test_too_many_in_flight_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script, max_in_flight=3) as producer:
        pending = [producer.send_soon(Message("T", b"x")) for _ in range(3)]
        with pytest.raises(TooManyInFlight):
            producer.send_soon(Message("T", b"x"))
        for each in pending:
            await each
        await producer.send_soon(Message("T", b"x"))


async def test_cancelling_a_send_only_stops_the_wait(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        await producer.send(Message("T", b"warm"))
        script.network.delay = 0.1
        pending = producer.send_soon(Message("T", b"x"))
        with trio.move_on_after(0.05):
            await pending
        assert not pending.done
        await trio.sleep(1)
        assert pending.done
        assert pending.exception() is None


async def test_callbacks_run_once_whenever_added(autojump_clock: trio.testing.MockClock) -> None:
    called: list[str] = []
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        pending = producer.send_soon(Message("T", b"x"))
        pending.add_done_callback(lambda sent: called.append("before"))
        await pending
        pending.add_done_callback(lambda sent: called.append("after"))
    assert called == ["before", "after"]


async def test_closing_waits_for_sends_in_flight(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script:
        async with producer_at(script) as producer:
            script.network.delay = 0.2
            pending = [producer.send_soon(Message("T", b"x")) for _ in range(10)]
        assert all(each.done and each.exception() is None for each in pending)
        assert script.count(RequestCode.UNREGISTER_CLIENT) == 1
        with pytest.raises(ClientClosed):
            await producer.send(Message("T", b"x"))


async def test_one_way_sends_are_not_answered(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        for _ in range(5):
            await producer.send_oneway(Message("T", b"x"))
        await trio.sleep(1)
        assert script.count(SEND) == 5


async def test_large_bodies_are_compressed_if_that_helps(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        for body in (b"a" * 5000, b"a" * 4096, bytes(range(256)) * 20):
            await producer.send(Message("T", body))
        sent = sent_bodies(script)
        flags = [header["f"] for header in script.headers(SEND)]
        assert flags == ["1", "0", "1"]
        assert zlib.decompress(sent[0]) == b"a" * 5000
        assert sent[1] == b"a" * 4096


async def test_a_batch_is_one_request_with_an_id_per_message(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        result = await producer.send_batch([Message("T", b"%d" % n, tags="t", keys=["k"]) for n in range(3)])
        header = script.headers(RequestCode.SEND_BATCH_MESSAGE)[0]
        items = decode_batch(sent_bodies(script, RequestCode.SEND_BATCH_MESSAGE)[0])
        assert header["m"] == "true"
        assert [item.body for item in items] == [b"0", b"1", b"2"]
        ids = [message_properties.decode_bytes(item.properties)["UNIQ_KEY"] for item in items]
        assert result.message_id == ",".join(ids)
        with pytest.raises(InvalidMessage, match=r"client\.split"):
            await producer.send_batch([Message("T", b"x" * (3 << 20))] * 2)


@pytest.mark.parametrize("header_type", [0, 1, 2])
async def test_every_header_type_sends_the_same(autojump_clock: trio.testing.MockClock, header_type: int) -> None:
    message = Message(
        "T%1", b"x", tags="a||b", keys=["k1", "k2"], delay_level=3, flag=7, properties={"é": '"\\%s'}, wait_store=False
    )
    async with scripted_brokers("a") as script, producer_at(script, header_type=header_type) as producer:
        result = await producer.send(message)
        header = script.headers(SEND)[0]
        properties = message_properties.decode(header.pop("i"))
    assert properties == {
        "UNIQ_KEY": result.message_id,
        "WAIT": "false",
        "TAGS": "a||b",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "é": '"\\%s',
    }
    assert header.pop("e") in "01"
    assert abs(int(header.pop("g")) - script.clock()) < 10
    assert header == {
        "a": "p", "b": "T%1", "c": "TBW102", "d": "4", "f": "0", "h": "7", "j": "0", "k": "false", "m": "false"
    }  # fmt: skip


@pytest.mark.parametrize("message", [Message("T", b"x", tags="a\x02b"), Message("T", b"x", keys=["a\x02"])])
async def test_separators_inside_values_are_refused(autojump_clock: trio.testing.MockClock, message: Message) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        with pytest.raises(InvalidMessage, match="separator"):
            await producer.send(message)


async def test_a_slow_broker_is_avoided_if_enabled(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", "b") as script, producer_at(script, latency_faults=True) as producer:
        script.next("a", SEND, Reply(1, remark="no"))
        for _ in range(10):
            await producer.send(Message("T", b"x"))
        assert script.count(SEND, "a") == 1
        await trio.sleep(601)
        for _ in range(4):
            await producer.send(Message("T", b"x"))
        assert script.count(SEND, "a") > 1


async def test_requests_are_signed_if_an_account_is_set(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_brokers("a") as script,
        producer_at(script, access_key="RocketMQ", secret_key="12345678") as producer,
    ):
        await producer.send(Message("T", b"x"))
        for header in (script.headers(SEND)[0], script.headers(RequestCode.HEART_BEAT)[0]):
            assert header["AccessKey"] == "RocketMQ"
            assert len(header["Signature"]) == 28


async def test_hooks_see_each_send_and_may_veto_it(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[str] = []

    class Hook:
        def before_send(self, context: SendContext) -> None:
            if context.message.body == b"veto":
                raise PermissionError("no")
            seen.append("before")

        def after_send(self, context: SendContext) -> None:
            seen.append("stored" if context.result else f"failed {type(context.error).__name__}")
            raise ValueError("a hook's own mistake does no harm")

    async with scripted_brokers("a") as script, producer_at(script, hooks=[Hook()]) as producer:
        await producer.send(Message("T", b"x"))
        script.next("a", SEND, Reply(13, remark="no"))
        with pytest.raises(Refused):
            await producer.send(Message("T", b"x"))
        with pytest.raises(PermissionError):
            await producer.send(Message("T", b"veto"))
    assert seen == ["before", "stored", "before", "failed Refused"]


async def test_hooks_are_told_how_long_a_send_took_whatever_the_wall_clock_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    took: list[float] = []

    class Hook:
        def before_send(self, context: SendContext) -> None: ...

        def after_send(self, context: SendContext) -> None:
            took.append(context.elapsed_ms)

    async with scripted_brokers("a") as script:
        backwards = replace(script.world(), clock=count(1_700_000_000_000, -86_400_000).__next__)
        async with AsyncProducer("p", namesrv=script.namesrv, world=backwards, hooks=[Hook()]) as producer:
            await producer.send(Message("T", b"x"))
            script.network.delay = 0.02
            await producer.send(Message("T", b"x"))
    assert took == [0, pytest.approx(40)]


async def test_a_broken_connection_is_dialled_again(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script) as producer:
        await producer.send(Message("T", b"x"))
        script.next("a", SEND, CUT)
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
        assert script.count(SEND) == 3


async def test_the_answering_name_server_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script:
        both = f"10.1.0.1:1;{script.namesrv};10.1.0.1:2"
        async with AsyncProducer("p", namesrv=both, world=script.world()) as producer:
            await producer.send(Message("T", b"x"))
            await trio.sleep(100)
            await producer.send(Message("U", b"x"))


async def test_large_bodies_wait_their_turn_in_order(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_brokers("a", queues=1) as script,
        producer_at(script, max_bytes_in_flight=1000, compress_over=1 << 20, batching=False) as producer,
    ):
        await producer.send(Message("T", b"warm"))
        script.network.delay = 0.1
        began = trio.current_time()
        ended: list[tuple[int, float]] = []

        async def send(n: int, size: int) -> None:
            await trio.sleep(0.001 * n)
            await producer.send(Message("T", bytes([65 + n]) * size))
            ended.append((n, round(trio.current_time() - began, 1)))

        async with trio.open_nursery() as nursery:
            for n, size in enumerate((600, 300, 600, 100, 5000, 10)):
                nursery.start_soon(send, n, size)
        assert sorted(ended) == [(0, 0.2), (1, 0.2), (2, 0.4), (3, 0.4), (4, 0.6), (5, 0.8)]
        assert [body[:1] for body in sent_bodies(script)] == [b"w", b"A", b"B", b"C", b"D", b"E", b"F"]


async def test_a_large_body_that_waits_can_time_out(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script, producer_at(script, max_bytes_in_flight=10) as producer:
        await producer.send(Message("T", b"warm"))
        script.next("a", SEND, DROP)
        first = producer.send_soon(Message("T", b"x" * 20), timeout=5.0)
        second = producer.send_soon(Message("T", b"y" * 20), timeout=1.0)
        third = producer.send_soon(Message("T", b"z" * 20), timeout=9.0)
        with pytest.raises(TimedOut):
            await second
        assert trio.current_time() == pytest.approx(1.0, abs=0.1)
        with pytest.raises(TimedOut):
            await first
        await third
        assert script.count(SEND) == 3


async def test_a_send_that_fails_at_once_leaves_those_that_waited_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with (
        scripted_brokers("a", queues=1) as script,
        producer_at(script, max_bytes_in_flight=10) as producer,
    ):
        await producer.send(Message("T", b"warm"))
        first = producer.send_soon(Message("T", b"0" * 10))
        failing = producer.send_soon(Message("T", b"1" * 10), selector=lambda queues, message, _: queues[7])
        others = [producer.send_soon(Message("T", body * 10)) for body in (b"2", b"3")]
        await first
        with pytest.raises(ListenerFailed):
            await failing
        assert [(await each).queue_offset for each in others] == [2, 3]
