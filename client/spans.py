"""OpenTelemetry spans of sends, listeners and acknowledgements: `pip install "rocketlet[opentelemetry]"`.

    producer = Producer("shop", hooks=[OpenTelemetry()])
    consumer = PushConsumer("billing", listener, hooks=[OpenTelemetry()])

The context of a send travels as `traceparent` (and `tracestate`, `baggage`) in the message's properties, as
opentelemetry-java's instrumentation writes them, so traces continue across languages. A listener's span is linked to
the send of each message that it was given; spans that the listener begins are its children. Names and attributes are
those of OpenTelemetry's semantic conventions for messaging and RocketMQ, which are still in development.

A batch carries no context of its own. A program that does not import this module pays nothing.

Java: client/trace/hook/SendMessageOpenTracingHookImpl.java, ConsumeMessageOpenTracingHookImpl.java
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

try:
    from opentelemetry import context as active
    from opentelemetry import propagate, trace
except ImportError as error:
    raise ImportError('spans need OpenTelemetry: pip install "rocketlet[opentelemetry]"') from error

from rocketlet.client.hooks import ConsumeHookContext, EndTransactionContext, SendContext
from rocketlet.common.message import ReceivedMessage

_NOTE = "opentelemetry"
_MAX_HALVES = 10_000


class OpenTelemetry:
    """Hooks for producers and consumers. Without a tracer provider of its own it asks the process's."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._halves: OrderedDict[str, trace.Link] = OrderedDict()  # sends whose transactions are not ended yet
        self._tracer = trace.get_tracer("rocketlet", tracer_provider=provider)

    # ---- sending

    def before_send(self, context: SendContext) -> None:
        """Begin a span of the producer and give its context to the message."""
        message = context.message
        span = self._tracer.start_span(
            f"send {message.topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes={
                **_operation("send", "send", message.topic),
                "messaging.rocketmq.client_group": context.group,
                "messaging.message.id": context.message_id,
                "messaging.message.body.size": context.body_size,
                "messaging.rocketmq.message.type": _type_of(context),
                **_labels(message.tags, message.keys, message.sharding_key),
                **({"messaging.rocketmq.message.delay_time_level": message.delay_level} if message.delay_level else {}),
            },
        )
        propagate.inject(context.properties, trace.set_span_in_context(span))
        context.notes[_NOTE] = span

    def after_send(self, context: SendContext) -> None:
        """Close it."""
        span: trace.Span | None = context.notes.pop(_NOTE, None)
        if span is None:
            return
        if context.error is not None:
            _fail(span, context.error)
        elif context.result is not None:
            result = context.result
            span.set_attribute("messaging.message.id", context.message_id)
            span.set_attribute("messaging.message.body.size", context.body_size)
            span.set_attribute("messaging.destination.partition.id", _partition(result.queue))
            span.set_attribute("rocketlet.send.status", result.status.name)
            if context.is_half:
                self._halves[context.message_id] = trace.Link(span.get_span_context())
                while len(self._halves) > _MAX_HALVES:
                    self._halves.popitem(last=False)
        span.end()

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        """A span of its own, for it may be long after the send and in another process."""
        self._settle(
            context.message.topic,
            context.group,
            context.state.name.lower(),
            [self._halves.pop(context.message_id, None) or _link(context.message.properties)],
            {"messaging.message.id": context.message_id, "rocketlet.transaction.from_check": context.from_check},
        )

    # ---- consuming

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Begin the listener's span, linked to each message, and make it the current one."""
        messages = context.messages
        links = [link for message in messages if (link := _link(message.properties)) is not None]
        span = self._tracer.start_span(
            f"process {context.queue.topic}",
            kind=trace.SpanKind.CONSUMER,
            links=links,
            attributes={
                **_operation("process", "process", context.queue.topic),
                "messaging.destination.partition.id": _partition(context.queue),
                "messaging.consumer.group.name": context.group,
                **_of_messages(messages),
            },
        )
        context.notes[_NOTE] = span, links, active.attach(trace.set_span_in_context(span))

    def after_consume(self, context: ConsumeHookContext) -> None:
        """End it, and record in a second span what became of the messages."""
        noted = context.notes.pop(_NOTE, None)
        if noted is None:
            return
        span, links, token = noted
        if context.error is not None:
            _fail(span, context.error)
        outcome = "ack" if context.consumed else "nack"
        self._settle(context.queue.topic, context.group, outcome, links, _of_messages(context.messages))
        active.detach(token)
        span.end()

    def _settle(
        self, topic: str, group: str, outcome: str, links: Sequence[trace.Link | None], attributes: Mapping[str, Any]
    ) -> None:
        self._tracer.start_span(
            f"{outcome} {topic}",
            kind=trace.SpanKind.CLIENT,
            links=[link for link in links if link is not None],
            attributes={
                **_operation(outcome, "settle", topic),
                "messaging.consumer.group.name": group,
                **attributes,
            },
        ).end()


def _operation(name: str, kind: str, topic: str) -> dict[str, str]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _type_of(context: SendContext) -> str:
    if context.is_half:
        return "transaction"
    if context.message.delay_level:
        return "delay"
    return "fifo" if context.message.sharding_key else "normal"


def _labels(tags: str | None, keys: str | Sequence[str], sharding_key: str | None) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    if tags:
        labels["messaging.rocketmq.message.tag"] = tags
    if keys:
        labels["messaging.rocketmq.message.keys"] = keys.split() if isinstance(keys, str) else list(keys)
    if sharding_key:
        labels["messaging.rocketmq.message.group"] = sharding_key
    return labels


def _of_messages(messages: Sequence[ReceivedMessage]) -> dict[str, Any]:
    if len(messages) > 1:
        return {"messaging.batch.message_count": len(messages)}
    message = messages[0]
    return {
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        **_labels(message.tags, message.keys, None),
    }


def _link(properties: Mapping[str, str]) -> trace.Link | None:
    span = trace.get_current_span(propagate.extract(properties)).get_span_context()
    return trace.Link(span) if span.is_valid else None


def _partition(queue: Any) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"


def _fail(span: trace.Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
