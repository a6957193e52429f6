"""Takes the samples of the last day: rates and lag, once a minute.

A cluster may have more topics than can be sampled each minute. Those with traffic at their last sample are sampled
every time, the others in rotation.

Java: rocketmq-dashboard's task/DashboardCollectTask.java
"""

from __future__ import annotations

import logging

import trio

from rocketlet.common.errors import RocketletError
from rocketlet.console.cluster import each
from rocketlet.console.web import Console

log = logging.getLogger("rocketlet.console.sampling")

MAX_FLOWING, MAX_IN_TURN, MAX_GROUPS = 150, 500, 150


class Sampler:
    """The sampler of one console. `run` until cancelled."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._flowing: list[str] = []
        self._turn = 0

    async def run(self) -> None:
        """A cluster that does not answer leaves a gap."""
        while True:
            try:
                values = await self.sample()
                self._console.history.add(self._console.clock() / 1000, values)
            except RocketletError as error:
                log.info("no sample this time: %s", error)
            await trio.sleep(self._console.config.sample_seconds)

    async def sample(self) -> dict[str, float]:
        """All current values, by the names of their series."""
        cluster = self._console.cluster
        brokers = await cluster.brokers()
        values: dict[str, float] = {
            "in": sum(broker.tps_in for broker in brokers if broker.is_master),
            "out": sum(broker.tps_out for broker in brokers),
        }
        groups = await cluster.groups()
        values["lag"] = sum(group.lag() for group in groups.values())
        busiest = sorted(groups.values(), key=lambda group: (-group.lag(), -group.tps, group.name))[:MAX_GROUPS]
        values |= {f"lag {group.name}": group.lag() for group in busiest}
        return values | await self._rates([name for name, topic in (await cluster.topics()).items() if topic.is_users])

    async def _rates(self, topics: list[str]) -> dict[str, float]:
        turn = topics[self._turn : self._turn + MAX_IN_TURN]
        self._turn = self._turn + MAX_IN_TURN if self._turn + MAX_IN_TURN < len(topics) else 0
        existing = set(topics)
        names = dict.fromkeys([*(name for name in self._flowing if name in existing), *turn])
        brokers = await self._console.cluster.masters()
        addresses = [broker.address for broker in brokers]

        async def rate(topic: str) -> tuple[float, str]:
            stats = await self._console.cluster.rate("TOPIC_PUT_NUMS", topic, addresses)
            return (stats.statsMinute.tps if stats is not None else 0.0), topic

        rates = sorted(await each(names, rate), reverse=True)
        shown_before = set(self._flowing)
        self._flowing = [topic for tps, topic in rates if tps > 0][:MAX_FLOWING]
        flowing = shown_before.union(self._flowing)
        return {f"in {topic}": tps for tps, topic in rates if topic in flowing}
