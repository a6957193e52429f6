"""Administrators' requests to brokers, and our consumers' answers through them."""

from __future__ import annotations

import time
from typing import Any

from rocketlet import Message, PushConsumer
from rocketlet.remoting.protocol.configuration import (
    DeleteSubscriptionGroupHeader,
    DeleteTopicHeader,
    SubscriptionGroupTable,
    TopicConfigTable,
)
from rocketlet.remoting.protocol.inspection import (
    BrokerStatsData,
    ConsumeMessageDirectlyBody,
    ConsumeMessageDirectlyHeader,
    ConsumeQueueBody,
    ConsumerConnection,
    ConsumerGroupHeader,
    ConsumerRunningInfo,
    ConsumeTimeSpanBody,
    GetBrokerConsumeStatsHeader,
    GetConsumerRunningInfoHeader,
    GroupList,
    ProducerConnection,
    ProducerGroupHeader,
    ProducerTableInfo,
    QueryConsumeQueueHeader,
    QueryConsumeTimeSpanHeader,
    TopicHeader,
    TopicStatsTable,
    ViewBrokerStatsHeader,
)
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.offsets import (
    CloneGroupOffsetHeader,
    ConsumerStatusBody,
    ConsumerStatusHeader,
    ResetOffsetBody,
    ResetOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.lab import (
    Inbox,
    Lab,
    RefusedByServer,
    between,
    check,
    client_refuses,
    ok,
    pause,
    refused,
    same,
    send,
    text,
    until,
)

GROUP = "admin"
ERROR, NOT_ONLINE, NO_TOPIC = 1, 206, 17


def now() -> int:
    return int(time.time() * 1000)


@scenario(GROUP, "query-message", 30)
def query(lab: Lab) -> None:
    """messages by key, shared key, unique id and offset id; an unknown key finds nothing"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    sent = [ok(producer.send(Message(topic, b"q%d" % n, tags="T", keys=[f"qk{n}", "shared"]))) for n in range(10)]
    begin, end = now() - 600_000, now() + 600_000
    until(10, "all ten by their shared key", lambda: len(producer.query(topic, "shared", 32, begin, end)) == 10)
    same([text(message) for message in producer.query(topic, "qk3", 32, begin, end)], ["q3"], "by key")
    same(text(producer.view(sent[4].message_id, topic)), "q4", "by unique id")
    by_offset = producer.view(sent[5].offset_message_id)
    same(
        (text(by_offset), by_offset.topic, by_offset.queue_offset), ("q5", topic, sent[5].queue_offset), "by offset id"
    )
    same(producer.query(topic, "nobody", 32, begin, end), [], "an unknown key")
    other = lab.create_topic(f"{topic}-other", 1)
    same(producer.query(other, "qk3", 32, begin, end), [], "a key of another topic")
    client_refuses("an id that is none", lambda: producer.view("no id"))


@scenario(GROUP, "query-by-time", 20)
def query_by_time(lab: Lab) -> None:
    """a query by key keeps to its time range and count"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    for n in range(20):
        ok(producer.send(Message(topic, b"%d" % n, tags="T", keys=["k"])))
    # The index rounds to seconds.
    pause(2.1)
    middle = now()
    pause(2.1)
    ok(producer.send(Message(topic, b"late", tags="T", keys=["k"])))
    end = now() + 60_000
    until(10, "all 21", lambda: len(producer.query(topic, "k", 64, middle - 60_000, end)) == 21)
    same([text(message) for message in producer.query(topic, "k", 64, middle, end)], ["late"], "since the middle")
    same(len(producer.query(topic, "k", 64, middle - 60_000, middle)), 20, "until the middle")
    same(len(producer.query(topic, "k", 5, middle - 60_000, end)), 5, "at most 5")


def topic_table(lab: Lab, address: str) -> TopicConfigTable:
    return TopicConfigTable.from_json(lab.admin.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG).body)


@scenario(GROUP, "topic-admin", 30)
def topics(lab: Lab) -> None:
    """topic configuration: create, read, update, delete, refuse"""
    topic = lab.create_topic(lab.topic, 5)
    for address in lab.broker_addresses:
        config = topic_table(lab, address).topicConfigTable[topic]
        same(
            (config.readQueueNums, config.writeQueueNums, config.perm, config.order), (5, 5, 6, False), "configuration"
        )
        check("TBW102" in topic_table(lab, address).topicConfigTable, "system topics among all")
        lab.put_topic(address, topic, 6, 4)
        same(topic_table(lab, address).topicConfigTable[topic].writeQueueNums, 4, "updated")
        lab.admin.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(topic=topic))
        check(topic not in topic_table(lab, address).topicConfigTable, "deleted")
        refused(
            ERROR,
            "deleting a system topic",
            lambda at=address: lab.admin.ask(at, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(topic="TBW102")),
        )
    lab.producer().create_topic(f"{topic}-2", 3)
    lab.await_route(f"{topic}-2", len(lab.brokers()))
    same(lab.route(f"{topic}-2").queueDatas[0].readQueueNums, 3, "queues of a topic that a client made")


@scenario(GROUP, "group-admin", 30)
def groups(lab: Lab) -> None:
    """subscription groups: create, read, update, delete"""

    def table(address: str) -> dict[str, Any]:
        answer = lab.admin.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupTable.from_json(answer.body).subscriptionGroupTable

    lab.put_group(retryMaxTimes=3, retryQueueNums=2, consumeBroadcastEnable=False)
    for address in lab.broker_addresses:
        stored = table(address)[lab.group]
        same(
            (stored.retryMaxTimes, stored.retryQueueNums, stored.consumeEnable, stored.consumeBroadcastEnable),
            (3, 2, True, False),
            "stored group",
        )
    lab.put_group(retryMaxTimes=5)
    for address in lab.broker_addresses:
        same(table(address)[lab.group].retryMaxTimes, 5, "updated group")
        check("TOOLS_CONSUMER" in table(address), "system groups among all")
        header = DeleteSubscriptionGroupHeader(groupName=lab.group)
        lab.admin.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        check(lab.group not in table(address), "deleted group")


@scenario(GROUP, "consume-disabled", 30)
def consume_disabled(lab: Lab) -> None:
    """a group whose consumption is disabled gets nothing until it is enabled"""
    topic = lab.create_topic(lab.topic, 1)
    lab.put_group(consumeEnable=False)
    send(lab.producer(), topic, "m", 3)
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    pause(1.5)
    same(len(inbox.all()), 0, "messages while disabled")
    lab.put_group(consumeEnable=True)
    inbox.await_distinct(3, 20)


@scenario(GROUP, "topic-stats", 20)
def topic_stats(lab: Lab) -> None:
    """offsets and times of each queue"""
    topic = lab.create_topic(lab.topic, 3)
    send(lab.producer(), topic, "s", 20)

    def stats(of: str) -> TopicStatsTable:
        found = TopicStatsTable()
        for address in lab.broker_addresses:
            answer = lab.admin.ask(address, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=of))
            found.offsetTable.update(TopicStatsTable.from_json(answer.body).offsetTable)
        return found

    until(
        10,
        "20 messages in the statistics",
        lambda: sum(one.maxOffset - one.minOffset for one in stats(topic).offsetTable.values()) == 20,
    )
    table = stats(topic).offsetTable
    same(len(table), 3 * len(lab.brokers()), "queues")
    for queue, offset in table.items():
        if offset.maxOffset > 0:
            check(abs(now() - offset.lastUpdateTimestamp) < 60_000, f"last update of {queue}")
    refused(NO_TOPIC, "statistics of an unknown topic", lambda: stats(f"{topic}x"))


@scenario(GROUP, "runtime-stats", 20)
def runtime_stats(lab: Lab) -> None:
    """runtime statistics that administrators read"""
    topic = lab.create_topic(lab.topic, 1)
    send(lab.producer(), topic, "s", 2 * len(lab.brokers()))
    for address in lab.broker_addresses:
        table = KVTable.from_json(lab.admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).body).table
        for key in [
            "brokerVersionDesc",
            "putTps",
            "getFoundTps",
            "getTotalTps",
            "getTransferedTps",
            "msgPutTotalTodayNow",
            "msgGetTotalTodayNow",
            "sendThreadPoolQueueSize",
            "pullThreadPoolQueueSize",
            "pageCacheLockTimeMills",
            "earliestMessageTimeStamp",
            "commitLogDiskRatio",
            "commitLogMinOffset",
            "commitLogMaxOffset",
            "bootTimestamp",
            "runtime",
        ]:
            check(key in table, f"runtime statistics lack {key}: {sorted(table)}")
        between(len(table["putTps"].split()), 1, 3, "numbers in putTps")
        check(int(table["commitLogMaxOffset"]) > int(table["commitLogMinOffset"]), "log offsets")
        lab.admin.ask(address, RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsHeader(isOrder=False))
    first = lab.broker_addresses[0]

    def view(name: str) -> BrokerStatsData:
        header = ViewBrokerStatsHeader(statsName=name, statsKey=topic)
        return BrokerStatsData.from_json(lab.admin.ask(first, RequestCode.VIEW_BROKER_STATS_DATA, header).body)

    view("TOPIC_PUT_NUMS")
    refused(ERROR, "unknown statistics", lambda: view("NO_SUCH_STATS"))


@scenario(GROUP, "broker-config", 20)
def broker_config(lab: Lab) -> None:
    """configuration of a broker: get and update"""
    for name, address in lab.brokers():
        before = lab.broker_config(address)
        for key in [
            "brokerName",
            "brokerClusterName",
            "brokerId",
            "listenPort",
            "storePathRootDir",
            "flushDiskType",
            "brokerRole",
            "messageDelayLevel",
            "maxMessageSize",
            "deleteWhen",
            "fileReservedTime",
            "autoCreateTopicEnable",
        ]:
            check(key in before, f"broker configuration lacks {key}")
        same(before["brokerName"], name, "brokerName")
        hour = before["deleteWhen"]
        other = "06" if hour == "05" else "05"
        for value in (other, hour):
            lab.admin.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, f"deleteWhen={value}\n".encode())
            same(lab.broker_config(address)["deleteWhen"], value, "deleteWhen")


def await_committed(lab: Lab, consumer: PushConsumer, topic: str, total: int) -> None:
    def committed() -> bool:
        consumer.commit()
        return lab.committed(lab.group, topic) == total

    until(15, f"committed offsets that sum up to {total}", committed)


@scenario(GROUP, "consumer-progress", 30)
def progress(lab: Lab) -> None:
    """connections, subscriptions, progress, time spans of a group"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    send(producer, topic, "m", 25)
    inbox = Inbox()
    consumer = lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(25, 20)
    lab.await_queues(consumer, f"%RETRY%{lab.group}")
    first = lab.broker_addresses[0]

    def connections(group: str) -> ConsumerConnection:
        answer = lab.admin.ask(
            first, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumerGroup=group)
        )
        return ConsumerConnection.from_json(answer.body)

    connected = connections(lab.group)
    same([one.clientId for one in connected.connectionSet], [consumer.client_id], "client id")
    same(connected.connectionSet[0].language, "PYTHON", "language")
    same(set(connected.subscriptionTable), {topic, f"%RETRY%{lab.group}"}, "subscriptions")
    same(
        (connected.consumeType, connected.messageModel, connected.consumeFromWhere),
        ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"),
        "kind of the group",
    )
    await_committed(lab, consumer, topic, 25)
    same(
        sum(one.brokerOffset - one.consumerOffset for one in lab.progress(lab.group, topic).offsetTable.values()),
        0,
        "lag",
    )
    answer = lab.admin.ask(first, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic=topic))
    check(lab.group in GroupList.from_json(answer.body).groupList, "who consumes the topic")
    spans = []
    for address in lab.broker_addresses:
        header = QueryConsumeTimeSpanHeader(topic=topic, group=lab.group)
        answer = lab.admin.ask(address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        spans += ConsumeTimeSpanBody.from_json(answer.body).consumeTimeSpanSet
    same(len(spans), 4 * len(lab.brokers()), "time spans")
    check(all(span.minTimeStamp <= span.maxTimeStamp for span in spans), f"time spans {spans}")
    same(sum(_told(lab, topic, consumer).values()), 25, "offsets that the client itself tells")
    until(15, "the producer's connection", lambda: _producers(lab, producer.group))
    for address in lab.broker_addresses:
        table = ProducerTableInfo.from_json(lab.admin.ask(address, RequestCode.GET_ALL_PRODUCER_INFO).body)
        check(producer.group in table.data, f"all producers hold {producer.group}")
    refused(NOT_ONLINE, "connections of an unknown group", lambda: connections(f"{lab.group}x"))


def _told(lab: Lab, topic: str, consumer: PushConsumer) -> dict[Any, int]:
    header = ConsumerStatusHeader(topic=topic, group=lab.group, clientAddr="")
    answer = lab.admin.ask(lab.broker_addresses[0], RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    return ConsumerStatusBody.from_json(answer.body).consumerTable[consumer.client_id]


def _producers(lab: Lab, group: str) -> bool:
    header = ProducerGroupHeader(producerGroup=group)
    answer = lab.admin.ask(lab.broker_addresses[0], RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
    return len(ProducerConnection.from_json(answer.body).connectionSet) == 1


@scenario(GROUP, "consumer-running-info", 30)
def running_info(lab: Lab) -> None:
    """running information and stack of a live consumer, through the broker"""
    topic = lab.create_topic(lab.topic, 2)
    send(lab.producer(), topic, "m", 10)
    inbox = Inbox()
    consumer = lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(10, 20)

    def info(client_id: str) -> ConsumerRunningInfo:
        header = GetConsumerRunningInfoHeader(consumerGroup=lab.group, clientId=client_id, jstackEnable=True)
        answer = lab.admin.ask(lab.broker_addresses[0], RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return ConsumerRunningInfo.from_json(answer.body)

    found = info(consumer.client_id)
    same(len([queue for queue in found.mqTable if queue.topic == topic]), 2 * len(lab.brokers()), "queues it holds")
    check(any(one.topic == topic for one in found.subscriptionSet), "subscriptions")
    check(topic in found.statusTable and "PROP_CLIENT_VERSION" in found.properties, "status and properties")
    check(found.jstack and "ConsumeMessageThread" in found.jstack, "stack")
    refused(ERROR, "running information of an unknown client", lambda: info("nobody"))


@scenario(GROUP, "consume-directly", 30)
def consume_directly(lab: Lab) -> None:
    """one message pushed to one consumer by an administrator"""
    topic = lab.create_topic(lab.topic, 1)
    sent = ok(lab.producer().send(Message(topic, b"again", tags="T", keys=["k"])))
    inbox = Inbox()
    consumer = lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(1, 20)
    address = dict(lab.brokers())[sent.queue.broker_name]
    header = ConsumeMessageDirectlyHeader(
        consumerGroup=lab.group,
        clientId=consumer.client_id,
        msgId=sent.offset_message_id,
        brokerName=sent.queue.broker_name,
    )
    answer = lab.admin.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    same(ConsumeMessageDirectlyBody.from_json(answer.body).consumeResult, "CR_SUCCESS", "result")
    same(inbox.texts(), ["again", "again"], "the listener saw it twice")
    same(inbox.all()[1].topic, topic, "topic")


@scenario(GROUP, "message-track", 30)
def track(lab: Lab) -> None:
    """who has consumed a message, and who has not"""
    topic = lab.create_topic(lab.topic, 1)
    sent = ok(lab.producer().send(Message(topic, b"tracked", tags="T", keys=["k"])))
    inbox = Inbox()
    filtering = lab.name("filtering")
    both = [lab.collect(lab.group, topic, "*", inbox), lab.collect(filtering, topic, "Other", Inbox())]
    inbox.await_distinct(1, 20)
    address = dict(lab.brokers())[sent.queue.broker_name]

    def passed(group: str) -> bool:
        """Whether the group has passed the message; its subscription decides whether it matched."""
        table = lab.progress(group, topic).offsetTable
        return sent.queue in table and table[sent.queue].consumerOffset > sent.queue_offset

    def both_passed() -> bool:
        for consumer in both:
            consumer.commit()
        return passed(lab.group) and passed(filtering)

    until(20, "both groups past the message", both_passed)
    answer = lab.admin.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicHeader(topic=topic))
    check({lab.group, filtering} <= set(GroupList.from_json(answer.body).groupList), "groups of the topic")
    header = ConsumerGroupHeader(consumerGroup=filtering)
    answer = lab.admin.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    wanted = ConsumerConnection.from_json(answer.body).subscriptionTable[topic]
    same(wanted.tagsSet, ["Other"], "tags of the group that did not want it")


def reset(lab: Lab, topic: str, force: bool = True) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for address in lab.broker_addresses:
        header = ResetOffsetHeader(timestamp=0, topic=topic, group=lab.group, isForce=force)
        answer = lab.admin.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        found.update(ResetOffsetBody.from_json(answer.body).offsetTable)
    return found


@scenario(GROUP, "reset-offset-online", 60)
def reset_online(lab: Lab) -> None:
    """a live group is set back and consumes again"""
    topic = lab.create_topic(lab.topic, 2)
    count = 10 * len(lab.brokers())
    send(lab.producer(), topic, "m", count)
    inbox = Inbox()
    consumer = lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(count, 20)
    await_committed(lab, consumer, topic, count)
    offsets = reset(lab, topic)
    same(len(offsets), 2 * len(lab.brokers()), "queues set back")
    check(not any(offsets.values()), f"set back to 0: {offsets}")
    until(
        40, lambda: f"everything again, have {len(inbox.all())} of {2 * count}", lambda: len(inbox.all()) >= 2 * count
    )
    await_committed(lab, consumer, topic, count)


@scenario(GROUP, "reset-offset-offline", 30)
def reset_offline(lab: Lab) -> None:
    """a group without members is set back (code 206, then queue by queue)"""
    topic = lab.create_topic(lab.topic, 2)
    count = 10 * len(lab.brokers())
    send(lab.producer(), topic, "m", count)
    inbox = Inbox()
    consumer = lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(count, 20)
    await_committed(lab, consumer, topic, count)
    consumer.shutdown()

    def offline() -> bool:
        try:
            reset(lab, topic)
        except RefusedByServer as error:
            return error.code == NOT_ONLINE
        return False

    until(10, "setting back is refused, for the group is offline", offline)
    for name, address in lab.brokers():
        for queue_id, offset in ((0, 0), (1, 2 if name == lab.brokers()[0][0] else 0)):
            header = UpdateConsumerOffsetHeader(
                queueId=queue_id, commitOffset=offset, topic=topic, consumerGroup=lab.group
            )
            lab.admin.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    same(lab.committed(lab.group, topic), 2, "committed after the reset")
    again = Inbox()
    lab.collect(lab.group, topic, "*", again)
    again.await_distinct(count - 2, 20)


@scenario(GROUP, "clone-offset", 30)
def clone_offset(lab: Lab) -> None:
    """one group's offsets copied to another"""
    topic = lab.create_topic(lab.topic, 2)
    producer = lab.producer()
    count = 10 * len(lab.brokers())
    send(producer, topic, "m", count)
    inbox = Inbox()
    consumer = lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(count, 20)
    await_committed(lab, consumer, topic, count)
    heir = lab.name("heir")
    for address in lab.broker_addresses:
        header = CloneGroupOffsetHeader(srcGroup=lab.group, destGroup=heir, topic=topic)
        lab.admin.ask(address, RequestCode.CLONE_GROUP_OFFSET, header)
    rest = Inbox()
    lab.collect(heir, topic, "*", rest)
    send(producer, topic, "new", 4)
    rest.await_distinct(4, 20)
    check(all(body.startswith("new") for body in rest.texts()), f"the heir starts where the other was: {rest.texts()}")


@scenario(GROUP, "consume-queue", 20)
def consume_queue(lab: Lab) -> None:
    """entries of a consume queue"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    for n in range(5):
        ok(producer.send(Message(topic, b"c%d" % n, tags="TagA"), queue=queue))
    address = dict(lab.brokers())[queue.broker_name]

    def entries(index: int, count: int) -> ConsumeQueueBody:
        header = QueryConsumeQueueHeader(queueId=0, index=index, topic=topic, count=count)
        return ConsumeQueueBody.from_json(lab.admin.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header).body)

    until(10, "five entries", lambda: entries(0, 10).maxQueueIndex == 5)
    body = entries(1, 3)
    same((len(body.queueData), body.minQueueIndex), (3, 0), "entries and min index")
    for entry in body.queueData:
        same(entry.tagsCode, 2598919, "tags code")
        check(entry.physicSize > 0 and entry.physicOffset >= 0, f"place {entry.physicOffset}")


@scenario(GROUP, "clean-up", 20)
def clean_up(lab: Lab) -> None:
    """clean unused topics and expired consume queues"""
    for address in lab.broker_addresses:
        lab.admin.ask(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        lab.admin.ask(address, RequestCode.CLEAN_UNUSED_TOPIC)
