"""Says on stderr how far a job is, since a terabyte takes a while: tasks done, and bytes where we know them.

On a terminal one line changes in place; elsewhere a new one comes every ten seconds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tell(text: str) -> None:
    """A line for the user at the terminal; results go to stdout."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def progress(session: SparkSession, task_name: str, size: int = 0) -> Iterator[None]:
    """Reports on the Spark jobs that the body of the `with` starts; `size` is what all tasks together read."""
    context = session.sparkContext
    is_done = threading.Event()
    is_terminal = sys.stderr.isatty()

    def follow() -> None:
        tracker = context.statusTracker()
        last = ""
        while not is_done.wait(0.5 if is_terminal else 10):
            total = finished = 0
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    total, finished = total + info.numTasks, finished + info.numCompletedTasks
            amount = f", about {size * finished // total >> 20} of {size >> 20} MiB" if size >> 20 and total else ""
            line = f"{task_name}: {finished} of {total} tasks{amount}"
            if total and line != last:
                sys.stderr.write(f"\r\x1b[K{line}" if is_terminal else f"{line}\n")
                sys.stderr.flush()
                last = line
        if is_terminal and last:
            sys.stderr.write("\r\x1b[K")

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
