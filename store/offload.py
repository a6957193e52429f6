"""Calls that wait for a disk: run in a worker thread, or in place where the disk is in memory.

In place because trio's autojump clock lets time-outs fire while a worker thread is busy: tests in virtual time must not
have one.

Java: common/ServiceThread.java
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from rocketlet.store.disk import Disk

Result = TypeVar("Result")


async def offload(disk: Disk, function: Callable[[], Result]) -> Result:
    """Run a function that waits for this disk. Cancellation does not interrupt it: files are never left half
    flushed."""
    if disk.inline:
        await trio.lowlevel.checkpoint()
        return function()
    return await trio.to_thread.run_sync(function)


async def offload_in_steps(disk: Disk, function: Callable[[Callable[[], None]], Result]) -> Result:
    """Run what may take minutes. It is handed a call to make between steps, where a cancellation interrupts it."""
    if disk.inline:
        await trio.lowlevel.checkpoint()
        return function(_nothing)
    return await trio.to_thread.run_sync(function, trio.from_thread.check_cancelled)


def _nothing() -> None:
    pass
