"""How long one step of a task holds the loop, in CPU time of its thread, without what garbage collection adds.

    holds = Holds()
    trio.run(main, instruments=[holds])
    holds.longest          # by the request that was handled, or by the name of the task

Java: none
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio


class Holds(trio.abc.Instrument):
    """The longest step of each kind, in seconds."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self._kind = ""
        self._kinds: dict[trio.lowlevel.Task, str] = {}
        self._step_began = self._collected = self._collecting = 0.0

    def __enter__(self) -> Holds:
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_collection)

    def attribute_step(self, kind: str) -> None:
        """What this step is about; the last one counts."""
        self._kind = kind

    @contextmanager
    def attribute_task(self, kind: str) -> Iterator[None]:
        """Every step of this task is about that, until the block ends."""
        task = trio.lowlevel.current_task()
        self._kind = self._kinds[task] = kind
        try:
            yield
        finally:
            del self._kinds[task]

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._kind = self._kinds.get(task, "")
        self._collected, self._step_began = 0.0, time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        spent = time.thread_time() - self._step_began - self._collected
        kind = self._kind or task.name
        if spent > self.longest.get(kind, 0.0):
            self.longest[kind] = spent

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting
