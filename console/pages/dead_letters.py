"""Dead letters: how many each group has, why and since when; resent one by one or all at a limited rate; exported.

Java: rocketmq-dashboard's controller/DlqMessageController.java
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import quote

import trio
from starlette.responses import Response, StreamingResponse

from rocketlet.common.errors import RocketletError
from rocketlet.common.message import ReceivedMessage
from rocketlet.common.topic import DLQ_PREFIX, dlq_topic
from rocketlet.console.cluster import Topic, each
from rocketlet.console.jobs import Job
from rocketlet.console.pages.messages import link_to, listed, preview
from rocketlet.console.web import Refused, View
from rocketlet.tools.admin.reading import row_of
from rocketlet.tools.dead_letters import Wanted, origin_of

log = logging.getLogger("rocketlet.console.pages.dead_letters")

NEWEST = 500  # of each queue, on the page
_EXPORTED_AHEAD = 8  # lines that wait for the browser


async def groups(view: View) -> Response:
    filter_text = view.query_value("filter").lower()
    matching = [
        topic
        for topic in (await view.cluster.topics()).values()
        if topic.kind == "dlq" and filter_text in topic.name.lower()
    ]
    pager = view.paged(matching)

    async def details(topic: Topic) -> tuple[str, int, int]:
        table = await view.cluster.offsets(topic.name)
        count = sum(offsets.maxOffset - offsets.minOffset for offsets in table.values())
        last = max((offsets.lastUpdateTimestamp for offsets in table.values()), default=0)
        return topic.name.removeprefix(DLQ_PREFIX), count, last

    return view.page(
        "dead_letter_groups.html", rows=await each(pager.rows, details), pager=pager, filter=view.query_value("filter")
    )


async def group(view: View) -> Response:
    name = view.part("group")
    listed_letters: list[ReceivedMessage] = []
    async with view.console.dead_letters(name) as letters, aclosing(letters.each(NEWEST)) as each_one:
        async for letter in each_one:
            listed_letters.append(listed(letter))
    listed_letters.sort(key=lambda letter: -letter.store_timestamp)
    return view.page(
        "dead_letters.html", group=name, pager=view.paged(listed_letters), link_to=link_to, preview=preview,
        origin_of=origin_of, jobs=view.console.jobs.of(_link(name)),
    )  # fmt: skip


def _link(group: str) -> str:
    return f"/dead-letters/{quote(group, safe='')}"


async def again(view: View) -> Response:
    """Resend the chosen ones, or all, at a limited rate."""
    name = view.part("group")
    selected = frozenset(view.form.get("several", "").split())
    everything = view.form_value("which") == "all"
    rate = view.number(view.form_value("rate", "100"), view.t("rate"), 1, 10_000)
    topic = view.form_value("target") or None
    if not selected and not everything:
        raise Refused(view.t("Choose messages, or all of them."))

    async def work(job: Job) -> str:
        selection = Wanted() if everything else Wanted(ids=selected)
        job.total = 0 if everything else len(selected)
        async with view.console.dead_letters(name) as letters, aclosing(letters.each()) as each_one:
            due = trio.current_time()
            async for letter in each_one:
                if selection.takes(letter):
                    await trio.sleep_until(due)
                    due = max(due + 1 / rate, trio.current_time() - 1)
                    await letters.send_again(letter, topic)
                    job.done += 1
                    if job.done == job.total:
                        break
        return view.t("{count} dead letters are sent again").format(count=job.done)

    about = {"group": name, "all": everything, "ids": sorted(selected)[:50], "rate": rate, "target": topic or ""}
    return view.begin("resendDeadLetters", about, work, _link(name))


async def export(view: View) -> Response:
    """All as JSON lines."""
    name = view.part("group")
    # Read in the background of the answer: only a few lines are held, however many dead letters there are.
    into, out = trio.open_memory_channel[str](_EXPORTED_AHEAD)

    async def read() -> None:
        try:
            async with into, view.console.dead_letters(name) as letters, aclosing(letters.each()) as each_one:
                async for letter in each_one:
                    row = row_of(letter)
                    row["bodyBase64"] = base64.b64encode(letter.body).decode()
                    await into.send(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        except (trio.BrokenResourceError, RocketletError, ExceptionGroup) as error:
            log.info("the export of dead letters of %s ended early: %r", name, error)

    async def lines() -> AsyncIterator[str]:
        async with out:
            async for line in out:
                yield line

    view.console.jobs.start_in_background(read)

    response = StreamingResponse(lines(), media_type="application/x-ndjson")
    safe = "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in dlq_topic(name))
    response.headers["Content-Disposition"] = f'attachment; filename="{safe}.jsonl"'
    return view.finished(response)
