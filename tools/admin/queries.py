"""mqadmin: finding messages. queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset queryMsgTraceById queryCq.

Java: tools/command/message/QueryMsgByIdSubCommand.java and its neighbours,
tools/command/queue/QueryConsumeQueueCommand.java
"""

from __future__ import annotations

from typing import Any

import click

from rocketlet.client.errors import Refused
from rocketlet.common.message import ReceivedMessage
from rocketlet.common.subscription import parse_tags
from rocketlet.remoting.protocol.inspection import (
    ConsumeMessageDirectlyBody,
    ConsumeMessageDirectlyHeader,
    ConsumeQueueBody,
    QueryConsumeQueueHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin import trace
from rocketlet.tools.admin.calls import Admin, NoSuchTopic
from rocketlet.tools.admin.clients import RELAY_SECONDS
from rocketlet.tools.admin.command import TOPIC, AdminError, Result, Said, Table, command, wire_time
from rocketlet.tools.admin.reading import at_offset, by_key, by_offset_id, lines_of, row_of

_MOST = 64
_ID = click.option("-i", "--msgId", "message_id", required=True, metavar="ID", help="The message's id.")
_TO_GROUP = click.option(
    "-g", "--consumerGroup", "group", metavar="GROUP", help="Have a member of this group consume it."
)
_TO_CLIENT = click.option("-d", "--clientId", "client_id", metavar="ID", help="That member.")


@command("queryMsgById")
@_ID
@_TO_GROUP
@_TO_CLIENT
@click.option("-s", "--sendMessage", "resend", type=bool, default=False, help="Send it once more, to its topic.")
@click.option("-u", "--unitName", "unit", help="(read for RocketMQ's sake)")
async def query_msg_by_id(
    calls: Admin, message_id: str, group: str | None, client_id: str | None, resend: bool, unit: str | None
) -> Result:
    """Find a message by its offset id."""
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    for single_id in (part.strip() for part in message_id.split(",")):
        try:
            message, _ = await by_offset_id(calls, single_id)
        except Refused as refused:
            raise AdminError(f"there is no message {single_id}: {refused.remark}") from None
        if resend:
            row = await _sent_again(calls, message)
            lines.append(f"SendResult [sendStatus={row['status']}, msgId={row['msgId']}, queue={row['queue']}]")
            rows.append(row)
        elif group and client_id:
            result = await consumed_directly(calls, message, group, client_id)
            lines.append(str(result))
            rows.append(result)
        else:
            tracks = await tracks_of(calls, message)
            lines += [*lines_of(message), "", *map(_track_line, tracks)]
            rows.append(row_of(message) | {"tracks": tracks})
    return Said(lines, rows)


async def _sent_again(calls: Admin, message: ReceivedMessage) -> dict[str, Any]:
    from rocketlet.tools.admin.sending import sender

    async with sender(calls.namesrvs) as send:
        return await send(message.topic, message.body, tags=message.tags, keys=message.keys)


async def consumed_directly(calls: Admin, message: ReceivedMessage, group: str, client_id: str) -> dict[str, Any]:
    """Have one client consume one message now; the client's answer."""
    address = (await calls.masters_of(message.topic)).get(message.queue.broker_name) or message.store_host
    header = ConsumeMessageDirectlyHeader(consumerGroup=group, clientId=client_id, msgId=message.offset_message_id)
    answer = await calls.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout=RELAY_SECONDS)
    return ConsumeMessageDirectlyBody.from_json(answer.body).builtins()  # type: ignore[no-any-return]


@command("queryMsgByKey")
@TOPIC
@click.option("-k", "--msgKey", "key", required=True, metavar="KEY", help="The key that the producer gave.")
async def query_msg_by_key(calls: Admin, topic: str, key: str) -> Result:
    """Find messages by a key."""
    rows = [row_of(message) for message in await by_key(calls, topic, key, _MOST)]
    return Table({"msgId": "#Message ID", "queue": "#QID", "offset": "#Offset"}, rows)


@command("queryMsgByUniqueKey")
@TOPIC
@_ID
@_TO_GROUP
@_TO_CLIENT
@click.option("-a", "--showAll", "show_all", is_flag=True, help="All with this id, 32 at most, not the newest alone.")
async def query_msg_by_unique_key(
    calls: Admin, topic: str, message_id: str, group: str | None, client_id: str | None, show_all: bool
) -> Result:
    """Find a message by the unique id that its producer assigned."""
    messages = await by_key(calls, topic, message_id, 32, unique=True)
    if not messages:
        raise AdminError(f"topic {topic} has no message with id {message_id}; an offset id needs queryMsgById")
    if group and client_id:
        result = await consumed_directly(calls, messages[0], group, client_id)
        return Said([str(result)], result)
    lines: list[str] = []
    rows = []
    for message in messages if show_all else messages[:1]:
        tracks = await tracks_of(calls, message)
        lines += [*lines_of(message), "", *map(_track_line, tracks)]
        rows.append(row_of(message) | {"tracks": tracks})
    return Said(lines, rows)


@command("queryMsgByOffset")
@TOPIC
@click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name.")
@click.option("-i", "--queueId", "queue", type=click.IntRange(0), required=True, help="The queue.")
@click.option("-o", "--offset", type=click.IntRange(0), required=True, help="The offset in it.")
async def query_msg_by_offset(calls: Admin, topic: str, broker: str, queue: int, offset: int) -> Result:
    """Find the message at an offset of a queue."""
    message = await at_offset(calls, broker, topic, queue, offset)
    tracks = await tracks_of(calls, message)
    return Said([*lines_of(message), "", *map(_track_line, tracks)], row_of(message) | {"tracks": tracks})


async def tracks_of(calls: Admin, message: ReceivedMessage) -> list[dict[str, Any]]:
    """The state of a message in each group that consumes its topic."""
    tracks = []
    for group in await calls.groups_of(message.topic):
        kind = await _track(calls, message, group)
        tracks.append({"consumerGroup": group, "trackType": kind})
    return tracks


async def _track(calls: Admin, message: ReceivedMessage, group: str) -> str:
    members = await calls.consumers(group)
    if members is None:
        return "NOT_ONLINE"
    if members.consumeType == "CONSUME_ACTIVELY":
        return "PULL"
    if members.messageModel == "BROADCASTING":
        return "CONSUME_BROADCASTING"
    position = (await calls.consume_stats(group, message.topic)).offsetTable.get(message.queue)
    if position is None or position.consumerOffset <= message.queue_offset:
        return "NOT_CONSUME_YET"
    subscription = members.subscriptionTable.get(message.topic)
    if subscription is not None and subscription.expressionType in (None, "", "TAG"):
        tags = parse_tags(message.topic, subscription.subString, 0).tags
        if tags and message.tags not in tags:
            return "CONSUMED_BUT_FILTERED"
    return "CONSUMED"


def _track_line(track: dict[str, Any]) -> str:
    return f"MessageTrack [consumerGroup={track['consumerGroup']}, trackType={track['trackType']}, exceptionDesc=null]"


@command("queryMsgTraceById")
@_ID
@click.option("-t", "--traceTopic", "topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, metavar="TOPIC")
async def query_msg_trace_by_id(calls: Admin, message_id: str, topic: str) -> Result:
    """Show the trace of a message: when it was sent and consumed, and by whom."""
    try:
        messages = await by_key(calls, topic, message_id, _MOST)
    except NoSuchTopic:
        raise AdminError(
            f"there is no topic {topic}: no client has recorded a trace, which each does only if enabled"
        ) from None
    views = [
        view for message in messages for view in trace.decode(message.body.decode()) if message_id == view["msgId"]
    ]
    if not views:
        raise AdminError(f"no trace of {message_id} was recorded")
    for view in views:
        view["time"] = wire_time(view["timestamp"], fraction=True)
    heads = {
        "type": "#Type",
        "group": "#Group",
        "client": "#Client",
        "time": "#Time",
        "costTime": "#CostTimes",
        "status": "#Status",
    }
    return Table(heads, sorted(views, key=lambda view: (view["type"] != "Pub", view["timestamp"])))


@command("queryCq")
@TOPIC
@click.option("-q", "--queue", type=click.IntRange(0), required=True, help="The queue.")
@click.option("-i", "--index", type=click.IntRange(0), required=True, help="The first offset.")
@click.option("-c", "--count", type=click.IntRange(1), default=10, show_default=True, help="Number of entries.")
@click.option("-b", "--broker", metavar="HOST:PORT", help="The broker [the first of the topic's].")
@click.option("-g", "--consumer", "group", metavar="GROUP", help="With this group's filter, for extended entries.")
async def query_cq(
    calls: Admin, topic: str, queue: int, index: int, count: int, broker: str | None, group: str | None
) -> Result:
    """Show the entries of a consume queue."""
    address = broker or next(iter((await calls.masters_of(topic)).values()))
    header = QueryConsumeQueueHeader(queueId=queue, index=index, topic=topic, count=count, consumerGroup=group)
    answer = await calls.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
    if not answer.body:
        raise AdminError(answer.remark or f"queue {queue} of {topic} has nothing at {index}")
    queue_body = ConsumeQueueBody.from_json(answer.body)
    lines = [f"Filter data: {queue_body.filterData}", "=" * 38] if queue_body.filterData else []
    lines += ["Queue data: ", f"max: {queue_body.maxQueueIndex}, min: {queue_body.minQueueIndex}", "=" * 38]
    for number, entry in enumerate(queue_body.queueData, index):
        lines += [f"idx: {number}", f"ConsumeQueueData{{{_entry_text(entry.builtins())}}}", "=" * 38]
    rows = [{"index": number, **entry.builtins()} for number, entry in enumerate(queue_body.queueData, index)]
    return Said(lines, {"max": queue_body.maxQueueIndex, "min": queue_body.minQueueIndex, "entries": rows})


def _entry_text(entry: dict[str, Any]) -> str:
    numbers = ", ".join(f"{key}={entry[key]}" for key in ("physicOffset", "physicSize", "tagsCode"))
    texts = ", ".join(f"{key}='{entry.get(key) or 'null'}'" for key in ("extendDataJson", "bitMap"))
    return f"{numbers}, {texts}, eval={str(entry['eval']).lower()}, msg='{entry.get('msg') or 'null'}'"
