"""How mqadmin sends: with the producer inside every client, in the command's own loop.

Java: tools/command/message/SendMessageCommand.java
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketlet.client.talking.session import World

Send = Callable[..., Awaitable[dict[str, Any]]]


@asynccontextmanager
async def sender(
    namesrvs: Sequence[str], group: str = "rocketlet-admin", world: World | None = None, **settings: Any
) -> AsyncIterator[Send]:
    """A function that sends one message: `await send(topic, body, tags=…, keys=…, queue=…)`; returns the result."""
    from rocketlet.client import AsyncProducer, Message, MessageQueue

    async with AsyncProducer(group, namesrv=";".join(namesrvs), world=world, **settings) as producer:

        async def send(
            topic: str,
            body: bytes,
            *,
            tags: str | None = None,
            keys: Sequence[str] = (),
            queue: MessageQueue | None = None,
        ) -> dict[str, Any]:
            result = await producer.send(Message(topic, body, tags=tags, keys=tuple(keys)), queue=queue)
            return {
                "broker": result.queue.broker_name,
                "queue": result.queue.queue_id,
                "status": result.status.name,
                "msgId": result.message_id,
                "offset": result.queue_offset,
                "offsetMsgId": result.offset_message_id,
            }

        yield send
