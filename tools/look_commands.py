"""`rocketlet topics`, `rocketlet groups`, `rocketlet brokers`: topics with their messages, consumer groups with their
lag, masters and slaves with what these lack.

Java: tools/command/topic/TopicListSubCommand.java, tools/command/consumer/ConsumerProgressSubCommand.java
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import click

from rocketlet.tools.output import print_rows, time_of

NAMESRV = click.option("-n", "--namesrv", metavar="HOST:PORT", help="Name servers [NAMESRV_ADDR, or 127.0.0.1:9876].")
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


@click.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--all", "everything", is_flag=True, help="Include the brokers' own topics, retry topics and dead letters."
)
@NAMESRV
@JSON
def topics(names: tuple[str, ...], everything: bool, namesrv: str | None, as_json: bool) -> None:
    """List topics with their queues and messages: all, or those given."""
    import trio

    rows = trio.run(_topics, namesrv, names, everything)
    heads = ["topic", "brokers", "queues", "messages", "last message", "groups"]
    print_rows(heads, rows, as_json=as_json)


async def _topics(namesrv: str | None, names: tuple[str, ...], everything: bool) -> list[dict[str, Any]]:
    from rocketlet.tools.admin.calls import admin, chosen_name_servers, is_of_a_group
    from rocketlet.tools.admin.credentials import signer

    async with admin(chosen_name_servers(namesrv, os.environ), hooks=signer(os.environ)) as calls:
        shown_names = list(names)
        if not shown_names:
            shown_names = await calls.topics()
            if not everything:
                hidden = await calls.system_topics()
                shown_names = [name for name in shown_names if name not in hidden and not is_of_a_group(name)]
        rows = []
        for name in shown_names:
            table = (await calls.topic_stats(name)).offsetTable
            rows.append(
                {
                    "topic": name,
                    "brokers": len({queue.broker_name for queue in table}),
                    "queues": len(table),
                    "messages": sum(offsets.maxOffset - offsets.minOffset for offsets in table.values()),
                    "last message": time_of(
                        max((offsets.lastUpdateTimestamp for offsets in table.values()), default=0)
                    ),
                    "groups": ", ".join(await calls.groups_of(name)),
                }
            )
        return rows


@click.command()
@click.argument("names", nargs=-1, metavar="[GROUP]...")
@click.option("--queues", "by_queue", is_flag=True, help="A line for each queue.")
@NAMESRV
@JSON
def groups(names: tuple[str, ...], by_queue: bool, namesrv: str | None, as_json: bool) -> None:
    """List consumer groups with their lag, in messages and in seconds.

    The lag in seconds is the age of the newest message that the group has consumed; it is 0 if the group has consumed
    everything.
    """
    import trio

    rows = trio.run(_groups, namesrv, names, by_queue)
    heads = ["group", "topic", "members", "model", "consumed", "lag", "lag s", "last consumed"]
    if by_queue:
        heads[2:4] = ["queue"]
    print_rows(heads, rows, as_json=as_json)


async def _groups(namesrv: str | None, names: tuple[str, ...], by_queue: bool) -> list[dict[str, Any]]:
    from rocketlet.common.clock import system_clock
    from rocketlet.tools.admin.calls import admin, chosen_name_servers
    from rocketlet.tools.admin.credentials import signer

    rows: list[dict[str, Any]] = []
    now = system_clock()
    async with admin(chosen_name_servers(namesrv, os.environ), hooks=signer(os.environ)) as calls:
        for group in names:
            await calls.check_group(group)
        for group in names or await calls.groups():
            table = (await calls.consume_stats(group)).offsetTable
            members = await calls.consumers(group)
            by_place: dict[str, list[Any]] = defaultdict(list)
            for queue, offsets in sorted(table.items()):
                by_place[f"{queue.topic} {queue}" if by_queue else queue.topic].append(offsets)
            for place, ones in by_place.items():
                topic, _, queue_name = place.partition(" ")
                lag = sum(max(0, offsets.brokerOffset - offsets.consumerOffset) for offsets in ones)
                last = max(offsets.lastTimestamp for offsets in ones)
                row: dict[str, Any] = {"group": group, "topic": topic}
                if by_queue:
                    row["queue"] = queue_name.removeprefix(f"{topic}/")
                else:
                    row["members"] = len(members.connectionSet) if members else 0
                    row["model"] = members.messageModel.lower() if members else ""
                row |= {
                    "consumed": sum(offsets.consumerOffset for offsets in ones),
                    "lag": lag,
                    "lag s": max(0, now - last) // 1000 if lag and last > 0 else 0,
                    "last consumed": time_of(last),
                }
                rows.append(row)
    return rows


@click.command()
@NAMESRV
@JSON
def brokers(namesrv: str | None, as_json: bool) -> None:
    """List brokers: masters, and slaves with how far they have followed."""
    import trio

    heads = ["broker", "id", "role", "address", "log end", "missing", "state"]
    print_rows(heads, trio.run(_brokers, namesrv), as_json=as_json)


async def _brokers(namesrv: str | None) -> list[dict[str, Any]]:
    from rocketlet.remoting.errors import RemotingError
    from rocketlet.remoting.protocol.replication import HARuntimeInfo
    from rocketlet.remoting.request_codes import RequestCode
    from rocketlet.tools.admin.calls import MASTER, AdminRefused, admin, chosen_name_servers
    from rocketlet.tools.admin.credentials import signer

    rows: list[dict[str, Any]] = []
    async with admin(chosen_name_servers(namesrv, os.environ), hooks=signer(os.environ)) as calls:
        for name, data in sorted((await calls.cluster()).brokerAddrTable.items()):
            for number, address in sorted(data.brokerAddrs.items()):
                row: dict[str, Any] = {"broker": name, "id": number, "address": address}
                row |= {"role": "master" if number == MASTER else "slave", "log end": "", "missing": "", "state": ""}
                rows.append(row)
                try:
                    info = HARuntimeInfo.from_json((await calls.ask(address, RequestCode.GET_BROKER_HA_STATUS)).body)
                except (AdminRefused, RemotingError) as error:
                    row["state"] = str(error)
                    continue
                client = info.haClientRuntimeInfo
                row["log end"] = info.masterCommitLogMaxOffset if info.master else client.maxOffset
                if info.master:
                    slaves = len(info.haConnectionInfo)
                    row["state"] = f"{info.inSyncSlaveNums} of {slaves} slaves in sync" if slaves else "no slave"
                else:
                    row["state"] = f"follows {client.masterAddr}" if client.isActivated else client.trouble
                    if client.masterFlushOffset >= 0:
                        row["missing"] = max(client.masterFlushOffset - client.maxOffset, 0)
    return rows
