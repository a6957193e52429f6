"""Dead letters: how many each group has, why and since when; sent again one by one or all with a rate; exported.

Java: rocketmq-dashboard's controller/DlqMessageController.java
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import trio
from starlette.responses import Response, StreamingResponse

from rocketlet.common.message import ReceivedMessage
from rocketlet.common.topic import DLQ_PREFIX, dlq_topic
from rocketlet.console.cluster import Topic, each
from rocketlet.console.pages.messages import link_to, preview
from rocketlet.console.web import Refused, View
from rocketlet.tools.admin.reading import row_of
from rocketlet.tools.dead_letters import Wanted, origin_of

NEWEST = 500  # of each queue, on the page
MOST_SENT = 10_000


async def groups(view: View) -> Response:
    wanted = view.asked("filter").lower()
    found = [
        topic
        for topic in (await view.cluster.topics()).values()
        if topic.kind == "dlq" and wanted in topic.name.lower()
    ]
    pager = view.paged(found)

    async def details(topic: Topic) -> tuple[str, int, int]:
        table = await view.cluster.offsets(topic.name)
        count = sum(one.maxOffset - one.minOffset for one in table.values())
        last = max((one.lastUpdateTimestamp for one in table.values()), default=0)
        return topic.name.removeprefix(DLQ_PREFIX), count, last

    return view.page(
        "dead_letter_groups.html", rows=await each(pager.rows, details), pager=pager, filter=view.asked("filter")
    )


async def group(view: View) -> Response:
    name = view.part("group")
    letters = await _read(view, name, NEWEST)
    pager = view.paged(letters)
    return view.page(
        "dead_letters.html", group=name, pager=pager, link_to=link_to, preview=preview, origin_of=origin_of
    )


async def _read(view: View, group: str, newest: int | None) -> list[ReceivedMessage]:
    async with view.console.dead_letters(group) as letters:
        found = await letters.read(Wanted(), newest)
    return found[::-1]


async def again(view: View) -> Response:
    """The chosen ones, or all, not faster than so many a second."""
    name = view.part("group")
    chosen = frozenset(view.form.get("several", "").split())
    everything = view.said("which") == "all"
    rate = view.number(view.said("rate", "100"), view.t("rate"), 1, 10_000)
    topic = view.said("target") or None
    if not chosen and not everything:
        raise Refused(view.t("Choose messages, or all of them."))

    async def do() -> str:
        sent = 0
        wanted = Wanted() if everything else Wanted(ids=chosen)
        async with view.console.dead_letters(name) as letters:
            found = await letters.read(wanted)
            for one in found[:MOST_SENT]:
                await letters.send_again(one, topic)
                sent += 1
                await trio.sleep(1 / rate)
        return view.t("{count} dead letters are sent again").format(count=sent)

    about = {"group": name, "all": everything, "ids": sorted(chosen)[:50], "rate": rate, "target": topic or ""}
    return await view.change("resendDeadLetters", about, do, f"/dead-letters/{quote(name, safe='')}")


async def export(view: View) -> Response:
    """All as JSON lines."""
    name = view.part("group")
    letters = await _read(view, name, None)

    async def lines() -> AsyncIterator[str]:
        for one in letters:
            row = row_of(one)
            row["bodyBase64"] = base64.b64encode(one.body).decode()
            yield json.dumps(row, ensure_ascii=False, default=str) + "\n"

    response = StreamingResponse(lines(), media_type="application/x-ndjson")
    safe = "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in dlq_topic(name))
    response.headers["Content-Disposition"] = f'attachment; filename="{safe}.jsonl"'
    return view.finished(response)
