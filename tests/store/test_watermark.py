from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.watermark import Watermark


async def test_waiters_are_woken_in_order() -> None:
    mark, woken = Watermark(10), []

    async def wait(offset: int) -> None:
        await mark.reach(offset)
        woken.append(offset)

    async with trio.open_nursery() as nursery:
        for offset in (30, 12, 20, 12):
            nursery.start_soon(wait, offset)
        await trio.testing.wait_all_tasks_blocked()
        assert mark.statistics().waiting == 4
        mark.advance(11)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        mark.advance(20)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(woken) == [12, 12, 20]
        mark.advance(5)
        assert mark.value == 20
        mark.advance(100)
    assert sorted(woken) == [12, 12, 20, 30]
    assert repr(mark) == "<Watermark 100, 0 waiting>"


async def test_a_reached_offset_does_not_wait() -> None:
    mark = Watermark(10)
    with trio.testing.assert_checkpoints():
        await mark.reach(10)


async def test_a_cancelled_waiter_leaves_nothing() -> None:
    mark = Watermark()
    async with trio.open_nursery() as nursery:
        for offset in range(1, 101):
            nursery.start_soon(mark.reach, offset)
        await trio.testing.wait_all_tasks_blocked()
        assert mark.statistics().waiting == 100
        nursery.cancel_scope.cancel()
    assert mark.statistics().waiting == 0
    assert mark._heap == []


async def test_a_failure_reaches_present_and_later_waiters() -> None:
    mark, seen = Watermark(5), []

    async def wait(offset: int) -> None:
        try:
            await mark.reach(offset)
        except OSError as error:
            seen.append((offset, str(error)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 9)
        nursery.start_soon(wait, 7)
        await trio.testing.wait_all_tasks_blocked()
        mark.fail(OSError("gone"))
    await wait(6)
    await mark.reach(5)
    assert sorted(seen) == [(6, "gone"), (7, "gone"), (9, "gone")]
    assert str(mark.failure) == "gone"


def test_functions_are_called_lowest_first_and_once() -> None:
    mark, called = Watermark(), []
    for number, offset in enumerate((5, 3, 5, 8)):
        mark.call_at(offset, lambda number=number: called.append(number))  # type: ignore[misc]
    mark.advance(5)
    assert called == [1, 0, 2]
    mark.advance(7)
    assert called == [1, 0, 2]
    mark.advance(8)
    assert called == [1, 0, 2, 3]


def test_cancelling_after_the_call_has_no_effect() -> None:
    mark, called = Watermark(), []
    waiter = mark.call_at(1, lambda: called.append(1))
    mark.advance(1)
    waiter.cancel()
    waiter.cancel()
    assert called == [1]
    assert mark.statistics().waiting == 0
    with pytest.raises(AssertionError):
        mark.call_at(1, lambda: None)


def test_a_callback_may_wait_again() -> None:
    mark, called = Watermark(), []

    def again() -> None:
        called.append(mark.value)
        mark.call_at(mark.value + 1, again)

    mark.call_at(1, again)
    for value in (1, 2, 5):
        mark.advance(value)
    assert called == [1, 2, 5]
    assert mark.statistics().waiting == 1


@given(st.lists(st.tuples(st.sampled_from(["wait", "cancel", "advance"]), st.integers(0, 30)), max_size=60))
def test_agrees_with_a_simple_list(steps: list[tuple[str, int]]) -> None:
    """Invariant: exactly the waiters at or below the value were called, once; cancelled ones never."""
    mark = Watermark()
    waiting: dict[int, tuple[int, object]] = {}
    called: list[int] = []
    for number, (what, value) in enumerate(steps):
        if what == "wait" and value > mark.value:
            waiting[number] = (value, mark.call_at(value, lambda number=number: called.append(number)))  # type: ignore[misc]
        elif what == "cancel" and waiting:
            key = sorted(waiting)[value % len(waiting)]
            waiting.pop(key)[1].cancel()  # type: ignore[attr-defined]
        elif what == "advance":
            due = sorted((offset, key) for key, (offset, _) in waiting.items() if offset <= value)
            before = len(called)
            mark.advance(value)
            if due:
                assert called[before:] == [key for _, key in due]
            for _, key in due:
                del waiting[key]
        assert mark.statistics().waiting == len(waiting)
