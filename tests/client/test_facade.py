"""The public classes: each method is written once, and exists for threads and for event loops."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import rocketlet.client as client
from rocketlet.client.coroutines import completed
from rocketlet.client.errors import InvalidUse

ROOT = Path(__file__).parents[2]
PAIRS = [
    (client.Producer, client.AsyncProducer, {"request_soon"}),
    (client.TransactionProducer, client.AsyncTransactionProducer, {"request_soon"}),
    (client.PushConsumer, client.AsyncPushConsumer, {"wait"}),
    (client.LitePullConsumer, client.AsyncLitePullConsumer, set()),
    (client.PullConsumer, client.AsyncPullConsumer, set()),
    (client.SimpleConsumer, client.AsyncSimpleConsumer, set()),
]
LIFE = {"start", "shutdown", "close"}  # of clients in threads; the others last as long as their block


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name in dir(kind) if not name.startswith("_") and callable(value := getattr(kind, name))}


@pytest.mark.parametrize(("in_threads", "on_loops", "only_in_threads"), PAIRS)
def test_threads_and_event_loops_have_the_same_methods(
    in_threads: type, on_loops: type, only_in_threads: set[str]
) -> None:
    blocking, awaited = methods(in_threads), methods(on_loops)
    assert set(blocking) - set(awaited) == only_in_threads | LIFE
    assert set(awaited) <= set(blocking)
    for name, method in awaited.items():
        # An iterator is one of its kind, and its docstring shows how to loop over it.
        assert str(inspect.signature(method)).replace("Async", "") == str(inspect.signature(blocking[name])), name
        assert str(method.__doc__).replace("async for", "for") == str(blocking[name].__doc__), name
        assert not inspect.iscoroutinefunction(blocking[name]), name


def test_blocking_calls_are_awaitable_on_event_loops() -> None:
    plain = {name for name, method in methods(client.AsyncProducer).items() if not inspect.iscoroutinefunction(method)}
    assert plain == {"send_soon"}


def test_a_coroutine_suspending_in_a_thread_is_a_bug() -> None:
    async def sleeps() -> None:
        await trio.lowlevel.cancel_shielded_checkpoint()

    with pytest.raises(AssertionError, match="suspended"):
        completed(sleeps())


async def test_a_failed_constructor_leaves_no_engine_running() -> None:
    with pytest.raises(InvalidUse):
        async with client.AsyncProducer("no group at all"):
            raise AssertionError
    with pytest.raises(InvalidUse):
        await trio.to_thread.run_sync(client.Producer("no group at all").start)


TYPED_USE = """
from collections.abc import Coroutine
from typing import Any, assert_type

from rocketlet import AsyncLitePullConsumer, AsyncProducer, LitePullConsumer, Message, MessageQueue, Producer
from rocketlet import ReceivedMessage, SendResult, Transaction, TransactionProducer, TransactionState


def in_threads(producer: Producer, consumer: LitePullConsumer, queue: MessageQueue) -> None:
    assert_type(producer.send(Message("T", b"x"), queue=queue), SendResult)
    assert_type(producer.max_offset(queue), int)
    assert_type(consumer.poll(timeout=1.0), list[ReceivedMessage])
    producer.send(Message("T", b"x"), queues=queue)  # type: ignore[call-arg]


async def on_a_loop(producer: AsyncProducer, consumer: AsyncLitePullConsumer, queue: MessageQueue) -> None:
    assert_type(await producer.send(Message("T", b"x"), queue=queue), SendResult)
    not_awaited = assert_type(producer.max_offset(queue), Coroutine[Any, Any, int])
    await not_awaited
    assert_type(await consumer.poll(timeout=1.0), list[ReceivedMessage])


def execute(transaction: Transaction) -> TransactionState:
    return TransactionState.COMMIT


async def execute_in_a_task(transaction: Transaction) -> TransactionState:
    return TransactionState.COMMIT


def transactions(producer: TransactionProducer) -> None:
    producer.send_in_transaction(Message("T", b"x"), execute)
    producer.send_in_transaction(Message("T", b"x"), execute_in_a_task)  # type: ignore[arg-type]
"""


@pytest.mark.slow
@pytest.mark.process
def test_type_checkers_know_the_return_types(tmp_path: Path) -> None:
    program = tmp_path / "typed_use.py"
    program.write_text(TYPED_USE)
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", str(program)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout
