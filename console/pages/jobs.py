"""The progress of a long change, and a button to stop it.

Java: (none)
"""

from __future__ import annotations

from starlette.responses import Response

from rocketlet.console.jobs import Job
from rocketlet.console.web import Refused, View


async def job(view: View) -> Response:
    return view.page("job.html", job=_job(view))


def _job(view: View) -> Job:
    job = view.console.jobs.get(view.part("id"))
    if job is None:
        raise Refused(view.t("There is no such job, or it ended long ago."), 404)
    return job


async def stop(view: View) -> Response:
    job = _job(view)

    async def do() -> str:
        job.scope.cancel()
        return view.t("It is told to stop.")

    return await view.change("stopJob", {"job": job.id, "about": job.about}, do, f"/jobs/{job.id}")
