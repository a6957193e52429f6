"""The same for many brokers at once, but not for any number of them.

One that does not answer costs a time-out, so brokers are not asked one after the other. A name server decides how many
there are, so neither are all of them asked at once: each takes a task, a connection and perhaps a thread that looks up
its name.

Java: none; there a thread asks one broker after the other
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import TypeVar

import trio

AT_ONCE = 64

Item = TypeVar("Item")


async def for_each(items: Collection[Item], function: Callable[[Item], Awaitable[object]]) -> None:
    """Await `function(item)` for each item, AT_ONCE at a time, begun in their order. `function` raises nothing."""

    async def work(remaining: Iterator[Item]) -> None:
        for item in remaining:
            await function(item)

    if len(items) == 1:
        await work(iter(items))
        return
    remaining = iter(items)
    async with trio.open_nursery() as nursery:
        for _ in range(min(len(items), AT_ONCE)):
            nursery.start_soon(work, remaining)
