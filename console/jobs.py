"""Changes that take a while, such as sending thousands of dead letters again: run in the background of the pages that
start them.

A job reports its progress, can be stopped, and continues when the browser leaves. It ends with the console.

Java: (none; rocketmq-dashboard has the browser wait)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from rocketlet.common.errors import RocketletError, leaves

log = logging.getLogger("rocketlet.console.jobs")

MAX_RUNNING = 8
MAX_KEPT = 50


@dataclass(slots=True)
class Job:
    """`total` is 0 while unknown. `outcome` is empty while it runs."""

    id: str
    about: str
    link: str
    done: int = 0
    total: int = 0
    outcome: str = ""
    bad: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def runs(self) -> bool:
        return not self.outcome


class TooManyJobs(RocketletError):
    """The maximum number of jobs is running."""


class Jobs:
    """All jobs of one console, in their own nursery."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._jobs: dict[str, Job] = {}
        self._last_number = 0

    def begin(self, about: str, link: str, work: Callable[[Job], Awaitable[str]], ended: Callable[[Job], None]) -> Job:
        """`work` returns the outcome; `ended` is always called at its end. Raises TooManyJobs."""
        if sum(job.runs for job in self._jobs.values()) >= MAX_RUNNING:
            raise TooManyJobs(f"{MAX_RUNNING} jobs run already; wait for one of them, or stop it")
        while len(self._jobs) >= MAX_KEPT:
            del self._jobs[next(name for name, job in self._jobs.items() if not job.runs)]
        self._last_number += 1
        job = self._jobs[str(self._last_number)] = Job(str(self._last_number), about, link)
        self._nursery.start_soon(self._run, job, work, ended)
        return job

    def start_in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task that feeds a page while it is sent."""
        self._nursery.start_soon(work)

    def get(self, name: str) -> Job | None:
        return self._jobs.get(name)

    def of(self, link: str) -> list[Job]:
        """The jobs started by a page, newest first."""
        return [job for job in reversed(self._jobs.values()) if job.link == link]

    async def _run(self, job: Job, work: Callable[[Job], Awaitable[str]], ended: Callable[[Job], None]) -> None:
        outcome = ""
        try:
            with job.scope:
                outcome = await work(job)
        except (RocketletError, ExceptionGroup) as error:
            outcome, job.bad = "; ".join(str(leaf) for leaf in leaves(error)), True
        except Exception as error:
            log.exception("the job %s failed", job.about)
            outcome, job.bad = f"{type(error).__name__}: {error}", True
        if job.scope.cancelled_caught:
            outcome, job.bad = f"stopped after {job.done}", True
        job.outcome = outcome
        ended(job)
