"""The simple consumers, for threads and for event loops: receive, then acknowledge or extend, message by message.

Java: client/java/impl/consumer/SimpleConsumerImpl.java (rocketmq-clients)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocketlet.client.config import SimpleConfig
from rocketlet.client.consuming.selector import Selection, check_topics
from rocketlet.client.consuming.simple_consumer import SimpleEngine
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.facade import Facade, InThreads, OnEventLoop, engine_method
from rocketlet.client.talking.session import World


class Simple(Facade[SimpleEngine]):
    """What every simple consumer does."""

    _role = "consumer"

    def __init__(
        self,
        group: str,
        topics: Mapping[str, Selection] | None = None,
        *,
        config: SimpleConfig | None = None,
        namesrv: str | None = None,
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of SimpleConfig by name. `world` is for tests."""
        super().__init__(group, SimpleConfig, config, namesrv, world, settings)
        self._topics = check_topics(topics)

    def _make_engine(self, bridge: Bridge, world: World) -> SimpleEngine:
        engine = SimpleEngine(self.group, self.config, world)
        for topic, selection in self._topics.items():
            wire = engine.wire_topic(topic)
            engine.subscriptions[wire] = engine.subscription(wire, selection)
        return engine

    subscribe = engine_method(SimpleEngine.subscribe)
    unsubscribe = engine_method(SimpleEngine.unsubscribe)
    receive = engine_method(SimpleEngine.receive)
    ack = engine_method(SimpleEngine.ack)
    extend = engine_method(SimpleEngine.extend)


class SimpleConsumer(Simple, InThreads):
    """Takes messages for a while; what is not acknowledged by then comes again, to whoever asks.

    with SimpleConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876", invisible=30.0) as consumer:
        for message in consumer.receive():
            print(message.body)
            consumer.ack(message)
    """


class AsyncSimpleConsumer(Simple, OnEventLoop):
    """Takes messages for a while, under trio or asyncio; what is not acknowledged by then comes again.

    async with AsyncSimpleConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
        for message in await consumer.receive():
            print(message.body)
            await consumer.ack(message)
    """
