"""The names, labels and types of rocketmq-exporter: 83 of its 89, so that dashboards made for it keep working.

All are gauges there, even counters, and so they are here. The six missing ones, `rocketmq_client_*`, are known only to
consumers: the exporter asks each of them. What the exporter sums over brokers, `rocketmq_group_*diff`,
each broker reports its own queues: `sum by (group, topic)` gives the exporter's number.

Java: rocketmq-exporter's collector/RMQMetricsCollector.java, task/MetricsCollectTask.java
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rocketlet.broker.metrics.progress import Progress
from rocketlet.broker.metrics.steps import STEP, minute
from rocketlet.broker.parts import Parts
from rocketlet.broker.put_times import NAMED
from rocketlet.common.topic import DLQ_PREFIX, RETRY_PREFIX
from rocketlet.metrics.page import Page, Wait
from rocketlet.remoting.command import VERSION, version_name

_CLUSTERING = "1"  # Java: MessageModel's ordinal
_OF_GROUP = ("cluster", "broker", "topic", "group")
_OF_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_OF_TOPIC = ("cluster", "broker", "topic")
_OF_BROKER = ("cluster", "brokerIP", "broker")
_OF_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

Table = Mapping[str, str]


def _number(key: str) -> Callable[[Table], float]:
    return lambda table: float(table[key].split(" ")[0])


def _span(key: str, place: int) -> Callable[[Table], float]:
    return lambda table: float(table[key].split(" ")[place])


_RUNTIME: Mapping[str, Callable[[Table], float]] = {
    "msg_put_total_today_now": _number("msgPutTotalTodayNow"),
    "msg_gettotal_today_now": _number("msgGetTotalTodayNow"),
    "msg_puttotal_todaymorning": _number("msgPutTotalTodayMorning"),
    "msg_gettotal_todaymorning": _number("msgGetTotalTodayMorning"),
    "msg_puttotal_yesterdaymorning": _number("msgPutTotalYesterdayMorning"),
    "msg_gettotal_yesterdaymorning": _number("msgGetTotalYesterdayMorning"),
    "dispatch_behind_bytes": _number("dispatchBehindBytes"),
    "put_message_size_total": _number("putMessageSizeTotal"),
    "put_message_average_size": _number("putMessageAverageSize"),
    "remain_transientstore_buffer_numbs": _number("remainTransientStoreBufferNumbs"),
    "earliest_message_timestamp": _number("earliestMessageTimeStamp"),
    "putmessage_entire_time_max": _number("putMessageEntireTimeMax"),
    "start_accept_sendrequest_time": _number("startAcceptSendRequestTimeStamp"),
    "putmessage_times_total": _number("putMessageTimesTotal"),
    "getmessage_entire_time_max": _number("getMessageEntireTimeMax"),
    "pagecache_lock_time_mills": _number("pageCacheLockTimeMills"),
    "commitlog_disk_ratio": _number("commitLogDiskRatio"),
    "consumequeue_disk_ratio": _number("consumeQueueDiskRatio"),
    "dispatch_maxbuffer": _number("dispatchMaxBuffer"),
    "commitlog_maxoffset": _number("commitLogMaxOffset"),
    "commitlog_minoffset": _number("commitLogMinOffset"),
    "remain_howmanydata_toflush": _number("remainHowManyDataToFlush"),
    "put_latency_99": _number("putLatency99"),
    "put_latency_999": _number("putLatency999"),
    "send_threadpool_queue_size": _number("sendThreadPoolQueueSize"),
    "send_threadpoolqueue_capacity": _number("sendThreadPoolQueueCapacity"),
    "send_threadpoolqueue_headwait_timemills": _number("sendThreadPoolQueueHeadWaitTimeMills"),
    "pull_threadpoolqueue_size": _number("pullThreadPoolQueueSize"),
    "pull_threadpoolqueue_capacity": _number("pullThreadPoolQueueCapacity"),
    "pull_threadpoolqueue_headwait_timemills": _number("pullThreadPoolQueueHeadWaitTimeMills"),
    "query_threadpoolqueue_size": _number("queryThreadPoolQueueSize"),
    "query_threadpool_queue_capacity": _number("queryThreadPoolQueueCapacity"),
    "query_threadpoolqueue_headwait_timemills": _number("queryThreadPoolQueueHeadWaitTimeMills"),
    **{
        f"{name}_tps{seconds}": _span(key, place)
        for name, key in {
            "getfound": "getFoundTps",
            "gettotal": "getTotalTps",
            "gettransfered": "getTransferedTps",
            "getmiss": "getMissTps",
            "put": "putTps",
        }.items()
        for place, seconds in enumerate((10, 60, 600))
    },
}
# By the exporter's spelling of the thirteen durations.
_DURATIONS = (
    "0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s",
    "1to2s", "2to3s", "3to4s", "4to5s", "5to10s", "10stomore",
)  # fmt: skip


def of_broker(parts: Parts, page: Page) -> Iterator[None]:
    """`rocketmq_brokeruntime_*`, and the rates of the whole broker."""
    if parts.state is None:
        return
    table, identity = parts.state.runtime_table(), parts.identity
    labels = (identity.cluster, identity.address, "", version_name(VERSION), table["bootTimestamp"], str(VERSION))
    for name, read in _RUNTIME.items():
        page.gauge(f"rocketmq_brokeruntime_{name}", f"{name} of the broker's runtime info", _OF_RUNTIME).add(
            labels, read(table)
        )
    minute = parts.statistics.put_times.minute()
    for duration, name in zip(_DURATIONS, NAMED, strict=True):
        page.gauge(
            f"rocketmq_brokeruntime_pmdt_{duration}", f"Sends of the last minute that took {name}", _OF_RUNTIME
        ).add(labels, minute[name])
    yield
    disk = parts.state.disk()
    for part, size in (("total", disk.total), ("free", disk.free)):
        page.gauge(
            f"rocketmq_brokeruntime_commitlogdir_capacity_{part}",
            f"Bytes of the log's file system, {part}",
            _OF_RUNTIME,
        ).add(labels, size)
    of_all = (identity.cluster, identity.address, identity.name)
    for name, statistic in (("tps", "BROKER_PUT_NUMS"), ("qps", "BROKER_GET_NUMS")):
        rates = parts.statistics.rates(statistic, identity.cluster)
        page.gauge(f"rocketmq_broker_{name}", f"{statistic} a second, over the last minute", _OF_BROKER).add(
            of_all, rates["minute"].tps if rates else 0.0
        )
    page.gauge("rocketmq_broker_commitlog_diff", "Bytes of the log that a slave has not", _OF_BROKER)
    yield


def of_topics(parts: Parts, page: Page) -> Iterator[Wait]:
    """Ends and rates of topics."""
    identity = parts.identity
    plain = page.gauge("rocketmq_producer_offset", "Messages put into the topic so far", _OF_TOPIC)
    retries = page.gauge("rocketmq_topic_retry_offset", "Messages put into the retry topic so far", _OF_TOPIC)
    dead = page.gauge("rocketmq_topic_dlq_offset", "Dead letters so far", ("cluster", "broker", "group"))
    tps = page.gauge("rocketmq_producer_tps", "Messages put a second, over the last minute", _OF_TOPIC)
    sizes = page.gauge("rocketmq_producer_message_size", "Bytes put a second, over the last minute", _OF_TOPIC)
    for topic in list(parts.tables.topics):
        end = 0
        for queue_id in range(topic.write):
            end += parts.store.queue_end(topic.name, queue_id)
            if queue_id % STEP == STEP - 1:
                yield None
        labels = (identity.cluster, identity.name, topic.name)
        if topic.name.startswith(RETRY_PREFIX):
            retries.add(labels, end)
        elif topic.name.startswith(DLQ_PREFIX):
            dead.add((identity.cluster, identity.name, topic.name.removeprefix(DLQ_PREFIX)), end)
        else:
            plain.add(labels, end)
            for family, statistic in ((tps, "TOPIC_PUT_NUMS"), (sizes, "TOPIC_PUT_SIZE")):
                rate = yield from minute(parts.statistics, statistic, topic.name)
                if rate is not None:
                    family.add(labels, rate.tps)
        yield None


def of_clients(parts: Parts, page: Page) -> Iterator[None]:
    """How many producers and consumers are connected."""
    identity = parts.identity
    producers = page.gauge("rocketmq_producer_count", "Producers of the group", ("cluster", "broker", "group"))
    for group, members in list(parts.clients.producers.all().items()):
        producers.add((identity.cluster, identity.name, group), len(members))
        yield
    consumers = page.gauge("rocketmq_group_count", "Consumers of the group", ("caddr", "localaddr", "group"))
    for consumer_group in list(parts.clients.consumers.all()):
        addresses = ",".join(member.connection.peer for member in consumer_group.members.values())
        names = ",".join(member.client_id for member in consumer_group.members.values())
        consumers.add((addresses, names, consumer_group.name), len(consumer_group.members))
        yield


def of_progress(parts: Parts, page: Page, progress: Progress) -> Iterator[Wait]:
    """Offsets, lag and rates of one group in one topic."""
    identity, group, topic = parts.identity, progress.group, progress.topic.name
    labels = (identity.cluster, identity.name, topic, group)
    online = parts.clients.consumers.get(group)
    if topic.startswith(RETRY_PREFIX):
        name, contents = "retrydiff", "retry topic"
    elif topic.startswith(DLQ_PREFIX):
        name, contents = "dlqdiff", "dead letters"
    else:
        name, contents = "diff", "topic"
    lag = max(progress.end - progress.consumed, 0)
    page.gauge(f"rocketmq_group_{name}", f"Messages of the {contents} that the group has not consumed", _OF_DIFF).add(
        (group, topic, str(len(online.members) if online else 0), _CLUSTERING), lag
    )
    for name, help, value in (
        ("rocketmq_consumer_offset", "Messages of the topic that the group has consumed", progress.consumed),
        ("rocketmq_group_consume_total_offset", "Messages that the group has consumed", progress.consumed),
        ("rocketmq_group_get_latency_by_storetime", "Age of the first message not consumed, ms", progress.milliseconds),
    ):
        page.gauge(name, help, _OF_GROUP).add(labels, value)
    for name, help, statistic, of in (
        ("rocketmq_group_consume_tps", "Messages pulled a second, over the last minute", "GROUP_GET_NUMS", "tps"),
        ("rocketmq_consumer_tps", "Messages pulled a second, over the last minute", "GROUP_GET_NUMS", "tps"),
        ("rocketmq_consumer_message_size", "Bytes pulled a second, over the last minute", "GROUP_GET_SIZE", "tps"),
        ("rocketmq_send_back_nums", "Messages sent back in the last minute", "SNDBCK_PUT_NUMS", "sum"),
    ):
        rate = yield from minute(parts.statistics, statistic, f"{topic}@{group}")
        family = page.gauge(name, help, _OF_GROUP)
        if rate is not None or statistic == "GROUP_GET_NUMS":
            family.add(labels, getattr(rate, of) if rate is not None else 0.0)


def declare(page: Page) -> None:
    """The families that are present even without consumers, so that a page always has all names."""
    for name in ("diff", "retrydiff", "dlqdiff"):
        contents = {"diff": "topic", "retrydiff": "retry topic", "dlqdiff": "dead letters"}[name]
        page.gauge(f"rocketmq_group_{name}", f"Messages of the {contents} that the group has not consumed", _OF_DIFF)
