"""Topics: the list by kind; one topic with its queues, groups, route, messages as they come, and what may be changed.

Java: rocketmq-dashboard's controller/TopicController.java
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import trio
from starlette.responses import Response, StreamingResponse

from rocketlet.common.errors import RocketletError
from rocketlet.common.message import ReceivedMessage
from rocketlet.common.topic import InvalidName, check_topic_name
from rocketlet.console.bodies import shown
from rocketlet.console.cluster import KINDS, Topic, each
from rocketlet.console.pages.dashboard import picture
from rocketlet.console.web import Refused, View, time_text
from rocketlet.tools.admin import topics as commands
from rocketlet.tools.admin.calls import NoSuchTopic
from rocketlet.tools.admin.reading import pulled, queues_of

TAIL_PAUSE = 0.5
TAIL_MOST = 50  # messages a look; what is above is left out and counted
TAIL_SECONDS = 3600.0


async def topics(view: View) -> Response:
    kind, wanted = view.asked("kind", "normal"), view.asked("filter").lower()
    found = [
        topic
        for topic in (await view.cluster.topics()).values()
        if (topic.kind == kind or kind == "all") and wanted in topic.name.lower()
    ]
    pager = view.paged(found)

    async def details(topic: Topic) -> tuple[Topic, int, int]:
        try:
            table = await view.cluster.offsets(topic.name)
        except RocketletError:
            return topic, 0, 0
        messages = sum(one.maxOffset - one.minOffset for one in table.values())
        return topic, messages, max((one.lastUpdateTimestamp for one in table.values()), default=0)

    rows = await each(pager.rows, details)
    clusters = sorted((await view.cluster.info()).clusterAddrTable)
    return view.page(
        "topics.html", rows=rows, pager=pager, kind=kind, kinds=(*KINDS, "all"), filter=view.asked("filter"),
        clusters=clusters,
    )  # fmt: skip


async def topic(view: View) -> Response:
    name = view.part("topic")
    one = (await view.cluster.topics()).get(name)
    if one is None:
        raise NoSuchTopic(view.t("There is no topic {name}").format(name=name))
    table = await view.cluster.offsets(name)
    groups = await view.calls.groups_of(name)
    known = await view.cluster.groups()
    addresses = list((await view.calls.masters_of(name)).values())
    rate = await view.cluster.rate("TOPIC_PUT_NUMS", name, addresses)
    return view.page(
        "topic.html",
        topic=one,
        queues=view.paged(sorted(table.items())),
        route=await view.calls.route(name),
        groups=[(group, known[group].lag(name) if group in known else 0) for group in groups],
        messages=sum(place.maxOffset - place.minOffset for place in table.values()),
        last=max((place.lastUpdateTimestamp for place in table.values()), default=0),
        rate=rate,
        flow=picture(view, view.t("Messages a second"), {view.t("in"): f"in {name}"}),
        clusters=sorted({data.cluster for data in (await view.calls.route(name)).brokerDatas}),
    )


async def save(view: View) -> Response:
    """Create a topic, or change one."""
    name = view.said("topic")
    try:
        check_topic_name(name)
    except InvalidName as error:
        raise Refused(str(error)) from None
    read = view.number(view.said("read", "8"), view.t("read queues"), 0, 1024)
    write = view.number(view.said("write", "8"), view.t("write queues"), 0, 1024)
    perm = view.number(view.said("perm", "6"), view.t("permission"), 0, 7)
    order = view.said("order") == "yes"
    cluster, broker = view.said("cluster"), view.said("broker")

    async def do() -> str:
        await commands.update_topic.function(
            view.calls, broker or None, None if broker else cluster, name, read, write, perm, order, False, False
        )
        return view.t("Topic {name} is there").format(name=name)

    about = {"topic": name, "cluster": cluster, "broker": broker, "read": read, "write": write, "perm": perm}
    return await view.change("updateTopic", about, do, f"/topics/{quote(name, safe='')}")


async def delete(view: View) -> Response:
    name = view.part("topic")
    if view.said("confirm") != name:
        raise Refused(view.t("Write the name of the topic to delete it with its messages."))
    route = await view.calls.route(name)

    async def do() -> str:
        for cluster in sorted({data.cluster for data in route.brokerDatas}):
            await commands.deleted(view.calls, cluster, name)
        return view.t("Topic {name} is deleted").format(name=name)

    return await view.change("deleteTopic", {"topic": name}, do, "/topics")


async def send(view: View) -> Response:
    """One message, as somebody wrote it."""
    name = view.part("topic")
    body = view.form.get("body", "").encode()
    tags, keys = view.said("tags") or None, view.said("keys").split()
    if not body:
        raise Refused(view.t("A message needs a body."))

    async def do() -> str:
        async with view.console.sender() as send_one:
            result = await send_one(name, body, tags=tags, keys=keys)
        return view.t("Sent: {status}, id {id}").format(status=result["status"], id=result["msgId"])

    about = {"topic": name, "bytes": len(body), "tags": tags, "keys": keys}
    return await view.change("sendMessage", about, do, f"/topics/{quote(name, safe='')}")


# ---- messages as they come


async def tail(view: View) -> Response:
    await view.calls.route(view.part("topic"))
    return view.page("tail.html", topic=view.part("topic"), tag=view.asked("tag", "*"), contains=view.asked("contains"))


async def tail_events(view: View) -> Response:
    """Server-sent events: one message each, as JSON that the page shows as text."""
    name, tag, contains = view.part("topic"), view.asked("tag", "*") or "*", view.asked("contains")
    places = await queues_of(view.calls, name)
    ends = {queue: await view.calls.brokers.max_offset(address, queue) for queue, address in places.items()}

    async def events() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        until = trio.current_time() + TAIL_SECONDS
        while trio.current_time() < until:
            told = 0
            for queue, address in places.items():
                try:
                    end = await view.calls.brokers.max_offset(address, queue)
                    first = max(ends[queue], end - TAIL_MOST)
                    if first > ends[queue]:
                        yield _event("skipped", {"count": first - ends[queue]})
                    async for message in pulled(view.calls, address, queue, first, end, tag):
                        told += 1
                        if contains.encode() in message.body:
                            yield _event("message", _row(message))
                    ends[queue] = end
                except RocketletError as error:
                    yield _event("problem", {"text": str(error)})
            if not told:
                yield ": nothing new\n\n"
            await trio.sleep(TAIL_PAUSE)

    response = StreamingResponse(events(), media_type="text/event-stream")
    return view.finished(response)


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _row(message: ReceivedMessage) -> dict[str, object]:
    body = shown(message.body)
    return {
        "time": time_text(message.store_timestamp),
        "queue": f"{message.queue.broker_name}/{message.queue.queue_id}",
        "offset": message.queue_offset,
        "tags": message.tags or "",
        "keys": " ".join(message.keys),
        "body": " ".join(body.text[:400].split()),
        "link": f"/messages/{quote(message.topic, safe='')}/{quote(message.queue.broker_name, safe='')}"
        f"/{message.queue.queue_id}/{message.queue_offset}",
    }
