"""RocketMQ 5's own metrics, as far as they apply to a 4.9.8 broker.

Omitted: pop, tiered storage, RocksDB and timers, and what would require timing every request
(`rocketmq_rpc_latency`, `rocketmq_message_size`, `rocketmq_finish_message_latency`). A message's type is not counted by
type, so `message_type` is always `unspecified`.

Java: broker/metrics/BrokerMetricsManager.java, store/metrics/DefaultStoreMetricsManager.java (5.x)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from rocketlet.broker.metrics.progress import Progress
from rocketlet.broker.metrics.steps import STEP, with_cold_reads
from rocketlet.broker.parts import Parts
from rocketlet.common.topic import DLQ_PREFIX, is_retry_topic, is_system_group, is_system_topic
from rocketlet.metrics.page import Page, Wait
from rocketlet.remoting.command import version_name

NODE = ("cluster", "node_type", "node_id")
_STORAGE = (*NODE, "storage_type", "storage_medium")
_IN = (*NODE, "topic", "message_type", "is_system")
_OUT = (*NODE, "topic", "consumer_group", "is_retry", "is_system")


def node(parts: Parts) -> tuple[str, str, str]:
    """The labels that every series has."""
    return (parts.identity.cluster, "broker", parts.identity.name)


def of_broker(parts: Parts, page: Page) -> Iterator[None]:
    """Permission, sizes, unflushed and undispatched bytes, transactions, requests in progress."""
    this, store, tables = node(parts), parts.store.statistics(), parts.tables
    for name, help, value in (
        (
            "broker_permission",
            "6: may be read and written, 4: read, 2: written",
            parts.settings.now.broker_permission,
        ),
        ("topic_number", "Topics", len(tables.topics)),
        ("consumer_group_number", "Consumer groups", len(tables.groups)),
    ):
        page.gauge(f"rocketmq_{name}", help, NODE).add(this, value)
    oldest = parts.store.store_time_of(store.log_begin)
    for name, help, value in (
        ("size", "Bytes of messages that are kept", store.log_end - store.log_begin),
        ("flush_behind_bytes", "Bytes of the log that are not on the disk yet", store.log_end - store.flushed),
        ("dispatch_behind_bytes", "Bytes of the log that are in no queue yet", store.log_end - store.dispatched),
        (
            "message_reserve_time",
            "Age of the oldest message, ms",
            max(parts.clock() - oldest, 0) if oldest > 0 else 0,
        ),
    ):
        page.gauge(f"rocketmq_storage_{name}", help, _STORAGE).add((*this, "local", "disk"), value)
    states = parts.halves.statistics()
    halves = parts.halves.end() - states.done - states.ended
    page.gauge("rocketmq_half_messages", "Transactions that are not ended", NODE).add(this, max(halves, 0))
    numbers = parts.statistics
    page.counter("rocketmq_commit_messages_total", "Transactions committed", NODE).add(this, numbers.committed)
    page.counter("rocketmq_rollback_messages_total", "Transactions rolled back", NODE).add(this, numbers.rolled_back)
    watermark = page.gauge("rocketmq_processor_watermark", "Requests in progress", (*NODE, "processor"))
    for family, count in parts.requests_in_progress().items():
        watermark.add((*this, family), count)
    yield


def of_topics(parts: Parts, page: Page) -> Iterator[None]:
    """What was put."""
    this, statistics = node(parts), parts.statistics
    messages = page.counter("rocketmq_messages_in_total", "Messages put", _IN)
    sizes = page.counter("rocketmq_throughput_in_total", "Bytes put", _IN)
    dead = page.counter(
        "rocketmq_send_to_dlq_messages_total", "Dead letters", (*NODE, "consumer_group", "topic", "is_system")
    )
    for topic in list(parts.tables.topics):
        name = topic.name
        count, size = statistics.put_of(name)
        if count:
            labels = (*this, name, "unspecified", _flag(is_system_topic(name)))
            messages.add(labels, count)
            sizes.add(labels, size)
        if name.startswith(DLQ_PREFIX):
            end = sum(parts.store.queue_end(name, queue_id) for queue_id in range(topic.write))
            dead.add((*this, name.removeprefix(DLQ_PREFIX), name, "false"), end)
        yield


def of_clients(parts: Parts, page: Page) -> Iterator[None]:
    """The connected clients."""
    this = node(parts)
    kinds: Counter[tuple[str, str]] = Counter()
    for members in list(parts.clients.producers.all().values()):
        kinds.update((member.language.lower(), version_name(member.version)) for member in members.values())
        yield
    family = page.gauge("rocketmq_producer_connections", "Producers", (*NODE, "language", "version"))
    for (language, version), count in kinds.items():
        family.add((*this, language, version), count)
    family = page.gauge(
        "rocketmq_consumer_connections",
        "Consumers",
        (*NODE, "consumer_group", "language", "version", "consume_mode", "is_system"),
    )
    for group in list(parts.clients.consumers.all()):
        mode = "push" if group.consume_type == "CONSUME_PASSIVELY" else "pull"
        kinds = Counter((client.language.lower(), version_name(client.version)) for client in group.members.values())
        for (language, version), count in kinds.items():
            family.add((*this, group.name, language, version, mode, _flag(is_system_group(group.name))), count)
        yield


def of_progress(parts: Parts, page: Page, progress: Progress) -> Iterator[Wait]:
    """Lag of one group in one topic."""
    group, topic = progress.group, progress.topic.name
    labels = (*node(parts), topic, group, _flag(is_retry_topic(topic)), _flag(is_system_group(group)))
    in_flight = ready = waiting = 0
    for queue in progress.queues:
        pulled = max(parts.statistics.pulled_to(group, topic, queue.queue_id), queue.consumed, queue.begin)
        in_flight += max(min(pulled, queue.end) - max(queue.consumed, queue.begin), 0)
        ready += max(queue.end - pulled, 0)
        if pulled < queue.end:
            look_up = partial(parts.lag.age, topic, queue.queue_id, pulled)
            waiting = max(waiting, (yield from with_cold_reads(parts.store, look_up)))
        if queue.queue_id % STEP == STEP - 1:
            yield None
    for name, help, value in (
        ("lag_messages", "Messages not consumed", progress.messages),
        ("lag_latency", "Age of the first message not consumed, ms", progress.milliseconds),
        ("inflight_messages", "Messages pulled and not consumed", in_flight),
        ("ready_messages", "Messages not pulled", ready),
        ("queueing_latency", "Age of the first message not pulled, ms", waiting),
    ):
        page.gauge(f"rocketmq_consumer_{name}", help, _OUT).add(labels, value)


def of_pulls(parts: Parts, page: Page) -> Iterator[None]:
    """What was pulled."""
    this = node(parts)
    messages = page.counter("rocketmq_messages_out_total", "Messages pulled", _OUT)
    sizes = page.counter("rocketmq_throughput_out_total", "Bytes pulled", _OUT)
    for group, topic in parts.statistics.pulled():
        count, size = parts.statistics.got_of(group, topic)
        labels = (*this, topic, group, _flag(is_retry_topic(topic)), _flag(is_system_group(group)))
        messages.add(labels, count)
        sizes.add(labels, size)
        yield


def _flag(value: bool) -> str:
    return "true" if value else "false"
