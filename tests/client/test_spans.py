"""OpenTelemetry: the spans, their attributes, and their links."""

from __future__ import annotations

import pytest
import trio
import trio.testing

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketlet.client import (
    AsyncProducer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ConsumeFrom,
    Message,
    TransactionState,
)
from rocketlet.client.errors import ClientError
from rocketlet.client.sending.transaction_producer import Transaction
from rocketlet.client.spans import OpenTelemetry
from rocketlet.common.message import ReceivedMessage
from tests.support.memory_cluster import memory_cluster


class Collected:
    """A provider that records its spans."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._kept = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found


def links_of(span: ReadableSpan) -> set[tuple[int, int]]:
    return {(link.context.trace_id, link.context.span_id) for link in span.links}


def ids_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def test_a_listeners_span_is_linked_to_the_send(autojump_clock: trio.testing.MockClock) -> None:
    collected = Collected()
    hooks = [OpenTelemetry(collected.provider)]
    received: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        received.append(message)
        with collected.provider.get_tracer("app").start_as_current_span("inside"):
            pass

    async with memory_cluster() as cluster:
        where = {"namesrv": cluster.namesrv, "world": cluster.world()}
        message = Message("T", b"body", tags="A", keys=["k1", "k2"])
        async with AsyncProducer("p", hooks=hooks, **where) as producer:
            sent = await producer.send(message)
        assert message.properties == {}, "the message of the caller is left as it was"
        async with AsyncPushConsumer(
            "g",
            listener,
            topics={"T": "*"},
            hooks=hooks,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            namesrv=cluster.namesrv,
            world=cluster.world(),
        ):
            await trio.sleep(3)
    send, process, ack = collected.span("send T"), collected.span("process T"), collected.span("ack T")
    trace_id, span_id = ids_of(send)
    assert received[0].properties["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-")
    assert links_of(process) == links_of(ack) == {ids_of(send)}
    inside = collected.span("inside")
    assert inside.parent is not None
    assert inside.parent.span_id == ids_of(process)[1]
    assert send.kind is trace.SpanKind.PRODUCER
    assert process.kind is trace.SpanKind.CONSUMER
    assert dict(send.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": f"broker-a/{sent.queue.queue_id}",
        "messaging.rocketmq.client_group": "p",
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "A",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "rocketlet.send.status": "SEND_OK",
    }
    assert (process.attributes or {})["messaging.consumer.group.name"] == "g"


async def test_failures_are_recorded(autojump_clock: trio.testing.MockClock) -> None:
    collected = Collected()
    hooks = [OpenTelemetry(collected.provider)]

    async def listener(message: ReceivedMessage) -> None:
        raise KeyError("lost")

    async with memory_cluster(auto_create_topic_enable=False) as cluster:
        where = {"namesrv": cluster.namesrv, "world": cluster.world()}
        async with AsyncProducer("p", hooks=hooks, **where) as producer:
            with pytest.raises(ClientError):
                await producer.send(Message("nowhere", b"x"))
            await producer.send(Message("BenchmarkTest", b"x"))
        async with AsyncPushConsumer(
            "g",
            listener,
            topics={"BenchmarkTest": "*"},
            hooks=hooks,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            namesrv=cluster.namesrv,
            world=cluster.world(),
        ):
            await trio.sleep(3)
    failed = collected.span("send nowhere")
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert (collected.span("process BenchmarkTest").attributes or {})["error.type"] == "KeyError"
    assert (collected.span("nack BenchmarkTest").attributes or {})["messaging.operation.type"] == "settle"


async def test_the_end_of_a_transaction_is_its_settle_span(autojump_clock: trio.testing.MockClock) -> None:
    collected = Collected()

    async def execute(transaction: Transaction) -> TransactionState:
        return TransactionState.COMMIT

    async def check(message: ReceivedMessage) -> None:
        return None

    async with (
        memory_cluster() as cluster,
        AsyncTransactionProducer(
            "p", check, hooks=[OpenTelemetry(collected.provider)], namesrv=cluster.namesrv, world=cluster.world()
        ) as producer,
    ):
        result = await producer.send_in_transaction(Message("T", b"x"), execute)
    send, commit = collected.span("send T"), collected.span("commit T")
    assert (send.attributes or {})["messaging.rocketmq.message.type"] == "transaction"
    assert (commit.attributes or {})["messaging.message.id"] == result.message_id
    assert links_of(commit) == {ids_of(send)}
