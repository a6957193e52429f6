"""The simple consumers, for threads and for event loops: receive, then acknowledge or extend, message by message.

Java: client/java/impl/consumer/SimpleConsumerImpl.java (rocketmq-clients)
"""

from __future__ import annotations

from rocketlet.client.config import SimpleConfig
from rocketlet.client.consuming.simple_consumer import SimpleEngine
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.facade import InThreads, OnEventLoop, Subscribed, engine_method
from rocketlet.client.talking.session import World


class Simple(Subscribed[SimpleEngine, SimpleConfig]):
    """What every simple consumer does."""

    _config_type = SimpleConfig

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
