"""Restarting a broker within its process: if replicas elect their master, one that has to start again from its files
does so here, at the same address.

Java: none; a Java broker truncates its log while it runs
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

log = logging.getLogger("rocketlet.broker.lives")

_SHORTEST_RUN_SECONDS = 1.0  # so that a broker that fails at once does not fail a thousand times a second


class RestartableBroker(Protocol):
    """A broker that can be run again."""

    @property
    def restart_reason(self) -> str:
        """Why it has to restart; empty if it has ended for good."""

    @property
    def bound(self) -> str:
        """The address that it listened on."""

    async def run(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve until cancelled, or until it has to restart."""


async def run_restarting(
    make: Callable[[str], RestartableBroker], *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run brokers one after the other until cancelled. `make` gets the address that the previous one listened on.

    Reports the address for clients as started.
    """
    bound = ""
    while True:
        life = make(bound)
        start = trio.current_time()
        await life.run(task_status=trio.TASK_STATUS_IGNORED if bound else task_status)
        if not life.restart_reason:
            return
        bound = life.bound
        log.warning("this broker restarts: %s", life.restart_reason)
        await trio.sleep(max(start + _SHORTEST_RUN_SECONDS - trio.current_time(), 0))
