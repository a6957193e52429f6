"""mqadmin: topics. updateTopic deleteTopic updateTopicPerm topicRoute topicStatus topicClusterList topicList
updateOrderConf allocateMQ.

Java: tools/command/topic/UpdateTopicSubCommand.java and its neighbours
"""

from __future__ import annotations

import json

import click

from rocketlet.client.consuming.queue_allocation import averagely
from rocketlet.common.message import MessageQueue
from rocketlet.common.topic import PERM_READ, permission_text
from rocketlet.common.topic_attributes import InvalidAttributes, changed_attributes
from rocketlet.remoting.protocol.configuration import (
    UNIT,
    UNIT_SUBSCRIPTION,
    CreateTopicHeader,
    DeleteTopicHeader,
    TopicConfig,
)
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.kv import ORDER_TOPIC_CONFIG, KVConfigAnswerHeader, KVConfigHeader, PutKVConfigHeader
from rocketlet.remoting.protocol.routing import DeleteTopicInNamesrvHeader, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.tools.admin.calls import Admin, AdminRefused, is_of_a_group
from rocketlet.tools.admin.command import (
    BROKER,
    CLUSTER,
    TOPIC,
    AdminError,
    Result,
    Said,
    Table,
    brokers_chosen,
    command,
    one_of,
    wire_time,
)

_QUEUES = 8


@command("updateTopic")
@BROKER
@CLUSTER
@TOPIC
@click.option("-r", "--readQueueNums", "read", type=click.IntRange(0), default=_QUEUES, show_default=True)
@click.option("-w", "--writeQueueNums", "write", type=click.IntRange(0), default=_QUEUES, show_default=True)
@click.option(
    "-p", "--perm", type=click.IntRange(0, 7), default=6, show_default=True, help="2: write, 4: read, 6 both."
)
@click.option(
    "-o", "--order", type=bool, default=False, help="Messages of one key in one order, also while one is away."
)
@click.option("-u", "--unit", type=bool, default=False, help="A topic of a unit.")
@click.option("-s", "--hasUnitSub", "unit_sub", type=bool, default=False, help="Subscribed by a unit.")
@click.option(
    "-a",
    "--attributes",
    default="",
    metavar="CHANGES",
    help="What changes of its attributes: +message.type=NORMAL, FIFO, DELAY, TRANSACTION or MIXED.",
)
async def update_topic(
    calls: Admin, broker: str | None, cluster: str | None, topic: str, read: int, write: int, perm: int, order: bool,
    unit: bool, unit_sub: bool, attributes: str,
) -> Result:  # fmt: skip
    """Create a topic, or change one."""
    one_of(broker, cluster)
    try:
        changed_attributes({}, attributes)
    except InvalidAttributes as error:
        raise click.UsageError(str(error)) from None
    flags = (UNIT if unit else 0) | (UNIT_SUBSCRIPTION if unit_sub else 0)
    header = CreateTopicHeader(
        topic=topic, readQueueNums=read, writeQueueNums=write, perm=perm, topicSysFlag=flags, order=order,
        attributes=attributes,
    )  # fmt: skip
    brokers = await brokers_chosen(calls, broker, cluster)
    if order:
        conf = await _joined_order(calls, topic, dict.fromkeys(brokers, write), whole=bool(cluster))
        await put_order(calls, topic, conf)
    lines = []
    for address in brokers.values():
        await calls.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        lines.append(f"create topic to {address} success.")
    if order:
        lines.append(f"set orderConf. isOrder=true, orderConf=[{conf}]")
    lines.append(
        f"TopicConfig [topicName={topic}, readQueueNums={read}, writeQueueNums={write}, perm={permission_text(perm)},"
        f" topicFilterType=SINGLE_TAG, topicSysFlag={flags}, order={str(order).lower()}"
        f"{f', attributes={attributes}' if attributes else ''}]"
    )
    config = TopicConfig(order, perm, read, topicName=topic, topicSysFlag=flags, writeQueueNums=write)
    return Said(lines, {"brokers": list(brokers.values()), **config.builtins()})


@command("deleteTopic")
@click.option("-c", "--clusterName", "cluster", required=True, metavar="NAME", help="From all masters of this cluster.")
@TOPIC
async def delete_topic(calls: Admin, cluster: str, topic: str) -> Result:
    """Delete a topic from its brokers and name servers, with its messages."""
    # One that only some servers still know, since an earlier try stopped half-way, is deleted there.
    if not await calls.topic_is_known((await calls.masters(cluster)).values(), topic):
        raise AdminError(
            f"no broker of cluster {cluster} and no name server knows topic {topic}; topicList lists those there are"
        )
    return Said(await deleted(calls, cluster, topic), {"topic": topic, "cluster": cluster})


async def deleted(calls: Admin, cluster: str, topic: str) -> list[str]:
    """Delete it; what mqadmin says then."""
    for address in (await calls.masters(cluster)).values():
        await calls.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(topic=topic))
    await calls.tell_all_namesrvs(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvHeader(topic=topic))
    return [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]


@command("updateTopicPerm")
@BROKER
@CLUSTER
@TOPIC
@click.option("-p", "--perm", type=click.IntRange(0, 7), required=True, help="2: write, 4: read, 6: both.")
async def update_topic_perm(calls: Admin, broker: str | None, cluster: str | None, topic: str, perm: int) -> Result:
    """Change the permissions of a topic; its queues stay."""
    one_of(broker, cluster)
    queues = {queue_data.brokerName: queue_data for queue_data in (await calls.route(topic)).queueDatas}
    lines, changed = [], []
    for name, address in (await brokers_chosen(calls, broker, cluster)).items():
        queue_data = queues.get(name)
        if queue_data is None:
            raise AdminError(f"broker {address} does not serve topic {topic}; there are {', '.join(queues)}")
        if queue_data.perm == perm:
            lines.append("new perm equals to the old one!")
            continue
        header = CreateTopicHeader(
            topic=topic,
            readQueueNums=queue_data.readQueueNums,
            writeQueueNums=queue_data.writeQueueNums,
            perm=perm,
            topicSysFlag=queue_data.topicSysFlag,
        )
        await calls.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        lines.append(f"update topic perm from {queue_data.perm} to {perm} in {address} success.")
        changed.append({"broker": address, "from": queue_data.perm, "to": perm})
    return Said(lines, changed)


@command("topicRoute")
@TOPIC
@click.option("-l", "--list", "as_list", is_flag=True, help="As a table.")
async def topic_route(calls: Admin, topic: str, as_list: bool) -> Result:
    """Show the route of a topic: brokers and queues."""
    route = await calls.route(topic)
    if as_list:
        return _route_table(route)
    data = json.loads(route.to_json())
    return Said([json.dumps(data, indent=4, sort_keys=True)], data)


def _route_table(route: TopicRouteData) -> Table:
    queues = {entry.brokerName: entry for entry in route.queueDatas}
    rows = [
        {
            "cluster": data.cluster,
            "broker": data.brokerName,
            "addresses": "{" + ", ".join(f"{number}={address}" for number, address in data.brokerAddrs.items()) + "}",
            "read": queues[data.brokerName].readQueueNums,
            "write": queues[data.brokerName].writeQueueNums,
            "perm": queues[data.brokerName].perm,
        }
        for data in sorted(route.brokerDatas, key=lambda entry: (entry.cluster, entry.brokerName))
    ]
    heads = {
        "cluster": "#ClusterName",
        "broker": "#BrokerName",
        "addresses": "#BrokerAddrs",
        "read": "#ReadQueue",
        "write": "#WriteQueue",
        "perm": "#Perm",
    }
    read, write = sum(int(str(row["read"])) for row in rows), sum(int(str(row["write"])) for row in rows)
    return Table(heads, rows, [f"Total: {len(rows)} brokers, {read} read queues, {write} write queues"])


@command("topicStatus")
@TOPIC
async def topic_status(calls: Admin, topic: str) -> Result:
    """Show the offsets and times of each queue of a topic."""
    stats = (await calls.topic_stats(topic)).offsetTable
    rows = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min": offsets.minOffset,
            "max": offsets.maxOffset,
            "updated": wire_time(offsets.lastUpdateTimestamp, fraction=True),
        }
        for queue, offsets in sorted(stats.items())
    ]
    heads = {
        "broker": "#Broker Name",
        "queue": "#QID",
        "min": "#Min Offset",
        "max": "#Max Offset",
        "updated": "#Last Updated",
    }
    return Table(heads, rows)


@command("topicClusterList")
@TOPIC
async def topic_cluster_list(calls: Admin, topic: str) -> Result:
    """List the clusters that serve a topic."""
    clusters = await _clusters_of(calls, topic)
    return Said(clusters, [{"cluster": name} for name in clusters])


async def _clusters_of(calls: Admin, topic: str) -> list[str]:
    return sorted({data.cluster for data in (await calls.route(topic)).brokerDatas})


@command("topicList")
@click.option("-c", "--clusterModel", "by_cluster", is_flag=True, help="With the clusters and the groups of each.")
async def topic_list(calls: Admin, by_cluster: bool) -> Result:
    """List all topics that the name server knows."""
    topics = await calls.topics()
    if not by_cluster:
        return Said(topics, [{"topic": name} for name in topics])
    rows = []
    for topic in topics:
        if is_of_a_group(topic):
            continue
        groups = await calls.groups_of(topic)
        rows += [
            {"cluster": cluster, "topic": topic, "group": group}
            for cluster in await _clusters_of(calls, topic)
            for group in groups or [""]
        ]
    return Table({"cluster": "#Cluster Name", "topic": "#Topic", "group": "#Consumer Group"}, rows)


@command("updateOrderConf")
@TOPIC
@click.option("-m", "--method", type=click.Choice(["put", "get", "delete"]), required=True, help="What to do.")
@click.option("-v", "--orderConf", "conf", metavar="BROKER:QUEUES;...", help="For put: queues by broker.")
async def update_order_conf(calls: Admin, topic: str, method: str, conf: str | None) -> Result:
    """Show or change the order configuration of a topic, which fixes its queues while a broker is down."""
    if method == "put":
        if not conf:
            raise click.UsageError("put needs -v broker-a:8;broker-b:8")
        await put_order(calls, topic, conf)
        return Said([f"update orderConf success. topic=[{topic}], orderConf=[{conf}]"])
    if method == "delete":
        if not await calls.some_namesrv_has(ORDER_TOPIC_CONFIG, topic):
            raise AdminError(f"no name server has an orderConf of topic {topic}; updateOrderConf -m put makes one")
        header = KVConfigHeader(namespace=ORDER_TOPIC_CONFIG, key=topic)
        await calls.tell_all_namesrvs(RequestCode.DELETE_KV_CONFIG, header)
        return Said([f"delete orderConf success. topic=[{topic}]"])
    order = await _order_of(calls, topic)
    if order is None:
        raise AdminError(f"topic {topic} has no orderConf; updateOrderConf -m put makes one")
    return Said([f"get orderConf success. topic=[{topic}], orderConf=[{order}]"], {"topic": topic, "orderConf": order})


async def put_order(calls: Admin, topic: str, conf: str) -> None:
    """Have all name servers know the queues of an ordered topic."""
    header = PutKVConfigHeader(namespace=ORDER_TOPIC_CONFIG, key=topic, value=conf)
    await calls.tell_all_namesrvs(RequestCode.PUT_KV_CONFIG, header)


async def _order_of(calls: Admin, topic: str) -> str | None:
    header = KVConfigHeader(namespace=ORDER_TOPIC_CONFIG, key=topic)
    try:
        answer = await calls.ask_namesrv(RequestCode.GET_KV_CONFIG, header)
    except AdminRefused as refused:
        if refused.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return from_ext(KVConfigAnswerHeader, answer.ext).value


async def _joined_order(calls: Admin, topic: str, queues: dict[str, int], *, whole: bool) -> str:
    """The configuration with these brokers in it; the others' parts stay, unless these are the whole cluster."""
    present = "" if whole else await _order_of(calls, topic) or ""
    parts = dict(part.split(":", 1) for part in present.split(";") if ":" in part)
    parts |= {name: str(count) for name, count in queues.items()}
    return ";".join(f"{name}:{count}" for name, count in parts.items())


@command("allocateMQ")
@TOPIC
@click.option("-i", "--ipList", "addresses", required=True, metavar="IP,IP", help="The consumers.")
async def allocate_mq(calls: Admin, topic: str, addresses: str) -> Result:
    """Show which consumer would be assigned which queues."""
    route = await calls.route(topic)
    queues = sorted(
        MessageQueue(topic, queue_data.brokerName, number)
        for queue_data in route.queueDatas
        if queue_data.perm & PERM_READ
        for number in range(queue_data.readQueueNums)
    )
    members = sorted({address.strip() for address in addresses.split(",") if address.strip()})
    shares = {
        member: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": topic}
            for queue in averagely("", member, queues, members)
        ]
        for member in members
    }
    return Said([json.dumps({"result": shares}, separators=(",", ":"))], {"result": shares})
