"""Consumer groups: lag in messages and time; members, their subscriptions and state; resets with a preview.

Java: rocketmq-dashboard's controller/ConsumerController.java
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import Response

from rocketlet.common.errors import RocketletError
from rocketlet.common.message import MessageQueue
from rocketlet.common.topic import RETRY_PREFIX
from rocketlet.console.cluster import Group, each
from rocketlet.console.pages.dashboard import picture
from rocketlet.console.web import Refused, View
from rocketlet.tools.admin import groups as commands
from rocketlet.tools.admin import offsets as offset_commands
from rocketlet.tools.admin.calls import NoSuchTopic
from rocketlet.tools.admin.clients import running_info, running_infos

SORTS = ("lag", "tps", "name")


async def consumers(view: View) -> Response:
    filter_text, sort = view.query_value("filter").lower(), view.query_value("sort", "lag")
    orders = {
        "lag": lambda group: (-group.lag(), group.name),
        "tps": lambda group: (-group.tps, group.name),
        "name": lambda group: group.name,
    }
    groups = [group for group in (await view.cluster.groups()).values() if filter_text in group.name.lower()]
    groups.sort(key=orders.get(sort, orders["lag"]))
    pager = view.paged(groups)

    async def details(group: Group) -> tuple[Group, int, str, str]:
        try:
            members = await view.cluster.members(group.name)
        except RocketletError:
            members = None
        if members is None:
            return group, 0, "", ""
        return group, len(members.connectionSet), members.messageModel, members.consumeType

    return view.page(
        "consumers.html", rows=await each(pager.rows, details), pager=pager, filter=view.query_value("filter"),
        sort=sort, sorts=SORTS, clusters=sorted((await view.cluster.info()).clusterAddrTable),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue of a group."""

    queue: MessageQueue
    end: int
    consumed: int
    last: int
    client: str
    delay: int

    @property
    def lag(self) -> int:
        return max(self.end - self.consumed, 0)


async def consumer(view: View) -> Response:
    name = view.part("group")
    group = (await view.cluster.groups()).get(name)
    if group is None:
        raise NoSuchTopic(view.t("There is no group {name}").format(name=name))
    members = await view.cluster.members(name)
    infos = []
    if members is not None and members.connectionSet:
        infos = [entry async for entry in running_infos(view.calls, name)]
    clients = {
        (queue.topic, queue.broker_name, queue.queue_id): client.clientId
        for client, info in infos
        for queue in info.mqTable
    }
    progress = []
    for topic, places in sorted(group.places.items(), key=lambda entry: (entry[0].startswith(RETRY_PREFIX), entry[0])):
        try:
            delays = await view.cluster.delays(name, topic)
        except RocketletError:
            delays = {}
        rows = [
            QueueRow(
                queue,
                place.brokerOffset,
                place.consumerOffset,
                place.lastTimestamp,
                clients.get((topic, queue.broker_name, queue.queue_id), ""),
                delays.get(queue, 0) if place.brokerOffset > place.consumerOffset else 0,
            )
            for queue, place in sorted(places.items())
        ]
        progress.append((topic, rows))
    subscribed: dict[str, dict[str, list[str]]] = {}
    for client, info in infos:
        for entry in info.subscriptionSet:
            subscribed.setdefault(entry.topic, {}).setdefault(entry.subString, []).append(client.clientId)
    online = len(infos)
    differing = {
        topic: texts for topic, texts in subscribed.items() if len(texts) > 1 or sum(map(len, texts.values())) < online
    }
    return view.page(
        "consumer.html",
        group=group,
        members=members,
        infos=infos,
        progress=progress,
        subscribed=subscribed,
        differing=differing,
        lags=picture(view, view.t("Messages not consumed"), {view.t("lag"): f"lag {name}"}),
        clusters=sorted((await view.cluster.info()).clusterAddrTable),
        preview=None,
    )


async def stack(view: View) -> Response:
    """The stacks of a member's threads."""
    group, client = view.part("group"), view.query_value("client")
    info = await running_info(view.calls, group, client, stacks=True)
    if info is None:
        raise Refused(view.t("{client} does not answer").format(client=client), 502)
    return view.page("stack.html", group=group, client=client, info=info)


async def save(view: View) -> Response:
    """Create a group, or change one."""
    name = view.form_value("group")
    cluster = view.form_value("cluster")
    retries = view.number(view.form_value("retries", "16"), view.t("retries"), -1, 10_000)
    queues = view.number(view.form_value("queues", "1"), view.t("retry queues"), 0, 64)
    consume, broadcast = view.form_value("consume") == "yes", view.form_value("broadcast") == "yes"
    from_min, notify = view.form_value("from_min") == "yes", view.form_value("notify") == "yes"
    broker_id = view.number(view.form_value("broker_id", "0"), "brokerId", 0, 1000)
    slow = view.number(view.form_value("slow_broker", "1"), "whichBrokerWhenConsumeSlowly", 0, 1000)

    async def do() -> str:
        await commands.update_sub_group.run(
            view.calls, cluster=cluster, group=name, consume=consume, from_min=from_min, broadcast=broadcast,
            queues=queues, retries=retries, broker_id=broker_id, slow_broker=slow, notify=notify,
            orderly=_orderly(view),
        )  # fmt: skip
        return view.t("Group {name} is there").format(name=name)

    about = {"group": name, "cluster": cluster, "consume": consume, "retries": retries}
    return await view.change("updateSubGroup", about, do, f"/consumers/{quote(name, safe='')}")


def _orderly(view: View) -> bool | None:
    """From RocketMQ 5: None if the form does not have it, because then the broker does not know it either."""
    text = view.form_value("orderly")
    return text == "yes" if text else None


async def delete(view: View) -> Response:
    name = view.part("group")
    if view.form_value("confirm") != name:
        raise Refused(view.t("Write the name of the group to delete it with its positions."))
    clusters = sorted((await view.cluster.info()).clusterAddrTable)

    async def do() -> str:
        for cluster in clusters:
            await commands.delete_sub_group.run(view.calls, cluster=cluster, group=name, remove=True)
        return view.t("Group {name} is deleted").format(name=name)

    return await view.change("deleteSubGroup", {"group": name}, do, "/consumers")


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of a reset on one queue."""

    queue: MessageQueue
    consumed: int
    target: int
    end: int


async def move(view: View) -> Response:
    """Reset or skip: first a preview, then, when confirmed, the change."""
    name, topic = view.part("group"), view.form_value("topic")
    to_end = view.form_value("how") == "end"
    timestamp = offset_commands.END if to_end else view.moment(view.form_value("at"))
    if timestamp is None:
        raise Refused(view.t("Say from when on."))
    page = f"/consumers/{quote(name, safe='')}"
    if view.form_value("sure") == "yes":

        async def do() -> str:
            if to_end:
                await offset_commands.skip_accumulated_message.run(view.calls, group=name, topic=topic, force=True)
            else:
                await offset_commands.reset_offset_by_time.run(
                    view.calls, group=name, topic=topic, at=timestamp, force=True
                )
            return view.t("Group {name} continues in {topic} from there").format(name=name, topic=topic)

        about = {"group": name, "topic": topic, "to": "end" if to_end else timestamp}
        return await view.change("skipAccumulatedMessage" if to_end else "resetOffsetByTime", about, do, page)
    group = (await view.cluster.groups()).get(name)
    places = group.places.get(topic, {}) if group is not None else {}
    moves = []
    for broker, address in (await view.calls.masters_of(topic)).items():
        for queue, entry in sorted((await view.cluster.offsets(topic)).items()):
            if queue.broker_name == broker:
                target = entry.maxOffset if to_end else await view.calls.brokers.offset_at(address, queue, timestamp)
                place = places.get(queue)
                moves.append(Move(queue, place.consumerOffset if place else 0, target, entry.maxOffset))
    return view.page(
        "move.html", group=name, topic=topic, moves=moves,
        how="end" if to_end else "time", at="" if to_end else timestamp,
        again=sum(max(entry.consumed - entry.target, 0) for entry in moves),
        passed=sum(max(entry.target - entry.consumed, 0) for entry in moves),
    )  # fmt: skip
