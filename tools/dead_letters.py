"""Reading a group's dead letters, and resending them.

A dead letter is sent to the retry topic of its group, so that only this group consumes it again, under its original
topic and unique id, with its retries counted again; or to a given topic, for all who subscribe to it. The dead
letter itself stays until retention deletes it, so resending it twice yields two messages.

Java: (the console's "resend" of org.apache.rocketmq.dashboard; mqadmin has none)
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import trio

from rocketlet.client.config import PullConfig, configured
from rocketlet.client.consuming.pull_consumer import PullEngine
from rocketlet.client.consuming.send_back import CONCURRENT_MAX_TRIES, retry_message
from rocketlet.client.errors import ClientError
from rocketlet.client.sending.inner_producer import InnerProducer
from rocketlet.client.sending.send_result import PullStatus
from rocketlet.client.talking.session import World
from rocketlet.common import message_properties as names
from rocketlet.common.message import Message, ReceivedMessage
from rocketlet.common.topic import TOOLS_GROUP, dlq_topic

BATCH = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of dead letters: those with one of these ids or keys, or all."""

    ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()

    def takes(self, message: ReceivedMessage) -> bool:
        if not self.ids and not self.keys:
            return True
        return bool(self.ids & ids_of(message) or self.keys.intersection(message.keys))


class DeadLetters:
    """The dead letters of one group, on all brokers."""

    def __init__(self, engine: PullEngine, group: str) -> None:
        self._engine = engine
        self._group = group
        self._sender = InnerProducer(engine.session)

    async def read(self, wanted: Wanted, newest: int | None = None) -> list[ReceivedMessage]:
        """The selected ones, oldest first, limited to the newest of each queue. Raises ClientError."""
        async with aclosing(self.each(newest)) as letters:
            result = [message async for message in letters if wanted.takes(message)]
        return sorted(result, key=lambda message: message.store_timestamp)

    async def each(self, newest: int | None = None) -> AsyncGenerator[ReceivedMessage, None]:
        """All of them, queue by queue, with at most one pull in memory. Raises ClientError."""
        topic = dlq_topic(self._group)
        if await self._engine.session.namesrv.route(topic) is None:
            return  # the broker creates it with the first dead letter
        for queue in await self._engine.queries.queues(topic):
            first = await self._engine.pull(queue, 0, 1)
            offset = first.min_offset if newest is None else max(first.min_offset, first.max_offset - newest)
            while offset < first.max_offset:
                result = await self._engine.pull(queue, offset, BATCH)
                if result.status is PullStatus.NO_NEW_MESSAGE or result.next_offset <= offset:
                    break
                for message in result.messages:
                    if message.queue_offset < first.max_offset:
                        yield message
                offset = result.next_offset

    async def send_again(self, message: ReceivedMessage, topic: str | None = None) -> str:
        """Resend to its group, or to a topic. Returns the topic it was sent to. Raises ClientError."""
        copy = retry_message(self._group, message, message.topic)
        copy = replace(copy, delay_level=0, wait_store=True)
        if topic is not None:
            copy = replace(copy, topic=topic, properties=_without_history(copy))
        await self._sender.send(copy, 0, CONCURRENT_MAX_TRIES)
        return copy.topic


def origin_of(message: ReceivedMessage) -> str:
    """The topic to which the message was first sent."""
    return message.properties.get(names.RETRY_TOPIC, message.topic)


def ids_of(message: ReceivedMessage) -> set[str]:
    """All its ids: its unique id, its own offset id, and that of its first delivery."""
    return {message.message_id, message.offset_message_id, message.properties.get(names.ORIGIN_MESSAGE_ID, "")}


def _without_history(message: Message) -> dict[str, str]:
    """In an ordinary topic it is a new message, without retries and with its own id."""
    past = {names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID, names.UNIQ_KEY}
    return {name: value for name, value in message.properties.items() if name not in past}


@asynccontextmanager
async def dead_letters_of(
    group: str, namesrv: str, world: World | None = None, **settings: Any
) -> AsyncIterator[DeadLetters]:
    """A connection to the cluster for as long as the block lasts, with the account and the TLS that the environment
    names unless `settings` do. Raises ClientError."""
    config = configured(PullConfig, None, namesrv, settings, os.environ)
    engine = PullEngine(TOOLS_GROUP, config, world or World())
    stop = trio.Event()
    failure: ClientError | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run, stop)
        try:
            yield DeadLetters(engine, group)
        except ClientError as error:
            failure = error  # out of the nursery, which would wrap it
        stop.set()
    if failure is not None:
        raise failure
