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

MOST_FOUND = 2000
MOST_KEYS = 64
MOST_TOPICS = 1000  # searched for an id without a topic
MOST_QUEUES = 256  # searched for an offset without a queue
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
    text, topic = view.asked("q"), view.asked("topic")
    begin, end = view.moment(view.asked("begin")), view.moment(view.asked("end"))
    found: list[ReceivedMessage] = []
    note = ""
    if text:
        found = await find(view, text, topic)
        if len(found) == 1:
            return view.to(link_to(found[0]))
        if not found:
            note = view.t("Nothing has the id, key or place {text}.").format(text=text)
            if not topic and sum(one.kind != "system" for one in (await view.cluster.topics()).values()) > MOST_TOPICS:
                said = view.t("Only the first {count} topics were searched: name the topic.")
                note += " " + said.format(count=MOST_TOPICS)
    elif topic:
        found, cut = await in_time(view, topic, begin, end)
        if cut:
            note = view.t("Only the newest {count} of them are shown.").format(count=MOST_FOUND)
        elif not found:
            note = view.t("No message of that topic and time.")
    return view.page(
        "messages.html", q=text, topic=topic, begin=view.asked("begin"), end=view.asked("end"),
        contains=view.asked("has"), tag=view.asked("tag"), pager=view.paged(found), note=note, link_to=link_to,
        preview=preview, searched=bool(text or topic),
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
    found = await by_key(view.calls, topic, text, MOST_KEYS, unique=bool(_ID.fullmatch(text)))
    if text.isascii() and text.isdigit() and len(text) <= 18:
        found += await _at_offsets(view, topic, int(text))
    return [listed(one) for one in found]


async def _at_offsets(view: View, topic: str, offset: int) -> list[ReceivedMessage]:
    """The message at an offset of each queue of a topic."""
    places = {(queue.broker_name, queue.queue_id): one for queue, one in (await view.cluster.offsets(topic)).items()}
    there = [place for place, one in sorted(places.items()) if one.minOffset <= offset < one.maxOffset]

    async def look(place: tuple[str, int]) -> ReceivedMessage | None:
        try:
            return listed(await at_offset(view.calls, place[0], topic, place[1], offset))
        except AdminError:
            return None  # deleted by retention, or nothing is stored at that offset

    return [one for one in await each(there[:MOST_QUEUES], look) if one is not None]


async def _in_any_topic(view: View, text: str) -> list[ReceivedMessage]:
    """Search every topic, users' first: the index is by topic and key."""
    is_id = bool(_ID.fullmatch(text))
    known = await view.cluster.topics()
    names = sorted(
        (name for name, one in known.items() if one.kind != "system"), key=lambda name: known[name].kind != "normal"
    )
    found: list[ReceivedMessage] = []
    limit = trio.CapacityLimiter(16)

    async def look(name: str, scope: trio.CancelScope) -> None:
        async with limit:
            try:
                here = await by_key(view.calls, name, text, 8, unique=is_id)
            except RocketletError:
                return  # deleted meanwhile
            found.extend(map(listed, here))
            if (here and is_id and known[name].is_users) or len(found) >= MOST_KEYS:
                scope.cancel()  # an id belongs to one message, and its retries are not wanted

    async with trio.open_nursery() as nursery:
        for name in names[:MOST_TOPICS]:
            nursery.start_soon(look, name, nursery.cancel_scope)
    return found


async def in_time(view: View, topic: str, begin: int | None, end: int | None) -> tuple[list[ReceivedMessage], bool]:
    """The newest matching messages of a topic between two times; and whether there were more."""
    tag, contains = view.asked("tag"), view.asked("has")
    places = await queues_of(view.calls, topic)
    most = max(MOST_FOUND // max(len(places), 1), 1)
    found: list[ReceivedMessage] = []
    cut = False
    for queue, address in places.items():
        first, behind = await span(view.calls, address, queue, begin, end)
        if behind - first > most:
            first, cut = behind - most, True
        messages = cast("AsyncGenerator[ReceivedMessage]", pulled(view.calls, address, queue, first, behind))
        async with aclosing(messages):
            async for message in messages:
                if (
                    (begin is None or message.store_timestamp >= begin)
                    and (end is None or message.store_timestamp <= end)
                    and (not tag or message.tags == tag)
                    and (not contains or contains.encode() in message.body or contains in message.keys)
                ):
                    found.append(listed(message))
    found.sort(key=lambda one: (-one.store_timestamp, one.queue, -one.queue_offset))
    return found, cut


async def _asked(view: View) -> ReceivedMessage:
    queue, offset = view.number(view.part("queue"), "queue"), view.number(view.part("offset"), "offset")
    return await at_offset(view.calls, view.part("broker"), view.part("topic"), queue, offset)


async def message(view: View) -> Response:
    one = await _asked(view)
    body = shown(one.body, view.asked("as"))
    tracks = await queries.tracks_of(view.calls, one)
    members = {}
    for track in tracks:
        group = track["consumerGroup"]
        try:
            connection = await view.cluster.members(group)
        except RocketletError:
            connection = None
        members[group] = [client.clientId for client in connection.connectionSet] if connection else []
    return view.page(
        "message.html", message=one, body=body, kinds=("json", "text", "msgpack", "hex"), tracks=tracks,
        members=members, link=link_to(one), trace_id=trace_id(one),
    )  # fmt: skip


def trace_id(message: ReceivedMessage) -> str:
    """OpenTelemetry's, if the sender added one in W3C's `traceparent`: version-trace-span-flags."""
    parts = message.properties.get("traceparent", "").split("-")
    return parts[1] if len(parts) >= 4 and re.fullmatch(r"[0-9a-f]{32}", parts[1]) else ""


async def download(view: View) -> Response:
    """The raw body."""
    one = await _asked(view)
    name = re.sub(r"[^0-9A-Za-z]", "", one.message_id) or "message"
    response = Response(one.body, media_type="application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}.bin"'
    return view.finished(response)


async def again(view: View) -> Response:
    """Send a copy to a topic, its own or another."""
    one = await _asked(view)
    target = view.said("target") or one.topic

    async def do() -> str:
        async with view.console.sender() as send:
            result = await send(target, one.body, tags=one.tags, keys=one.keys)
        return view.t("Sent: {status}, id {id}").format(status=result["status"], id=result["msgId"])

    about = {"topic": one.topic, "message": one.message_id, "target": target}
    return await view.change("sendAgain", about, do, link_to(one))


async def directly(view: View) -> Response:
    """Have one member of a group consume it now."""
    one = await _asked(view)
    group, client = view.said("group"), view.said("client")
    if not group or not client:
        raise Refused(view.t("Choose a group that somebody consumes in, and a member."))

    async def do() -> str:
        result = await queries.consumed_directly(view.calls, one, group, client)
        outcome, took = result["consumeResult"], result["spentTimeMills"]
        return view.t("{client} says {outcome} after {took} ms").format(client=client, outcome=outcome, took=took)

    about = {"message": one.message_id, "group": group, "client": client}
    return await view.change("consumeMessageDirectly", about, do, link_to(one))
