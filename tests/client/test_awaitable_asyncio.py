"""The awaitable clients under asyncio, over real ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import trio

from rocketlet.client import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    ClientClosed,
    ConsumeFrom,
    InvalidUse,
    Later,
    Message,
    PendingSend,
    ReceivedMessage,
    Refused,
    RequestTimedOut,
    Sql,
    Transaction,
    TransactionState,
)
from rocketlet.client.facades.engine_thread import _open_runs
from tests.support.local_stack import local_stack


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with local_stack(transaction_check_interval=200, transaction_time_out=100) as address:
        yield address


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_many_tasks_send_at_once(namesrv: str) -> None:
    async def test() -> None:
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            results = await asyncio.gather(*(producer.send(Message("gathered", b"%d" % n)) for n in range(200)))
            pending = [producer.send_soon(Message("gathered", b"x")) for _ in range(100)]
            called: asyncio.Queue[str] = asyncio.Queue()
            pending[0].add_done_callback(lambda sent: called.put_nowait(sent.message_id))
            results += [await each for each in pending]
            assert await called.get() == pending[0].message_id
            await producer.send_oneway(Message("gathered", b"x"))
            assert len({(result.queue, result.queue_offset) for result in results}) == 300

    run(test)


def test_a_failing_callback_holds_up_no_other_result(namesrv: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(sent: PendingSend) -> None:
        raise ValueError("a user's mistake")

    async def test() -> None:
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            for pending in [producer.send_soon(Message("gathered", b"x"), fail) for _ in range(20)]:
                assert (await pending).message_id == pending.message_id

    run(test)
    assert caplog.text.count("a callback raised") == 20


def test_a_cancelled_wait_does_no_harm(namesrv: str) -> None:
    async def test() -> None:
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(producer.request(Message("nobody", b"x"), timeout=20), 0.3)
            with pytest.raises(RequestTimedOut):
                await producer.request(Message("nobody", b"x"), timeout=0.3)
            task = asyncio.create_task(producer.send(Message("nobody", b"x")))
            await asyncio.sleep(0)
            task.cancel()
            await producer.send(Message("nobody", b"y"))

    run(test)


@pytest.mark.parametrize("failures", [0, pytest.param(1, marks=pytest.mark.slow)])  # the shortest delay is a second
def test_listeners_run_on_the_users_loop(namesrv: str, failures: int) -> None:
    name = f"listened-{failures}"

    async def test() -> None:
        got: set[str] = set()
        tries: list[int] = []
        everything = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def listener(message: ReceivedMessage) -> Later | None:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0.01)
            if message.body == b"7":
                tries.append(message.reconsume_times)
                if len(tries) <= failures:
                    return Later(delay_level=1)
            got.add(message.message_id)
            if len(got) == 50:
                everything.set()
            return None

        async with AsyncProducer("p", namesrv=namesrv) as producer:
            sent = [await producer.send(Message(name, b"%d" % n)) for n in range(50)]
        async with AsyncPushConsumer(
            name,
            listener,
            topics={name: "*"},
            namesrv=namesrv,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            threads=5,
        ) as consumer:
            await everything.wait()
            await consumer.commit()
            consumer.suspend()
            consumer.resume()
        assert got == {result.message_id for result in sent}
        assert tries == list(range(failures + 1))

    run(test)


def test_messages_can_be_iterated(namesrv: str) -> None:
    async def test() -> None:
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            await producer.create_topic("iterated", 2)
            sent = [await producer.send(Message("iterated", b"%d" % n)) for n in range(20)]
        got = set()
        async with AsyncLitePullConsumer(
            "iterated", topics={"iterated": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
        ) as consumer:
            async for message in consumer:
                got.add(message.message_id)
                if len(got) == 20:
                    break
            assert await consumer.poll(0.1) == []
        assert got == {result.message_id for result in sent}
        async with AsyncPullConsumer("pulled", namesrv=namesrv) as puller:
            queues = await puller.queues("iterated")
            assert sum([await puller.max_offset(queue) for queue in queues]) == 20

    run(test)


def test_transactions_run_and_are_checked_on_the_users_loop(namesrv: str) -> None:
    async def test() -> None:
        checked = asyncio.Event()

        async def execute(transaction: Transaction) -> TransactionState:
            await asyncio.sleep(0)
            return TransactionState.UNKNOWN

        async def check(message: ReceivedMessage) -> TransactionState:
            await asyncio.sleep(0)
            checked.set()
            return TransactionState.COMMIT

        async with AsyncTransactionProducer("tx", check, namesrv=namesrv) as producer:
            result = await producer.send_in_transaction(Message("agreed", b"x"), execute)
            assert result.state is TransactionState.UNKNOWN
            await checked.wait()

    run(test)


def test_a_failed_start_is_raised(namesrv: str) -> None:
    async def test() -> None:
        async def listener(message: ReceivedMessage) -> None:
            return None

        async with AsyncProducer("p", namesrv=namesrv) as producer:
            await producer.create_topic("bad", 1)
            await asyncio.sleep(0.5)
        with pytest.raises(Refused):
            async with AsyncPushConsumer("bad", listener, topics={"bad": Sql("a > AND")}, namesrv=namesrv):
                raise AssertionError("it started")
        with pytest.raises(ValueError, match="mine"):
            async with AsyncProducer("p", namesrv=namesrv) as producer:
                raise ValueError("mine")
        with pytest.raises(ClientClosed):
            await producer.send(Message("T", b"x"))

    run(test)


def test_batches_can_be_iterated(namesrv: str) -> None:
    async def test() -> None:
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            sent = {(await producer.send(Message("by-columns", b"%d" % n))).message_id for n in range(20)}
        consumer = AsyncLitePullConsumer(
            "by-columns", topics={"by-columns": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
        )
        async with consumer:
            async for batch in consumer.batches():
                sent.difference_update(batch.message_ids)
                if not sent:
                    break

    run(test)


def test_a_cancelled_start_leaves_nothing_running(namesrv: str) -> None:
    async def test() -> None:
        # The other one keeps the engine's loop, which would end what is left on it.
        async with AsyncProducer("other", namesrv=namesrv) as other:
            running = len(_open_runs)
            for turns in range(4):
                producer = AsyncProducer("cancelled", namesrv=namesrv)
                entering = asyncio.create_task(producer.__aenter__())
                for _ in range(turns):
                    await asyncio.sleep(0)
                entering.cancel()
                try:
                    await entering
                except asyncio.CancelledError:
                    pass
                else:  # the engine's thread was faster
                    await producer.__aexit__(None, None, None)
                await other.publish_queues("TBW102")  # jobs of the loop run in order: the start has ended by now
                assert len(_open_runs) == running

    run(test)


def test_a_client_is_not_entered_twice(namesrv: str) -> None:
    async def test() -> None:
        producer = AsyncProducer("p", namesrv=namesrv)
        async with producer:
            with pytest.raises(InvalidUse, match="is running already; enter its block once"):
                await producer.__aenter__()
            await producer.send(Message("gathered", b"x"))
        entering = [asyncio.create_task(producer.__aenter__()) for _ in range(2)]
        first, second = await asyncio.gather(*entering, return_exceptions=True)
        assert first is producer
        assert isinstance(second, InvalidUse)
        await producer.__aexit__(None, None, None)

    run(test)


def test_a_call_from_another_loop_says_so(namesrv: str) -> None:
    async def test() -> None:
        async with AsyncProducer("p", namesrv=namesrv) as producer:
            sent = await producer.send(Message("gathered", b"x"))
            pending = producer.send_soon(Message("gathered", b"y"))

            async def elsewhere() -> None:
                async def wait() -> None:
                    await pending

                calls = producer.send(Message("gathered", b"x")), producer.max_offset(sent.queue)
                for call in calls:
                    with pytest.raises(InvalidUse, match="another event loop"):
                        await call
                if not pending.done:
                    with pytest.raises(InvalidUse, match="another event loop"):
                        await wait()

            await asyncio.to_thread(asyncio.run, elsewhere())
            await asyncio.to_thread(trio.run, elsewhere)
            # A thread without a loop may send, and wait for it.
            in_a_thread = await asyncio.to_thread(lambda: producer.send_soon(Message("gathered", b"z")).result(10))
            assert in_a_thread.message_id

    run(test)
