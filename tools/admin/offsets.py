"""mqadmin: changing a group's offsets. resetOffsetByTime skipAccumulatedMessage cloneGroupOffset.

The broker resets the offsets of a group with members, and notifies them (222). If there are none, the broker answers
206, and the offsets are written from here: for each queue the offset of the time, but unless forced at most the group's
present offset.

Java: tools/command/offset/ResetOffsetByTimeCommand.java, ResetOffsetByTimeOldCommand.java, CloneGroupOffsetCommand.java
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from rocketlet.common.message import MessageQueue
from rocketlet.remoting.command import Language
from rocketlet.remoting.protocol.inspection import ConsumeStats, GetConsumeStatsHeader, TopicHeader, TopicStatsTable
from rocketlet.remoting.protocol.offsets import ResetOffsetBody, ResetOffsetHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.tools.admin.calls import Admin, AdminRefused
from rocketlet.tools.admin.command import TOPIC, AdminError, Result, Said, Table, command, moment

_GROUP = click.option("-g", "--group", required=True, metavar="GROUP", help="The consumer group.")
_FORCE = click.option(
    "-f", "--force", type=bool, default=True, show_default=True, help="Also forward, past what is not consumed yet."
)
END = -1


@dataclass(frozen=True, slots=True)
class Moved:
    """One queue of a group without members."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    time_offset: int
    now_at: int


@command("resetOffsetByTime")
@_GROUP
@TOPIC
@click.option(
    "-s", "--timestamp", "at", callback=moment, required=True, help="now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS."
)
@_FORCE
@click.option("-c", "--cplus", is_flag=True, help="Its members are C++ clients.")
async def reset_offset_by_time(calls: Admin, group: str, topic: str, at: int, force: bool, cplus: bool) -> Result:
    """Reset the offsets of a group to a point in time; running members follow without a restart."""
    text = (
        f"rollback consumer offset by specified consumerGroup[{group}], topic[{topic}], force[{str(force).lower()}], "
    )
    return await _moved(calls, group, topic, at, force, cplus=cplus, summary=f"{text}timestamp(long)[{at}]")


@command("skipAccumulatedMessage")
@_GROUP
@TOPIC
@_FORCE
async def skip_accumulated_message(calls: Admin, group: str, topic: str, force: bool) -> Result:
    """Skip the messages that a group has not consumed yet."""
    return await _moved(calls, group, topic, END, force)


async def _moved(
    calls: Admin, group: str, topic: str, timestamp: int, force: bool, *, cplus: bool = False, summary: str = ""
) -> Result:
    try:
        table = await _by_broker(calls, group, topic, timestamp, force, cplus)
    except AdminRefused as refused:
        if refused.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return _by_hand_table(await _by_hand(calls, group, topic, timestamp, force), summary)
    rows = [
        {"broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
        for queue, offset in sorted(table.items())
    ]
    heads = {"broker": "#brokerName", "queue": "#queueId", "offset": "#offset"}
    return Table(heads, rows, [summary] if summary else [])


async def _by_broker(
    calls: Admin, group: str, topic: str, timestamp: int, force: bool, cplus: bool
) -> dict[MessageQueue, int]:
    header = ResetOffsetHeader(timestamp=timestamp, topic=topic, group=group, isForce=force)
    language = Language.CPP if cplus else None
    table: dict[MessageQueue, int] = {}
    for address in (await calls.masters_of(topic)).values():
        answer = await calls.ask(
            address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, timeout=15.0, language=language
        )
        if answer.body:
            table |= ResetOffsetBody.from_json(answer.body).offsetTable
    return table


async def _by_hand(calls: Admin, group: str, topic: str, timestamp: int, force: bool) -> list[Moved]:
    moved = []
    for name, address in (await calls.masters_of(topic)).items():
        positions = await _positions(calls, name, address, group, topic)
        for queue, (end, consumed) in sorted(positions.items()):
            time_offset = (
                await calls.brokers.max_offset(address, queue)
                if timestamp == END
                else await calls.brokers.offset_at(address, queue, timestamp)
            )
            now_at = consumed
            if force or time_offset <= consumed:
                now_at = time_offset
                await calls.brokers.commit(address, group, queue, now_at, wait=True)
            moved.append(Moved(queue, end, consumed, time_offset, now_at))
    if not moved:
        raise AdminError(f"no broker has a queue of topic {topic}")
    return moved


async def _positions(
    calls: Admin, broker_name: str, address: str, group: str, topic: str
) -> dict[MessageQueue, tuple[int, int]]:
    """Queue -> its end and the group's offset; the begin in a topic that the group has never consumed."""
    header = GetConsumeStatsHeader(consumerGroup=group, topic=topic)
    stats = ConsumeStats.from_json((await calls.ask(address, RequestCode.GET_CONSUME_STATS, header)).body)
    if stats.offsetTable:
        return {queue: (offsets.brokerOffset, offsets.consumerOffset) for queue, offsets in stats.offsetTable.items()}
    answer = await calls.ask(address, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=topic))
    table = TopicStatsTable.from_json(answer.body).offsetTable
    return {queue: (offsets.maxOffset, 0) for queue, offsets in table.items() if queue.broker_name == broker_name}


def _by_hand_table(moved: list[Moved], summary: str) -> Table:
    rows = [
        {
            "broker": move.queue.broker_name,
            "queue": move.queue.queue_id,
            "brokerOffset": move.broker_offset,
            "consumerOffset": move.consumer_offset,
            "timestampOffset": move.time_offset,
            "rollbackOffset": move.now_at,
        }
        for move in moved
    ]
    heads = {key: f"#{key}" for key in ("brokerOffset", "consumerOffset", "timestampOffset", "rollbackOffset")}
    footer = [summary] if summary else []
    return Table({"broker": "#brokerName", "queue": "#queueId", **heads}, rows, footer)


@command("cloneGroupOffset")
@click.option("-s", "--srcGroup", "source", required=True, metavar="GROUP", help="The group that is somewhere.")
@click.option("-d", "--destGroup", "target", required=True, metavar="GROUP", help="The group that shall be there too.")
@TOPIC
@click.option("-o", "--offline", type=bool, default=False, help="(read for RocketMQ's sake)")
async def clone_group_offset(calls: Admin, source: str, target: str, topic: str, offline: bool) -> Result:
    """Copy the offsets of one group to another."""
    masters = await calls.masters_of(topic)
    table = (await calls.consume_stats(source)).offsetTable
    queues = {queue: offsets.consumerOffset for queue, offsets in table.items() if queue.topic == topic}
    if not queues:
        raise AdminError(f"group {source} has not consumed topic {topic}")
    for queue, offset in queues.items():
        if queue.broker_name in masters:
            await calls.brokers.commit(masters[queue.broker_name], target, queue, offset, wait=True)
    line = f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    return Said([line], [{"broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}
                         for queue, offset in sorted(queues.items())])  # fmt: skip
