"""Threads of one process are woken one after the other, so that they do not fight for the interpreter's lock.

An answer may end the waits of twenty threads. Woken together, all of them sleep a second time, for the interpreter's
lock, and each is woken once more, often on another core: half of what a send costs with 64 threads. Here each thread
that runs again, and so has that lock, wakes the next one at once. That one is up when the first goes to sleep, and no
other is. No thread waits for another one's work: only for it to get the lock, which all of them need anyway.

The wake-up of the engine's loop takes its place in the same queue, behind the threads that are due: so the loop gets
the sends of all of them in one turn, as it would if all of them waited for the lock.

Each wake-up that was called leads to one call of `next`. That is all the order there is, and no lock guards it: `next`
may be called once too often, by any thread at any moment, which wakes one more thread early. The main thread takes no
part, because there a signal may raise between any two steps. Another thread may be made to raise between any two steps
too, and its call of `next` is missing then; the engine's thread makes up for it with one of its own each second.

Java: none
"""

from __future__ import annotations

import threading
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import call
from typing import TypeAlias

Wake: TypeAlias = Callable[[], object]


class WakeQueue:
    """Who is to be woken. One for all clients that share an engine's thread."""

    def __init__(self) -> None:
        self._due: deque[Wake] = deque()
        # Takes the first out and calls it in one step of the interpreter, IndexError if there is none: a thread that is
        # made to raise between the two would leave somebody asleep whom nobody knows of.
        self._wake_first = map(call, iter(self._due.popleft, None)).__next__
        self._busy = False
        self._main_thread = threading.main_thread().ident

    def in_main_thread(self) -> bool:
        """Whether the caller must neither sleep nor add here."""
        return get_ident() == self._main_thread

    def add(self, wake: Wake) -> None:
        """Call this when its turn comes, maybe at once. It must lead to one call of `next`."""
        self._due.append(wake)
        if not self._busy:
            self.next()

    def next(self) -> None:
        """Whoever was woken last runs; wake the next."""
        while True:
            # Busy before the look, and idle before one more look: what is added in between is seen by one of the two.
            self._busy = True
            try:
                self._wake_first()
            except IndexError:
                self._busy = False
                if not self._due:
                    return
            else:
                return

    def sleep(self, begin: Callable[[Wake], bool], take_back: Callable[[Wake], bool], timeout: float | None) -> bool:
        """Sleep in this thread until what `begin` was given is called; False if the time was up first.

        `begin` returns False if there is nothing to wait for. `take_back` returns False if it was too late for that.
        """
        lock = allocate_lock()
        lock.acquire()
        limit = -1 if timeout is None else max(0.0, timeout)
        if self.in_main_thread():
            return not begin(lock.release) or lock.acquire(timeout=limit) or not take_back(lock.release)
        wake = partial(self.add, lock.release)
        if not begin(wake):
            return True
        try:
            if not lock.acquire(timeout=limit):
                if take_back(wake):
                    return False
                lock.acquire()  # its turn is about to come, and the next one's after it
            return True
        finally:  # also if another thread makes this one raise: others would wait for ever
            self.next()
