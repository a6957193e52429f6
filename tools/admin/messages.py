"""mqadmin: printing, sending and consuming. printMsg printMsgByQueue consumeMessage sendMessage.

No group consumes anything: the messages are pulled directly, and no offset is stored.

Java: tools/command/message/PrintMessageSubCommand.java, PrintMessageByQueueCommand.java, ConsumeMessageCommand.java,
SendMessageCommand.java
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import click

from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.tools.admin.calls import Admin
from rocketlet.tools.admin.command import TOPIC, AdminError, Result, Said, Table, command, moment
from rocketlet.tools.admin.reading import line_of, pulled, queues_of, row_of, span
from rocketlet.tools.admin.sending import sender

_MAX_CONSUMED = 128

_BEGIN = click.option("-b", "--beginTimestamp", "begin", callback=moment, help="Stored at this time or later.")
_END = click.option("-e", "--endTimestamp", "end", callback=moment, help="Stored at this time or before.")
_TAGS = click.option("-s", "--subExpression", "tags", default="*", show_default=True, help="Tags: TagA || TagB.")
_CHARSET = click.option("-c", "--charsetName", "charset", default="UTF-8", help="(bodies are shown as UTF-8)")


@command("printMsg")
@TOPIC
@_CHARSET
@_TAGS
@_BEGIN
@_END
@click.option("-d", "--printBody", "body", type=bool, default=False, help="With the body.")
async def print_msg(
    calls: Admin, topic: str, charset: str, tags: str, begin: int | None, end: int | None, body: bool
) -> AsyncIterator[Result]:
    """Print the messages of a topic, queue by queue."""
    for queue, address in (await queues_of(calls, topic)).items():
        first, end_offset = await span(calls, address, queue, begin, end)
        yield Said([f"minOffset={first}, maxOffset={end_offset}, {_text(queue)}"], None)
        async for message in pulled(calls, address, queue, first, end_offset, tags):
            if _is_within(message, begin, end):
                yield Said([line_of(message, body=body)], row_of(message))
        yield Said(["-" * 56], None)


def _text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _is_within(message: ReceivedMessage, begin: int | None, end: int | None) -> bool:
    stored = message.store_timestamp
    return (begin is None or stored >= begin) and (end is None or end < 0 or stored <= end)


@command("printMsgByQueue")
@TOPIC
@click.option("-a", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name.")
@click.option("-i", "--queueId", "queue_id", type=click.IntRange(0), required=True, help="The queue.")
@_CHARSET
@_TAGS
@_BEGIN
@_END
@click.option("-p", "--printMsg", "--print msg", "show", type=bool, default=False, help="Print them.")
@click.option("-d", "--printBody", "body", type=bool, default=False, help="With the body.")
@click.option("-f", "--calculate", "count", type=bool, default=False, help="Count them by tag.")
async def print_msg_by_queue(
    calls: Admin, topic: str, broker: str, queue_id: int, charset: str, tags: str, begin: int | None, end: int | None,
    show: bool, body: bool, count: bool,
) -> AsyncIterator[Result]:  # fmt: skip
    """Print the messages of one queue, or count them by tag."""
    queue, address = await _queue(calls, topic, broker, queue_id)
    first, end_offset = await span(calls, address, queue, begin, end)
    by_tag: Counter[str] = Counter()
    async for message in pulled(calls, address, queue, first, end_offset, tags):
        if _is_within(message, begin, end):
            by_tag[message.tags or "NO_TAG"] += 1
            if show:
                yield Said([line_of(message, body=body)], row_of(message))
    if count:
        rows = by_tag.most_common()
        yield Said(
            [f"Tag: {tag:<30} Count: {number}" for tag, number in rows],
            [{"tag": tag, "count": number} for tag, number in rows],
        )


async def _queue(calls: Admin, topic: str, broker: str, queue_id: int) -> tuple[MessageQueue, str]:
    queues = await queues_of(calls, topic)
    queue = MessageQueue(topic, broker, queue_id)
    if queue not in queues:
        raise AdminError(f"topic {topic} has no queue {queue_id} at {broker}; topicRoute -t {topic} -l lists them")
    return queue, queues[queue]


@command("consumeMessage")
@TOPIC
@click.option("-b", "--brokerName", "broker", metavar="NAME", help="Only at this broker.")
@click.option("-i", "--queueId", "queue_id", type=click.IntRange(0), help="Only this queue; needs -b.")
@click.option("-o", "--offset", type=click.IntRange(0), help="From this offset on; needs -b and -i.")
@click.option("-g", "--consumerGroup", "group", metavar="GROUP", help="(no group is needed)")
@click.option("-s", "--beginTimestamp", "begin", callback=moment, help="Stored at this time or later.")
@_END
@click.option("-c", "--MessageNumber", "most", type=click.IntRange(1), default=_MAX_CONSUMED, show_default=True)
async def consume_message(
    calls: Admin, topic: str, broker: str | None, queue_id: int | None, offset: int | None, group: str | None,
    begin: int | None, end: int | None, most: int,
) -> AsyncIterator[Result]:  # fmt: skip
    """Print the next messages of a topic or a queue. No group's offsets change."""
    if (queue_id is not None and not broker) or (offset is not None and queue_id is None):
        raise click.UsageError("-i needs -b, and -o needs -i")
    remaining = most
    for queue, address in (await queues_of(calls, topic)).items():
        if (broker and queue.broker_name != broker) or (queue_id is not None and queue.queue_id != queue_id):
            continue
        first, end_offset = await span(calls, address, queue, begin, end)
        first = max(first, offset or 0)
        async for message in pulled(calls, address, queue, first, end_offset):
            if remaining and _is_within(message, begin, end):
                remaining -= 1
                yield Said([line_of(message)], row_of(message))
        yield Said([f"{_text(queue)} print msg finished. offset={end_offset}"], None)


@command("sendMessage")
@TOPIC
@click.option("-p", "--body", required=True, metavar="TEXT", help="The body.")
@click.option("-k", "--key", "keys", metavar="KEYS", help="Its keys, with blanks between.")
@click.option("-c", "--tags", metavar="TAG", help="Its tag.")
@click.option("-b", "--broker", metavar="NAME", help="To this broker.")
@click.option("-i", "--qid", "queue_id", type=click.IntRange(0), help="To this queue; needs -b.")
@click.option("-m", "--msgTraceEnable", "traced", type=bool, default=False, help="(no trace is recorded)")
async def send_message(
    calls: Admin, topic: str, body: str, keys: str | None, tags: str | None, broker: str | None, queue_id: int | None,
    traced: bool,
) -> Result:  # fmt: skip
    """Send a message."""
    if queue_id is not None and not broker:
        raise click.UsageError("-i needs -b, the broker's name")
    queue = MessageQueue(topic, broker, queue_id or 0) if broker else None
    async with sender(calls.namesrvs) as send:
        row = await send(
            topic, body.encode("utf-8", "surrogateescape"), tags=tags, keys=(keys or "").split(), queue=queue
        )
    heads = {"broker": "#Broker Name", "queue": "#QID", "status": "#Send Result", "msgId": "#MsgId"}
    return Table(heads, [row])
