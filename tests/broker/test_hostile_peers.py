"""What one peer cannot do: end the broker, stop its background tasks, poison its next start, or fill it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio
from trio.testing import MockClock

from rocketlet.access.config import AccessConfig
from rocketlet.broker import consumer_groups, producer_groups, queue_locks
from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.consumer_groups import (
    MAX_GROUPS_OF_CONNECTION,
    ConsumerGroups,
    Consuming,
    Member,
    RegistryFull,
)
from rocketlet.broker.filter import consumer_filters
from rocketlet.broker.filter.bloom import Bloom
from rocketlet.broker.filter.consumer_filters import ConsumerFilters
from rocketlet.broker.put_again import queue_id_of
from rocketlet.broker.queue_locks import QueueLocks
from rocketlet.common.config_file import load, read_file
from rocketlet.common.message_flags import PREPARED
from rocketlet.common.message_properties import REAL_QID, REAL_TOPIC, encode
from rocketlet.common.message_record import decode
from rocketlet.common.settings import SettingsError, settings_of
from rocketlet.common.subscription import SQL92, Subscription
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.handler import Handler, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.header import Header
from rocketlet.remoting.protocol.membership import ConsumerData, HeartbeatData, LockBatchBody, ProducerData
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.protocol.replication import DEMOTE, RESUME, STOP, DemoteHeader, HandOverHeader, PromoteHeader
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.protocol.transactions import CheckTransactionStateHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.config import StoreConfig
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Put
from tests.support.memory_broker import RunningBroker, memory_broker, sql, tags
from tests.support.virtual_time import START_MS

LONG_GROUP = "g" * 250  # legal; its retry topic would have 257 characters


async def serves(one: RunningBroker) -> None:
    """Check that it accepts a message and delivers it."""
    async with one.client() as client:
        sent = await client.send("Alive", b"alive")
        assert sent.code == 0, sent.remark
        pulled = await client.pull("Alive", int((sent.ext or {})["queueId"]), int((sent.ext or {})["queueOffset"]))
        assert [record.body for record in pulled.records] == [b"alive"]


async def serves_after_a_restart(disk: MemoryDisk) -> None:
    with trio.fail_after(600):
        async with memory_broker(disk=disk) as one:
            await serves(one)


async def test_a_group_whose_retry_topic_is_too_long_gets_no_retries(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        await one.send("T", b"poison")
        (record,) = (await one.pull("T", 0, 0)).records
        await one.heartbeat("c", LONG_GROUP, tags("T"))
        back = await one.call(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackHeader(offset=record.log_offset, group=LONG_GROUP, delayLevel=1, originTopic="T"),
        )
        assert back.code == 1
        assert "at most 255 are allowed" in (back.remark or "")
        await trio.sleep(60)
        await serves(one)
    await serves_after_a_restart(disk)


@pytest.mark.parametrize(
    ("topic", "queue"),
    [("%RETRY%" + LONG_GROUP, "0"), ("x" * 200, "0"), ("T", "9" * 5000), ("T", str(1 << 40)), ("a b", "0"), ("", "")],
)
async def test_an_undeliverable_delayed_message_does_not_block_others(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, topic: str, queue: str
) -> None:
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        properties = encode({REAL_TOPIC: topic, REAL_QID: queue, "DELAY": "1"}).encode()
        host = one.broker.identity.store_host
        one.broker.store.put(Put(SCHEDULE_TOPIC, 0, b"poison", properties, 0, born_host=host, store_host=host))
        one.broker.settle()
        await one.send("T", b"after it", DELAY="1")
        await trio.sleep(5)
        assert [record.body for record in (await one.pull("T", 0, 0)).records] == [b"after it"]
        assert "can never be delivered" in caplog.text or "goes nowhere" in caplog.text
        await trio.sleep(30)
    await serves_after_a_restart(disk)


async def test_a_lone_surrogate_never_reaches_a_table(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        group = '"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING"'
        selector = '"topic":"T","subString":"a = \'\\ud800\'","expressionType":"SQL92","subVersion":5'
        body = '{"clientID":"c\\ud800","consumerDataSet":[{' + group + ',"subscriptionDataSet":[{' + selector + "}]}]}"
        assert (await one.call(RequestCode.HEART_BEAT, None, body.encode())).code == 0
        await trio.sleep(30)  # the table of filters is written
        await serves(one)
    assert b"\xef\xbf\xbd" in (disk.read_file("store/config/consumerFilter.json") or b"")
    await serves_after_a_restart(disk)


async def test_members_of_a_group_with_a_lone_surrogate_join_and_leave(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        body = b'{"consumerDataSet":[{"groupName":"g\\ud800"}],"producerDataSet":[{"groupName":"p\\ud800"}]}'
        async with one.client() as first:
            await first.call(RequestCode.HEART_BEAT, None, body)
            await one.call(RequestCode.HEART_BEAT, None, body)
        await trio.sleep(1)
        await serves(one)


@pytest.mark.parametrize("number", ["9" * 400, "1e400", "-" + "9" * 30, str(1 << 63), "0x10", "١٢٣"])
async def test_no_setting_value_ends_a_task(autojump_clock: MockClock, number: str) -> None:
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        numbers = [
            setting
            for config in one.broker.settings._loaded.configs
            for setting in settings_of(type(config))
            if setting.updatable and setting.kind in (int, float)
        ]
        assert len(numbers) > 30
        before = one.broker.settings.properties()
        for setting in numbers:
            answer = await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, f"{setting.key}={number}".encode())
            assert answer.code == 1, setting.key
        assert one.broker.settings.properties() == before
        await trio.sleep(200)
        await serves(one)
    await serves_after_a_restart(disk)


@pytest.mark.parametrize("which", ["minimum", "maximum"])
async def test_every_setting_may_be_set_to_its_bounds(autojump_clock: MockClock, which: str) -> None:
    spared = {"brokerPermission", "maxMessageSize", "startAcceptSendRequestTimeStamp"}  # they refuse sends by design
    spared |= {"diskFreeFloor", "diskSpaceWarningLevelRatio", "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio"}
    spared |= {"pullThreadPoolQueueCapacity", "maxTransferBytesOnMessageInMemory"}
    spared |= {"waitTimeMillsInSendQueue", "waitTimeMillsInPullQueue", "registerBrokerTimeoutMills"}
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        for config in one.broker.settings._loaded.configs:
            for setting in settings_of(type(config)):
                if setting.updatable and setting.kind in (int, float) and setting.key not in spared:
                    text = f"{setting.key}={getattr(setting, which)}"
                    answer = await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
                    assert answer.code == 0, (text, answer.remark)
        await trio.sleep(5)
        await serves(one)
    await serves_after_a_restart(disk)


async def test_a_half_message_without_room_for_a_check_count_stops_no_other_check(autojump_clock: MockClock) -> None:
    asked: list[bytes] = []

    def note(request: Request) -> None:
        asked.append(decode(bytes(request.body)).body)

    handlers = {int(RequestCode.CHECK_TRANSACTION_STATE): Handler(note, CheckTransactionStateHeader)}
    disk = MemoryDisk()
    settings = {"transaction_check_interval": 1000, "transaction_time_out": 0, "transaction_check_max": 3}
    async with memory_broker(disk=disk, **settings) as one, one.client(handlers) as producer:
        await producer.heartbeat("p", producer="PG")

        async def half(body: bytes, filled: int) -> int:
            return (
                await producer.send(
                    "T", body, TRAN_MSG="true", PGROUP="PG", x="y" * filled, fields={"sysFlag": PREPARED}
                )
            ).code

        # As long as a message may be: each check needs some bytes of its properties for its count.
        filled = 32_767
        while await half(b"full", filled) != 0:
            filled -= 1
        assert await half(b"other", 10) == 0
        await trio.sleep(20)
        assert sorted(asked) == [b"full"] * 3 + [b"other"] * 3
        await serves(one)
    await serves_after_a_restart(disk)


async def test_setting_the_wall_clock_a_day_ahead_closes_no_connection(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.heartbeat("c", "G", tags("T"), producer="PG")
        lock = LockBatchBody("c", "G", [WireQueue("broker-a", 0, "T")]).to_json()
        await one.call(RequestCode.LOCK_BATCH_MQ, None, lock)
        clock = one.broker.parts.clock
        one.broker.clients._clock = lambda: clock() + 86_400_000
        await trio.sleep(25)
        assert one.broker.clients.consumers.get("G") is not None
        assert one.broker.clients.producers.members("PG")
        assert one.broker.parts.locks.statistics().locks == 1
        await trio.sleep(130)
        assert one.broker.clients.consumers.get("G") is None
        assert one.broker.parts.locks.statistics().locks == 0


async def test_a_long_selector_examines_few_records_per_pull(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        for _ in range(60):
            await one.send("T", b"x", a="1")
        long = " OR ".join(f"a{number} = 1" for number in range(1000)) + " OR a = 1"
        short = await one.pull("T", 0, 0, subscription="b = 1", expressionType=SQL92)
        assert (short.code, short.ext["nextBeginOffset"]) == (20, "60")
        looked = await one.pull("T", 0, 0, subscription=long.replace("a = 1", "b = 1"), expressionType=SQL92)
        assert looked.code == 20
        assert 0 < int(looked.ext["nextBeginOffset"]) < 20
        found = await one.pull("T", 0, 0, subscription=long, expressionType=SQL92)
        assert found.code == 0
        offset, seen = 0, 0
        while offset < 60:
            found = await one.pull("T", 0, offset, subscription=long, expressionType=SQL92)
            offset = int(found.ext["nextBeginOffset"])
            seen += len(found.records)
        assert seen == 60


@pytest.mark.parametrize("kind", ["TAG", SQL92])
async def test_a_pulls_subscription_is_limited_in_length(autojump_clock: MockClock, kind: str) -> None:
    async with memory_broker() as one:
        await one.send("T", b"x")
        expression = " || ".join(["tag"] * 5000) if kind == "TAG" else " OR ".join(["a = 1"] * 5000)
        answer = await one.pull("T", 0, 0, subscription=expression, expressionType=kind)
        assert answer.code == 23


async def test_a_heartbeat_of_too_many_groups_creates_no_topics(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        before = len(one.broker.tables.topics)
        consumers = [ConsumerData(f"G{number}") for number in range(MAX_GROUPS_OF_CONNECTION + 1)]
        answer = await one.call(RequestCode.HEART_BEAT, None, HeartbeatData("c", [], consumers).to_json())
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert len(one.broker.tables.topics) == before


async def test_heartbeat_contents_are_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "MAX_SIZE", 100_000)
    async with memory_broker() as one:
        codes = [(await one.heartbeat("c", f"G{n}", tags("T", "x" * 10_000))).code for n in range(12)]
        assert codes == [0] * 4 + [2] * 8
        assert (await one.heartbeat("c", "G0", tags("T", "x"))).code == 0
        assert (await one.heartbeat("c", "G5", tags("T", "x" * 5_000))).code == 0
        assert (await one.heartbeat("x" * 2000, "G0", tags("T"))).code == 1


def member(connection: object) -> Member:
    return Member(connection, "c", "JAVA", 400, 0)  # type: ignore[arg-type]


def test_groups_of_a_connection_are_bounded() -> None:
    groups = ConsumerGroups()
    connection = object()
    for number in range(consumer_groups.MAX_GROUPS_OF_CONNECTION):
        groups.register(member(connection), Consuming(f"G{number}", "", "", "", []))
    with pytest.raises(RegistryFull):
        groups.register(member(connection), Consuming("more", "", "", "", []))
    groups.register(member(object()), Consuming("more", "", "", "", []))
    groups.register(member(connection), Consuming("G0", "", "", "", []))


def test_groups_that_left_free_their_bytes() -> None:
    groups = ConsumerGroups()
    connection = object()
    for number in range(50):
        groups.register(member(connection), Consuming(f"G{number % 7}", "", "", "", [Subscription("T", "x" * number)]))
    groups.connection_closed(connection)  # type: ignore[arg-type]
    assert groups._size == 0


def test_locks_are_bounded_over_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MAX_LOCKS", 10)
    locks: QueueLocks[int] = QueueLocks()
    granted = [locks.lock(f"G{number}", "c", [1, 2], 0) for number in range(10)]
    assert granted == [[1, 2]] * 5 + [[]] * 5
    assert locks.statistics().groups == 5
    locks.unlock("G0", "c", [1, 2])
    assert locks.lock("G9", "c", [1], 0) == [1]
    locks.expire(1_000_000)
    assert (locks.statistics().locks, locks._groups) == (0, {})
    assert locks.lock("g" * 300, "c", [1], 0) == []


def test_filters_are_bounded_by_their_text_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filters, "MAX_CHARACTERS", 100)
    filters = ConsumerFilters(Bloom.for_groups(32, 20))
    for number in range(20):
        expression = "a = 1 AND b = " + "7" * 10
        filters.register(f"G{number}", [Subscription("T", expression, SQL92, version=1)], START_MS)
    assert len(filters) == 4
    filters.register("G0", [Subscription("T", "a = 1", SQL92, version=2)], START_MS)
    filters.register("G19", [Subscription("T", "a = 1 AND b = 7", SQL92, version=1)], START_MS)
    assert len(filters) == 5
    filters.register("G20", [Subscription("x" * 1000, "a = 1", SQL92, version=1)], START_MS)
    assert len(filters) == 5


@pytest.mark.parametrize(
    ("text", "queue_id"),
    [
        ("0", 0),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("9" * 5000, None),
        ("-1", None),
        ("", None),
        ("٣", None),
    ],
)
def test_a_queue_id_in_a_property(text: str, queue_id: int | None) -> None:
    assert queue_id_of(text) == queue_id


async def test_sending_back_a_message_of_a_missing_topic(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", b"again")
        (record,) = (await one.pull("T", 0, 0)).records
        for number in range(20):
            header = ConsumerSendMsgBackHeader(
                offset=record.log_offset, group="CG", delayLevel=1, originTopic="x" * 1000 + str(number)
            )
            assert (await one.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
        assert list(one.broker.statistics._sent_back) == [("CG", "T")]


async def test_an_sql_heartbeat_for_an_invalid_topic_keeps_no_filter(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.heartbeat("c", "G", sql("no such\ntopic", "a = 1"))
        assert len(one.broker.tables.filters) == 0


@pytest.mark.parametrize("address", ["x", ":", "1.2.3.4:99999", "10.0.0.1:0", "h" * 300 + ":1", "a b:1", "a\n:1"])
async def test_a_broker_does_not_follow_an_invalid_address(autojump_clock: MockClock, address: str) -> None:
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        assert (await one.call(RequestCode.DEMOTE_MASTER, DemoteHeader(3, address))).code == 1
        assert (await one.call(RequestCode.HAND_OVER, HandOverHeader(STOP))).code == 0
        assert (await one.call(RequestCode.HAND_OVER, HandOverHeader(DEMOTE, 3, address))).code == 1
        assert (await one.call(RequestCode.HAND_OVER, HandOverHeader(DEMOTE, 0, "10.0.0.1:10912"))).code == 1
        assert (await one.call(RequestCode.HAND_OVER, HandOverHeader(RESUME))).code == 0
        assert (await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, f"haMasterAddress={address}".encode())).code == 1
        await trio.sleep(20)
        await serves(one)
    await serves_after_a_restart(disk)


async def test_parked_pulls_are_limited_by_the_setting(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"pullThreadPoolQueueCapacity=2")
        await one.send("T")
        codes: list[int] = []

        async def hold() -> None:
            codes.append((await one.pull("T", 0, 1, sysFlag=6, suspendTimeoutMillis=15_000)).code)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(hold)
            await trio.sleep(1)
            assert codes == [2]
        assert sorted(codes) == [2, 19, 19]


async def test_an_unserved_setting_is_refused_by_name(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        answer = await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"deleteWhen=05\nhighSpeedMode=true")
        assert answer.code == 1
        assert "highSpeedMode is not served" in (answer.remark or "")
        assert one.broker.store.config.delete_when == ("04",)


async def test_changing_the_permission_changes_the_topics_version(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        before = one.broker.tables.topics.version.counter
        await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=4")
        assert one.broker.tables.topics.version.counter == before + 1


async def test_delayed_messages_are_counted_when_they_are_delivered(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", DELAY="1")
        assert one.broker.statistics.put_of("T") == (0, 0)
        await trio.sleep(3)
        assert one.broker.statistics.put_of("T")[0] == 1


async def test_all_rocketmq_settings_are_shown_and_can_be_sent_back(autojump_clock: MockClock, vectors: Path) -> None:
    text = (vectors / "config" / "broker-defaults.properties").read_text()
    known = {line.partition("=")[0] for line in text.splitlines() if line and not line.startswith("#")}
    forbidden = (b"storePath", b"configBlackList", b"rocketmqHome")
    async with memory_broker() as one:
        body = bytes((await one.call(RequestCode.GET_BROKER_CONFIG)).body)
        shown = {line.partition(b"=")[0].decode() for line in body.splitlines()}
        assert known <= shown
        back = b"\n".join(line for line in body.splitlines() if not line.startswith(forbidden))
        answer = await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, back)
        assert "not served" not in (answer.remark or "")


def test_a_broker_starts_with_a_broker_conf_from_the_field(tmp_path: Path) -> None:
    text = """
    brokerClusterName=rocketmq-cluster
    brokerName=broker-a.example.com
    brokerId=0
    storePathRootDir=/data/store
    storePathCommitLog=/data/store/commitlog
    storePathConsumeQueue=/data/store/consumequeue
    storePathConsumerQueue=/data/store/consumequeue
    storePathIndex=/data/store/index
    storeCheckpoint=/data/store/checkpoint
    abortFile=/data/store/abort
    checkTransactionMessageEnable=false
    #sendMessageThreadPoolNums=128
    sendMessageThreadPoolNums=128
    """
    file = tmp_path / "broker.conf"
    file.write_text("\n".join(line.strip() for line in text.splitlines()))
    loaded = load(BrokerConfig, StoreConfig, file=read_file(file))
    assert loaded[BrokerConfig].broker_name == "broker-a.example.com"
    assert len(loaded.warnings) == 7
    with pytest.raises(SettingsError):
        load(BrokerConfig, flags={"storePathConsumQueue": "x"})


@pytest.mark.parametrize("name", ["a b", "a/b", "a\nb", "ä"])
def test_a_broker_name_that_would_break_other_programs_is_refused(name: str) -> None:
    with pytest.raises(SettingsError):
        BrokerConfig(broker_name=name)
    with pytest.raises(SettingsError):
        BrokerConfig(broker_cluster_name=name)


@pytest.mark.parametrize("key", ["broker_name", "broker_cluster_name"])
async def test_a_broker_whose_name_has_a_dot(autojump_clock: MockClock, key: str) -> None:
    disk = MemoryDisk()
    for _ in range(2):
        async with memory_broker(disk=disk, **{key: "a.example.com"}) as one:  # type: ignore[arg-type]
            await serves(one)
            assert one.broker.tables.topics.get("a.example.com") is None


async def test_a_heartbeat_is_answered_when_the_name_server_knows_the_retry_topic(autojump_clock: MockClock) -> None:
    """Official clients ask for its route as soon as they have the answer."""
    network = MemoryNetwork(delay=0.01)
    async with trio.open_nursery() as nursery:
        flags = {"listenPort": "0", "kvConfigPath": "kv", "configStorePath": "conf"}
        loaded = load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags)
        server = NameServer(loaded, network, files=MemoryFiles())
        address: str = await nursery.start(server.run)
        async with memory_broker(network=network, namesrv_addr=address) as one:
            for number in range(5):
                await one.heartbeat("c", f"g{number}", tags("T"))
                ask = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": f"%RETRY%g{number}"})
                assert (await one.pool.call(address, ask, 5)).code == 0, number
            network.isolate(address)
            began = trio.current_time()
            assert (await one.heartbeat("c", "late", tags("T"))).code == 0
            assert trio.current_time() - began < 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_role_changes_during_another_are_answered(autojump_clock: MockClock, steps: int) -> None:
    """A superseded promotion waited forever, and blocked all later ones."""
    disk = MemoryDisk()
    async with memory_broker(disk=disk) as one:
        assert (await one.call(RequestCode.DEMOTE_MASTER, DemoteHeader(3, "10.0.0.9:1"))).code == 0
        codes: list[int] = []

        async def ask(code: RequestCode, header: Header, after: int) -> None:
            for _ in range(after):
                await trio.lowlevel.checkpoint()
            async with one.client() as client:
                codes.append((await client.call(code, header)).code)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, RequestCode.PROMOTE_SLAVE, PromoteHeader(force=True), 0)
                nursery.start_soon(ask, RequestCode.DEMOTE_MASTER, DemoteHeader(4, "10.0.0.9:2"), steps)
                nursery.start_soon(ask, RequestCode.DEMOTE_MASTER, DemoteHeader(5, "10.0.0.9:3"), steps + 5)
        assert len(codes) == 3
        if one.broker.identity.slave:
            assert (await one.call(RequestCode.PROMOTE_SLAVE, PromoteHeader(force=True))).code == 0
        await serves(one)
    await serves_after_a_restart(disk)


async def test_a_message_at_the_maximum_retry_count_can_be_sent_back(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", fields={"reconsumeTimes": (1 << 31) - 1})
        (record,) = (await one.pull("T", 0, 0)).records
        await one.heartbeat("c", "g", tags("T"))
        header = ConsumerSendMsgBackHeader(offset=record.log_offset, group="g", delayLevel=1, originTopic="T")
        assert (await one.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
        await serves(one)


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.CHECK_CLIENT_CONFIG,
    ],
)
async def test_a_body_about_a_single_thing_must_be_short(autojump_clock: MockClock, code: RequestCode) -> None:
    async with memory_broker() as one:
        answer = await one.call(code, None, b"{" + b" " * (128 << 10) + b"}")
        assert answer.code == 1
        assert "are allowed" in (answer.remark or "")


async def test_the_groups_of_producers_are_bounded(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may be in a thousand groups, and there may be 50,000 connections."""
    monkeypatch.setattr(producer_groups, "MAX_SIZE", 10_000)
    async with memory_broker() as one, one.client() as other:
        beat = HeartbeatData("c", [ProducerData(f"P{number}" + "x" * 200) for number in range(30)])
        assert (await one.call(RequestCode.HEART_BEAT, None, beat.to_json())).code == ResponseCode.SYSTEM_BUSY
        assert one.broker.clients.producers.statistics().members == 20
        one.pool.connections[one.address].close()
        await trio.sleep(1)
        assert (await other.heartbeat("d", producer="P")).code == 0
        assert one.broker.clients.producers.statistics().members == 1


def test_filters_of_a_group_are_found_without_those_of_others() -> None:
    class Topics(dict[str, Any]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("all topics are gone through")

        values = items = keys = __iter__  # type: ignore[assignment]

    filters = ConsumerFilters(Bloom.for_groups(32, 20))
    filters._topics = Topics()
    for topic in ("T", "U"):
        filters.register("g", [Subscription("T", "a = 1", SQL92), Subscription("U", "a = 2", SQL92)], 1)
        filters.register("h", [Subscription(topic, "a = 1", SQL92)], 1)
    assert {known.topic for known in filters.of_group("g")} == {"T", "U"}
    filters.group_left("g", 2)
    assert all(known.dead for known in filters.of_group("g"))
    assert not any(known.dead for known in filters.of_group("h") if known.topic == "U")
