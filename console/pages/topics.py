"""Topics: the list by kind; one topic with its queues, groups, route, live messages, and changes.

Java: rocketmq-dashboard's controller/TopicController.java
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import trio
from starlette.responses import Response, StreamingResponse

from rocketlet.common import topic_attributes
from rocketlet.common.errors import RocketletError
from rocketlet.common.message import MessageQueue, ReceivedMessage
from rocketlet.common.topic import InvalidName, check_topic_name
from rocketlet.console.bodies import shown
from rocketlet.console.cluster import KINDS, Topic, each
from rocketlet.console.pages.dashboard import picture
from rocketlet.console.web import Refused, View, time_text
from rocketlet.remoting.protocol.inspection import TopicOffset
from rocketlet.tools.admin import topics as commands
from rocketlet.tools.admin.calls import NoSuchTopic
from rocketlet.tools.admin.reading import pulled, queues_of

TAIL_PAUSE = 0.5
TAIL_MOST = 50  # messages per poll; the rest is skipped and counted
TAIL_SECONDS = 3600.0
MAX_TAILS = 32
LOOKED_AT = 8  # newest messages of each queue that are sampled for senders and sizes
MAX_QUEUES = 16


async def topics(view: View) -> Response:
    kind, filter_text = view.query_value("kind", "normal"), view.query_value("filter").lower()
    matching = [
        topic
        for topic in (await view.cluster.topics()).values()
        if (topic.kind == kind or kind == "all") and filter_text in topic.name.lower()
    ]
    pager = view.paged(matching)

    async def details(topic: Topic) -> tuple[Topic, int, int]:
        try:
            table = await view.cluster.offsets(topic.name)
        except RocketletError:
            return topic, 0, 0
        messages = sum(offsets.maxOffset - offsets.minOffset for offsets in table.values())
        return topic, messages, max((offsets.lastUpdateTimestamp for offsets in table.values()), default=0)

    rows = await each(pager.rows, details)
    clusters = sorted((await view.cluster.info()).clusterAddrTable)
    return view.page(
        "topics.html", rows=rows, pager=pager, kind=kind, kinds=(*KINDS, "all"), filter=view.query_value("filter"),
        clusters=clusters, types=topic_attributes.MESSAGE_TYPES[1:],
    )  # fmt: skip


async def topic(view: View) -> Response:
    name = view.part("topic")
    entry = (await view.cluster.topics()).get(name)
    if entry is None:
        raise NoSuchTopic(view.t("There is no topic {name}").format(name=name))
    table = await view.cluster.offsets(name)
    groups = await view.calls.groups_of(name)
    groups_by_name = await view.cluster.groups()
    masters = await view.calls.masters_of(name)
    rate = await view.cluster.rate("TOPIC_PUT_NUMS", name, list(masters.values()))
    bytes_rate = await view.cluster.rate("TOPIC_PUT_SIZE", name, list(masters.values()))
    return view.page(
        "topic.html",
        topic=entry,
        queues=view.paged(sorted(table.items())),
        route=await view.calls.route(name),
        groups=[(group, groups_by_name[group].lag(name) if group in groups_by_name else 0) for group in groups],
        messages=sum(place.maxOffset - place.minOffset for place in table.values()),
        last=max((place.lastUpdateTimestamp for place in table.values()), default=0),
        rate=rate,
        bytes_rate=bytes_rate,
        newest=await _newest(view, table, masters),
        flow=picture(view, view.t("Messages a second"), {view.t("in"): f"in {name}"}),
        clusters=sorted({data.cluster for data in (await view.calls.route(name)).brokerDatas}),
    )


@dataclass(frozen=True, slots=True)
class Newest:
    """A sample of the newest messages of a topic, and the store time of the oldest one."""

    senders: list[tuple[str, int, str]]
    """Host and port, how many of the messages, and the producer's group and id if it is still there."""
    average: float
    oldest: int


async def _newest(view: View, table: Mapping[MessageQueue, TopicOffset], masters: Mapping[str, str]) -> Newest:
    filled = {queue: offsets for queue, offsets in table.items() if offsets.maxOffset > offsets.minOffset}
    queues = sorted(filled, key=lambda queue: -filled[queue].lastUpdateTimestamp)[:MAX_QUEUES]

    async def read(queue: MessageQueue) -> tuple[int, list[tuple[str, int]]]:
        address, offsets = masters.get(queue.broker_name, ""), filled[queue]
        try:
            oldest = await view.calls.brokers.earliest_store_time(address, queue)
            begin = max(offsets.minOffset, offsets.maxOffset - LOOKED_AT)
            samples = [message async for message in pulled(view.calls, address, queue, begin, offsets.maxOffset)]
        except RocketletError:
            return 0, []
        return oldest, [(message.born_host, message.store_size) for message in samples]

    answers = await each(queues, read)
    samples = [each_one for _, several in answers for each_one in several]
    producers = {
        client.remoteIP.lstrip("/"): f"{group} {client.clientId}"
        for group, clients in (await view.cluster.producers()).items()
        for _, client in clients
    }
    return Newest(
        [
            (host, count, producers.get(host, ""))
            for host, count in Counter(host for host, _ in samples).most_common(10)
        ],
        sum(size for _, size in samples) / len(samples) if samples else 0.0,
        min((oldest for oldest, _ in answers if oldest > 0), default=0),
    )


async def save(view: View) -> Response:
    """Create a topic, or change one."""
    name = view.form_value("topic")
    try:
        check_topic_name(name)
    except InvalidName as error:
        raise Refused(str(error)) from None
    read = view.number(view.form_value("read", "8"), view.t("read queues"), 0, 1024)
    write = view.number(view.form_value("write", "8"), view.t("write queues"), 0, 1024)
    perm = view.number(view.form_value("perm", "6"), view.t("permission"), 0, 7)
    order = view.form_value("order") == "yes"
    cluster, broker, kind = view.form_value("cluster"), view.form_value("broker"), view.form_value("type")
    attributes = f"+message.type={kind}" if kind else ""

    async def do() -> str:
        target = {"broker": broker} if broker else {"cluster": cluster}
        await commands.update_topic.run(
            view.calls, **target, topic=name, read=read, write=write, perm=perm, order=order, attributes=attributes
        )
        return view.t("Topic {name} is there").format(name=name)

    about = {"topic": name, "cluster": cluster, "broker": broker, "read": read, "write": write, "perm": perm}
    return await view.change("updateTopic", about, do, f"/topics/{quote(name, safe='')}")


async def delete(view: View) -> Response:
    name = view.part("topic")
    if view.form_value("confirm") != name:
        raise Refused(view.t("Write the name of the topic to delete it with its messages."))
    route = await view.calls.route(name)

    async def do() -> str:
        for cluster in sorted({data.cluster for data in route.brokerDatas}):
            await commands.deleted(view.calls, cluster, name)
        return view.t("Topic {name} is deleted").format(name=name)

    return await view.change("deleteTopic", {"topic": name}, do, "/topics")


async def send(view: View) -> Response:
    """One message, as a user wrote it."""
    name = view.part("topic")
    body = view.form.get("body", "").encode()
    tags, keys = view.form_value("tags") or None, view.form_value("keys").split()
    if not body:
        raise Refused(view.t("A message needs a body."))

    async def do() -> str:
        async with view.console.sender() as send_one:
            result = await send_one(name, body, tags=tags, keys=keys)
        return view.t("Sent: {status}, id {id}").format(status=result["status"], id=result["msgId"])

    about = {"topic": name, "bytes": len(body), "tags": tags, "keys": keys}
    return await view.change("sendMessage", about, do, f"/topics/{quote(name, safe='')}")


# ---- live messages


async def tail(view: View) -> Response:
    await view.calls.route(view.part("topic"))
    return view.page(
        "tail.html", topic=view.part("topic"), tag=view.query_value("tag", "*"), contains=view.query_value("has")
    )


async def tail_events(view: View) -> Response:
    """Server-sent events: one message each, as JSON that the page shows as text."""
    name, tag, contains = view.part("topic"), view.query_value("tag", "*") or "*", view.query_value("has")
    if view.console.tails >= MAX_TAILS:
        raise Refused(view.t("As many live pages are open as the console can serve: close one."), 503)
    places = await queues_of(view.calls, name)
    ends = {queue: await view.calls.brokers.max_offset(address, queue) for queue, address in places.items()}

    async def new(queue: MessageQueue, address: str) -> list[str]:
        """Events of one queue since the last poll."""
        try:
            end = await view.calls.brokers.max_offset(address, queue)
            first = max(ends[queue], end - TAIL_MOST)
            new_events = [_event("skipped", {"count": first - ends[queue]})] if first > ends[queue] else []
            async for message in pulled(view.calls, address, queue, first, end, tag):
                if contains.encode() in message.body:
                    new_events.append(_event("message", _row(message)))
        except RocketletError as error:
            return [_event("problem", {"text": str(error)})]
        ends[queue] = end
        return new_events

    async def events() -> AsyncIterator[str]:
        view.console.tails += 1
        try:
            yield "retry: 2000\n\n"
            deadline = trio.current_time() + TAIL_SECONDS
            while trio.current_time() < deadline:
                new_events = [event for queue, address in places.items() for event in await new(queue, address)]
                yield "".join(new_events) or ": nothing new\n\n"
                await trio.sleep(TAIL_PAUSE)
        finally:
            view.console.tails -= 1

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
