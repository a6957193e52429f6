"""Work on large tables in steps, so that the loop is free in between.

A table of 200,000 rows takes 50 to 200 ms to iterate; meanwhile nobody would be answered.

Java: none; its tables are gone through in threads of their own
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import trio

from rocketlet.common.clock import stopwatch
from rocketlet.common.json_pieces import in_pieces
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.protocol.queue import WrittenMap, object_map

Item = TypeVar("Item")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

AT_ONCE = 0.005
"""Seconds without letting other tasks run."""
_BUFFER = 64 << 10  # bytes
_BETWEEN_LOOKS = 32  # items between two looks at the clock


class Turns:
    """For work that is itself a coroutine: `pause` between its steps."""

    def __init__(self) -> None:
        self._end = stopwatch() + AT_ONCE

    async def pause(self) -> None:
        """Let other tasks run if it is their turn."""
        if stopwatch() > self._end:
            await trio.lowlevel.checkpoint()
            self._end = stopwatch() + AT_ONCE


async def in_turns(items: Iterable[Item], work: Callable[[Item], object]) -> None:
    """Do the work for each item; other tasks run in between from time to time.

    Requires: those tasks do not disturb the iteration, so that `items` is a list, say, or a generator over one.
    """
    turns = Turns()
    for number, item in enumerate(items):
        work(item)
        if number % _BETWEEN_LOOKS == 0:
            await turns.pause()


async def run_all(steps: Iterable[None]) -> None:
    """All steps of some work; from time to time other tasks run before the next."""
    await in_turns(steps, lambda _: None)


async def run_and_count(steps: Iterable[None]) -> int:
    """The same; returns the number of steps."""
    count = 0

    def count_step(_: None) -> None:
        nonlocal count
        count += 1

    await in_turns(steps, count_step)
    return count


async def encode_in_turns(table: Mapping[MessageQueue, Any]) -> WrittenMap:
    """A map by queues, of which there may be 65,535, with its JSON."""
    turns, pieces = Turns(), []
    for part in in_pieces(table.items()):
        await turns.pause()
        pieces.append(object_map(dict(part)))
    await trio.lowlevel.checkpoint()  # for what follows copies all of it
    result = WrittenMap(table, pieces)
    await trio.lowlevel.checkpoint()
    return result


class Text:
    """A long text as it is made, in buffers: as the body of an answer it need not be joined, which would copy all of it
    at once."""

    def __init__(self) -> None:
        self._buffers: list[bytes] = []
        self._last: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._last.append(piece)
        self._size += len(piece)
        if self._size >= _BUFFER:
            self._close()

    def buffers(self) -> list[bytes]:
        self._close()
        return self._buffers

    def _close(self) -> None:
        self._buffers.append(b"".join(self._last))
        self._last, self._size = [], 0


def one_at_a_time(
    function: Callable[Arguments, Coroutine[Any, Any, Result]],
) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
    """For a handler that goes through many rows: of all its requests that are there at once, one is served.

    10,000 would each hold the loop for their AT_ONCE before anybody else had a turn, and all of their rows. Other
    handlers do not wait with them, as one that reads cold queues from a slow disk may take minutes.
    """
    lock_of_run: trio.lowlevel.RunVar[trio.Lock | None] = trio.lowlevel.RunVar(function.__qualname__, None)

    @wraps(function)
    async def alone(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        lock = lock_of_run.get()
        if lock is None:
            lock = trio.Lock()
            lock_of_run.set(lock)
        async with lock:
            return await function(*args, **kwargs)

    return alone


async def collect(pieces: Iterable[bytes]) -> list[bytes]:
    """Text of which each piece takes a moment to make, in buffers."""
    turns, text = Turns(), Text()
    for piece in pieces:
        text.add(piece)
        await turns.pause()
    return text.buffers()


async def collect_joined(pieces: Iterable[bytes]) -> bytes:
    """The same in one piece."""
    buffers = await collect(pieces)
    await trio.lowlevel.checkpoint()  # for this copies all of it
    return b"".join(buffers)
