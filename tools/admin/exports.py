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
from rocketlet.tools.admin.command import CLUSTER, Result, Said, addresses_chosen, command, one_of
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
    for address in await addresses_chosen(calls, broker, cluster):
        topics |= await _topics_of(calls, address, special)
        groups |= await _groups_of(calls, address)
    metadata: dict[str, Any] = {}
    if not only_groups:
        metadata["topicConfigTable"] = topics
    if not only_topics:
        metadata["subscriptionGroupTable"] = groups
    name = "topic" if only_topics else "subscriptionGroup" if only_groups else "metadata"
    return _written(folder, name, {"exportTime": system_clock(), **metadata})


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
        settings = await settings_of(calls, address, RequestCode.GET_BROKER_CONFIG)
        brokers[name] = {key: settings[key] for key in _CONFIGS if key in settings}
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
        info = await runtime_info(calls, address)
        rates = await _rates(calls, cluster, address)
        report[name] = {
            "runtimeEnv": {key: info[key] for key in ("cpuNum", "totalMemKBytes", "appVersion") if key in info},
            "runtimeVersion": {
                "rocketmqVersion": info.get("brokerVersionDesc", ""),
                "clientInfo": await _client_versions(calls, address),
            },
            "runtimeQuota": {
                "diskRatio": {key: info.get(key, "") for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
                "topicSize": len(await _topics_of(calls, address, special=False)),
                "groupSize": len(await _groups_of(calls, address)),
                "messageAverageSize": info.get("putMessageAverageSize", ""),
                "tps": {f"{direction}Tps": rate for direction, (rate, _) in rates.items()},
                "oneDayNum": {f"{_one_day(direction)}Num": count for direction, (_, count) in rates.items()},
            },
        }
    quotas = [broker_report["runtimeQuota"] for broker_report in report.values()]
    total = {
        "totalTps": {
            f"total{key[0].upper()}{key[1:]}": sum(broker_report["tps"][key] for broker_report in quotas)
            for key in _keys(quotas, "tps")
        },
        "totalOneDayNum": {
            key: sum(broker_report["oneDayNum"][key] for broker_report in quotas) for key in _keys(quotas, "oneDayNum")
        },
    }
    return _written(folder, "metrics", {"evaluateReport": report, "totalData": total})


def _keys(quotas: list[dict[str, Any]], part: str) -> list[str]:
    return list(quotas[0][part]) if quotas else []


def _one_day(name: str) -> str:
    return name.replace("In", "OneDayIn").replace("Out", "OneDayOut")


async def _rates(calls: Admin, cluster: str, address: str) -> dict[str, tuple[float, int]]:
    """Messages a second and a day: all in, all out, delayed and transactional ones in."""
    statistics = {
        "normalIn": ("BROKER_PUT_NUMS", cluster),
        "normalOut": ("BROKER_GET_NUMS", cluster),
        "transIn": ("TOPIC_PUT_NUMS", HALF_TOPIC),
        "scheduleIn": ("TOPIC_PUT_NUMS", SCHEDULE_TOPIC),
    }
    rates = {}
    for direction, (name, key) in statistics.items():
        header = ViewBrokerStatsHeader(statsName=name, statsKey=key)
        try:
            stats = BrokerStatsData.from_json(
                (await calls.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body
            )
        except AdminRefused:
            stats = BrokerStatsData()  # nothing was ever counted
        rates[direction] = (stats.statsMinute.tps, stats.statsDay.sum or stats.statsHour.sum)
    return rates


async def _client_versions(calls: Admin, address: str) -> list[str]:
    versions = set()
    for group in await _groups_of(calls, address):
        members = await calls.consumers(group)
        versions |= {f"{client.language}%{client.version}" for client in members.connectionSet} if members else set()
    return sorted(versions)


def _written(folder: str, name: str, value: dict[str, Any]) -> Said:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{name}.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2)
        out.write("\n")
    return Said([f"export {path} success"], {"path": path})
