"""Rocketlet's client: send and consume messages of RocketMQ, from plain threads, trio or asyncio.

    from rocketlet import LitePullConsumer, Message, Producer

    with Producer("group", namesrv="127.0.0.1:9876") as producer:
        print(producer.send(Message("T", b"hi")))

    with LitePullConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
        for message in consumer:
            print(message.body)

This module is the public API, and all that this package promises to keep stable. Importing it imports nothing:
each name is fetched from its module when it is first used.

Java: org.apache.rocketmq.client.producer, org.apache.rocketmq.client.consumer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketlet.client.compression import CannotInflate as CannotInflate
    from rocketlet.client.config import ConsumeFrom as ConsumeFrom
    from rocketlet.client.config import MessageModel as MessageModel
    from rocketlet.client.config import ProducerConfig as ProducerConfig
    from rocketlet.client.config import PullConfig as PullConfig
    from rocketlet.client.config import PushConfig as PushConfig
    from rocketlet.client.config import SimpleConfig as SimpleConfig
    from rocketlet.client.consuming.consume_results import ConsumeContext as ConsumeContext
    from rocketlet.client.consuming.consume_results import ConsumeStatus as ConsumeStatus
    from rocketlet.client.consuming.consume_results import Later as Later
    from rocketlet.client.consuming.idempotence import MemoryKeys as MemoryKeys
    from rocketlet.client.consuming.idempotence import SqliteKeys as SqliteKeys
    from rocketlet.client.consuming.idempotence import once as once
    from rocketlet.client.consuming.received_messages import MessageBatch as MessageBatch
    from rocketlet.client.consuming.selector import Sql as Sql
    from rocketlet.client.errors import BadAnswer as BadAnswer
    from rocketlet.client.errors import ClientClosed as ClientClosed
    from rocketlet.client.errors import ClientError as ClientError
    from rocketlet.client.errors import EngineFailed as EngineFailed
    from rocketlet.client.errors import InvalidMessage as InvalidMessage
    from rocketlet.client.errors import InvalidUse as InvalidUse
    from rocketlet.client.errors import ListenerFailed as ListenerFailed
    from rocketlet.client.errors import NoRoute as NoRoute
    from rocketlet.client.errors import Refused as Refused
    from rocketlet.client.errors import RequestTimedOut as RequestTimedOut
    from rocketlet.client.errors import SendFailed as SendFailed
    from rocketlet.client.errors import TimedOut as TimedOut
    from rocketlet.client.errors import TooManyInFlight as TooManyInFlight
    from rocketlet.client.errors import Unreachable as Unreachable
    from rocketlet.client.facades.lite_pull_consumers import AsyncLitePullConsumer as AsyncLitePullConsumer
    from rocketlet.client.facades.lite_pull_consumers import LitePullConsumer as LitePullConsumer
    from rocketlet.client.facades.pending_send import PendingSend as PendingSend
    from rocketlet.client.facades.producers import AsyncProducer as AsyncProducer
    from rocketlet.client.facades.producers import AsyncTransactionProducer as AsyncTransactionProducer
    from rocketlet.client.facades.producers import Producer as Producer
    from rocketlet.client.facades.producers import TransactionProducer as TransactionProducer
    from rocketlet.client.facades.pull_consumers import AsyncPullConsumer as AsyncPullConsumer
    from rocketlet.client.facades.pull_consumers import PullConsumer as PullConsumer
    from rocketlet.client.facades.push_consumers import AsyncPushConsumer as AsyncPushConsumer
    from rocketlet.client.facades.push_consumers import PushConsumer as PushConsumer
    from rocketlet.client.facades.simple_consumers import AsyncSimpleConsumer as AsyncSimpleConsumer
    from rocketlet.client.facades.simple_consumers import SimpleConsumer as SimpleConsumer
    from rocketlet.client.hooks import ConsumeHook as ConsumeHook
    from rocketlet.client.hooks import ConsumeHookContext as ConsumeHookContext
    from rocketlet.client.hooks import SendContext as SendContext
    from rocketlet.client.hooks import SendHook as SendHook
    from rocketlet.client.sending.batch_splitter import split as split
    from rocketlet.client.sending.send_result import PullResult as PullResult
    from rocketlet.client.sending.send_result import PullStatus as PullStatus
    from rocketlet.client.sending.send_result import SendResult as SendResult
    from rocketlet.client.sending.send_result import SendStatus as SendStatus
    from rocketlet.client.sending.send_result import TransactionState as TransactionState
    from rocketlet.client.sending.transaction_producer import Transaction as Transaction
    from rocketlet.common.message import Message as Message
    from rocketlet.common.message import MessageQueue as MessageQueue
    from rocketlet.common.message import ReceivedMessage as ReceivedMessage
    from rocketlet.common.message import Serializer as Serializer

if __name__ == "client":
    # The general name, for applications. The parts are imported by their real name only, so that no class exists twice.
    __path__ = []

_HOMES = {
    "client.compression": "CannotInflate",
    "client.config": "ConsumeFrom MessageModel ProducerConfig PullConfig PushConfig SimpleConfig",
    "client.consuming.consume_results": "ConsumeContext ConsumeStatus Later",
    "client.consuming.idempotence": "MemoryKeys SqliteKeys once",
    "client.consuming.received_messages": "MessageBatch",
    "client.consuming.selector": "Sql",
    "client.errors": "BadAnswer ClientClosed ClientError EngineFailed InvalidMessage InvalidUse ListenerFailed "
    "NoRoute Refused RequestTimedOut SendFailed TimedOut TooManyInFlight Unreachable",
    "client.facades.lite_pull_consumers": "AsyncLitePullConsumer LitePullConsumer",
    "client.facades.pending_send": "PendingSend",
    "client.facades.producers": "AsyncProducer AsyncTransactionProducer Producer TransactionProducer",
    "client.facades.pull_consumers": "AsyncPullConsumer PullConsumer",
    "client.facades.push_consumers": "AsyncPushConsumer PushConsumer",
    "client.facades.simple_consumers": "AsyncSimpleConsumer SimpleConsumer",
    "client.hooks": "ConsumeHook ConsumeHookContext SendContext SendHook",
    "client.sending.batch_splitter": "split",
    "client.sending.send_result": "PullResult PullStatus SendResult SendStatus TransactionState",
    "client.sending.transaction_producer": "Transaction",
    "common.message": "Message MessageQueue ReceivedMessage Serializer",
}
_HOME_OF = {name: f"rocketlet.{module}" for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # checkers read the imports above; `__getattr__` would give a type to misspelt names too
    __all__ = sorted(_HOME_OF)

    def __getattr__(name: str) -> object:
        module = _HOME_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module(module), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return __all__
