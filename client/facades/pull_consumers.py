"""The old pull consumers, for threads and for event loops: their user keeps the offsets.

Java: client/consumer/DefaultMQPullConsumer.java
"""

from __future__ import annotations

from rocketlet.client.config import PullConfig
from rocketlet.client.consuming.pull_consumer import PullEngine
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.facade import Facade, InThreads, OnEventLoop, engine_method
from rocketlet.client.talking.session import World
from rocketlet.client.talking.topic_queries import TopicQueries
from rocketlet.common.message import MessageQueue


class Pulled(Facade[PullEngine, PullConfig]):
    """The methods of every pull consumer."""

    _config_type = PullConfig

    def _make_engine(self, bridge: Bridge, world: World) -> PullEngine:
        return PullEngine(self.group, self.config, world)

    queues = engine_method(TopicQueries.queues, "queries")
    share = engine_method(PullEngine.share)
    pull = engine_method(PullEngine.pull)
    offset = engine_method(PullEngine.offset)

    def note_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember how far a queue is consumed; stored every few seconds, at the end, and by `commit`."""
        self._running()[1].note_offset(queue, offset)

    commit = engine_method(PullEngine.commit)
    send_back = engine_method(PullEngine.send_back)
    max_offset = engine_method(TopicQueries.max_offset, "queries")
    min_offset = engine_method(TopicQueries.min_offset, "queries")
    offset_at = engine_method(TopicQueries.offset_at, "queries")


class PullConsumer(Pulled, InThreads):
    """Pulls where and when it is told to; its user keeps the offsets.

    with PullConsumer("group", namesrv="127.0.0.1:9876") as consumer:
        for queue in consumer.queues("T"):
            found = consumer.pull(queue, consumer.offset(queue) or 0)
            consumer.note_offset(queue, found.next_offset)
    """


class AsyncPullConsumer(Pulled, OnEventLoop):
    """Pulls where and when it is told to, under trio or asyncio; its user keeps the offsets.

    async with AsyncPullConsumer("group", namesrv="127.0.0.1:9876") as consumer:
        for queue in await consumer.queues("T"):
            found = await consumer.pull(queue, await consumer.offset(queue) or 0)
            consumer.note_offset(queue, found.next_offset)
    """
