"""mqadmin: how long a send takes. checkMsgSendRT sendMsgStatus clusterRT.

`sendMsgStatus` sends to the topic named after a broker, `clusterRT` to those named after clusters, which
exist for this purpose.

Java: tools/command/message/CheckMsgSendRTCommand.java, tools/command/broker/SendMsgStatusCommand.java,
tools/command/cluster/CLusterSendMsgRTCommand.java
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import click

from rocketlet.client.errors import ClientError
from rocketlet.common.clock import system_clock
from rocketlet.common.message import MessageQueue
from rocketlet.tools.admin.calls import Admin
from rocketlet.tools.admin.command import TOPIC, Result, Said, Table, command, wire_time
from rocketlet.tools.admin.reading import queues_of
from rocketlet.tools.admin.sending import Send, sender


async def _timed(send: Send, topic: str, size: int, queue: MessageQueue | None = None) -> dict[str, Any]:
    """One send: its result, and its time in milliseconds."""
    start = time.perf_counter()
    try:
        row = await send(topic, b"a" * size, queue=queue)
    except ClientError as error:
        row = {
            "broker": queue.broker_name if queue else "",
            "queue": queue.queue_id if queue else "",
            "status": "FAILED",
        }
        row["error"] = str(error)
    return row | {"rt": round((time.perf_counter() - start) * 1000, 2), "good": row["status"] == "SEND_OK"}


def _mean(rows: list[dict[str, Any]]) -> float:
    """The mean without the first, which connects."""
    times = [row["rt"] for row in rows[1:] or rows]
    return round(sum(times) / len(times), 2) if times else 0.0


@command("checkMsgSendRT")
@TOPIC
@click.option("-a", "--amount", type=click.IntRange(1), default=100, show_default=True, help="Number of sends.")
@click.option("-s", "--size", type=click.IntRange(1), default=128, show_default=True, help="Bytes of each.")
async def check_msg_send_rt(calls: Admin, topic: str, amount: int, size: int) -> Result:
    """Send to each queue in turn, and show how long each send took."""
    queues = list(await queues_of(calls, topic))
    async with sender(calls.namesrvs) as send:
        rows = [await _timed(send, topic, size, queues[number % len(queues)]) for number in range(amount)]
    heads = {"broker": "#Broker Name", "queue": "#QID", "good": "#Send Result", "rt": "#RT"}
    return Table(heads, rows, [f"Avg RT: {_mean(rows):.2f}"])


@command("sendMsgStatus")
@click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name.")
@click.option("-s", "--messageSize", "size", type=click.IntRange(1), default=128, show_default=True)
@click.option("-c", "--count", type=click.IntRange(1), default=50, show_default=True)
async def send_msg_status(calls: Admin, broker: str, size: int, count: int) -> AsyncIterator[Result]:
    """Send to a broker."""
    async with sender(calls.namesrvs) as send:
        await _timed(send, broker, 1)  # connects
        for _ in range(count):
            row = await _timed(send, broker, size)
            text = f"sendStatus={row['status']}, msgId={row.get('msgId')}, queueOffset={row.get('offset')}"
            yield Said([f"rt={row['rt']}ms, SendResult=SendResult [{text}]"], row)


@command("clusterRT")
@click.option("-a", "--amount", type=click.IntRange(1), default=100, show_default=True, help="How many each time.")
@click.option("-s", "--size", type=click.IntRange(1), default=128, show_default=True, help="Bytes of each.")
@click.option("-c", "--cluster", metavar="NAME", help="Only this one.")
@click.option("-p", "--print log", "as_log", type=bool, default=False, help="As lines of a log.")
@click.option("-m", "--machine room", "room", default="noname", show_default=True, help="Named in those lines.")
@click.option("-i", "--interval", type=click.IntRange(0), default=10, show_default=True, help="Seconds between.")
@click.option("--once", is_flag=True, help="Once instead of for ever.")
async def cluster_rt(
    calls: Admin, amount: int, size: int, cluster: str | None, as_log: bool, room: str, interval: int, once: bool
) -> AsyncIterator[Result]:
    """Send to the brokers of every cluster, again and again."""
    import trio

    heads = {
        "cluster": "#Cluster Name",
        "broker": "#Broker Name",
        "rt": "#RT",
        "good": "#successCount",
        "bad": "#failCount",
    }
    async with sender(calls.namesrvs) as send:
        while True:
            rows = []
            for name, brokers in sorted((await calls.cluster()).clusterAddrTable.items()):
                if cluster in (None, name):
                    rows += [await _of_broker(send, name, broker, amount, size) for broker in sorted(brokers)]
            if as_log:
                now = wire_time(system_clock())
                yield Said([f"{now}|{room}|{row['cluster']}|{row['broker']}|{row['rt']:.0f}" for row in rows], rows)
            else:
                yield Table(heads, rows)
            if once:
                return
            await trio.sleep(interval)


async def _of_broker(send: Send, cluster: str, broker: str, amount: int, size: int) -> dict[str, Any]:
    sent = [await _timed(send, cluster, size, MessageQueue(cluster, broker, 0)) for _ in range(amount)]
    good = sum(row["good"] for row in sent)
    return {"cluster": cluster, "broker": broker, "rt": _mean(sent), "good": good, "bad": amount - good}
