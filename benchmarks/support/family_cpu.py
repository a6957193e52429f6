"""The cost of work done by several processes: wall time, and CPU of this process and its descendants. Linux only."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Cost:
    """Seconds of wall time, and of CPU in all processes involved."""

    wall: float
    cpu: float


def cost_of(work: Callable[[], Any]) -> Cost:
    """The cost of work in processes that keep running: the JVM, its Python workers, and this one."""
    start_time, cpu = time.perf_counter(), family_cpu(os.getpid())
    work()
    return Cost(time.perf_counter() - start_time, family_cpu(os.getpid()) - cpu)


def family_cpu(pid: int) -> float:
    """CPU time of a process and its descendants; ended ones count with the parent that waited for them."""
    _, cpu = _processes()
    return sum(cpu.get(member, 0.0) for member in family(pid))


def family(pid: int) -> set[int]:
    """A process and its descendants."""
    parents, _ = _processes()
    pids, more = {pid}, True
    while more:
        children = {child for child, parent in parents.items() if parent in pids} - pids
        pids, more = pids | children, bool(children)
    return pids


def _processes() -> tuple[dict[int, int], dict[int, float]]:
    """Parent and CPU time of every process."""
    parents: dict[int, int] = {}
    cpu: dict[int, float] = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # ended meanwhile
            parents[int(folder.name)] = int(fields[1])
            cpu[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return parents, cpu
