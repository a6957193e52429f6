"""A broker as a source of metrics, and of readiness.

Groups that consume by broadcast keep their offsets themselves: their lag is not known here, and is not reported.

Java: broker/metrics/BrokerMetricsManager.java (5.x)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rocketlet.broker.metrics import exporter_names, own_names, rocketmq5_names
from rocketlet.broker.metrics.progress import Progress
from rocketlet.broker.metrics.steps import STEP, with_cold_reads
from rocketlet.broker.parts import Parts
from rocketlet.metrics.page import Page, Wait


class BrokerSource:
    """See `metrics.page.Source`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def fill(self, page: Page) -> Iterator[Wait]:
        parts = self._parts
        exporter_names.declare(page)
        for fill in (
            exporter_names.of_broker,
            rocketmq5_names.of_broker,
            own_names.of_broker,
            exporter_names.of_topics,
            rocketmq5_names.of_topics,
            exporter_names.of_clients,
            rocketmq5_names.of_clients,
            own_names.of_clients,
            own_names.of_pops,
            rocketmq5_names.of_pulls,
        ):
            yield from fill(parts, page)
        for group in [config.groupName for config in parts.tables.groups]:
            online = parts.clients.consumers.get(group)
            if online is not None and online.broadcasting:
                continue
            for topic in parts.lag.topics_of(group):
                queues = []
                for queue_id in range(topic.read):
                    look_up = partial(parts.lag.of, group, topic.name, queue_id)
                    queues.append((yield from with_cold_reads(parts.store, look_up)))
                    if len(queues) % STEP == 0:
                        yield None
                progress = Progress(group, topic, queues)
                yield from exporter_names.of_progress(parts, page, progress)
                yield from rocketmq5_names.of_progress(parts, page, progress)
                yield from own_names.of_progress(parts, page, progress)
                yield None

    def not_ready(self) -> Sequence[str]:
        if not self._parts.targets.serving:
            return [f"broker {self._parts.identity.name} is starting or stopping"]
        reasons = []
        refusal = self._parts.store.refusal
        if refusal:
            reasons.append(f"broker {self._parts.identity.name} takes no messages: {refusal}")
        places = list(self._parts.registration.places())
        if places and not any(is_known for _, is_known in places):
            addresses = ", ".join(address for address, _ in places)
            reasons.append(f"broker {self._parts.identity.name} is known to none of its name servers: {addresses}")
        return reasons
