"""Wrong arguments: an error says what is wrong, nothing is sent, and the client keeps working."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import trio

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncSimpleConsumer,
    AsyncTransactionProducer,
    ClientError,
    InvalidMessage,
    InvalidUse,
    Later,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    PushConfig,
    PushConsumer,
    SendStatus,
    TransactionProducer,
)
from rocketlet.remoting.request_codes import RequestCode
from tests.support.scripted_broker import scripted_brokers

SEND = RequestCode.SEND_MESSAGE_V2
WRONG: Any = object()
BAD_MESSAGES: dict[str, tuple[Callable[[], Any], str]] = {
    "no message": (lambda: b"text", "is no message"),
    "text": (lambda: Message("T", "text"), "body is of type str.*encode"),  # type: ignore[arg-type]
    "no body": (lambda: Message("T", None), "body is of type NoneType"),  # type: ignore[arg-type]
    "topic": (lambda: Message(5, b"x"), "topic is of type int"),  # type: ignore[arg-type]
    "tags": (lambda: Message("T", b"x", tags=5), "tags is of type int"),  # type: ignore[arg-type]
    "key": (lambda: Message("T", b"x", keys=[7]), "keys are no str"),  # type: ignore[list-item]
    "keys": (lambda: Message("T", b"x", keys=7), "keys are no str"),  # type: ignore[arg-type]
    "delay": (lambda: Message("T", b"x", delay_level="3"), "delay_level is of type str"),  # type: ignore[arg-type]
    "negative delay": (lambda: Message("T", b"x", delay_level=-1), "delay level is -1"),
    "flag": (lambda: Message("T", b"x", flag="1"), "flag is of type str"),  # type: ignore[arg-type]
    "large flag": (lambda: Message("T", b"x", flag=1 << 31), "more than 32 bits"),
    "property": (lambda: Message("T", b"x", properties={"a": 1}), "property 'a' is of type int"),  # type: ignore[dict-item]
    "properties": (lambda: Message("T", b"x", properties=[]), "properties is of type list"),  # type: ignore[arg-type]
    "surrogate": (lambda: Message("T", b"x", tags="\ud800"), "no valid text"),
    "wait_store": (lambda: Message("T", b"x", wait_store="false"), "wait_store is of type str.*True or False"),  # type: ignore[arg-type]
    "reply_to": (lambda: Message("T", b"x", reply_to=7), "reply_to is of type int"),  # type: ignore[arg-type]
    "sharding key": (lambda: Message("T", b"x", sharding_key=7), "sharding_key is of type int"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
async def test_a_bad_message_is_refused_and_the_producer_continues(
    autojump_clock: trio.testing.MockClock, name: str
) -> None:
    make, complaint = BAD_MESSAGES[name]
    async with (
        scripted_brokers("a") as script,
        AsyncProducer("p", namesrv=script.namesrv, world=script.world()) as producer,
    ):
        for way in (producer.send, producer.send_oneway, lambda message: producer.send_batch([message])):
            with pytest.raises(InvalidMessage, match=complaint):
                await way(make())
        with pytest.raises(InvalidMessage, match=complaint):
            producer.send_soon(make())
        assert script.count(SEND) == 0
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_bad_arguments_of_a_send_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    good = Message("T", b"x")
    async with (
        scripted_brokers("a") as script,
        AsyncProducer("p", namesrv=script.namesrv, world=script.world()) as producer,
    ):
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"queue": 3}, "the queue is of type int"),
            ({"queue": MessageQueue("T", "a", "0")}, "queue_id is of type str"),  # type: ignore[arg-type]
            ({"queue": MessageQueue("T", "a", 1 << 31)}, "queue_id is of type int"),
            ({"queue": MessageQueue("T", 7, 0)}, "broker_name is of type int"),  # type: ignore[arg-type]
            ({"queue": MessageQueue(None, "a", 0)}, "the topic None is no str"),  # type: ignore[arg-type]
            ({"selector": 3}, "the selector is of type int"),
            ({"timeout": "3"}, "timeout is of type str"),
            ({"timeout": -1}, "timeout is of type int"),
            ({"timeout": float("nan")}, "timeout is of type float"),
        ]
        for arguments, complaint in wrong:
            with pytest.raises(InvalidUse, match=complaint):
                await producer.send(good, **arguments)
        with pytest.raises(InvalidUse, match="callback"):
            producer.send_soon(good, callback=WRONG)
        pending = producer.send_soon(good)
        for timeout in ("3", float("inf"), -1):
            with pytest.raises(InvalidUse, match="timeout is of type"):
                pending.result(timeout)  # type: ignore[arg-type]
        assert await pending
        with pytest.raises(InvalidMessage, match="a list of messages"):
            await producer.send_batch(good)  # type: ignore[arg-type]
        with pytest.raises(InvalidUse, match="the queue is"):
            await producer.max_offset("T")  # type: ignore[arg-type]
        buffers = (bytearray(b"abc"), memoryview(b"abc"))
        for body in buffers:
            assert await producer.send(Message("T", body))  # type: ignore[arg-type]
        assert await producer.send_batch(message for message in [good])  # type: ignore[arg-type]


async def test_a_send_that_cannot_be_made_fails_alone(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_brokers("a") as script,
        AsyncProducer("p", namesrv=script.namesrv, world=script.world()) as producer,
    ):
        engine, port = producer._sending()
        await producer.send(Message("T", b"first"))
        broken = engine.prepare(Message("T", b"x"))
        broken.body = "no bytes"  # type: ignore[assignment]
        with pytest.raises(ClientError, match="could not be made: TypeError"):
            await port.sent(broken)
        broken, good = (engine.prepare(Message("T", b"x", wait_store=False)) for _ in range(2))
        broken.body = "no bytes"  # type: ignore[assignment]
        engine.pipeline.submit_all(deque([broken, good]))
        await engine.pipeline.drain()
        assert "could not be made" in str(broken.error)
        assert good.outcome().status is SendStatus.SEND_OK
        together = deque(engine.prepare(Message("T", b"x")) for _ in range(8))
        together[0].body = "no bytes"  # type: ignore[assignment]
        held = list(together)
        engine.pipeline.submit_all(together)
        await engine.pipeline.drain()
        assert "could not be made" in str(held[0].error)
        assert all(each.outcome().status is SendStatus.SEND_OK for each in held[1:])
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def async_listener(message: object) -> None:
    raise AssertionError


def listener(message: object) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: PushConsumer("g", 7), "the listener is of type int"),  # type: ignore[arg-type]
        (lambda: PushConsumer("g", async_listener), "use the Async class"),  # type: ignore[arg-type]
        (lambda: PushConsumer("g", listener, topics="T"), "give a dict of topics"),  # type: ignore[arg-type]
        (lambda: PushConsumer("g", listener, topics={"T": 7}), "neither tags nor"),  # type: ignore[dict-item]
        (lambda: PushConsumer("g", listener, topics={"a b": "*"}), "a b"),
        (lambda: PushConsumer("g", listener, config=ProducerConfig()), "give a PushConfig"),  # type: ignore[arg-type]
        (lambda: PushConsumer("g", listener, threads=0), "threads is 0"),
        (lambda: PushConsumer("g", listener, orderly=1), "orderly is 1; it must be True or False"),
        (
            lambda: PushConsumer("g", listener, model="BROADCASTING"),
            "it must be a MessageModel",
        ),
        (lambda: LitePullConsumer("g", topics={7: "*"}), "topic 7 is no str"),  # type: ignore[dict-item]
        (lambda: LitePullConsumer("g").assign([7]), "the queue is of type int"),  # type: ignore[list-item]
        (lambda: LitePullConsumer("g").subscribe("T", b"*"), "neither tags nor"),  # type: ignore[arg-type]
        (lambda: Producer("g", send_timeout="3"), "send_timeout is '3'; it must be a number"),
        (lambda: Producer("g", send_timeout=float("inf")), "send_timeout is inf"),
        (lambda: Producer("g", try_timeout=0), "try_timeout is 0"),
        (lambda: Producer("g", max_in_flight=True), "max_in_flight is True"),
        (lambda: Producer("g", namesrv=7), "namesrv is 7"),  # type: ignore[arg-type]
        (lambda: Producer("g", config=ProducerConfig(retries=-1)), "retries is -1"),
        (lambda: Producer(7).start(), "the group is of type int"),  # type: ignore[arg-type]
        (lambda: Producer("g", instance_name="\ud800"), "instance_name is no valid text"),
        (lambda: PushConsumer("g", listener, topics={"T": "\ud800"}), "selection is no valid text"),
        (lambda: PushConsumer("g", listener).unsubscribe(["T"]), "is no str"),  # type: ignore[arg-type]
        (lambda: PushConsumer("g", listener).wait("1"), "timeout is of type str"),  # type: ignore[arg-type]
        (lambda: LitePullConsumer("g").unsubscribe(7), "topic 7 is no str"),  # type: ignore[arg-type]
        (lambda: LitePullConsumer("g").assign(7), "queues are of type int"),  # type: ignore[arg-type]
        (lambda: Later("3"), "delay_level is of type str"),  # type: ignore[arg-type]
        (lambda: Later(suspend=float("nan")), "suspend is of type float"),
        (lambda: TransactionProducer("g", None), "the checker is of type NoneType"),  # type: ignore[arg-type]
        (lambda: TransactionProducer("g", async_listener), "use the Async class"),  # type: ignore[arg-type]
        (lambda: Producer("g", hooks=None), "the hooks are of type NoneType"),  # type: ignore[arg-type]
        (lambda: Producer("g", hooks=[7]), "before_send of the hook of type int is"),  # type: ignore[list-item]
        (
            lambda: PushConsumer("g", listener, hooks=["x"]),  # type: ignore[list-item]
            "before_consume of the hook of type str is",
        ),
    ],
)
def test_a_client_refuses_invalid_arguments(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(InvalidUse, match=complaint):
        make()


def test_every_default_passes_its_own_check() -> None:
    Producer("g", config=ProducerConfig())
    PushConsumer("g", listener, config=PushConfig())
    Producer("g", retries=0, compress_over=0, try_timeout=0.5, namesrv=["127.0.0.1:9876"])  # type: ignore[arg-type]


async def test_pull_consumers_refuse_invalid_queues(autojump_clock: trio.testing.MockClock) -> None:
    wrong: Any = "T"
    async with scripted_brokers("a") as script:
        async with AsyncPullConsumer("g", namesrv=script.namesrv, world=script.world()) as consumer:
            for ask in (consumer.offset, consumer.max_offset, lambda queue: consumer.pull(queue, 0)):
                with pytest.raises(InvalidUse, match="the queue is of type str"):
                    await ask(wrong)
            with pytest.raises(InvalidUse, match="the queue is of type str"):
                consumer.note_offset(wrong, 3)
            for topic, complaint in ((None, "is no str"), ("a b", "characters other than")):
                wrong_queue: Any = MessageQueue(topic, "a", 0)  # type: ignore[arg-type]
                with pytest.raises(InvalidUse, match=complaint):
                    consumer.note_offset(wrong_queue, 3)
                with pytest.raises(InvalidUse, match=complaint):
                    await consumer.pull(wrong_queue, 0)
            await trio.sleep(60)  # the routes of all topics in use are refreshed
            assert await consumer.max_offset(MessageQueue("T", "a", 0))
        async with AsyncLitePullConsumer("g", topics={"T": "*"}, namesrv=script.namesrv, world=script.world()) as lite:
            with pytest.raises(InvalidUse, match="the queue is of type str"):
                await lite.seek(wrong, 0)
            with pytest.raises(InvalidUse, match="not a queue of this consumer"):
                await lite.seek(MessageQueue("T", "b", 9), 0)
            with pytest.raises(InvalidUse, match="timeout"):
                await lite.poll(timeout="1")  # type: ignore[arg-type]


async def test_a_name_that_its_namespace_makes_illegal_ends_no_client(
    autojump_clock: trio.testing.MockClock,
) -> None:
    long_topic = "t" * 100
    async with scripted_brokers("a") as script:
        given: Any = {"namesrv": script.namesrv, "world": script.world(), "namespace": "n" * 100}
        for make in (
            lambda: AsyncProducer("g", **given | {"namespace": "a b"}),
            lambda: AsyncProducer("g" * 200, **given),
            lambda: AsyncPushConsumer("g" * 148, async_listener, topics={"T": "*"}, **given),
            lambda: AsyncPushConsumer("g" * 250, async_listener, topics={"T": "*"}, **given | {"namespace": ""}),
            lambda: AsyncPushConsumer("g", async_listener, topics={long_topic: "*"}, **given),
            lambda: AsyncLitePullConsumer("g", topics={long_topic: "*"}, **given),
            lambda: AsyncSimpleConsumer("g", topics={long_topic: "*"}, **given),
        ):
            client: Any = make()  # type: ignore[no-untyped-call]
            with pytest.raises(InvalidUse, match="name"):
                await client.__aenter__()
        async with (
            AsyncProducer("g", **given) as producer,
            AsyncPushConsumer("g", async_listener, topics={"T": "*"}, **given) as push,
            AsyncPullConsumer("g", **given) as puller,
        ):
            with pytest.raises(InvalidMessage, match="has 201 characters"):
                await producer.send(Message(long_topic, b"x"))
            queue = MessageQueue(long_topic, "a", 0)
            for ask in (producer.max_offset, puller.offset, lambda queue: producer.publish_queues(queue.topic)):
                with pytest.raises(InvalidUse, match="has 201 characters"):
                    await ask(queue)
            with pytest.raises(InvalidUse, match="has 201 characters"):
                push.subscribe(long_topic)
            puller.note_offset(queue, 3)
            await trio.sleep(60)  # the routes of all topics in use are refreshed
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_bad_arguments_of_queries_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    queue = MessageQueue("T", "a", 0)
    async with (
        scripted_brokers("a") as script,
        AsyncTransactionProducer("p", async_listener, namesrv=script.namesrv, world=script.world()) as producer,
        AsyncPullConsumer("g", namesrv=script.namesrv, world=script.world()) as puller,
    ):
        for ask, complaint in [
            (lambda: producer.publish_queues(WRONG), "is no str"),
            (lambda: producer.publish_queues(""), "blank"),
            (lambda: producer.create_topic(WRONG), "is no str"),
            (lambda: producer.create_topic("T", "8"), "queues is of type str"),  # type: ignore[arg-type]
            (lambda: producer.offset_at(queue, 1.5), "timestamp is of type float"),  # type: ignore[arg-type]
            (lambda: producer.query("T", 7), "key is of type int"),  # type: ignore[arg-type]
            (lambda: producer.query("T", "\ud800"), "key is no valid text"),
            (lambda: producer.query("T", "k", 1.5), "at_most is of type float"),  # type: ignore[arg-type]
            (lambda: producer.query("T", "k", unique=np.array([1, 2])), "unique is of type ndarray"),  # type: ignore[arg-type]
            (lambda: producer.view(7), "message id is of type int"),  # type: ignore[arg-type]
            (lambda: producer.recall(WRONG), "recall handle"),
            (lambda: producer.reply(WRONG, b"x"), "message is of type object"),
            (lambda: producer.send_batch(7), "a list of messages"),  # type: ignore[arg-type]
            (lambda: producer.send_in_transaction(WRONG, async_listener), "is no message"),  # type: ignore[arg-type]
            (lambda: puller.queues(WRONG), "is no str"),
            (lambda: puller.share(WRONG), "is no str"),
            (lambda: puller.pull(queue, "0"), "offset is of type str"),  # type: ignore[arg-type]
            (lambda: puller.pull(queue, 0, hold=float("inf")), "hold is of type float"),
            (lambda: puller.pull(queue, 0, 32, "\ud800"), "selection is no valid text"),
            (lambda: puller.send_back(WRONG), "message is of type object"),
        ]:
            with pytest.raises(InvalidUse, match=complaint):
                await ask()  # type: ignore[no-untyped-call]
        with pytest.raises(InvalidUse, match="offset is of type str"):
            puller.note_offset(queue, "3")  # type: ignore[arg-type]
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK


async def test_bad_arguments_end_no_running_consumer(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted_brokers("a") as script:
        given: Any = {"topics": {"T": "*"}, "namesrv": script.namesrv, "heartbeat_interval": 1.0}
        async with (
            AsyncLitePullConsumer("l", **given, world=script.world()) as lite,
            AsyncPushConsumer("p", async_listener, **given, world=script.world()) as push,
            AsyncSimpleConsumer("s", **given, world=script.world()) as simple,
        ):
            for ask in (
                lambda: lite.on_queues_changed(WRONG, listener),  # type: ignore[arg-type]
                lambda: lite.on_queues_changed("T", WRONG),
                lambda: lite.commit(WRONG),
                lambda: lite.commit({MessageQueue("T", "a", 0): "3"}),  # type: ignore[dict-item]
                lambda: lite.seek(MessageQueue("T", "a", 0), "0"),  # type: ignore[arg-type]
                lambda: simple.subscribe("T", "\ud800"),
                lambda: simple.subscribe(WRONG),
                lambda: simple.unsubscribe(WRONG),
                lambda: simple.receive("3"),  # type: ignore[arg-type]
                lambda: simple.receive(wait=float("inf")),
                lambda: simple.receive(invisible="3"),  # type: ignore[arg-type]
                lambda: simple.ack(WRONG),
                lambda: simple.extend(WRONG, 3),
            ):
                with pytest.raises(InvalidUse):
                    await ask()  # type: ignore[no-untyped-call]
            for selection in ("\ud800", WRONG):
                with pytest.raises(InvalidUse):
                    push.subscribe("T", selection)
            for change in (lite.pause, lite.resume):
                with pytest.raises(InvalidUse, match="the queue is of type str"):
                    change(["T"])  # type: ignore[list-item]
            await trio.sleep(60)  # heartbeats carry the subscriptions
