from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest
import trio

from rocketlet.client.errors import ClientClosed, EngineFailed, InvalidUse
from rocketlet.client.facades import engine_thread
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun


@pytest.fixture(autouse=True)
def looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests of who wakes the loop, and when, do not depend on how long they take."""
    monkeypatch.setattr(engine_thread, "_LOOK_EVERY", 3600.0)


@pytest.fixture
def looks_often(looks_seldom: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_thread, "_LOOK_EVERY", 0.001)


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


def in_a_thread(function: Callable[[], object]) -> SimpleQueue[object]:
    """Call it in a thread other than the main one; where its result goes, or its error."""
    ended: SimpleQueue[object] = SimpleQueue()

    def run() -> None:
        try:
            ended.put(function())
        except ClientClosed as error:
            ended.put(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


def test_the_loop_is_woken_after_the_threads_that_were_due_before(engine: EngineThread) -> None:
    ran = threading.Event()
    woken: list[str] = []
    engine.wakes.add(lambda: woken.append("first"))
    engine.wakes.add(lambda: woken.append("second"))
    in_a_thread(lambda: engine.post(ran.set)).get(timeout=60)
    assert not ran.is_set()
    assert woken == ["first"]
    engine.wakes.next()
    assert woken == ["first", "second"]
    assert not ran.is_set()
    engine.wakes.next()
    assert ran.wait(60)
    engine.wakes.add(lambda: woken.append("third"))
    assert woken == ["first", "second", "third"], "the loop has passed its turn on"


def test_the_main_thread_wakes_the_loop_at_once(engine: EngineThread) -> None:
    engine.wakes.add(lambda: None)  # a thread that was woken and does not run
    assert engine.call(add, 1, 2) == 3


@pytest.mark.usefixtures("looks_often")
def test_a_post_that_ctrl_c_cut_short_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EngineThread.acquire()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "_wake_loop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.post(lambda: None)
    ran = threading.Event()
    engine.post(ran.set)
    assert ran.wait(60)
    engine.release()


@pytest.mark.usefixtures("looks_often")
def test_a_thread_that_was_woken_and_never_passes_its_turn_on_holds_up_nobody() -> None:
    engine = EngineThread.acquire()
    engine.wakes.add(lambda: None)
    assert in_a_thread(lambda: engine.call(add, 1, 2)).get(timeout=60) == 3
    engine.release()


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_process_forked_while_a_client_was_being_made_can_make_its_own() -> None:
    program = """
import os
from rocketlet.client.facades.engine_thread import EngineThread
EngineThread._sharing.acquire()
child = os.fork()
if child == 0:
    EngineThread.acquire().release()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "7\n"


def test_what_was_posted_before_the_loop_ended_runs_or_is_refused() -> None:
    engine = EngineThread.acquire()
    ran: list[str] = []
    engine.wakes.add(lambda: None)  # a thread that was woken and does not run, so the loop is not woken for the others
    in_a_thread(lambda: engine.post(lambda: ran.append("posted"))).get(timeout=60)
    called = in_a_thread(lambda: engine.call(add, 1, 2))
    trio.from_thread.run_sync(engine._stop.set, trio_token=engine._token)
    engine._thread.join(60)
    assert ran == ["posted"]
    assert isinstance(called.get(timeout=60), ClientClosed)
    engine.wakes.next()  # the loop's turn comes too late
    with pytest.raises(ClientClosed):
        engine.release()


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
