"""The producer: checks messages, makes their ids, properties and bodies, and sends them through the pipeline.

What makes a send touches nothing but the message and thread-safe counters, so it runs in the caller's thread: a large
body is compressed there and not on the loop.

Java: client/impl/producer/DefaultMQProducerImpl.java
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import trio

from rocketlet.client import namespace
from rocketlet.client.compression import compress
from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import RAISED_BY_USERS, InvalidMessage, ListenerFailed, shown
from rocketlet.client.hooks import SendContext, SendHook, call_hooks
from rocketlet.client.sending.batch_splitter import check_batch
from rocketlet.client.sending.queue_selection import Selector, by_hash
from rocketlet.client.sending.request_reply import Requests
from rocketlet.client.sending.send import Send
from rocketlet.client.sending.send_frames import SendTemplate
from rocketlet.client.sending.send_pipeline import SendPipeline
from rocketlet.client.talking.session import Session, World
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.client.trace import Tracer
from rocketlet.client.validators import (
    check_callable,
    check_group,
    check_message,
    check_name,
    check_queue,
    check_seconds,
    check_topic,
)
from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as names
from rocketlet.common import topic as topics
from rocketlet.common.message import Message, MessageQueue, ReceivedMessage
from rocketlet.common.message_record import encode_batch

_MAX_TEMPLATES = 10_000
_NEVER_IN_BATCHES = frozenset({names.START_DELIVER_TIME, "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})
_NEVER_IN_BATCHES_TO = (topics.RETRY_PREFIX, topics.DLQ_PREFIX)
_DO_NOT_WAIT = f"{names.WAIT}\x01false"  # to wait is the default, and need not be said


class ProducerEngine:
    """One producer. Only what prepares sends may be called in any thread; all else is called on its loop."""

    def __init__(self, group: str, config: ProducerConfig, world: World, hooks: Sequence[SendHook] = ()) -> None:
        check_group(group, reserved=topics.DEFAULT_PRODUCER_GROUP)
        self.config = config
        self.group = namespace.wrap(config.namespace, group)
        check_group(self.group)
        self.session = Session(config, world)
        self.pipeline = SendPipeline(self.session, config)
        self._tracer = Tracer(self.session, config.trace_topic, world.clock) if config.trace else None
        if self._tracer is not None:
            hooks = [*hooks, self._tracer]
        self.hooks = hooks
        self._template = lru_cache(_MAX_TEMPLATES)(self._make_template)
        self.requests = Requests(self.session, self.pipeline, config)
        self.queries = TopicQueries(self.session)
        self.session.producer_groups.append(self.group)
        self.is_stopping = False

    async def run(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send until `stop` is set, then wait for what is in flight and unregister."""
        self._now = trio.lowlevel.current_clock().current_time
        async with self.session.opened(), trio.open_nursery() as nursery:
            await nursery.start(self.pipeline.run)
            if self._tracer is not None:
                nursery.start_soon(self._tracer.run)
            task_status.started()
            try:
                await stop.wait()
            finally:
                self.is_stopping = True
            with trio.CancelScope(shield=True):
                with trio.move_on_after(self.config.send_timeout * (1 + self.config.retries)):
                    await self.pipeline.drain()
                if self._tracer is not None:
                    with trio.move_on_after(self.config.send_timeout):
                        await self._tracer.flush()
                await self.session.unregister(self.group, None)
            nursery.cancel_scope.cancel()

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that a topic's messages may go to."""
        check_name(topic)
        wire = namespace.wrap(self.config.namespace, topic)
        route = await self.session.publish_route(wire, self.config.default_topic, self.config.default_topic_queues)
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in route.writable]

    # ---- in any thread

    def _make_template(self, topic: str) -> SendTemplate:
        config = self.config
        topic = namespace.wrap(config.namespace, topic)
        check_topic(topic)
        return SendTemplate(self.group, topic, config.default_topic, config.default_topic_queues)

    def prepare(
        self,
        message: Message,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
        timeout: float | None = None,
        *,
        oneway: bool = False,
        extra: dict[str, str] | None = None,
        sys_flag: int = 0,
    ) -> Send:
        """Check a message and make its send. `extra` are properties of the client's own."""
        check_message(message, self.config.max_message_size)
        if timeout is None:
            timeout = self.config.send_timeout
        else:
            check_seconds("timeout", timeout)
        send = Send()
        send.born = born = self.session.world.clock()
        send.message_id = unique_id = self.session.unique_ids.at(born)
        send.oneway = oneway
        if self.hooks:
            extra = self._call_before_hooks(send, message, extra, is_half=bool(sys_flag & flags.PREPARED))
        text = self.property_text(message, unique_id, extra)
        body = message.body
        if type(body) is not bytes:
            body = bytes(body)  # a buffer that its owner may change while the send is in flight
        send.template = template = self._template(message.topic)
        send.topic = topic = template.topic
        send.text = text
        send.body = body
        send.sys_flag = sys_flag
        if len(body) > self.config.compress_over:
            packed = compress(body, self.config.compress_level)
            if len(packed) < len(body):
                send.body = packed
                send.sys_flag |= flags.COMPRESSED
        send.flag = message.flag
        send.timeout = timeout
        # Messages that a broker accepts only alone, or with a field that a batch states only once for all.
        send.alone = bool(
            oneway
            or sys_flag
            or extra
            or send.sys_flag
            or message.delay_level
            or message.deliver_at is not None
            or not message.wait_store
            or not self.config.batching
            or (message.properties and not _NEVER_IN_BATCHES.isdisjoint(message.properties))
            or topic.startswith(_NEVER_IN_BATCHES_TO)
        )
        if queue is not None or selector is not None or message.sharding_key is not None:
            self._set_destination(send, message, queue, selector, argument)
        return send

    def prepare_request(
        self,
        message: Message,
        timeout: float,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> Callable[[], Awaitable[ReceivedMessage]]:
        """Check a message; what is returned sends it, on the loop, and waits for the reply."""
        check_seconds("timeout", timeout)
        extra = self.requests.properties(timeout)
        send = self.prepare(message, queue, selector, argument, timeout, extra=extra)
        return partial(self.requests.request, send, extra[names.CORRELATION_ID], timeout)

    def prepare_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> Send:
        """One send of many messages."""
        if isinstance(messages, Message):
            raise InvalidMessage("a batch is a list of messages", topic=messages.topic, advice="send one by send()")
        if not isinstance(messages, Iterable):
            raise InvalidMessage(f"a batch is a list of messages, not a {type(messages).__name__}")
        messages = list(messages)
        for message in messages:
            check_message(message, self.config.max_message_size)
        check_batch(messages)
        ids = [self.session.unique_ids() for _ in messages]
        texts = map(self.property_text, messages, ids)
        body = encode_batch([(m.flag, m.body, text.encode()) for m, text in zip(messages, texts, strict=True)])
        first = messages[0]
        if len(body) > self.config.max_message_size:
            raise InvalidMessage(
                f"the batch has {len(body)} bytes, the limit is {self.config.max_message_size}",
                topic=first.topic,
                advice="cut it with client.split()",
            )
        carrier = Message(first.topic, b"x", wait_store=first.wait_store)
        send = self.prepare(carrier, queue=queue, timeout=timeout)
        assert send.template.batch is not None
        send.template = send.template.batch
        send.alone = True
        send.body = body
        # The broker puts these properties on each message of the batch, so no unique id.
        send.text = "" if first.wait_store else _DO_NOT_WAIT
        send.message_id = ",".join(ids)
        return send

    def property_text(self, message: Message, unique_id: str, extra: dict[str, str] | None = None) -> str:
        """The properties as they travel. Raises InvalidMessage where a reader would not see them as they are."""
        unique = f"UNIQ_KEY\x01{unique_id}"
        parts = []
        if not message.wait_store:
            parts.append(_DO_NOT_WAIT)
        if message.tags:
            parts.append(f"TAGS\x01{message.tags}")
        if message.keys:
            try:
                keys = message.keys if isinstance(message.keys, str) else names.KEY_SEPARATOR.join(message.keys)
            except TypeError:
                raise InvalidMessage("the keys are no str", topic=message.topic, advice="keys=[str(key)]") from None
            parts.append(f"KEYS\x01{keys}")
        if message.delay_level:
            parts.append(f"DELAY\x01{message.delay_level}")
        if message.deliver_at is not None:
            parts.append(f"TIMER_DELIVER_MS\x01{round(message.deliver_at * 1000)}")
        for properties in (message.properties, extra):
            if properties:
                parts += [f"{name}\x01{value}" for name, value in properties.items()]
        if message.reply_to:
            parts.append(f"{names.REPLY_TO_CLIENT}\x01{message.reply_to}")
        if message.sharding_key:
            parts.append(f"{names.SHARDING_KEY}\x01{message.sharding_key}")
        if not parts:
            return unique
        text = "\x02".join((unique, *parts))
        if text.count("\x02") != len(parts):
            raise InvalidMessage("tags, keys or sharding key hold the separator 0x02", topic=message.topic)
        # A text of so many characters may be too long in UTF-8, a shorter one cannot.
        if len(text) > names.MAX_SIZE // 4 or not text.isascii():
            try:
                size = len(text.encode())
            except UnicodeEncodeError as error:
                raise InvalidMessage(
                    f"tags, keys or properties are no valid text: {error}", topic=message.topic
                ) from None
            if size > names.MAX_SIZE:
                raise InvalidMessage(
                    f"the properties have {size} bytes, the limit is {names.MAX_SIZE}", topic=message.topic
                )
        return text

    def _set_destination(
        self, send: Send, message: Message, queue: MessageQueue | None, selector: Selector | None, argument: Any
    ) -> None:
        if queue is not None:
            check_queue(queue)
            if queue.topic not in (message.topic, send.topic):
                raise InvalidMessage(f"the queue is one of topic {queue.topic}", topic=message.topic)
            send.fixed = MessageQueue(send.topic, queue.broker_name, queue.queue_id)
            return
        if selector is None:
            selector, argument = by_hash, message.sharding_key
        check_callable("selector", selector)
        choose = selector

        def select(queues: Sequence[MessageQueue]) -> MessageQueue:
            try:
                selected = choose(queues, message, argument)
            except RAISED_BY_USERS as error:
                raise ListenerFailed(f"the selector raised {shown(error)}", topic=send.topic) from error
            if not isinstance(selected, MessageQueue) or selected not in queues:
                raise ListenerFailed(
                    f"the selector chose {shown(selected)}, which is no queue of the topic", topic=send.topic
                )
            return selected

        send.select = select

    def _call_before_hooks(
        self, send: Send, message: Message, extra: dict[str, str] | None, *, is_half: bool
    ) -> dict[str, str]:
        """Run the hooks; the properties that they and the client add."""
        context = SendContext(self.group, message, send.message_id, send.born, len(message.body), is_half)
        for hook in self.hooks:
            hook.before_send(context)
        if not send.oneway:
            began = self._now()
            send.when_done(lambda: self._call_after_hooks(send, context, began))
        return {**(extra or {}), **context.properties}

    def _call_after_hooks(self, send: Send, context: SendContext, began: float) -> None:
        context.result, context.error = send.result, send.error
        if send.message_id != context.message_id:  # a batch: all of them
            context.message_id, context.body_size = send.message_id, len(send.body)
        context.elapsed_ms = (self._now() - began) * 1000
        call_hooks([hook.after_send for hook in self.hooks], context, "send", context.message_id)
