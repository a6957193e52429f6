"""mqadmin: brokers and clusters. clusterList brokerStatus wipeWritePerm addWritePerm cleanExpiredCQ
deleteExpiredCommitLog cleanUnusedTopic statsAll.

Java: tools/command/cluster/ClusterListSubCommand.java, tools/command/broker/BrokerStatusSubCommand.java and its
neighbours, tools/command/namesrv/WipeWritePermSubCommand.java, tools/command/stats/StatsAllSubCommand.java
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from rocketlet.common.clock import system_clock
from rocketlet.common.topic import retry_topic
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.inspection import BrokerStatsData, ViewBrokerStatsHeader
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.routing import AddWritePermAnswerHeader, WipeWritePermAnswerHeader, WritePermHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin, AdminRefused, is_of_a_group
from rocketlet.tools.admin.command import (
    BROKER,
    CLUSTER,
    Result,
    Said,
    Table,
    addresses_chosen,
    brokers_chosen,
    command,
    one_of,
)
from rocketlet.tools.admin.groups import lag

_HOUR_MS = 3_600_000.0
_EVERY = click.option("-i", "--interval", type=click.IntRange(1), metavar="SECONDS", help="Again, so often.")


@command("clusterList")
@click.option("-m", "--moreStats", "more", is_flag=True, help="Messages of yesterday and today instead.")
@_EVERY
async def cluster_list(calls: Admin, more: bool, interval: int | None) -> AsyncIterator[Result]:
    """List all clusters with their brokers and their load."""
    import trio

    while True:
        rows = [_totals(*broker) if more else _state(*broker) for broker in await _all_brokers(calls)]
        heads = _TOTALS if more else _STATE
        yield Table(heads, rows)
        if interval is None:
            return
        await trio.sleep(interval)


_STATE = {
    "cluster": "#Cluster Name",
    "broker": "#Broker Name",
    "id": "#BID",
    "address": "#Addr",
    "version": "#Version",
    "in": "#InTPS(LOAD)",
    "out": "#OutTPS(LOAD)",
    "wait": "#PCWait(ms)",
    "hours": "#Hour",
    "space": "#SPACE",
}
_TOTALS = {
    "cluster": "#Cluster Name",
    "broker": "#Broker Name",
    "inYesterday": "#InTotalYest",
    "outYesterday": "#OutTotalYest",
    "inToday": "#InTotalToday",
    "outToday": "#OutTotalToday",
}
_Found = tuple[str, str, int, str, dict[str, str]]


async def _all_brokers(calls: Admin) -> list[_Found]:
    info = await calls.cluster()
    brokers = []
    for cluster, names in sorted(info.clusterAddrTable.items()):
        for name in sorted(names):
            for number, address in sorted(info.brokerAddrTable[name].brokerAddrs.items()):
                brokers.append((cluster, name, number, address, await runtime_info(calls, address)))
    return brokers


async def runtime_info(calls: Admin, address: str) -> dict[str, str]:
    """The runtime info of a broker."""
    return KVTable.from_json((await calls.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table


def _state(cluster: str, name: str, number: int, address: str, info: dict[str, str]) -> dict[str, Any]:
    earliest = int(info.get("earliestMessageTimeStamp") or 0)
    return {
        "cluster": cluster,
        "broker": name,
        "id": number,
        "address": address,
        "version": info.get("brokerVersionDesc", ""),
        "in": f"{first_number(info, 'putTps'):.2f}({_load(info, 'send')})",
        "out": f"{first_number(info, 'getTransferedTps'):.2f}({_load(info, 'pull')})",
        "wait": info.get("pageCacheLockTimeMills", "0"),
        "hours": round((system_clock() - earliest) / _HOUR_MS, 2) if earliest > 0 else 0.0,
        "space": f"{float(info.get('commitLogDiskRatio') or 0):.4f}",
    }


def _load(info: dict[str, str], kind: str) -> str:
    size = info.get(f"{kind}ThreadPoolQueueSize", "0")
    return f"{size},{info.get(f'{kind}ThreadPoolQueueHeadWaitTimeMills', '0')}ms"


def first_number(info: dict[str, str], key: str) -> float:
    """The first of numbers in a row: those of the last ten seconds."""
    words = info.get(key, "").split()
    return float(words[0]) if words else 0.0


def _totals(cluster: str, name: str, number: int, address: str, info: dict[str, str]) -> dict[str, Any]:
    def count(kind: str, moment: str) -> int:
        return int(info.get(f"msg{kind}Total{moment}") or 0)

    return {
        "cluster": cluster,
        "broker": name,
        "inYesterday": count("Put", "TodayMorning") - count("Put", "YesterdayMorning"),
        "outYesterday": count("Get", "TodayMorning") - count("Get", "YesterdayMorning"),
        "inToday": count("Put", "TodayNow") - count("Put", "TodayMorning"),
        "outToday": count("Get", "TodayNow") - count("Get", "TodayMorning"),
    }


@command("brokerStatus")
@BROKER
@CLUSTER
async def broker_status(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Show the runtime info of a broker."""
    one_of(broker, cluster)
    lines, rows = [], []
    for address in await addresses_chosen(calls, broker, cluster):
        info = await runtime_info(calls, address)
        prefix = f"{address:<24}  " if cluster else ""
        lines += [f"{prefix}{key:<32}: {value}" for key, value in sorted(info.items())]
        rows.append({"broker": address, **dict(sorted(info.items()))})
    return Said(lines, rows)


@command("wipeWritePerm")
@click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name.")
async def wipe_write_perm(calls: Admin, broker: str) -> Result:
    """Remove the write permission of a broker, before it is decommissioned."""
    return await _write_permission(calls, broker, "wipe")


@command("addWritePerm")
@click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name.")
async def add_write_perm(calls: Admin, broker: str) -> Result:
    """Restore the write permission of a broker."""
    return await _write_permission(calls, broker, "add")


async def _write_permission(calls: Admin, broker: str, action: str) -> Said:
    lines, rows = [], []
    wipe = action == "wipe"
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER if wipe else RequestCode.ADD_WRITE_PERM_OF_BROKER
    for address in calls.namesrvs:
        ext = (await calls.ask(address, code, WritePermHeader(brokerName=broker))).ext
        count = (
            from_ext(WipeWritePermAnswerHeader, ext).wipeTopicCount
            if wipe
            else from_ext(AddWritePermAnswerHeader, ext).addTopicCount
        )
        lines.append(f"{action} write perm of broker[{broker}] in name server[{address}] OK, {count}")
        rows.append({"namesrv": address, "broker": broker, "topics": count})
    return Said(lines, rows)


async def _ask_all(calls: Admin, code: RequestCode, broker: str | None, cluster: str | None) -> Said:
    brokers = await brokers_chosen(calls, broker, cluster)
    for address in brokers.values():
        await calls.ask(address, code, timeout=60.0)
    return Said(["success"], [{"broker": address} for address in brokers.values()])


_CLUSTER = click.option("-c", "--cluster", metavar="NAME", help="All masters of this cluster [of all clusters].")


@command("cleanExpiredCQ")
@BROKER
@_CLUSTER
async def clean_expired_cq(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Delete queue files that refer only to deleted messages."""
    return await _ask_all(calls, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)


@command("deleteExpiredCommitLog")
@BROKER
@_CLUSTER
async def delete_expired_commit_log(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Delete log files older than fileReservedTime now, not at deleteWhen."""
    return await _ask_all(calls, RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)


@command("cleanUnusedTopic")
@BROKER
@_CLUSTER
async def clean_unused_topic(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Delete queue files of topics that no longer exist."""
    return await _ask_all(calls, RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)


@command("statsAll")
@click.option("-a", "--activeTopic", "active", is_flag=True, help="Only topics in which something happened today.")
@click.option("-t", "--topic", metavar="TOPIC", help="Only this one.")
async def stats_all(calls: Admin, active: bool, topic: str | None) -> Result:
    """Messages in and out, by topic and group."""
    rows: list[dict[str, Any]] = []
    for name in [topic] if topic else await calls.topics():
        if is_of_a_group(name) and not topic:
            continue
        put_stats = await _total_stats(calls, name, "TOPIC_PUT_NUMS", name)
        groups = await calls.groups_of(name)
        base = {"topic": name, "inTps": put_stats.statsMinute.tps, "inDay": _of_the_day(put_stats)}
        for group in groups:
            went = await _total_stats(calls, name, "GROUP_GET_NUMS", f"{name}@{group}")
            row = {"group": group, "diff": await _lag_in(calls, group, name), "outTps": went.statsMinute.tps}
            rows.append(base | row | {"outDay": _of_the_day(went)})
        if not groups:
            rows.append(base | {"group": "", "diff": 0, "outTps": "", "outDay": "NO_CONSUMER"})
    if active:
        rows = [row for row in rows if row["inDay"] or row["outDay"] not in (0, "NO_CONSUMER")]
    heads = {
        "topic": "#Topic",
        "group": "#Consumer Group",
        "diff": "#Accumulation",
        "inTps": "#InTPS",
        "outTps": "#OutTPS",
        "inDay": "#InMsg24Hour",
        "outDay": "#OutMsg24Hour",
    }
    return Table(heads, rows)


async def _total_stats(calls: Admin, topic: str, name: str, key: str) -> BrokerStatsData:
    """A counter over all brokers of a topic; zero where there is none yet."""
    joined = BrokerStatsData()
    for address in (await calls.masters_of(topic)).values():
        header = ViewBrokerStatsHeader(statsName=name, statsKey=key)
        try:
            stats = BrokerStatsData.from_json(
                (await calls.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body
            )
        except AdminRefused:
            continue  # nothing was ever counted there
        for total, theirs in (
            (joined.statsMinute, stats.statsMinute),
            (joined.statsHour, stats.statsHour),
            (joined.statsDay, stats.statsDay),
        ):
            total.sum += theirs.sum
            total.tps += theirs.tps
    return joined


def _of_the_day(stats: BrokerStatsData) -> int:
    """The broker samples days slowly; in the first hours the shorter spans know more."""
    return stats.statsDay.sum or stats.statsHour.sum or stats.statsMinute.sum


async def _lag_in(calls: Admin, group: str, topic: str) -> int:
    table = (await calls.consume_stats(group)).offsetTable
    return sum(lag(offsets) for queue, offsets in table.items() if queue.topic in (topic, retry_topic(group)))
