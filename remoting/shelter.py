"""A nursery for what must outlive a cancellation: connections that drain, brokers that unregister.

Java: none
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def shelter() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks a cancellation does not reach. They are cancelled when the `async with` block ends.

    Not by `nursery.start`: where that is cancelled before it returns, a shielded task would be waited for without end.
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
