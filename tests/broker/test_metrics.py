"""A broker's page of metrics, compared with administrators' requests for the same values."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketlet.broker.put_times import NAMED
from rocketlet.remoting.protocol.configuration import DeleteSubscriptionGroupHeader, DeleteTopicHeader
from rocketlet.remoting.protocol.inspection import ConsumeStats, GetConsumeStatsHeader
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.offsets import UpdateConsumerOffsetHeader
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_broker import RunningBroker, memory_broker, tags
from tests.support.metrics_page import EXPORTER, Page, runtime_value

ROCKETMQ5 = [
    "broker_permission",
    "topic_number",
    "consumer_group_number",
    "storage_size",
    "storage_flush_behind_bytes",
    "storage_dispatch_behind_bytes",
    "storage_message_reserve_time",
    "half_messages",
    "commit_messages_total",
    "rollback_messages_total",
    "processor_watermark",
    "messages_in_total",
    "messages_out_total",
    "throughput_in_total",
    "throughput_out_total",
    "send_to_dlq_messages_total",
    "producer_connections",
    "consumer_connections",
    "consumer_lag_messages",
    "consumer_lag_latency",
    "consumer_inflight_messages",
    "consumer_ready_messages",
    "consumer_queueing_latency",
]


@asynccontextmanager
async def measured(**settings: object) -> AsyncIterator[RunningBroker]:
    async with memory_broker(metrics_exporter_type="PROM", **settings) as one:
        yield one


async def get(one: RunningBroker, path: str) -> tuple[int, str]:
    stream = await one.network.dial(f"{one.broker.settings.now.bind_address}:5557")
    await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    data = b""
    while more := await stream.receive_some():
        data += more
    await stream.aclose()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body.decode()


async def scrape(one: RunningBroker) -> Page:
    await trio.sleep(1.5)  # a page is cached for a second
    status, text = await get(one, "/metrics")
    assert status == 200
    return Page(text)


async def runtime_info(one: RunningBroker) -> dict[str, str]:
    return KVTable.from_json(bytes((await one.call(RequestCode.GET_BROKER_RUNTIME_INFO)).body)).table


async def commit(one: RunningBroker, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetHeader(consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset)
    assert (await one.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def test_every_name_of_the_exporter_and_of_rocketmq_5_is_exported(autojump_clock: trio.testing.MockClock) -> None:
    async with measured() as one:
        for topic in ("T", "%RETRY%CG", "%DLQ%CG"):
            assert (await one.send(topic)).code == 0
        await one.heartbeat("c1", "CG", tags("T"), tags("%RETRY%CG"), tags("%DLQ%CG"), producer="PG")
        assert (await one.pull("T", 0, 0)).code == 0
        for topic in ("T", "%RETRY%CG", "%DLQ%CG"):
            await commit(one, "CG", topic, 0)
        await trio.sleep(65)
        page = await scrape(one)
    assert len(EXPORTER) == 83
    assert sum(len(family.samples) for family in page.families.values()) == len(page.samples), "a family comes twice"
    assert [name for name in EXPORTER if page.families[name].type != "gauge"] == []
    # A master without slaves has no difference to report; nothing was sent back.
    empty = [name for name in EXPORTER if not page.families[name].samples]
    assert empty == ["rocketmq_broker_commitlog_diff", "rocketmq_send_back_nums"]
    told = {sample.name for sample in page.samples}
    assert [name for name in ROCKETMQ5 if f"rocketmq_{name}" not in told] == []


async def test_numbers_agree_with_those_administrators_get(autojump_clock: trio.testing.MockClock) -> None:
    async with measured() as one:
        for number in range(10):
            await one.send("T", b"x" * 100, number % 4)
        assert len((await one.pull("T", 0, 0)).records) == 3
        await trio.sleep(65)
        page = await scrape(one)
        table = await runtime_info(one)
    of_runtime = [name for name in EXPORTER if name.startswith("rocketmq_brokeruntime_")]
    assert len(of_runtime) == 63
    for name in of_runtime:
        # The table prints a size with one decimal.
        wanted = pytest.approx(runtime_value(name, table), rel=0.1 if "capacity_" in name and "dir" in name else 0)
        assert page.value(name, boottime=table["bootTimestamp"]) == wanted, name
    assert page.value("rocketmq_brokeruntime_msg_put_total_today_now") == 10
    assert page.value("rocketmq_brokeruntime_put_tps600") > 0
    assert sum(sample.value for sample in page.samples if "_pmdt_" in sample.name) == 10
    assert (
        page.value("rocketmq_producer_offset", topic="T") == page.value("rocketmq_messages_in_total", topic="T") == 10
    )
    assert page.value("rocketlet_put_seconds_count") == 10


# What rocketmq-exporter reads from the answer to 28, and its types; it fails on a missing or differently formatted key.
LONGS = """\
msgPutTotalTodayNow msgGetTotalTodayNow msgPutTotalTodayMorning msgGetTotalTodayMorning msgPutTotalYesterdayMorning
msgGetTotalYesterdayMorning sendThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize queryThreadPoolQueueSize pullThreadPoolQueueSize
sendThreadPoolQueueCapacity queryThreadPoolQueueCapacity pullThreadPoolQueueCapacity bootTimestamp commitLogMinOffset
commitLogMaxOffset dispatchMaxBuffer pageCacheLockTimeMills getMessageEntireTimeMax putMessageEntireTimeMax
putMessageTimesTotal putMessageSizeTotal startAcceptSendRequestTimeStamp earliestMessageTimeStamp
remainTransientStoreBufferNumbs dispatchBehindBytes brokerVersion"""
DOUBLES = "consumeQueueDiskRatio commitLogDiskRatio putMessageAverageSize putLatency99 putLatency999"
RATES = "putTps getMissTps getTransferedTps getTotalTps getFoundTps"
TEXTS = "runtime brokerVersionDesc"
LONG, DOUBLE = r"-?\d{1,19}", r"-?\d+(\.\d+)?([eE][+-]?\d+)?"


async def test_the_exporter_can_read_runtime_info(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        idle = await runtime_info(one)
        for number in range(7):
            await one.send("T", b"x" * 101, number % 4)
        assert (await one.send("T", b"later", DELAY="3")).code == 0
        assert (await one.pull("T", 0, 0)).code == 0
        await trio.sleep(125)
        for table in (idle, await runtime_info(one)):
            for key in LONGS.split():
                assert re.fullmatch(LONG, table[key]), key
                assert -(1 << 63) <= int(table[key]) < 1 << 63, key
            for key in DOUBLES.split():
                assert re.fullmatch(DOUBLE, table[key]), key
            for key in RATES.split():
                assert re.fullmatch(rf"{DOUBLE} {DOUBLE} {DOUBLE}", table[key]), key
            assert all(table[key] for key in TEXTS.split())
            assert re.fullmatch(rf"{DOUBLE}( .*)?", table["remainHowManyDataToFlush"])
            size = rf"{DOUBLE} (B|[KMGTPE]\S*)"
            assert re.fullmatch(rf"\S+ \S+ {size}, \S+ \S+ {size}\.", table["commitLogDirCapacity"])
            counts = dict(word.split(":") for word in table["putMessageDistributeTime"].split())
            assert list(counts) == [f"[{name}]" for name in NAMED]
            assert all(0 <= int(count) < 1 << 31 for count in counts.values())
            assert int(table["brokerVersion"]) < 1 << 31
            delays = [value for key, value in table.items() if key.startswith("scheduleMessageOffset")]
            assert all(re.fullmatch(rf"{LONG},{LONG}", value) for value in delays)
        assert delays, "a delayed message makes a level"


async def test_lag_by_queue_in_messages_and_in_seconds(autojump_clock: trio.testing.MockClock) -> None:
    async with measured() as one:
        for _ in range(5):
            await one.send("T", queue_id=0)
        await one.send("T", queue_id=1)
        await trio.sleep(100)
        await one.send("T", queue_id=0)
        await one.heartbeat("c1", "CG", tags("T"))
        assert len((await one.pull("T", 0, 0, maxMsgNums=4)).records) == 4
        await commit(one, "CG", "T", 2, queue_id=0)
        await commit(one, "CG", "T", 1, queue_id=1)
        page = await scrape(one)
        stats = ConsumeStats.from_json(
            bytes((await one.call(RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader(consumerGroup="CG"))).body)
        )
        assert page.value("rocketlet_consumer_lag_messages", group="CG", queue="0") == 4
        assert page.value("rocketlet_consumer_lag_messages", group="CG", queue="1") == 0
        assert page.value("rocketlet_consumer_lag_seconds", group="CG", queue="0") == pytest.approx(101.5, abs=0.1)
        assert page.value("rocketlet_consumer_lag_seconds", group="CG", queue="1") == 0
        behind = sum(queue.brokerOffset - queue.consumerOffset for queue in stats.offsetTable.values())
        assert page.value("rocketmq_group_diff", group="CG", topic="T") == behind == 4
        assert page.value("rocketmq_group_diff", countOfOnlineConsumers="1", msgModel="1") == 4
        assert page.value("rocketmq_consumer_lag_messages", consumer_group="CG") == 4
        assert page.value("rocketmq_consumer_inflight_messages", consumer_group="CG") == 2
        assert page.value("rocketmq_consumer_ready_messages", consumer_group="CG") == 2
        assert page.value("rocketmq_consumer_lag_latency", consumer_group="CG") == pytest.approx(101_500, abs=100)
        # An offset beyond the end, which an administrator may set, does not give a negative lag.
        await commit(one, "CG", "T", 1000, queue_id=0)
        page = await scrape(one)
        lags = [sample for sample in page.samples if "lag" in sample.name or "diff" in sample.name]
        assert lags
        assert [sample for sample in lags if sample.value < 0] == []


async def test_series_end_with_their_topic_or_group(autojump_clock: trio.testing.MockClock) -> None:
    async with measured() as one:
        for topic in ("T", "U"):
            await one.send(topic)
            await one.pull(topic, 0, 0)
            await commit(one, "CG", topic, 0)
        page = await scrape(one)
        assert page.value("rocketmq_group_diff", topic="U") == 1
        await one.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(topic="U"))
        page = await scrape(one)
        assert [sample for sample in page.samples if sample.labels.get("topic") == "U"] == []
        assert page.value("rocketmq_group_diff", topic="T") == 1
        header = DeleteSubscriptionGroupHeader(groupName="CG", cleanOffset=True)
        await one.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        page = await scrape(one)
        assert [sample for sample in page.samples if "CG" in sample.labels.values()] == []


async def test_broadcast_groups_have_no_lag_here(autojump_clock: trio.testing.MockClock) -> None:
    async with measured() as one:
        await one.send("T")
        await one.heartbeat("c1", "CG", tags("T"), model="BROADCASTING")
        await commit(one, "CG", "T", 0)
        page = await scrape(one)
    assert page.values("rocketlet_consumer_lag_messages", group="CG") == []
    assert page.value("rocketmq_consumer_connections", consumer_group="CG") == 1


async def test_differing_subscriptions_are_exported(autojump_clock: trio.testing.MockClock) -> None:
    async with measured() as one, one.client() as other:
        await one.heartbeat("c1", "CG", tags("T", "A"))
        await other.heartbeat("c2", "CG", tags("T", "B"))
        page = await scrape(one)
    assert page.value("rocketlet_differing_subscriptions", group="CG") == 1


async def test_a_page_is_limited_whatever_clients_create(autojump_clock: trio.testing.MockClock) -> None:
    async with measured(metrics_max_series=1000) as one:
        for number in range(300):
            await one.send("T" + str(number))
        page = await scrape(one)
    assert page.value("rocketlet_metrics_series_left_out") > 0
    ours = [sample for sample in page.samples if not sample.name.startswith(("process_", "python_"))]
    assert len(ours) <= 1000


async def test_lag_can_be_exported_by_topic_only(autojump_clock: trio.testing.MockClock) -> None:
    async with measured(metrics_lag_per_queue=False) as one:
        for queue_id in range(3):
            await one.send("T", queue_id=queue_id)
        await commit(one, "CG", "T", 0)
        await one.pull("T", 0, 0)
        page = await scrape(one)
    assert page.values("rocketlet_consumer_lag_messages", group="CG") == [3]


async def test_a_broker_is_ready_only_while_it_serves(autojump_clock: trio.testing.MockClock) -> None:
    async with measured() as one:
        assert await get(one, "/readyz") == (200, "ok\n")
        assert await get(one, "/healthz") == (200, "ok\n")
        one.broker.parts.serve_sends(False)
        assert await get(one, "/readyz") == (503, "broker broker-a is starting or stopping\n")


async def test_a_broker_that_no_name_server_knows_is_not_ready(autojump_clock: trio.testing.MockClock) -> None:
    async with measured(namesrv_addr=("10.9.9.9:9876",)) as one:
        status, text = await get(one, "/readyz")
        page = await scrape(one)
    assert (status, text) == (503, "broker broker-a is known to none of its name servers: 10.9.9.9:9876\n")
    assert page.value("rocketlet_registered", namesrv="10.9.9.9:9876") == 0


async def test_nothing_listens_unless_configured(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        with pytest.raises(Exception, match="5557"):
            await one.network.dial(f"{one.broker.settings.now.bind_address}:5557")


async def test_with_sync_flush_send_latency_includes_the_flush(autojump_clock: trio.testing.MockClock) -> None:
    async with measured(flush_disk_type="SYNC_FLUSH") as one:
        for _ in range(3):
            assert (await one.send("T")).code == 0
        page = await scrape(one)
    assert page.value("rocketlet_put_seconds_count") == 3
