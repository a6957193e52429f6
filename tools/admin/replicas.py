"""mqadmin: masters and slaves. haStatus (of RocketMQ 5's mqadmin); promoteSlave demoteMaster, and for replicas that
elect their master switchMaster resignMaster addInSync removeInSync (ours).

Java: tools/command/ha/HAStatusSubCommand.java (5.x); the rest has no counterpart
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from rocketlet.common.errors import RocketletError
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.replication import (
    ChangeInSyncHeader,
    DemoteHeader,
    HandOverAnswerHeader,
    HARuntimeInfo,
    PromoteAnswerHeader,
    PromoteHeader,
    ResignMasterHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import MASTER, Admin
from rocketlet.tools.admin.command import BROKER, Result, Said, command, one_of, wire_time

# A hand-over waits for the slave to catch up, at most 10 s in each of its three steps.
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
            lines += [*(_of_master(address, info) if info.master else _of_slave(address, info)), *_of_group(info), ""]
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
        clusters = ", ".join(sorted(info.clusterAddrTable)) or "none"
        raise RocketletError(f"no cluster is called {cluster}; there are: {clusters}")
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
    for connection in info.haConnectionInfo:
        in_sync = "true" if connection.inSync else "false"
        lines.append(
            f"{connection.addr:<24}  {connection.slaveAckOffset:>16}  {connection.diff:>12}  {in_sync:>8}"
            f"  {connection.transferredByteInSecond:>15}"
        )
    return lines


def _of_group(info: HARuntimeInfo) -> list[str]:
    """For replicas that elect their master."""
    labels = [
        ("#State", "failoverState"), ("#Replica", "replica"), ("#Epoch", "epoch"), ("#Leader", "leader"),
        ("#InSync", "inSyncReplicas"), ("#ConfirmedOffset", "confirmedOffset"), ("#Coordinator", "coordinatorTrouble"),
        ("#Trouble", "failoverTrouble"), ("#CutOffBytes", "cutOffBytes"),
    ]  # fmt: skip
    lines = [
        f"{name:<25}  {info.failover[key]}" for name, key in labels if info.failover.get(key) not in (None, "", "0")
    ]
    return lines if info.failover else []


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
    promoted = from_ext(PromoteAnswerHeader, answer.ext)
    missing = max(promoted.masterLogEnd - promoted.logEnd, 0) if promoted.masterLogEnd >= 0 else None
    lines = [f"{address} is the master now; its log ends at {promoted.logEnd}."]
    if force:
        if missing is None:
            lines.append("The end of the old master's log is unknown, and so is what may be missing.")
        else:
            lines.append(
                f"{missing} bytes of the old master's log may be missing, besides what it wrote in the"
                f" {promoted.heardMillisAgo / 1000:.1f} s since it was last heard."
            )
        lines.append("Do not start the old master as a master again: docs/operations.md, A lost master.")
    data = {
        "broker": address,
        "logEnd": promoted.logEnd,
        "masterLogEnd": promoted.masterLogEnd,
        "bytesMissing": missing,
    }
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


@command("switchMaster")
@_ONE
@click.option(
    "-r", "--replica", metavar="REPLICA_ID", default="", help="Who is to lead; without it any that is in sync."
)
async def switch_master(calls: Admin, address: str, replica: str) -> Result:
    """Have a replica lead instead of this master; wait until it does, and until clients are told so.

    The master takes no more sends, waits until all that it took is confirmed, and gives its lease back. Nothing that
    was acknowledged is lost, and our clients' sends go on at the new master.
    """
    import trio

    old_epoch = int((await _failover_of(calls, address)).get("epoch", "0"))
    name = await _name_of(calls, address)
    await calls.ask(address, RequestCode.RESIGN_MASTER, ResignMasterHeader(replica), timeout=_SWITCH_SECONDS)
    leader = ""
    with trio.move_on_after(_SWITCH_SECONDS):
        while True:
            await trio.sleep(0.05)
            for number, other in await _replicas_of(calls, name):
                try:
                    status = await _failover_of(calls, other)
                except RocketletError:
                    continue  # it is restarting at this moment
                if status.get("failoverState") == "leading" and int(status["epoch"]) > old_epoch:
                    leader = other
                    if number == MASTER:
                        return Said(
                            [f"{other} leads now, in epoch {status['epoch']}."],
                            {"broker": other, "epoch": int(status["epoch"])},
                        )
    raise RocketletError(
        f"{address} has resigned, and "
        + (f"{leader} leads, but its name servers do not know it as" if leader else "no other replica leads as")
        + f" master after {_SWITCH_SECONDS:g} s: mqadmin haStatus"
    )


@command("resignMaster")
@_ONE
async def resign_master(calls: Admin, address: str) -> Result:
    """Have this master stop leading; the other replicas elect one of them. Returns when it has resigned."""
    await calls.ask(address, RequestCode.RESIGN_MASTER, ResignMasterHeader(), timeout=_SWITCH_SECONDS)
    return Said([f"{address} has resigned."], {"broker": address})


@command("addInSync")
@_ONE
@click.option("--force", is_flag=True, help="Needed: what this replica lacks, and another had acknowledged, is lost.")
async def add_in_sync(calls: Admin, address: str, force: bool) -> Result:
    """Make a replica the only one in sync, so that it can lead: where all that were in sync are lost for good, or the
    coordinator has lost its data. A replica that has caught up is added by itself."""
    if not force:
        raise RocketletError(
            "a replica is added by itself once it has caught up (mqadmin haStatus). To have this one lead although it"
            " may lack messages, say --force"
        )
    await calls.ask(address, RequestCode.CHANGE_IN_SYNC, ChangeInSyncHeader("", True, True), timeout=_SWITCH_SECONDS)
    return Said([f"{address} alone is in sync now, and will lead."], {"broker": address})


@command("removeInSync")
@_ONE
@click.option("-r", "--replica", metavar="REPLICA_ID", required=True, help="Who is to be removed.")
async def remove_in_sync(calls: Admin, address: str, replica: str) -> Result:
    """Have a master wait for a replica no more. It comes back by itself when it has caught up; stop it before."""
    await calls.ask(address, RequestCode.CHANGE_IN_SYNC, ChangeInSyncHeader(replica), timeout=_SWITCH_SECONDS)
    return Said([f"replica {replica} is not in sync any more."], {"broker": address, "removed": replica})


async def _failover_of(calls: Admin, address: str) -> dict[str, str]:
    return HARuntimeInfo.from_json((await calls.ask(address, RequestCode.GET_BROKER_HA_STATUS)).body).failover


async def _name_of(calls: Admin, address: str) -> str:
    """The brokerName under which this address is registered; empty if none."""
    table = (await calls.cluster()).brokerAddrTable
    return next((name for name, data in table.items() if address in data.brokerAddrs.values()), "")


async def _replicas_of(calls: Admin, name: str) -> list[tuple[int, str]]:
    """Ids and addresses of the brokers of a name; of all names if it is empty."""
    table = (await calls.cluster()).brokerAddrTable
    matching = [data for other, data in table.items() if name in ("", other)]
    return sorted(pair for data in matching for pair in data.brokerAddrs.items())
