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
    found = view.console.jobs.get(view.part("id"))
    if found is None:
        raise Refused(view.t("There is no such job, or it ended long ago."), 404)
    return found


async def stop(view: View) -> Response:
    one = _job(view)

    async def do() -> str:
        one.scope.cancel()
        return view.t("It is told to stop.")

    return await view.change("stopJob", {"job": one.id, "about": one.about}, do, f"/jobs/{one.id}")
