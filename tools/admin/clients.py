"""mqadmin: connected clients. consumerConnection producerConnection producer consumerStatus.

Java: tools/command/connection/ConsumerConnectionSubCommand.java, ProducerConnectionSubCommand.java,
tools/command/producer/ProducerSubCommand.java, tools/command/consumer/ConsumerStatusSubCommand.java
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import click

from rocketlet.remoting.command import version_name
from rocketlet.remoting.protocol.inspection import (
    ClientConnection,
    ConsumerConnection,
    ConsumerGroupHeader,
    ConsumerRunningInfo,
    GetConsumerRunningInfoHeader,
    ProducerConnection,
    ProducerGroupHeader,
    ProducerTableInfo,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin, AdminRefused
from rocketlet.tools.admin.command import TOPIC, AdminError, Result, Said, Table, command

RELAY_SECONDS = 15.0  # the broker asks the client, so it takes longer than other answers
_CONSUMERS = click.option("-g", "--consumerGroup", "group", required=True, metavar="GROUP", help="The consumer group.")
_AT = click.option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="Ask this broker.")


@command("consumerConnection")
@_CONSUMERS
@_AT
async def consumer_connection(calls: Admin, group: str, broker: str | None) -> Result:
    """Show the members of a consumer group and their subscriptions."""
    connections = await _consumers(calls, group, broker)
    lines = ["#ClientId  #ClientAddr  #Language  #Version"]
    lines += [
        f"{entry.clientId}  {entry.clientAddr}  {entry.language}  {version_name(entry.version)}"
        for entry in connections.connectionSet
    ]
    lines += ["", "Below is subscription:", "#Topic  #SubExpression"]
    lines += [f"{topic}  {entry.subString}" for topic, entry in sorted(connections.subscriptionTable.items())]
    lines += [
        "",
        f"ConsumeType: {connections.consumeType}",
        f"MessageModel: {connections.messageModel}",
        f"ConsumeFromWhere: {connections.consumeFromWhere}",
    ]
    return Said(lines, json.loads(connections.to_json()))


async def _consumers(calls: Admin, group: str, broker: str | None) -> ConsumerConnection:
    if broker:
        header = ConsumerGroupHeader(consumerGroup=group)
        answer = await calls.ask(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return ConsumerConnection.from_json(answer.body)
    connections = await calls.consumers(group)
    if connections is None:
        raise AdminError(f"nobody consumes in group {group} now")
    return connections


@command("producerConnection")
@click.option("-g", "--producerGroup", "group", required=True, metavar="GROUP", help="The producer group.")
@TOPIC
async def producer_connection(calls: Admin, group: str, topic: str) -> Result:
    """Show the producers of a group, at the brokers of a topic."""
    header = ProducerGroupHeader(producerGroup=group)
    refusals = []
    for address in (await calls.masters_of(topic)).values():
        try:
            answer = await calls.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        except AdminRefused as refused:
            refusals.append(refused)
            continue
        rows = [
            {
                "number": f"{number:04d}",
                "client": client.clientId,
                "address": client.clientAddr,
                "language": client.language,
                "version": version_name(client.version),
            }
            for number, client in enumerate(ProducerConnection.from_json(answer.body).connectionSet, 1)
        ]
        heads = {"number": "#", "client": "#ClientId", "address": "#ClientAddr", "language": "#Language"}
        return Table({**heads, "version": "#Version"}, rows)
    raise AdminError(f"nobody produces in group {group} for {topic} now ({refusals[0] if refusals else 'no broker'})")


@command("producer")
@click.option("-b", "--broker", required=True, metavar="HOST:PORT", help="The broker.")
async def producer(calls: Admin, broker: str) -> Result:
    """All producers of a broker."""
    table = ProducerTableInfo.from_json((await calls.ask(broker, RequestCode.GET_ALL_PRODUCER_INFO)).body).data
    rows = [
        {
            "group": group,
            "clientId": client.clientId,
            "remoteIP": client.remoteIP,
            "language": client.language,
            "version": client.version,
            "lastUpdateTimestamp": client.lastUpdateTimestamp,
        }
        for group, several in sorted(table.items())
        for client in several
    ]
    lines = [
        f"producer group ({row['group']}) instance : "
        + ", ".join(f"{key}={value}" for key, value in row.items() if key != "group")
        for row in rows
    ]
    return Said(lines or [f"producer group is empty at {broker}"], rows)


async def running_infos(
    calls: Admin, group: str, broker: str | None = None, *, stacks: bool = False
) -> AsyncIterator[tuple[ClientConnection, ConsumerRunningInfo]]:
    """The running info of each consumer of a group; clients that cannot be asked are left out."""
    for client in (await _consumers(calls, group, broker)).connectionSet:
        info = await running_info(calls, group, client.clientId, broker, stacks=stacks)
        if info is not None:
            yield client, info


async def running_info(
    calls: Admin, group: str, client_id: str, broker: str | None = None, *, stacks: bool = False
) -> ConsumerRunningInfo | None:
    """The running info of one consumer, through a broker that it is connected to; None if no broker reaches it."""
    header = GetConsumerRunningInfoHeader(consumerGroup=group, clientId=client_id, jstackEnable=stacks)
    for address in [broker] if broker else (await calls.masters_of_group(group)).values():
        try:
            answer = await calls.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout=RELAY_SECONDS)
        except AdminRefused:
            continue  # not connected there, or of a kind that does not answer
        return ConsumerRunningInfo.from_json(answer.body)
    return None


@command("consumerStatus")
@_CONSUMERS
@click.option("-i", "--clientId", "client_id", metavar="ID", help="One client, in full.")
@_AT
@click.option("-s", "--jstack", "stacks", is_flag=True, help="With the stacks of its threads.")
async def consumer_status(calls: Admin, group: str, client_id: str | None, broker: str | None, stacks: bool) -> Result:
    """Show the internals of consumers: queues, caches, rates, and whether all members have the same subscription."""
    if client_id:
        info = await running_info(calls, group, client_id, broker, stacks=stacks)
        if info is None:
            raise AdminError(
                f"client {client_id} of group {group} cannot be asked: not connected, or it does not answer"
            )
        return Said(_in_full(info), _plain(client_id, info))
    infos = [entry async for entry in running_infos(calls, group, broker, stacks=stacks)]
    lines = ["#Index  #ClientId  #Version  #Queues"]
    lines += [
        f"{number}  {client.clientId}  {version_name(client.version)}  {len(info.mqTable)}"
        for number, (client, info) in enumerate(infos, 1)
    ]
    is_same = (
        len({tuple(sorted((entry.topic, entry.subString) for entry in info.subscriptionSet)) for _, info in infos}) <= 1
    )
    verdict = "Same subscription in the same group of consumer" if is_same else (
        "WARN: Different subscription in the same group of consumer!!! Messages will be lost to some"
    )  # fmt: skip
    return Said([*lines, "", verdict], [_plain(client.clientId, info) for client, info in infos])


def _plain(client_id: str, info: ConsumerRunningInfo) -> dict[str, Any]:
    queues = [
        {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, **entry.builtins()}
        for queue, entry in sorted(info.mqTable.items())
    ]
    return {
        "clientId": client_id,
        "properties": info.properties,
        "subscriptions": {entry.topic: entry.subString for entry in info.subscriptionSet},
        "queues": queues,
        "status": {topic: entry.builtins() for topic, entry in info.statusTable.items()},
        **({"jstack": info.jstack} if info.jstack else {}),
    }


def _in_full(info: ConsumerRunningInfo) -> list[str]:
    lines = ["#Consumer Properties#"]
    lines += [f"{key:<40}: {value}" for key, value in sorted(info.properties.items())]
    lines += ["", "#Consumer Subscription#"]
    lines += [
        f"{entry.topic:<40}  {entry.subString}" for entry in sorted(info.subscriptionSet, key=lambda entry: entry.topic)
    ]
    lines += ["", "#Consumer Offset#", "#Topic  #Broker Name  #QID  #Consumer Offset"]
    lines += [
        f"{queue.topic}  {queue.broker_name}  {queue.queue_id}  {entry.commitOffset}"
        for queue, entry in sorted(info.mqTable.items())
    ]
    lines += ["", "#Consumer MQ Detail#", "#Topic  #Broker Name  #QID  #ProcessQueueInfo"]
    for queue, entry in sorted(info.mqTable.items()):
        fields = ", ".join(f"{key}={value}" for key, value in entry.builtins().items())
        lines.append(f"{queue.topic}  {queue.broker_name}  {queue.queue_id}  {fields}")
    lines += ["", "#Consumer RT&TPS#", "#Topic  #Pull RT  #Pull TPS  #Consume RT  #ConsumeOK TPS  #ConsumeFailed TPS"]
    lines += [
        f"{topic}  {entry.pullRT:.2f}  {entry.pullTPS:.2f}  {entry.consumeRT:.2f}  {entry.consumeOKTPS:.2f}"
        f"  {entry.consumeFailedTPS:.2f}"
        for topic, entry in sorted(info.statusTable.items())
    ]
    return [*lines, "", "#Consumer jstack#", info.jstack] if info.jstack else lines
