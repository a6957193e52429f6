"""A nursery for tasks that must outlive a cancellation: draining connections, unregistering brokers.

Java: none
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def shelter() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are shielded from cancellation. They are cancelled when the `async with` block ends.

    Not with `nursery.start`: if that were cancelled before it returns, a shielded task would be waited for forever.
    """
    scope = trio.CancelScope(shield=True)
    nurseries: list[trio.Nursery] = []
    opened = trio.Event()

    async def hold() -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                nurseries.append(nursery)
                opened.set()
                await trio.sleep_forever()

    async with trio.open_nursery() as holder:
        holder.start_soon(hold)
        try:
            await opened.wait()
            yield nurseries[0]
        finally:
            scope.cancel()
