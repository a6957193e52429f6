"""Checks of transactions that arrive at odd moments, and what a checker may do in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest
import trio

from rocketlet.client import (
    AsyncTransactionProducer,
    ClientError,
    Message,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionProducer,
    TransactionState,
)
from rocketlet.client.facades.asyncio_bridge import AsyncioBridge
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.thread_bridge import ThreadBridge
from rocketlet.client.sending.transaction_producer import TransactionEngine
from rocketlet.remoting.handler import Request
from tests.support.local_stack import local_stack
from tests.support.memory_cluster import memory_cluster

Run = Callable[..., Awaitable[None]]
A_MOMENT = 0.1  # in which a checker that is called too early would fail


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with local_stack(transaction_check_interval=200, transaction_time_out=100) as address:
        yield address


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a broker has asked about a transaction."""
    event = threading.Event()
    on_check = TransactionEngine._on_check

    def noting(engine: TransactionEngine, request: Request) -> None:
        on_check(engine, request)
        event.set()

    monkeypatch.setattr(TransactionEngine, "_on_check", noting)
    return event


def unknown(_: object) -> TransactionState:
    return TransactionState.UNKNOWN


async def unknown_in_a_task(_: object) -> TransactionState:
    return TransactionState.UNKNOWN


async def test_a_check_during_the_start_may_use_the_producer(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, asked: threading.Event
) -> None:
    start = Bridge.start
    checked: list[SendStatus] = []

    async def slow(bridge: Bridge, run: Run) -> None:
        await start(bridge, run)
        await trio.sleep(20)
        assert asked.is_set()
        assert not checked

    async def check(message: ReceivedMessage) -> TransactionState:
        checked.append((await producer.send(Message("T", b"by the checker"))).status)
        return TransactionState.COMMIT

    async with memory_cluster(transaction_check_interval=10_000, transaction_time_out=5_000) as cluster:
        for kind in (unknown_in_a_task, check):
            producer = AsyncTransactionProducer("p", kind, namesrv=cluster.namesrv, world=cluster.world())
            if kind is check:
                asked.clear()
                monkeypatch.setattr(Bridge, "start", slow)
            async with producer:
                if kind is unknown_in_a_task:
                    await producer.send_in_transaction(Message("T", b"x"), unknown_in_a_task)
                await trio.sleep(1)
    assert set(checked) == {SendStatus.SEND_OK}


def test_a_check_during_the_start_may_use_the_producer_of_a_thread(
    namesrv: str, monkeypatch: pytest.MonkeyPatch, asked: threading.Event
) -> None:
    start = ThreadBridge.start
    called = threading.Event()
    checked: SimpleQueue[SendResult | ClientError] = SimpleQueue()

    async def slow(bridge: ThreadBridge, run: Run) -> None:
        await start(bridge, run)
        assert asked.wait(20)
        called.wait(A_MOMENT)

    def check(message: ReceivedMessage) -> TransactionState:
        called.set()
        try:
            checked.put(producer.send(Message("T", b"by the checker")))
        except ClientError as error:
            checked.put(error)
        return TransactionState.COMMIT

    with TransactionProducer("threads", unknown, namesrv=namesrv) as first:
        first.send_in_transaction(Message("T", b"x"), unknown)
    asked.clear()
    monkeypatch.setattr(ThreadBridge, "start", slow)
    producer = TransactionProducer("threads", check, namesrv=namesrv)
    with producer:
        assert isinstance(checked.get(timeout=20), SendResult)


def test_a_check_during_the_start_may_use_the_producer_under_asyncio(
    namesrv: str, monkeypatch: pytest.MonkeyPatch, asked: threading.Event
) -> None:
    start = AsyncioBridge.start
    called = threading.Event()

    async def slow(bridge: AsyncioBridge, run: Run) -> None:
        await start(bridge, run)
        assert await asyncio.to_thread(asked.wait, 20)
        await asyncio.to_thread(called.wait, A_MOMENT)

    async def test() -> None:
        checked: asyncio.Queue[SendResult | ClientError] = asyncio.Queue()

        async def check(message: ReceivedMessage) -> TransactionState:
            called.set()
            try:
                checked.put_nowait(await producer.send(Message("T", b"by the checker")))
            except ClientError as error:
                checked.put_nowait(error)
            return TransactionState.COMMIT

        async with AsyncTransactionProducer("asyncio", unknown_in_a_task, namesrv=namesrv) as first:
            await first.send_in_transaction(Message("T", b"x"), unknown_in_a_task)
        asked.clear()
        monkeypatch.setattr(AsyncioBridge, "start", slow)
        producer: Any = AsyncTransactionProducer("asyncio", check, namesrv=namesrv)
        async with producer:
            assert isinstance(await checked.get(), SendResult)

    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_checker_under_asyncio_ends_with_its_client(namesrv: str, asked: threading.Event) -> None:
    async def test() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def check(message: ReceivedMessage) -> TransactionState:
            try:
                began.set()
                await asyncio.sleep(3600)
            finally:
                ended.set()
            return TransactionState.COMMIT

        async with AsyncTransactionProducer("ends", check, namesrv=namesrv) as producer:
            await producer.send_in_transaction(Message("T", b"x"), unknown_in_a_task)
            await began.wait()
        await ended.wait()

    asyncio.run(asyncio.wait_for(test(), 30))
