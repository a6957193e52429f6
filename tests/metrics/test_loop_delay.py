"""How late the event loop is."""

from __future__ import annotations

import trio
import trio.testing

from rocketlet.metrics.loop_delay import BOUNDS, PAUSE, LoopDelay
from rocketlet.metrics.page import Page


def counts(delay: LoopDelay) -> dict[str, float]:
    page = Page(100)
    assert list(delay.fill(page)) == [None]
    samples = page.histogram("rocketlet_event_loop_delay_seconds", "").samples
    return {labels[0] if labels else suffix: value for (suffix, labels), value in samples.items()}


def test_a_delay_is_counted_in_its_bucket_and_above() -> None:
    delay = LoopDelay()
    for late in (0.0, -0.001, 0.02, 0.3, 60.0):
        delay.note(late)
    found = counts(delay)
    assert (found["0.001"], found["0.025"], found["0.5"], found["5.0"], found["+Inf"]) == (2, 3, 4, 4, 5)
    assert len(found) == len(BOUNDS) + 2


async def test_it_measures_on_its_own(autojump_clock: trio.testing.MockClock) -> None:
    delay = LoopDelay()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(delay.run)
        await trio.sleep(PAUSE * 4.5)
        nursery.cancel_scope.cancel()
    assert counts(delay)["_count"] == 4
