"""mqadmin: consumer groups and their progress. updateSubGroup deleteSubGroup getConsumerConfig consumerProgress
brokerConsumeStats.

Java: tools/command/consumer/UpdateSubGroupSubCommand.java and its neighbours,
tools/command/broker/BrokerConsumeStatsSubCommad.java
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click
from msgspec import UNSET

from rocketlet.common.message import MessageQueue
from rocketlet.common.topic import InvalidName, check_group_name, dlq_topic, is_topic_name, retry_topic
from rocketlet.remoting.command import version_name
from rocketlet.remoting.protocol.configuration import (
    DeleteSubscriptionGroupHeader,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from rocketlet.remoting.protocol.inspection import ConsumeStatsList, GetBrokerConsumeStatsHeader, OffsetWrapper
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin, AdminRefused
from rocketlet.tools.admin.clients import running_infos
from rocketlet.tools.admin.command import (
    BROKER,
    CLUSTER,
    GROUP,
    AdminError,
    Result,
    Said,
    Table,
    addresses_chosen,
    brokers_chosen,
    command,
    one_of,
    properties_lines,
    wire_time,
)
from rocketlet.tools.admin.topics import deleted

PROGRESS = {
    "topic": "#Topic",
    "broker": "#Broker Name",
    "queue": "#QID",
    "brokerOffset": "#Broker Offset",
    "consumerOffset": "#Consumer Offset",
    "client": "#Client IP",
    "diff": "#Diff",
    "lastTime": "#LastTime",
}


@command("updateSubGroup")
@BROKER
@CLUSTER
@GROUP
@click.option("-s", "--consumeEnable", "consume", type=bool, default=True, help="May consume.")
@click.option("-m", "--consumeFromMinEnable", "from_min", type=bool, default=False)
@click.option("-d", "--consumeBroadcastEnable", "broadcast", type=bool, default=False, help="May broadcast.")
@click.option("-q", "--retryQueueNums", "queues", type=click.IntRange(0), default=1, show_default=True)
@click.option("-r", "--retryMaxTimes", "retries", type=click.IntRange(-1), default=16, show_default=True)
@click.option("-i", "--brokerId", "broker_id", type=int, default=0, show_default=True)
@click.option("-w", "--whichBrokerWhenConsumeSlowly", "slow_broker", type=int, default=1, show_default=True)
@click.option("-a", "--notifyConsumerIdsChanged", "notify", type=bool, default=True)
@click.option("-o", "--consumeMessageOrderly", "orderly", type=bool, default=None, help="In order, by 5.x clients.")
async def update_sub_group(
    calls: Admin, broker: str | None, cluster: str | None, group: str, consume: bool, from_min: bool, broadcast: bool,
    queues: int, retries: int, broker_id: int, slow_broker: int, notify: bool,
    orderly: bool | None,
) -> Result:  # fmt: skip
    """Create a consumer group, or change one."""
    one_of(broker, cluster)
    try:
        check_group_name(group)
    except InvalidName as error:
        raise click.UsageError(str(error)) from None
    config = SubscriptionGroupConfig(
        broker_id, broadcast, consume, from_min, group, notify, retries, queues, slow_broker,
        UNSET if orderly is None else orderly,
    )  # fmt: skip
    brokers = await brokers_chosen(calls, broker, cluster)
    for address in brokers.values():
        await calls.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.to_json())
    fields = config.builtins()
    names = ["groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "retryQueueNums",
             "retryMaxTimes", "brokerId", "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable"]  # fmt: skip
    names += ["consumeMessageOrderly"] if orderly is not None else []
    settings = ", ".join(f"{name}={_word(fields[name])}" for name in names)
    lines = [f"create subscription group to {address} success." for address in brokers.values()]
    return Said([*lines, f"SubscriptionGroupConfig [{settings}]"], {"brokers": list(brokers.values()), **fields})


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@command("deleteSubGroup")
@BROKER
@CLUSTER
@GROUP
@click.option("-r", "--removeOffset", "remove", type=bool, default=False, help="Forget its positions too.")
async def delete_sub_group(calls: Admin, broker: str | None, cluster: str | None, group: str, remove: bool) -> Result:
    """Delete a consumer group; with -c also its retries and dead letters, as RocketMQ does."""
    one_of(broker, cluster)
    header = DeleteSubscriptionGroupHeader(groupName=group, removeOffset=remove, cleanOffset=remove)
    lines = []
    brokers = await addresses_chosen(calls, broker, cluster)
    if not await _is_known(calls, brokers, group, with_progress=remove, with_topics=bool(cluster)):
        raise AdminError(
            f"no broker that was asked knows consumer group {group}; consumerProgress lists those there are"
        )
    for address in brokers:
        await calls.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        place = f"in cluster [{cluster}] " if cluster else ""
        lines.append(f"delete subscription group [{group}] from broker [{address}] {place}success.")
    if cluster:
        for topic in filter(is_topic_name, (retry_topic(group), dlq_topic(group))):  # of a long group, neither exists
            lines += await deleted(calls, cluster, topic)
    return Said(lines, {"group": group})


async def _is_known(
    calls: Admin, brokers: Collection[str], group: str, *, with_progress: bool, with_topics: bool
) -> bool:
    """Whether anything is left to delete of a group: an earlier try may have stopped half-way."""
    for address in brokers:
        if await calls.broker_knows_group(address, group):
            return True
        if with_progress and await calls.broker_has_progress(address, group):
            return True
    if not with_topics:
        return False
    return await calls.topic_is_known(brokers, retry_topic(group)) or await calls.topic_is_known(
        brokers, dlq_topic(group)
    )


@command("getConsumerConfig")
@GROUP
async def get_consumer_config(calls: Admin, group: str) -> Result:
    """Show how each broker configures a consumer group."""
    lines: list[str] = []
    rows = []
    clusters = (await calls.cluster()).clusterAddrTable
    for cluster in clusters:
        for name, address in (await calls.masters(cluster)).items():
            answer = await calls.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            config = SubscriptionGroupTable.from_json(answer.body).subscriptionGroupTable.get(group)
            if config is not None:
                fields = {key: _word(value) for key, value in config.builtins().items()}
                lines += properties_lines(f"============={cluster}:{name}=============", fields)
                rows.append({"cluster": cluster, "broker": name, **config.builtins()})
    if not rows:
        raise AdminError(f"no broker has a consumer group {group}; updateSubGroup makes one")
    return Said(lines, rows)


@command("consumerProgress")
@click.option("-g", "--groupName", "group", metavar="GROUP", help="One group, queue by queue [all groups].")
@click.option("-s", "--showClientIP", "show_client", type=bool, default=False, help="Who consumes each queue.")
async def consumer_progress(calls: Admin, group: str | None, show_client: bool) -> Result:
    """Show the lag of consumer groups."""
    if group:
        return await _progress_of(calls, group, show_client)
    rows = []
    for name in await calls.groups():
        stats = await calls.consume_stats(name)
        members = await calls.consumers(name)
        ours = members.connectionSet if members else []
        rows.append(
            {
                "group": name,
                "count": len(ours),
                "version": version_name(max((entry.version for entry in ours), default=0)) if ours else "OFFLINE",
                "type": _kind(members.consumeType) if members else "",
                "model": members.messageModel if members else "",
                "tps": int(stats.consumeTps),
                "diff": sum(lag(entry) for entry in stats.offsetTable.values()),
            }
        )
    rows.sort(key=lambda row: -int(str(row["diff"])))
    heads = {
        "group": "#Group",
        "count": "#Count",
        "version": "#Version",
        "type": "#Type",
        "model": "#Model",
        "tps": "#TPS",
        "diff": "#Diff Total",
    }
    return Table(heads, rows)


def lag(offsets: OffsetWrapper) -> int:
    """Messages not consumed yet; never negative, even if the broker is just deleting messages."""
    return max(0, offsets.brokerOffset - offsets.consumerOffset)


def _kind(consume_type: str) -> str:
    return {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL"}.get(consume_type, consume_type)


async def _progress_of(calls: Admin, group: str, show_client: bool) -> Table:
    stats = await calls.consume_stats(group)
    if not stats.offsetTable:
        raise AdminError(f"nobody has consumed in group {group}; consumerProgress lists those there are")
    clients = await _clients_by_queue(calls, group) if show_client else {}
    rows = _rows(stats.offsetTable)
    for row in rows:
        row["client"] = clients.get((row["topic"], row["broker"], row["queue"]), "N/A")
    heads = dict(PROGRESS)
    if not show_client:
        del heads["client"]
        for row in rows:
            del row["client"]
    return Table(heads, rows, ["", f"Consume TPS: {stats.consumeTps:.2f}", f"Diff Total: {_total(rows)}"])


def _rows(table: dict[MessageQueue, OffsetWrapper]) -> list[dict[str, Any]]:
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "brokerOffset": offsets.brokerOffset,
            "consumerOffset": offsets.consumerOffset,
            "diff": lag(offsets),
            "lastTime": wire_time(offsets.lastTimestamp, none="N/A"),
        }
        for queue, offsets in sorted(table.items())
    ]


def _total(rows: list[dict[str, Any]]) -> int:
    return sum(row["diff"] for row in rows)


async def _clients_by_queue(calls: Admin, group: str) -> dict[tuple[str, str, int], str]:
    result = {}
    async for client, info in running_infos(calls, group):
        for queue in info.mqTable:
            result[(queue.topic, queue.broker_name, queue.queue_id)] = client.clientId.partition("@")[0]
    return result


@command("brokerConsumeStats")
@click.option("-b", "--brokerAddr", "broker", required=True, metavar="HOST:PORT", help="The broker.")
@click.option("-o", "--order", type=bool, default=False, help="Of ordered consumption.")
@click.option("-t", "--timeoutMillis", "timeout", type=click.IntRange(1), default=50_000, show_default=True)
@click.option("-l", "--level", type=int, default=0, show_default=True, help="Only where so many messages lag, or more.")
async def broker_consume_stats(calls: Admin, broker: str, order: bool, timeout: int, level: int) -> Result:
    """Show the progress of all consumer groups at one broker."""
    header = GetBrokerConsumeStatsHeader(isOrder=order)
    try:
        answer = await calls.ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout=timeout / 1000)
    except AdminRefused as refused:
        raise AdminError(f"{refused}; is {broker} a broker?") from None
    rows = []
    for entry in ConsumeStatsList.from_json(answer.body).consumeStatsList:
        for group, several in entry.items():
            for stats in several:
                for row in _rows(stats.offsetTable):
                    if row["diff"] >= level and row["lastTime"] != "N/A":  # RocketMQ leaves those out too
                        rows.append({"topic": row.pop("topic"), "group": group, **row})
    heads = {"topic": "#Topic", "group": "#Group", **{key: PROGRESS[key] for key in PROGRESS if key != "client"}}
    return Table(heads, rows, ["", f"Diff Total: {_total(rows)}"])
