"""mqadmin: masters and slaves. haStatus (of RocketMQ 5's mqadmin) promoteSlave demoteMaster (ours).

Java: tools/command/ha/HAStatusSubCommand.java (5.x); the rest is nothing of RocketMQ's
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from rocketlet.common.errors import RocketletError
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.replication import (
    DemoteHeader,
    HandOverAnswerHeader,
    HARuntimeInfo,
    PromoteAnswerHeader,
    PromoteHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin
from rocketlet.tools.admin.command import BROKER, Result, Said, command, one_of, wire_time

# A hand-over waits for what the slave lacks, at most 10 s at each of its three steps.
_SWITCH_SECONDS = 40.0
_ONE = click.option("-b", "--brokerAddr", "address", required=True, metavar="HOST:PORT", help="The broker's address.")


@command("haStatus")
@BROKER
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="All brokers of this cluster.")
@click.option("-i", "--interval", type=click.IntRange(1), metavar="SECONDS", help="Again, so often.")
async def ha_status(
    calls: Admin, broker: str | None, cluster: str | None, interval: int | None
) -> AsyncIterator[Result]:
    """Show who follows whom, and how closely."""
    import trio

    one_of(broker, cluster)
    while True:
        lines, rows = [], []
        for address in [broker] if broker else await _all_of(calls, cluster or ""):
            info = HARuntimeInfo.from_json((await calls.ask(address, RequestCode.GET_BROKER_HA_STATUS)).body)
            lines += [*(_of_master(address, info) if info.master else _of_slave(address, info)), ""]
            rows.append({"broker": address, **_as_row(info)})
        yield Said(lines, rows)
        if interval is None:
            return
        await trio.sleep(interval)


async def _all_of(calls: Admin, cluster: str) -> list[str]:
    """Masters before their slaves, name by name."""
    info = await calls.cluster()
    names = sorted(info.clusterAddrTable.get(cluster, ()))
    if not names:
        known = ", ".join(sorted(info.clusterAddrTable)) or "none"
        raise RocketletError(f"no cluster is called {cluster}; there are: {known}")
    return [address for name in names for _, address in sorted(info.brokerAddrTable[name].brokerAddrs.items())]


def _of_master(address: str, info: HARuntimeInfo) -> list[str]:
    lines = [
        f"#MasterAddr                {address}",
        f"#MasterCommitLogMaxOffset  {info.masterCommitLogMaxOffset}",
        f"#SlaveNum                  {len(info.haConnectionInfo)}",
        f"#InSyncSlaveNum            {info.inSyncSlaveNums}",
    ]
    if info.haConnectionInfo:
        lines.append(f"{'#SlaveAddr':<24}  {'#SlaveAckOffset':>16}  {'#Diff':>12}  {'#InSync':>8}  #BytesPerSecond")
    for one in info.haConnectionInfo:
        in_sync = "true" if one.inSync else "false"
        lines.append(
            f"{one.addr:<24}  {one.slaveAckOffset:>16}  {one.diff:>12}  {in_sync:>8}  {one.transferredByteInSecond:>15}"
        )
    return lines


def _of_slave(address: str, info: HARuntimeInfo) -> list[str]:
    client = info.haClientRuntimeInfo
    state = "follows its master" if client.isActivated else f"does not follow its master: {client.trouble}"
    missing = max(client.masterFlushOffset - client.maxOffset, 0) if client.masterFlushOffset >= 0 else "unknown"
    return [
        f"#SlaveAddr                 {address}",
        f"#State                     {state}",
        f"#MasterAddr                {client.masterAddr}",
        f"#CommitLogMaxOffset        {client.maxOffset}",
        f"#MasterFlushOffset         {client.masterFlushOffset}",
        f"#BytesMissing              {missing}",
        f"#BytesPerSecond            {client.transferredByteInSecond}",
        f"#LastReadTime              {wire_time(client.lastReadTimestamp, none='never')}",
    ]


def _as_row(info: HARuntimeInfo) -> dict[str, Any]:
    import msgspec

    row: dict[str, Any] = msgspec.to_builtins(info)
    del row["haClientRuntimeInfo" if info.master else "haConnectionInfo"]
    return row


@command("promoteSlave")
@_ONE
@click.option(
    "--force", is_flag=True, help="The master is lost: do not ask it. What it had and this slave has not, goes."
)
@click.option("--sync", is_flag=True, help="As SYNC_MASTER, also where the old master is none or is RocketMQ's.")
async def promote_slave(calls: Admin, address: str, force: bool, sync: bool) -> Result:
    """Make a slave the master of its name.

    The old master stops taking sends, the slave takes what it lacks, and they change places: nothing that was
    acknowledged is lost. Where one step fails, the old master continues.
    """
    header = PromoteHeader(force, sync)
    answer = await calls.ask(address, RequestCode.PROMOTE_SLAVE, header, timeout=_SWITCH_SECONDS)
    told = from_ext(PromoteAnswerHeader, answer.ext)
    missing = max(told.masterLogEnd - told.logEnd, 0) if told.masterLogEnd >= 0 else None
    lines = [f"{address} is the master now; its log ends at {told.logEnd}."]
    if force:
        if missing is None:
            lines.append("How far the old master's log went is not known, so neither is what may be missing.")
        else:
            lines.append(
                f"{missing} bytes of the old master's log may be missing, besides what it wrote in the"
                f" {told.heardMillisAgo / 1000:.1f} s since it was last heard."
            )
        lines.append("Do not start the old master as a master again: docs/operations.md, A lost master.")
    data = {"broker": address, "logEnd": told.logEnd, "masterLogEnd": told.masterLogEnd, "bytesMissing": missing}
    return Said(lines, data)


@command("demoteMaster")
@_ONE
@click.option(
    "-i", "--brokerId", "number", type=click.IntRange(1), default=1, show_default=True, help="Its id as a slave."
)
@click.option(
    "-m", "--haMasterAddr", "master", default="", metavar="HOST:PORT",
    help="The port for slaves of the master to follow; without it the name servers tell.",
)  # fmt: skip
async def demote_master(calls: Admin, address: str, number: int, master: str) -> Result:
    """Make a master a slave: it takes no more sends, and follows the master of its name.

    Use promoteSlave for a switch: it demotes the old master itself. This is for a second master that should be none.
    """
    header = DemoteHeader(number, master)
    answer = await calls.ask(address, RequestCode.DEMOTE_MASTER, header, timeout=_SWITCH_SECONDS)
    end = from_ext(HandOverAnswerHeader, answer.ext).logEnd
    return Said(
        [f"{address} is a slave with id {number} now; its log ends at {end}."],
        {"broker": address, "brokerId": number, "logEnd": end},
    )
