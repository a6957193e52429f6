from __future__ import annotations

import threading

import pytest
import trio

from rocketlet.client.errors import ClientClosed, EngineFailed, InvalidUse
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun


@pytest.fixture
def engine() -> object:
    engine = EngineThread.acquire()
    yield engine
    engine.release()


async def add(a: int, b: int) -> int:
    await trio.sleep(0)
    return a + b


def test_it_is_shared_and_ends_with_its_last_user() -> None:
    first, second = EngineThread.acquire(), EngineThread.acquire()
    assert first is second
    first.release()
    assert second.call(add, 1, 2) == 3
    second.release()
    with pytest.raises(ClientClosed):
        second.post(lambda: None)
    third = EngineThread.acquire()
    assert third is not first
    third.release()


def test_exceptions_keep_their_type(engine: EngineThread) -> None:
    async def fail() -> None:
        async with trio.open_nursery():
            raise ValueError("bare")

    with pytest.raises(ValueError, match="bare"):
        engine.call(fail)


def test_a_blocking_call_from_the_loop_itself_is_refused(engine: EngineThread) -> None:
    async def call_inside() -> None:
        engine.call(add, 1, 2)

    with pytest.raises(InvalidUse, match="would wait forever"):
        engine.call(call_inside)


def test_all_functions_posted_from_many_threads_run(engine: EngineThread) -> None:
    ran: list[int] = []

    def post_many() -> None:
        for _ in range(100):
            engine.post(lambda: ran.append(1))

    threads = [threading.Thread(target=post_many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.call(add, 1, 2)
    assert len(ran) == 800


def test_sys_exit_in_a_callback_ends_no_thread(engine: EngineThread) -> None:
    called = threading.Event()

    def leave() -> None:
        raise SystemExit(1)

    engine.call_back(leave)
    engine.call_back(called.set)
    assert called.wait(60)


def test_a_run_is_started_and_stopped(engine: EngineThread) -> None:
    ended: list[str] = []

    async def live(stop: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await stop.wait()
        ended.append("in order")

    run = HostedRun(engine, "test")
    run.start(live)
    run.check()
    run.stop()
    assert ended == ["in order"]


def test_a_run_that_cannot_start_says_why(engine: EngineThread) -> None:
    async def live(stop: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery():
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        HostedRun(engine, "test").start(live)


def test_users_of_a_failed_run_get_its_error(engine: EngineThread, caplog: pytest.LogCaptureFixture) -> None:
    async def live(stop: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        raise KeyError("a mistake")

    run = HostedRun(engine, "consumer g")
    run.start(live)
    with pytest.raises(EngineFailed, match="consumer g has died") as caught:
        run.stop()
    assert isinstance(caught.value.__cause__, KeyError)
    assert "consumer g has died" in caplog.text


def test_callbacks_run_in_order_and_survive_a_failing_one(engine: EngineThread) -> None:
    called: list[int] = []
    done = threading.Event()

    def fail() -> None:
        raise ValueError("a user's mistake")

    engine.call_back(fail)
    engine.call_back(lambda: called.append(1))
    engine.call_back(done.set)
    assert done.wait(10)
    assert called == [1]
