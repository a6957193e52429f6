"""A broker's lives within one process: where replicas elect their master, one that has to begin anew from its files
does so here, at the same address.

Java: none; a Java broker cuts its log while it runs
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import trio

log = logging.getLogger("rocketlet.broker.lives")

_SHORTEST_LIFE_SECONDS = 1.0  # so that what fails at once does not fail a thousand times a second


class OneLife(Protocol):
    """A broker."""

    @property
    def reborn(self) -> str:
        """Why it has to begin anew; empty where it has ended for good."""

    @property
    def bound(self) -> str:
        """The address that it listened on."""

    async def run(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve until cancelled, or until it has to begin anew."""


async def run_lives(
    make: Callable[[str], OneLife], *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run brokers one after the other until cancelled. `make` is given the address that the one before listened on.

    Starts with the address that clients are told.
    """
    bound = ""
    while True:
        life = make(bound)
        began = trio.current_time()
        await life.run(task_status=trio.TASK_STATUS_IGNORED if bound else task_status)
        if not life.reborn:
            return
        bound = life.bound
        log.warning("this broker begins anew: %s", life.reborn)
        await trio.sleep(max(began + _SHORTEST_LIFE_SECONDS - trio.current_time(), 0))
