"""How consumers pull, consume, fail and continue: with scripted brokers, and with real ones in memory."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketlet.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeContext,
    ConsumeFrom,
    InvalidUse,
    Later,
    Message,
    MessageModel,
    MessageQueue,
    ReceivedMessage,
    Refused,
    Sql,
)
from rocketlet.client.consuming.offset_store import LocalOffsets
from rocketlet.client.hooks import ConsumeHookContext
from rocketlet.common.message_record import encode
from rocketlet.remoting.handler import Reply
from rocketlet.remoting.protocol.membership import ConsumerListBody, HeartbeatData, LockBatchAnswerBody
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.virtual_cluster import virtual_cluster
from tests.support.builders import record
from tests.support.memory_cluster import memory_cluster
from tests.support.scripted_broker import CUT, DROP, Script, pull_reply, scripted_brokers

PULL = RequestCode.PULL_MESSAGE


def found(*offsets: int, tags: str = "a", **fields: Any) -> Reply:
    """A pull that finds messages of queue 0 of T."""
    body = b"".join(
        encode(record(n, properties={"UNIQ_KEY": f"{n:032X}", "TAGS": tags}, log_offset=1000 * n, **fields))
        for n in offsets
    )
    return pull_reply(0, offsets[-1] + 1, body)


class Collected(list[ReceivedMessage]):
    """A listener that records its messages; `wait` for a number of them."""

    async def __call__(self, message: ReceivedMessage) -> None:
        self.append(message)

    @property
    def offsets(self) -> list[int]:
        return [message.queue_offset for message in self]


@asynccontextmanager
async def consumer_at(
    script: Script, listener: Any, selection: Any = "*", **settings: Any
) -> AsyncIterator[AsyncPushConsumer]:
    given = {"consume_from": ConsumeFrom.FIRST_OFFSET, **settings}
    async with AsyncPushConsumer(
        "g", listener, topics={"T": selection}, namesrv=script.namesrv, world=script.world(), **given
    ) as consumer:
        yield consumer


async def test_pulls_continue_after_every_kind_of_failure(autojump_clock: trio.testing.MockClock) -> None:
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next(
            "a",
            PULL,
            found(0, 1),
            Reply(1, remark="broken"),
            Reply(24, remark="who are you"),
            CUT,
            DROP,
            Reply(215, remark="flow control"),
            pull_reply(0, 5, b"no record at all, and too short for one"),
            pull_reply(20, 2),
            pull_reply(19, 2),
            found(2, 3),
        )
        async with consumer_at(script, got):
            await trio.sleep(120)
    assert got.offsets == [0, 1, 2, 3]


async def test_an_offset_the_broker_does_not_have_is_corrected(autojump_clock: trio.testing.MockClock) -> None:
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, pull_reply(21, 40, low=40))
        async with consumer_at(script, got):
            await trio.sleep(5)
            script.next("a", PULL, found(40))
            await trio.sleep(10)
        pulls = [header["queueOffset"] for header in script.headers(PULL)]
        assert pulls[:2] == ["0", "40"]
        commits = [header["commitOffset"] for header in script.headers(RequestCode.UPDATE_CONSUMER_OFFSET)]
    assert got.offsets == [40]
    assert set(commits[1:]) <= {"40", "41"}


async def test_a_broker_that_does_not_park_pulls_is_not_flooded(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, *[pull_reply(19, 0)] * 1000)
        async with consumer_at(script, Collected()):
            await trio.sleep(60)
            assert script.count(PULL) < 100


async def test_tags_are_checked_exactly_by_the_client(autojump_clock: trio.testing.MockClock) -> None:
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, tags="Aa"), found(1, tags="BB"), found(2, tags="Aa"))
        async with consumer_at(script, got, "BB"):
            await trio.sleep(20)
        last = script.headers(RequestCode.UPDATE_CONSUMER_OFFSET)[-1]
    assert got.offsets == [1]
    assert last["commitOffset"] == "3", "what was filtered out is behind us too"


async def test_offsets_are_committed_up_to_the_first_unfinished_message(autojump_clock: trio.testing.MockClock) -> None:
    release = trio.Event()

    async def listener(message: ReceivedMessage) -> None:
        if message.queue_offset == 2:
            await release.wait()

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1, 2, 3, 4))
        async with consumer_at(script, listener):
            await trio.sleep(30)
            commits = [int(header["commitOffset"]) for header in script.headers(RequestCode.UPDATE_CONSUMER_OFFSET)]
            assert max(commits) == 2
            release.set()
            await trio.sleep(10)
        commits = [int(header["commitOffset"]) for header in script.headers(RequestCode.UPDATE_CONSUMER_OFFSET)]
        assert commits == sorted(commits)
        assert commits[-1] == 5


async def test_closing_waits_for_the_listener_and_commits(autojump_clock: trio.testing.MockClock) -> None:
    done = []

    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(5)
        done.append(message)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1, 2))
        async with consumer_at(script, listener):
            await trio.sleep(1)
        assert len(done) == 3
        codes = [code for _, code, _ in script.requests]
        last_commit = max(n for n, code in enumerate(codes) if code == RequestCode.UPDATE_CONSUMER_OFFSET)
        assert script.requests[last_commit][2]["commitOffset"] == "3"
        assert codes.index(RequestCode.UNREGISTER_CLIENT) > last_commit


@pytest.mark.parametrize("orderly", [False, True])
async def test_closing_starts_no_further_messages(autojump_clock: trio.testing.MockClock, orderly: bool) -> None:
    begun: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        begun.append(message.queue_offset)
        await trio.sleep(2)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(*range(100)))
        began = trio.current_time()
        async with consumer_at(script, listener, threads=4, orderly=orderly):
            await trio.sleep(3)
        assert trio.current_time() - began < 7
        assert len(begun) == (2 if orderly else 8)
        assert script.headers(RequestCode.UPDATE_CONSUMER_OFFSET)[-1]["commitOffset"] == str(len(begun))


async def test_a_listener_that_never_returns_does_not_block_closing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1))
        began = trio.current_time()

        async def listener(message: ReceivedMessage) -> None:
            if message.queue_offset == 0:
                await trio.sleep_forever()

        async with consumer_at(script, listener, shutdown_timeout=7.0):
            await trio.sleep(1)
        assert trio.current_time() - began < 12
        assert script.headers(RequestCode.UPDATE_CONSUMER_OFFSET)[-1]["commitOffset"] == "0"


async def test_pulling_pauses_at_each_limit_and_resumes(autojump_clock: trio.testing.MockClock) -> None:
    for settings in (
        {"queue_max_messages": 4},
        {"queue_max_bytes": 20},
        {"topic_max_messages": 4},
        {"topic_max_bytes": 20},
        {"max_bytes": 20},
        {"max_span": 2},
    ):
        release = trio.Event()
        done: list[int] = []

        async def listener(message: ReceivedMessage, release: trio.Event = release, done: list[int] = done) -> None:
            await release.wait()
            done.append(message.queue_offset)

        async with scripted_brokers("a", queues=1) as script:
            script.topics = {"T"}
            script.next("a", PULL, found(0, 1), found(2, 3), found(4, 5), found(6, 7))
            async with consumer_at(script, listener, **settings):
                await trio.sleep(10)
                assert script.count(PULL) == 2, settings
                release.set()
                await trio.sleep(10)
                assert sorted(done) == list(range(8))


async def test_a_suspended_consumer_pulls_nothing_until_resumed(autojump_clock: trio.testing.MockClock) -> None:
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        async with consumer_at(script, got) as consumer:
            await trio.sleep(1)
            consumer.suspend()
            await trio.sleep(60)
            before = script.count(PULL)
            await trio.sleep(130)
            assert script.count(PULL) == before
            script.next("a", PULL, found(0))
            consumer.resume()
            await trio.sleep(0.1)
            assert got.offsets == [0]


async def test_a_member_list_without_us_takes_no_queue_away(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=2) as script:
        script.topics = {"T"}
        async with consumer_at(script, Collected()) as consumer:
            await trio.sleep(1)
            assert len(consumer.queues()) == 2
            script.next("a", RequestCode.GET_CONSUMER_LIST_BY_GROUP, Reply(body=ConsumerListBody(["other"]).to_json()))
            before = script.count(RequestCode.HEART_BEAT)
            await trio.sleep(20)
            assert len(consumer.queues()) == 2
            assert script.count(RequestCode.HEART_BEAT) > before, "the broker is told"


async def test_a_broker_that_lost_our_heartbeat_gets_one_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        async with consumer_at(script, Collected()):
            await trio.sleep(5)
            before = script.count(RequestCode.HEART_BEAT)
            script.next("a", PULL, Reply(24, remark="who are you"))
            await trio.sleep(0.1)
            assert script.count(RequestCode.HEART_BEAT) == before + 1
            script.next("a", PULL, CUT)
            await trio.sleep(3)
            assert script.count(RequestCode.HEART_BEAT) == before + 2, "the connection was lost and is there again"


async def test_a_failed_message_is_sent_back_or_resent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def listener(message: ReceivedMessage) -> Later:
        return Later(delay_level=2)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T", "%RETRY%g"}
        script.next("a", RequestCode.CONSUMER_SEND_MSG_BACK, Reply(), Reply(1, remark="no"))
        script.next("a", PULL, found(7, 8))
        async with consumer_at(script, listener):
            await trio.sleep(3)
        short = script.headers(RequestCode.CONSUMER_SEND_MSG_BACK)
        long = script.headers(RequestCode.SEND_MESSAGE_V2)[0]
    assert {header["offset"] for header in short} == {"7000", "8000"}
    assert (short[0]["group"], short[0]["delayLevel"], short[0]["maxReconsumeTimes"]) == ("g", "2", "16")
    assert (long["b"], long["j"], long["l"]) == ("%RETRY%g", "1", "16")
    assert "RETRY_TOPIC\x01T" in long["i"]
    assert "DELAY\x013" in long["i"]


async def test_a_message_neither_consumed_nor_sent_back_stays(autojump_clock: trio.testing.MockClock) -> None:
    calls: list[int] = []

    async def listener(message: ReceivedMessage) -> bool:
        calls.append(message.reconsume_times)
        return len(calls) > 1

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T", "%RETRY%g"}
        script.next("a", RequestCode.CONSUMER_SEND_MSG_BACK, Reply(1, remark="no"))
        script.next("a", RequestCode.SEND_MESSAGE_V2, *[Reply(1, remark="no")] * 3)
        script.next("a", PULL, found(0))
        async with consumer_at(script, listener):
            await trio.sleep(30)
        commits = [one for one in script.headers(RequestCode.UPDATE_CONSUMER_OFFSET) if one["topic"] == "T"]
    assert commits[-1]["commitOffset"] == "1"
    assert calls == [0, 1]


async def test_part_of_a_batch_can_be_consumed(autojump_clock: trio.testing.MockClock) -> None:
    batches: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        batches.append(len(messages))
        context.consumed = 2
        context.delay_level = 5

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1, 2, 3, 4))
        async with AsyncPushConsumer(
            "g", batch_listener=listener, batch=3, topics={"T": "*"}, namesrv=script.namesrv, world=script.world()
        ):
            await trio.sleep(20)
        returned = script.headers(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert batches == [3, 2]
    assert [(header["offset"], header["delayLevel"]) for header in returned] == [("2000", "5")]


async def test_a_hanging_listeners_message_is_retried(autojump_clock: trio.testing.MockClock) -> None:
    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(200)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0))
        async with consumer_at(script, listener, consume_timeout=60.0):
            await trio.sleep(130)
            assert [header["delayLevel"] for header in script.headers(RequestCode.CONSUMER_SEND_MSG_BACK)] == ["3"]
            await trio.sleep(100)
        assert script.count(RequestCode.CONSUMER_SEND_MSG_BACK) == 1


async def test_an_invalid_listener_result_is_reported(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(message: ReceivedMessage) -> Any:
        return "done"

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0))
        with caplog.at_level(logging.ERROR, "rocketlet.client"):
            async with consumer_at(script, listener):
                await trio.sleep(1)
        assert script.count(RequestCode.CONSUMER_SEND_MSG_BACK) == 1
    assert "return nothing when the message is consumed" in caplog.text


async def test_a_bad_filter_fails_the_start(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script:
        script.next("a", RequestCode.CHECK_CLIENT_CONFIG, Reply(23, remark="no expression"))
        with pytest.raises(Refused, match="no expression"):
            async with consumer_at(script, Collected(), Sql("a > AND b")):
                raise AssertionError("it started")


async def test_a_consumer_without_topic_or_listener_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(InvalidUse, match="needs a listener"):
        AsyncPushConsumer("g", topics={"T": "*"})
    async with scripted_brokers("a") as script:
        with pytest.raises(InvalidUse, match="no subscription"):
            async with AsyncPushConsumer("g", Collected(), namesrv=script.namesrv, world=script.world()):
                raise AssertionError("it started")


async def test_heartbeats_describe_the_consumer(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script:
        async with consumer_at(script, Collected(), "x || y") as consumer:
            client_id = consumer.client_id
            await trio.sleep(95)
            beats = [
                HeartbeatData.from_json(body)
                for (_, code, _), body in zip(script.requests, script.bodies, strict=True)
                if code == RequestCode.HEART_BEAT
            ]
        told = beats[-1].consumerDataSet[0]
        assert beats[-1].clientID == client_id
        assert 4 <= len(beats) <= 6, "one at the start, then one every 30 s"
        assert (told.groupName, told.consumeFromWhere, told.messageModel) == (
            "g", "CONSUME_FROM_FIRST_OFFSET", "CLUSTERING"
        )  # fmt: skip
        subscriptions = {one.topic: one for one in told.subscriptionDataSet}
        assert set(subscriptions) == {"T", "%RETRY%g"}
        assert subscriptions["T"].tagsSet == ["x", "y"]


async def test_a_queue_with_a_lost_lock_is_taken_again(autojump_clock: trio.testing.MockClock) -> None:
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1))
        async with consumer_at(script, got, orderly=True):
            await trio.sleep(10)
            offsets_asked = script.count(RequestCode.QUERY_CONSUMER_OFFSET)
            nothing = Reply(body=LockBatchAnswerBody([]).to_json())
            script.next("a", RequestCode.LOCK_BATCH_MQ, nothing, nothing)
            await trio.sleep(30)
            assert script.count(RequestCode.QUERY_CONSUMER_OFFSET) > offsets_asked, (
                "only with the lock it is read again"
            )
        assert script.count(RequestCode.UNLOCK_BATCH_MQ) >= 1
    assert got.offsets == [0, 1]


async def test_an_orderly_queue_pauses_and_retries(autojump_clock: trio.testing.MockClock) -> None:
    calls: list[tuple[int, float]] = []

    async def listener(message: ReceivedMessage) -> Later | None:
        calls.append((message.queue_offset, trio.current_time()))
        if len(calls) == 2:
            return Later()
        if len(calls) == 3:
            return Later(suspend=4.0)
        return None

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1, 2))
        async with consumer_at(script, listener, orderly=True):
            await trio.sleep(20)
    assert [offset for offset, _ in calls] == [0, 1, 1, 1, 2]
    assert calls[2][1] - calls[1][1] == pytest.approx(1.0, abs=0.01)
    assert calls[3][1] - calls[2][1] == pytest.approx(4.0, abs=0.01)


async def test_broadcasting_keeps_offsets_locally_and_never_retries(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async def listener(message: ReceivedMessage) -> bool:
        return False

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1))
        settings = {"model": MessageModel.BROADCASTING, "offset_directory": str(tmp_path)}
        async with consumer_at(script, listener, **settings) as consumer:
            client_id = consumer.client_id
            await trio.sleep(20)
        asked = {code for _, code, _ in script.requests}
    assert not asked & {
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    }
    assert await LocalOffsets(str(tmp_path), client_id, "g").read(MessageQueue("T", "a", 0)) == 2


async def test_hooks_see_each_call(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[Any] = []

    class Hook:
        def before_consume(self, context: ConsumeHookContext) -> None:
            seen.append(len(context.messages))

        def after_consume(self, context: ConsumeHookContext) -> None:
            seen.append((context.consumed, type(context.error).__name__))

    async def listener(message: ReceivedMessage) -> None:
        if message.queue_offset:
            raise KeyError(1)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1))
        async with consumer_at(script, listener, hooks=[Hook()], threads=1):
            await trio.sleep(1)
    assert seen == [1, (True, "NoneType"), 1, (False, "KeyError")]


async def test_hooks_are_told_how_long_a_call_took_whatever_the_wall_clock_does(
    autojump_clock: trio.testing.MockClock,
) -> None:
    took: list[float] = []

    class Hook:
        def before_consume(self, context: ConsumeHookContext) -> None: ...

        def after_consume(self, context: ConsumeHookContext) -> None:
            took.append(context.elapsed_ms)

    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(0.25)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1))
        backwards = replace(script.world(), clock=count(1_700_000_000_000, -86_400_000).__next__)
        async with AsyncPushConsumer(
            "g",
            listener,
            topics={"T": "*"},
            namesrv=script.namesrv,
            world=backwards,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            hooks=[Hook()],
        ):
            await trio.sleep(1)
    assert took == [pytest.approx(250), pytest.approx(250)]


@pytest.mark.slow
async def test_a_message_goes_through_all_sixteen_retries_into_the_dead_letters(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tries: list[tuple[int, float]] = []
    dead = Collected()

    async def listener(message: ReceivedMessage) -> None:
        tries.append((message.reconsume_times, trio.current_time()))
        assert (message.topic, message.body) == ("T", b"again")
        raise ValueError("never")

    logging.disable()
    async with memory_cluster() as cluster:
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            sent = await producer.send(Message("T", b"again", keys=["k"]))
        async with AsyncPushConsumer("g", listener, topics={"T": "*"}, namesrv=cluster.namesrv, world=cluster.world()):
            await trio.sleep(6 * 3600)
        async with AsyncPushConsumer(
            "undertaker", dead, topics={"%DLQ%g": "*"}, namesrv=cluster.namesrv, world=cluster.world()
        ):
            await trio.sleep(60)
    logging.disable(logging.NOTSET)
    assert [times for times, _ in tries] == list(range(17))
    waits = [round(later - earlier) for (_, earlier), (_, later) in pairwise(tries)]
    minutes = [60 * n for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)]
    assert waits == pytest.approx([10, 30, *minutes], abs=2)
    assert [(message.message_id, message.retry_topic) for message in dead] == [(sent.message_id, "T")]


async def test_an_offset_reset_by_an_administrator_takes_effect(autojump_clock: trio.testing.MockClock) -> None:
    from rocketlet.remoting.command import request
    from rocketlet.remoting.connection_pool import ConnectionPool
    from rocketlet.remoting.protocol.offsets import ResetOffsetHeader

    got = Collected()
    async with memory_cluster() as cluster:
        async with AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            for n in range(8):
                await producer.send(Message("T", b"%d" % n))
        async with (
            AsyncPushConsumer("g", got, topics={"T": "*"}, namesrv=cluster.namesrv, world=cluster.world()),
            ConnectionPool(cluster.network) as pool,
        ):
            await trio.sleep(40)
            assert len(got) == 8
            header = ResetOffsetHeader(timestamp=0, topic="T", group="g", isForce=True)
            command = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            answer = await pool.call(cluster.address("broker-a"), command, 5)
            assert answer.code == 0
            await trio.sleep(20)
    assert len(got) == 16


async def test_a_listener_may_call_its_consumer_before_the_start_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        consumer.suspend()
        consumer.subscribe("V", "*")
        await consumer.lag()
        consumer.resume()
        got.append(message.body)

    async with virtual_cluster() as cluster:
        slow = cluster.faults.on(
            RequestCode.QUERY_CONSUMER_OFFSET, delay=2, when=lambda request: request.ext["topic"] == "U"
        )
        given: Any = {"namesrv": cluster.namesrv, "world": cluster.world()}
        async with AsyncProducer("p", **given) as producer:
            for topic in ("T", "U", "V"):
                await producer.send(Message(topic, topic.encode()))
            consumer = AsyncPushConsumer(
                "g", listener, topics={"T": "*", "U": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET, **given
            )
            async with consumer:
                assert b"T" in got
                await trio.sleep(5)
    assert slow.met == 1
    assert sorted(got) == [b"T", b"U", b"V"]


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_changed_subscription_misses_nothing_that_is_sent_after_it(
    autojump_clock: trio.testing.MockClock, orderly: bool
) -> None:
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with memory_cluster() as cluster:
        given: Any = {"namesrv": cluster.namesrv, "world": cluster.world()}
        async with (
            AsyncProducer("p", **given) as producer,
            AsyncPushConsumer("g", listener, topics={"T": "b"}, orderly=orderly, **given) as consumer,
        ):
            await producer.send(Message("T", b"0", tags="b"))
            await trio.sleep(30)  # the broker holds the pulls
            for number, selection in enumerate(("a", "*", "c || a"), 1):
                consumer.subscribe("T", selection)
                await producer.send(Message("T", b"%d" % number, tags="a"))
                await trio.sleep(3)
    assert got == [b"0", b"1", b"2", b"3"]


async def test_a_queue_locked_by_another_member_blocks_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=2) as script:
        script.topics = {"T"}
        granted = Reply(body=LockBatchAnswerBody([WireQueue("a", 1, "T")]).to_json())
        script.next("a", RequestCode.LOCK_BATCH_MQ, granted)
        async with consumer_at(script, Collected(), orderly=True) as consumer:
            assert {queue.queue_id for queue in consumer.queues()} == {1}
            await trio.sleep(3)
            assert {queue.queue_id for queue in consumer.queues()} == {0, 1}


async def test_a_stalled_queue_is_taken_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    got = Collected()
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, DROP)  # with such a timeout it would wait for hours
        async with consumer_at(script, got, pull_timeout=10_000.0):
            await trio.sleep(119)
            assert script.count(PULL) == 1
            script.next("a", PULL, found(0))
            await trio.sleep(30)
    assert got.offsets == [0]
    assert "nothing was pulled from T/a/0 for two minutes" in caplog.text


async def test_a_namespace_is_on_the_wire_and_nowhere_else(autojump_clock: trio.testing.MockClock) -> None:
    got = Collected()
    async with memory_cluster() as cluster:
        settings: dict[str, Any] = {"namesrv": cluster.namesrv, "namespace": "ns"}
        async with AsyncProducer("p", world=cluster.world(), **settings) as producer:
            sent = await producer.send(Message("T", b"x"))
            await producer.send(Message("T", b"y"), queue=sent.queue)
            assert sent.queue.topic == "T"
            async with AsyncPushConsumer("g", got, topics={"T": "*"}, world=cluster.world(), **settings) as consumer:
                await trio.sleep(40)
                assert {queue.topic for queue in consumer.queues()} == {"T", "%RETRY%g"}
        broker = cluster.brokers["broker-a"]
        topics = broker.tables.topics.to_body().topicConfigTable
        assert {"ns%T", "%RETRY%ns%g"} <= topics.keys()
        assert "T" not in topics
    assert {message.body for message in got} == {b"x", b"y"}
    assert {(message.topic, message.queue.topic) for message in got} == {("T", "T")}


async def test_a_bug_in_the_client_ends_it_loudly(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        with pytest.raises(TypeError):
            async with consumer_at(script, Collected()) as consumer:
                consumer._running()[1].rebalance.held = None  # type: ignore[assignment]
                await trio.sleep(100)
                raise AssertionError("it went on")


async def test_an_error_in_the_users_block_ends_it_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(1000)

    async with scripted_brokers("a", queues=1) as script:
        script.topics = {"T"}
        script.next("a", PULL, found(0, 1, 2))
        start = 0.0
        with pytest.raises(ZeroDivisionError):
            async with consumer_at(script, listener, threads=1):
                await trio.sleep(5)
                start = trio.current_time()
                raise ZeroDivisionError
        assert trio.current_time() == start
