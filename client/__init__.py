"""Rocketlet's client: send and consume messages of RocketMQ, from plain threads, trio or asyncio.

    from client import LitePullConsumer, Message, Producer

    with Producer("group", namesrv="127.0.0.1:9876") as producer:
        print(producer.send(Message("T", b"hi")))

    with LitePullConsumer("group", topics={"T": "*"}, namesrv="127.0.0.1:9876") as consumer:
        for message in consumer:
            print(message.body)

This page is the public API, and the only promise of stability that this package makes. Importing it imports nothing:
each name is fetched from its module when it is first used.

Java: org.apache.rocketmq.client.producer, org.apache.rocketmq.client.consumer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from client.awaitable import AsyncProducer as AsyncProducer
    from client.awaitable import AsyncTransactionProducer as AsyncTransactionProducer
    from client.awaitable_consumers import AsyncPushConsumer as AsyncPushConsumer
    from client.awaitable_pulling import AsyncLitePullConsumer as AsyncLitePullConsumer
    from client.awaitable_pulling import AsyncPullConsumer as AsyncPullConsumer
    from client.batch_splitter import split as split
    from client.blocking import Producer as Producer
    from client.blocking import TransactionProducer as TransactionProducer
    from client.blocking_consumers import PushConsumer as PushConsumer
    from client.blocking_pulling import LitePullConsumer as LitePullConsumer
    from client.blocking_pulling import PullConsumer as PullConsumer
    from client.config import ConsumeFrom as ConsumeFrom
    from client.config import MessageModel as MessageModel
    from client.config import ProducerConfig as ProducerConfig
    from client.config import PullConfig as PullConfig
    from client.config import PushConfig as PushConfig
    from client.consume_results import ConsumeContext as ConsumeContext
    from client.consume_results import ConsumeStatus as ConsumeStatus
    from client.consume_results import Later as Later
    from client.errors import ClientClosed as ClientClosed
    from client.errors import ClientError as ClientError
    from client.errors import EngineFailed as EngineFailed
    from client.errors import InvalidMessage as InvalidMessage
    from client.errors import InvalidUse as InvalidUse
    from client.errors import NoRoute as NoRoute
    from client.errors import Refused as Refused
    from client.errors import RequestTimedOut as RequestTimedOut
    from client.errors import SendFailed as SendFailed
    from client.errors import TimedOut as TimedOut
    from client.errors import TooManyInFlight as TooManyInFlight
    from client.errors import Unreachable as Unreachable
    from client.hooks import ConsumeHook as ConsumeHook
    from client.hooks import ConsumeHookContext as ConsumeHookContext
    from client.hooks import SendContext as SendContext
    from client.hooks import SendHook as SendHook
    from client.idempotence import MemoryKeys as MemoryKeys
    from client.idempotence import SqliteKeys as SqliteKeys
    from client.idempotence import once as once
    from client.pending_send import PendingSend as PendingSend
    from client.selector import Sql as Sql
    from client.send_result import PullResult as PullResult
    from client.send_result import PullStatus as PullStatus
    from client.send_result import SendResult as SendResult
    from client.send_result import SendStatus as SendStatus
    from client.send_result import TransactionState as TransactionState
    from client.transaction_producer import Transaction as Transaction
    from common.message import Message as Message
    from common.message import MessageQueue as MessageQueue
    from common.message import ReceivedMessage as ReceivedMessage

_HOMES = {
    "client.awaitable": ("AsyncProducer", "AsyncTransactionProducer"),
    "client.awaitable_consumers": ("AsyncPushConsumer",),
    "client.awaitable_pulling": ("AsyncLitePullConsumer", "AsyncPullConsumer"),
    "client.batch_splitter": ("split",),
    "client.blocking": ("Producer", "TransactionProducer"),
    "client.blocking_consumers": ("PushConsumer",),
    "client.blocking_pulling": ("LitePullConsumer", "PullConsumer"),
    "client.config": ("ConsumeFrom", "MessageModel", "ProducerConfig", "PullConfig", "PushConfig"),
    "client.consume_results": ("ConsumeContext", "ConsumeStatus", "Later"),
    "client.errors": (
        "ClientClosed",
        "ClientError",
        "EngineFailed",
        "InvalidMessage",
        "InvalidUse",
        "NoRoute",
        "Refused",
        "RequestTimedOut",
        "SendFailed",
        "TimedOut",
        "TooManyInFlight",
        "Unreachable",
    ),
    "client.hooks": ("ConsumeHook", "ConsumeHookContext", "SendContext", "SendHook"),
    "client.idempotence": ("MemoryKeys", "SqliteKeys", "once"),
    "client.pending_send": ("PendingSend",),
    "client.selector": ("Sql",),
    "client.send_result": ("PullResult", "PullStatus", "SendResult", "SendStatus", "TransactionState"),
    "client.transaction_producer": ("Transaction",),
    "common.message": ("Message", "MessageQueue", "ReceivedMessage"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'client' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
