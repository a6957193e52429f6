from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

import pytest

from rocketlet.client.errors import TimedOut
from rocketlet.client.sending.send import Send
from rocketlet.client.sending.send_result import SendResult, SendStatus
from rocketlet.client.wake_queue import WakeQueue
from rocketlet.common.message import MessageQueue

LONG = 60.0


def start(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def cannot_take_back(_: object) -> bool:
    return False


def test_each_is_woken_when_the_one_before_it_runs() -> None:
    wakes = WakeQueue()
    woken: list[str] = []
    for name in "abc":
        wakes.add(partial(woken.append, name))
    assert woken == ["a"]
    wakes.next()
    assert woken == ["a", "b"]
    wakes.next()
    wakes.next()
    assert woken == ["a", "b", "c"]
    wakes.add(lambda: woken.append("d"))
    assert woken == ["a", "b", "c", "d"], "after the last one has run nobody waits for a turn"


def test_one_call_of_next_too_many_loses_nobody() -> None:
    wakes = WakeQueue()
    woken: list[str] = []
    wakes.next()
    wakes.add(lambda: woken.append("a"))
    wakes.next()
    wakes.next()
    wakes.add(lambda: woken.append("b"))
    assert woken == ["a", "b"]


def test_a_wake_up_that_needs_nobody_to_run_calls_next_itself() -> None:
    wakes = WakeQueue()
    woken: list[str] = []
    wakes.add(lambda: woken.append("a"))
    wakes.add(wakes.next)
    wakes.add(lambda: woken.append("b"))
    wakes.next()
    assert woken == ["a", "b"]


def test_a_thread_that_was_woken_wakes_the_next() -> None:
    wakes = WakeQueue()
    begun: SimpleQueue[Callable[[], object]] = SimpleQueue()
    ended: SimpleQueue[bool] = SimpleQueue()

    def begin(wake: Callable[[], object]) -> bool:
        begun.put(wake)
        return True

    for _ in range(8):
        start(lambda: ended.put(wakes.sleep(begin, cannot_take_back, None)))
    for wake in [begun.get(timeout=LONG) for _ in range(8)]:
        wake()
    assert all(ended.get(timeout=LONG) for _ in range(8))


def test_a_thread_with_nothing_to_wait_for_does_not_sleep() -> None:
    wakes = WakeQueue()
    ended: SimpleQueue[bool] = SimpleQueue()
    start(lambda: ended.put(wakes.sleep(lambda wake: False, cannot_take_back, None)))
    assert ended.get(timeout=LONG)
    assert wakes.sleep(lambda wake: False, cannot_take_back, None)


@pytest.mark.parametrize("in_main", [True, False])
def test_a_thread_whose_time_is_up_leaves(in_main: bool) -> None:
    wakes = WakeQueue()
    taken_back: SimpleQueue[object] = SimpleQueue()
    ended: SimpleQueue[bool] = SimpleQueue()

    def sleep() -> None:
        ended.put(wakes.sleep(lambda wake: True, lambda wake: not taken_back.put(wake), -1.0))

    if in_main:
        sleep()
    else:
        start(sleep)
    assert not ended.get(timeout=LONG)
    assert taken_back.qsize() == 1


def test_a_thread_that_is_due_when_its_time_is_up_passes_the_turn_on() -> None:
    wakes = WakeQueue()
    is_due, next_woken = threading.Event(), threading.Event()
    ended: SimpleQueue[bool] = SimpleQueue()
    wakes.add(lambda: None)  # somebody was woken and does not run yet

    def begin(wake: Callable[[], object]) -> bool:
        wake()
        is_due.set()
        return True

    start(lambda: ended.put(wakes.sleep(begin, cannot_take_back, 0)))
    assert is_due.wait(LONG)
    wakes.add(next_woken.set)
    assert not next_woken.is_set()
    wakes.next()
    assert ended.get(timeout=LONG)
    assert next_woken.wait(LONG)


def test_the_main_thread_is_woken_out_of_turn() -> None:
    wakes = WakeQueue()
    wakes.add(lambda: None)  # somebody was woken and never runs

    def begin(wake: Callable[[], object]) -> bool:
        start(wake)
        return True

    assert wakes.sleep(begin, cannot_take_back, None)


def test_nobody_is_forgotten_while_some_run_out_of_time() -> None:
    wakes = WakeQueue()
    handed: SimpleQueue[Send | None] = SimpleQueue()
    stored = SendResult(SendStatus.SEND_OK, "id", "", MessageQueue("T", "broker-a", 0), 0)

    def wait_often(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(100):
            send = Send()
            send.topic = "T"
            handed.put(send)
            with suppress(TimedOut):
                assert send.wait(wakes, chance.choice([None, 0.0, 0.0001])) is stored

    def settle_all() -> None:
        while (send := handed.get()) is not None:
            send.settle(stored, None)

    engine = start(settle_all)
    threads = [start(partial(wait_often, seed)) for seed in range(16)]
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    handed.put(None)
    engine.join(LONG)
