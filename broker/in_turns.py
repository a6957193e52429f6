"""Work on large tables in turns, so that the loop is free in between.

A table of 200,000 rows takes 50 to 200 ms to go through; meanwhile nobody would be answered.

Java: none; its tables are gone through in threads of their own
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import trio

from rocketlet.common.clock import stopwatch
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.protocol.queue import WrittenMap, object_map

Item = TypeVar("Item")

AT_ONCE = 0.005
"""Seconds without letting other tasks run."""
_BETWEEN_LOOKS = 32  # items until the clock is looked at again
PIECE = 500
"""Rows that are written as JSON at once: about a millisecond."""


class Turns:
    """For work that is a coroutine itself: `pause` between its steps."""

    def __init__(self) -> None:
        self._end = stopwatch() + AT_ONCE

    async def pause(self) -> None:
        """Let other tasks run if it is their turn."""
        if stopwatch() > self._end:
            await trio.lowlevel.checkpoint()
            self._end = stopwatch() + AT_ONCE


async def in_turns(items: Iterable[Item], work: Callable[[Item], object]) -> None:
    """Do the work for each item; from time to time other tasks run before the next.

    Requires: those tasks do not disturb the iteration, so that `items` is a list, say, or a generator over one.
    """
    turns = Turns()
    for number, item in enumerate(items):
        work(item)
        if number % _BETWEEN_LOOKS == 0:
            await turns.pause()


async def written(table: Mapping[MessageQueue, Any]) -> WrittenMap:
    """A map by queues, which may be 65,535, with its JSON."""
    turns, pieces = Turns(), []
    for part in in_pieces(table.items()):
        await turns.pause()
        pieces.append(object_map(dict(part)))
    await trio.lowlevel.checkpoint()  # for what follows copies all of it
    found = WrittenMap(table, pieces)
    await trio.lowlevel.checkpoint()
    return found


def in_pieces(rows: Iterable[Item]) -> Iterator[list[Item]]:
    """Some of them at a time."""
    left = iter(rows)
    while piece := list(islice(left, PIECE)):
        yield piece


async def joined(pieces: Iterable[bytes]) -> bytes:
    """Text of which each piece takes a moment to make."""
    turns, made = Turns(), []
    for piece in pieces:
        made.append(piece)
        await turns.pause()
    return b"".join(made)
