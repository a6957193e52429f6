"""mqadmin: startMonitoring, which checks all groups once a minute and reports problems.

It reports groups that lag by more than 100,000 messages or ten minutes, members whose subscriptions differ, and queues
without a consumer. RocketMQ's also consumes OFFSET_MOVED_EVENT; ours looks at offsets only.

Java: tools/monitor/MonitorService.java
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from rocketlet.common.clock import system_clock
from rocketlet.remoting.protocol.inspection import ConsumerRunningInfo
from rocketlet.tools.admin.calls import Admin
from rocketlet.tools.admin.clients import running_infos
from rocketlet.tools.admin.command import AdminError, Result, Said, command
from rocketlet.tools.admin.groups import lag

UNDONE_MESSAGES = 100_000
UNDONE_SECONDS = 600


@command("startMonitoring")
@click.option("--interval", type=click.IntRange(1), default=60, show_default=True, help="Seconds between two looks.")
@click.option(
    "--messages", type=click.IntRange(0), default=UNDONE_MESSAGES, show_default=True, help="A lag to tell of."
)
@click.option("--seconds", type=click.IntRange(0), default=UNDONE_SECONDS, show_default=True, help="An age to tell of.")
@click.option("--once", is_flag=True, help="Look once and end.")
async def start_monitoring(
    calls: Admin, interval: int, messages: int, seconds: int, once: bool
) -> AsyncIterator[Result]:
    """Report consumer groups that lag, or whose members have different subscriptions."""
    import trio

    while True:
        for group in await calls.groups():
            for trouble in await _troubles(calls, group, messages, seconds):
                fields = ", ".join(f"{key}={value}" for key, value in trouble.items())
                yield Said([fields], trouble)
        if once:
            return
        await trio.sleep(interval)


async def _troubles(calls: Admin, group: str, messages: int, seconds: int) -> list[dict[str, Any]]:
    table = (await calls.consume_stats(group)).offsetTable
    troubles: list[dict[str, Any]] = []
    by_topic: dict[str, tuple[int, int]] = {}
    for queue, offsets in table.items():
        group_lag, oldest = by_topic.get(queue.topic, (0, 0))
        age = system_clock() - offsets.lastTimestamp if lag(offsets) and offsets.lastTimestamp > 0 else 0
        by_topic[queue.topic] = (group_lag + lag(offsets), max(oldest, age // 1000))
    for topic, (group_lag, age) in sorted(by_topic.items()):
        if group_lag > messages or age > seconds:
            troubles.append(
                {"trouble": "undone", "group": group, "topic": topic, "messages": group_lag, "seconds": age}
            )
    try:
        infos = [info async for _, info in running_infos(calls, group)]
    except AdminError:
        return troubles  # no member is online, and an idle group is no trouble
    return troubles + _disagreements(group, infos)


def _disagreements(group: str, infos: list[ConsumerRunningInfo]) -> list[dict[str, Any]]:
    kinds = {
        tuple(sorted((subscription.topic, subscription.subString) for subscription in info.subscriptionSet))
        for info in infos
    }
    if len(kinds) > 1:
        return [{"trouble": "different subscriptions", "group": group, "kinds": len(kinds)}]
    return []
