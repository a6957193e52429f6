"""Takes the samples of the last day: rates, lag and dead letters, once a minute.

Java: rocketmq-dashboard's task/DashboardCollectTask.java
"""

from __future__ import annotations

import logging

import trio

from rocketlet.common.errors import RocketletError
from rocketlet.console.cluster import each
from rocketlet.console.web import Console

log = logging.getLogger("rocketlet.console.sampling")

MOST_TOPICS, MOST_GROUPS = 150, 150


async def keep_sampling(console: Console) -> None:
    """Until cancelled. A cluster that does not answer leaves a gap."""
    while True:
        try:
            console.history.add(console.clock() / 1000, await sample(console))
        except RocketletError as error:
            log.info("no sample this time: %s", error)
        await trio.sleep(console.config.sample_seconds)


async def sample(console: Console) -> dict[str, float]:
    """All numbers of now, by the names of their series."""
    cluster = console.cluster
    brokers = await cluster.brokers()
    values: dict[str, float] = {
        "in": sum(broker.tps_in for broker in brokers if broker.is_master),
        "out": sum(broker.tps_out for broker in brokers),
    }
    groups = await cluster.groups()
    values["lag"] = sum(group.lag() for group in groups.values())
    busiest = sorted(groups.values(), key=lambda group: (-group.lag(), -group.tps, group.name))[:MOST_GROUPS]
    values |= {f"lag {group.name}": group.lag() for group in busiest}
    topics = [name for name, topic in (await cluster.topics()).items() if topic.kind == "normal"][:MOST_TOPICS]
    addresses = [broker.address for broker in brokers if broker.is_master and not broker.problem]

    async def rate(topic: str) -> tuple[str, float]:
        found = await cluster.rate("TOPIC_PUT_NUMS", topic, addresses)
        return topic, found.statsMinute.tps if found is not None else 0.0

    values |= {f"in {topic}": tps for topic, tps in await each(topics, rate)}
    return values
