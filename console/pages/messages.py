"""Messages: one search box for any id, key or place; search by time; one message in full, with actions.

Java: rocketmq-dashboard's controller/MessageController.java
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import cast
from urllib.parse import quote

import trio
from starlette.responses import Response

from rocketlet.client.errors import ClientError
from rocketlet.common.errors import RocketletError
from rocketlet.common.message import ReceivedMessage
from rocketlet.console.bodies import shown
from rocketlet.console.cluster import each
from rocketlet.console.web import Refused, View
from rocketlet.tools.admin import queries
from rocketlet.tools.admin.command import AdminError
from rocketlet.tools.admin.reading import at_offset, by_key, by_offset_id, pulled, queues_of, span

MAX_FOUND = 2000
MAX_KEYS = 64
MAX_TOPICS = 1000  # searched for an id without a topic
MAX_QUEUES = 256  # searched for an offset without a queue
PREVIEW = 160
_PLACE = re.compile(r"([^/@\s]+)/([^/@\s]+)/(\d{1,9})[@/](\d{1,18})")
_OFFSET = re.compile(r"([^/@\s]+)@(\d{1,18})")
_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")


def link_to(message: ReceivedMessage) -> str:
    """The page of a message."""
    queue = message.queue
    parts = (message.topic, queue.broker_name, str(queue.queue_id), str(message.queue_offset))
    return "/messages/" + "/".join(quote(part, safe="") for part in parts)


async def messages(view: View) -> Response:
    """The search box, the form for a time, and the results."""
    text, topic = view.query_value("q"), view.query_value("topic")
    begin, end = view.moment(view.query_value("begin")), view.moment(view.query_value("end"))
    matching: list[ReceivedMessage] = []
    note = ""
    if text:
        matching = await find(view, text, topic)
        if len(matching) == 1:
            return view.to(link_to(matching[0]))
        if not matching:
            note = view.t("Nothing has the id, key or place {text}.").format(text=text)
            if (
                not topic
                and sum(entry.kind != "system" for entry in (await view.cluster.topics()).values()) > MAX_TOPICS
            ):
                hint = view.t("Only the first {count} topics were searched: name the topic.")
                note += " " + hint.format(count=MAX_TOPICS)
    elif topic:
        matching, cut = await in_time(view, topic, begin, end)
        if cut:
            note = view.t("Only the newest {count} of them are shown.").format(count=MAX_FOUND)
        elif not matching:
            note = view.t("No message of that topic and time.")
    return view.page(
        "messages.html", q=text, topic=topic, begin=view.query_value("begin"), end=view.query_value("end"),
        contains=view.query_value("has"), tag=view.query_value("tag"), pager=view.paged(matching), note=note,
        link_to=link_to, preview=preview, searched=bool(text or topic),
    )  # fmt: skip


def preview(message: ReceivedMessage) -> str:
    """The beginning of a body, on one line."""
    return " ".join(shown(message.body).text[:PREVIEW].split())


def listed(message: ReceivedMessage) -> ReceivedMessage:
    """The message as kept in lists: thousands of complete bodies could take gigabytes."""
    return replace(message, body=preview(message).encode())


async def find(view: View, text: str, topic: str = "") -> list[ReceivedMessage]:
    """Search by any of: topic/broker/queue@offset, topic@offset, an offset id, a unique id, a key."""
    if place := _PLACE.fullmatch(text):
        name, broker, queue, offset = place.groups()
        return [await at_offset(view.calls, broker, name, int(queue), int(offset))]
    if (anywhere := _OFFSET.fullmatch(text)) and anywhere[1] in await view.cluster.topics():
        return await _at_offsets(view, anywhere[1], int(anywhere[2]))
    if _ID.fullmatch(text):
        try:
            return [(await by_offset_id(view.calls, text))[0]]
        except (AdminError, ClientError):
            pass  # a producer's id, which names no place
    if not topic:
        return await _in_any_topic(view, text)
    matching = await by_key(view.calls, topic, text, MAX_KEYS, unique=bool(_ID.fullmatch(text)))
    if text.isascii() and text.isdigit() and len(text) <= 18:
        matching += await _at_offsets(view, topic, int(text))
    return [listed(entry) for entry in matching]


async def _at_offsets(view: View, topic: str, offset: int) -> list[ReceivedMessage]:
    """The message at an offset of each queue of a topic."""
    places = {
        (queue.broker_name, queue.queue_id): offsets for queue, offsets in (await view.cluster.offsets(topic)).items()
    }
    queues_with_offset = [
        place for place, offsets in sorted(places.items()) if offsets.minOffset <= offset < offsets.maxOffset
    ]

    async def read(place: tuple[str, int]) -> ReceivedMessage | None:
        try:
            return listed(await at_offset(view.calls, place[0], topic, place[1], offset))
        except AdminError:
            return None  # deleted by retention, or nothing is stored at that offset

    return [offsets for offsets in await each(queues_with_offset[:MAX_QUEUES], read) if offsets is not None]


async def _in_any_topic(view: View, text: str) -> list[ReceivedMessage]:
    """Search every topic, users' first: the index is by topic and key."""
    is_id = bool(_ID.fullmatch(text))
    topics = await view.cluster.topics()
    names = sorted(
        (name for name, entry in topics.items() if entry.kind != "system"),
        key=lambda name: topics[name].kind != "normal",
    )
    matching: list[ReceivedMessage] = []
    limit = trio.CapacityLimiter(16)

    async def search(name: str, scope: trio.CancelScope) -> None:
        async with limit:
            try:
                in_topic = await by_key(view.calls, name, text, 8, unique=is_id)
            except RocketletError:
                return  # deleted meanwhile
            matching.extend(map(listed, in_topic))
            if (in_topic and is_id and topics[name].is_users) or len(matching) >= MAX_KEYS:
                scope.cancel()  # an id belongs to one message, and its retries are not wanted

    async with trio.open_nursery() as nursery:
        for name in names[:MAX_TOPICS]:
            nursery.start_soon(search, name, nursery.cancel_scope)
    return matching


async def in_time(view: View, topic: str, begin: int | None, end: int | None) -> tuple[list[ReceivedMessage], bool]:
    """The newest matching messages of a topic between two times; and whether there were more."""
    tag, contains = view.query_value("tag"), view.query_value("has")
    places = await queues_of(view.calls, topic)
    limit = max(MAX_FOUND // max(len(places), 1), 1)
    matching: list[ReceivedMessage] = []
    cut = False
    for queue, address in places.items():
        first, end_offset = await span(view.calls, address, queue, begin, end)
        if end_offset - first > limit:
            first, cut = end_offset - limit, True
        messages = cast("AsyncGenerator[ReceivedMessage]", pulled(view.calls, address, queue, first, end_offset))
        async with aclosing(messages):
            async for message in messages:
                if (
                    (begin is None or message.store_timestamp >= begin)
                    and (end is None or message.store_timestamp <= end)
                    and (not tag or message.tags == tag)
                    and (not contains or contains.encode() in message.body or contains in message.keys)
                ):
                    matching.append(listed(message))
    matching.sort(key=lambda entry: (-entry.store_timestamp, entry.queue, -entry.queue_offset))
    return matching, cut


async def _requested_message(view: View) -> ReceivedMessage:
    queue, offset = view.number(view.part("queue"), "queue"), view.number(view.part("offset"), "offset")
    return await at_offset(view.calls, view.part("broker"), view.part("topic"), queue, offset)


async def message(view: View) -> Response:
    requested = await _requested_message(view)
    body = shown(requested.body, view.query_value("as"))
    tracks = await queries.tracks_of(view.calls, requested)
    members = {}
    for track in tracks:
        group = track["consumerGroup"]
        try:
            connection = await view.cluster.members(group)
        except RocketletError:
            connection = None
        members[group] = [client.clientId for client in connection.connectionSet] if connection else []
    return view.page(
        "message.html", message=requested, body=body, kinds=("json", "text", "msgpack", "hex"), tracks=tracks,
        members=members, link=link_to(requested), trace_id=trace_id(requested),
    )  # fmt: skip


def trace_id(message: ReceivedMessage) -> str:
    """OpenTelemetry's, if the sender added one in W3C's `traceparent`: version-trace-span-flags."""
    parts = message.properties.get("traceparent", "").split("-")
    return parts[1] if len(parts) >= 4 and re.fullmatch(r"[0-9a-f]{32}", parts[1]) else ""


async def download(view: View) -> Response:
    """The raw body."""
    original = await _requested_message(view)
    name = re.sub(r"[^0-9A-Za-z]", "", original.message_id) or "message"
    response = Response(original.body, media_type="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.bin"'
    return view.finished(response)


async def again(view: View) -> Response:
    """Send a copy to a topic, its own or another."""
    original = await _requested_message(view)
    target = view.form_value("target") or original.topic

    async def do() -> str:
        async with view.console.sender() as send:
            result = await send(target, original.body, tags=original.tags, keys=original.keys)
        return view.t("Sent: {status}, id {id}").format(status=result["status"], id=result["msgId"])

    about = {"topic": original.topic, "message": original.message_id, "target": target}
    return await view.change("sendAgain", about, do, link_to(original))


async def directly(view: View) -> Response:
    """Have one member of a group consume it now."""
    original = await _requested_message(view)
    group, client = view.form_value("group"), view.form_value("client")
    if not group or not client:
        raise Refused(view.t("Choose a group that somebody consumes in, and a member."))

    async def do() -> str:
        result = await queries.consumed_directly(view.calls, original, group, client)
        outcome, took = result["consumeResult"], result["spentTimeMills"]
        return view.t("{client} says {outcome} after {took} ms").format(client=client, outcome=outcome, took=took)

    about = {"message": original.message_id, "group": group, "client": client}
    return await view.change("consumeMessageDirectly", about, do, link_to(original))
