"""mqadmin: the state of a cluster in files, for copies or reports. exportMetadata exportConfigs exportMetrics.

Java: tools/command/export/ExportMetadataCommand.java, ExportConfigsCommand.java, ExportMetricsCommand.java
"""

from __future__ import annotations

import json
import os
from typing import Any

import click

from rocketlet.common.clock import system_clock
from rocketlet.common.topic import HALF_TOPIC, SCHEDULE_TOPIC, is_system_group
from rocketlet.remoting.protocol.configuration import SubscriptionGroupTable, TopicConfigTable
from rocketlet.remoting.protocol.inspection import BrokerStatsData, ViewBrokerStatsHeader
from rocketlet.remoting.protocol.routing import TopicList
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin, AdminRefused, is_of_a_group
from rocketlet.tools.admin.command import CLUSTER, Result, Said, brokers_chosen, command, one_of
from rocketlet.tools.admin.maintenance import runtime_info
from rocketlet.tools.admin.settings import settings_of

_PATH = click.option(
    "-f", "--filePath", "folder", default="/tmp/rocketmq/export", show_default=True, metavar="DIR", help="Where to."
)
_NEEDED_CLUSTER = click.option("-c", "--clusterName", "cluster", required=True, metavar="NAME", help="The cluster.")
# The settings exported by exportConfigs: those that must be equal wherever the data goes.
_CONFIGS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip


@command("exportMetadata")
@click.option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="Of this broker.")
@CLUSTER
@_PATH
@click.option("-t", "--topic", "only_topics", is_flag=True, help="Only topics.")
@click.option("-g", "--subscriptionGroup", "only_groups", is_flag=True, help="Only groups.")
@click.option("-s", "--specialTopic", "special", is_flag=True, help="Also topics of retries and dead letters.")
async def export_metadata(
    calls: Admin, broker: str | None, cluster: str | None, folder: str, only_topics: bool, only_groups: bool,
    special: bool,
) -> Result:  # fmt: skip
    """Topics and groups, as JSON."""
    one_of(broker, cluster)
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in (await brokers_chosen(calls, broker, cluster)).values():
        topics |= await _topics_of(calls, address, special)
        groups |= await _groups_of(calls, address)
    found: dict[str, Any] = {}
    if not only_groups:
        found["topicConfigTable"] = topics
    if not only_topics:
        found["subscriptionGroupTable"] = groups
    name = "topic" if only_topics else "subscriptionGroup" if only_groups else "metadata"
    return _written(folder, name, {"exportTime": system_clock(), **found})


async def _topics_of(calls: Admin, address: str, special: bool) -> dict[str, Any]:
    answer = await calls.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    hidden = set(TopicList.from_json(answer.body).topicList)
    table = TopicConfigTable.from_json((await calls.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)).body)
    return {
        name: config.builtins()
        for name, config in sorted(table.topicConfigTable.items())
        if name not in hidden and (special or not is_of_a_group(name))
    }


async def _groups_of(calls: Admin, address: str) -> dict[str, Any]:
    answer = await calls.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = SubscriptionGroupTable.from_json(answer.body).subscriptionGroupTable
    return {name: config.builtins() for name, config in sorted(table.items()) if not is_system_group(name)}


@command("exportConfigs")
@_NEEDED_CLUSTER
@_PATH
async def export_configs(calls: Admin, cluster: str, folder: str) -> Result:
    """Export the settings of all masters of a cluster as JSON."""
    brokers: dict[str, Any] = {}
    for name, address in (await calls.masters(cluster)).items():
        found = await settings_of(calls, address, RequestCode.GET_BROKER_CONFIG)
        brokers[name] = {key: found[key] for key in _CONFIGS if key in found}
    table = (await calls.cluster()).brokerAddrTable
    everybody = sum(len(table[name].brokerAddrs) for name in brokers)
    scale = {
        "namesrvSize": len(calls.namesrvs),
        "masterBrokerSize": len(brokers),
        "slaveBrokerSize": everybody - len(brokers),
    }
    return _written(folder, "configs", {"brokerConfigs": brokers, "clusterScale": scale})


@command("exportMetrics")
@_NEEDED_CLUSTER
@_PATH
async def export_metrics(calls: Admin, cluster: str, folder: str) -> Result:
    """Export the load of the masters of a cluster as JSON."""
    report: dict[str, Any] = {}
    for name, address in (await calls.masters(cluster)).items():
        told = await runtime_info(calls, address)
        rates = await _rates(calls, cluster, address)
        report[name] = {
            "runtimeEnv": {key: told[key] for key in ("cpuNum", "totalMemKBytes", "appVersion") if key in told},
            "runtimeVersion": {
                "rocketmqVersion": told.get("brokerVersionDesc", ""),
                "clientInfo": await _client_versions(calls, address),
            },
            "runtimeQuota": {
                "diskRatio": {key: told.get(key, "") for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
                "topicSize": len(await _topics_of(calls, address, special=False)),
                "groupSize": len(await _groups_of(calls, address)),
                "messageAverageSize": told.get("putMessageAverageSize", ""),
                "tps": {f"{what}Tps": rate for what, (rate, _) in rates.items()},
                "oneDayNum": {f"{_one_day(what)}Num": count for what, (_, count) in rates.items()},
            },
        }
    quotas = [one["runtimeQuota"] for one in report.values()]
    total = {
        "totalTps": {
            f"total{key[0].upper()}{key[1:]}": sum(one["tps"][key] for one in quotas) for key in _keys(quotas, "tps")
        },
        "totalOneDayNum": {key: sum(one["oneDayNum"][key] for one in quotas) for key in _keys(quotas, "oneDayNum")},
    }
    return _written(folder, "metrics", {"evaluateReport": report, "totalData": total})


def _keys(quotas: list[dict[str, Any]], of: str) -> list[str]:
    return list(quotas[0][of]) if quotas else []


def _one_day(what: str) -> str:
    return what.replace("In", "OneDayIn").replace("Out", "OneDayOut")


async def _rates(calls: Admin, cluster: str, address: str) -> dict[str, tuple[float, int]]:
    """Messages a second and a day: all in, all out, delayed and transactional ones in."""
    wanted = {
        "normalIn": ("BROKER_PUT_NUMS", cluster),
        "normalOut": ("BROKER_GET_NUMS", cluster),
        "transIn": ("TOPIC_PUT_NUMS", HALF_TOPIC),
        "scheduleIn": ("TOPIC_PUT_NUMS", SCHEDULE_TOPIC),
    }
    found = {}
    for what, (name, key) in wanted.items():
        header = ViewBrokerStatsHeader(statsName=name, statsKey=key)
        try:
            stats = BrokerStatsData.from_json(
                (await calls.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body
            )
        except AdminRefused:
            stats = BrokerStatsData()  # nothing was ever counted
        found[what] = (stats.statsMinute.tps, stats.statsDay.sum or stats.statsHour.sum)
    return found


async def _client_versions(calls: Admin, address: str) -> list[str]:
    found = set()
    for group in await _groups_of(calls, address):
        members = await calls.consumers(group)
        found |= {f"{one.language}%{one.version}" for one in members.connectionSet} if members else set()
    return sorted(found)


def _written(folder: str, name: str, value: dict[str, Any]) -> Said:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)
        out.write("\n")
    return Said([f"export {path} success"], {"path": path})
