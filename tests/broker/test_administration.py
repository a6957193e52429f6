"""Administrators' requests: answered in RocketMQ's forms, with changes on disk before the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rocketlet.broker.handlers import client_relays
from rocketlet.common import fastjson
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_record import decode
from rocketlet.common.subscription import SQL92
from rocketlet.remoting.command import Command, Language
from rocketlet.remoting.handler import Handler, HandlerTable, Reply, Request
from rocketlet.remoting.protocol.configuration import CreateTopicHeader, SubscriptionGroupConfig
from rocketlet.remoting.protocol.inspection import ConsumeMessageDirectlyHeader, GetConsumerRunningInfoHeader
from rocketlet.remoting.protocol.membership import SubscriptionData
from rocketlet.remoting.protocol.offsets import (
    ConsumerStatusBody,
    ConsumerStatusHeader,
    ResetOffsetBody,
    ResetOffsetHeader,
)
from rocketlet.remoting.request_codes import RequestCode as Code
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.layout.file_names import TOMBSTONES
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import NAME, ROOT, Client, RunningBroker, memory_broker, tags
from tests.support.virtual_time import START_MS


async def ask(client: Client, code: int, body: bytes = b"", **ext: Any) -> Command:
    return await client.call(code, {name: str(value) for name, value in ext.items()}, body)


async def answer_of(client: Client, code: int, body: bytes = b"", **ext: Any) -> Any:
    """The JSON of a successful answer."""
    answer = await ask(client, code, body, **ext)
    assert answer.code == 0, answer
    return fastjson.loads(bytes(answer.body))


def on_disk(one: RunningBroker, table: str) -> Any:
    """A table as it would be after a power cut now."""
    disk: MemoryDisk = one.disk.crash(Random(3))
    return users(json.loads(disk.read_file(f"{ROOT}/config/{table}.json") or b"{}"))


def users(body: Any) -> Any:
    """The table without the broker's own offsets for transactions."""
    for name in [name for name in body.get("offsetTable", ()) if name.endswith("@CID_RMQ_SYS_TRANS")]:
        del body["offsetTable"][name]
    return body


async def topic(one: RunningBroker, name: str = "T", queues: int = 2) -> None:
    header = CreateTopicHeader(name, readQueueNums=queues, writeQueueNums=queues)
    assert (await one.call(Code.UPDATE_AND_CREATE_TOPIC, header)).code == 0


async def commit(one: RunningBroker, group: str, queue_id: int, offset: int, name: str = "T") -> None:
    await ask(one, Code.UPDATE_CONSUMER_OFFSET, consumerGroup=group, topic=name, queueId=queue_id, commitOffset=offset)


def key(queue_id: int, name: str = "T") -> str:
    """A queue as a key of a body's map."""
    return f'{{"brokerName":"{NAME}","queueId":{queue_id},"topic":"{name}"}}'


class TestTopics:
    async def test_creation_and_change_are_on_disk_before_the_answer(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            header = CreateTopicHeader("T", readQueueNums=3, writeQueueNums=5, perm=4, topicSysFlag=2)
            assert (await one.call(Code.UPDATE_AND_CREATE_TOPIC, header)).code == 0
            expected = {
                "order": False,
                "perm": 4,
                "readQueueNums": 3,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "T",
                "topicSysFlag": 2,
                "writeQueueNums": 5,
            }
            assert on_disk(one, "topics")["topicConfigTable"]["T"] == expected
            table = await answer_of(one, Code.GET_ALL_TOPIC_CONFIG)
            assert table["topicConfigTable"]["T"] == expected
            assert table["dataVersion"].keys() == {"counter", "timestamp"}

    @pytest.mark.parametrize("name", ["", "a b", "../x", "t" * 128, "TBW102", "DefaultCluster", NAME, "rmq_sys_x"])
    async def test_invalid_names_are_refused(self, autojump_clock: MockClock, name: str) -> None:
        async with memory_broker() as one:
            for code in (Code.UPDATE_AND_CREATE_TOPIC, Code.DELETE_TOPIC_IN_BROKER):
                assert (await ask(one, code, topic=name)).code == ResponseCode.SYSTEM_ERROR

    async def test_invalid_numbers_are_refused(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            for wrong in ({"readQueueNums": -1}, {"writeQueueNums": 65536}, {"perm": 16}):
                answer = await one.call(Code.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader(topic="T", **wrong))
                assert answer.code == ResponseCode.SYSTEM_ERROR
            assert one.broker.tables.topics.get("T") is None

    async def test_deletion_removes_everything_of_the_topic(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await one.send("T", b"gone")
            await commit(one, "G", 0, 1)
            assert (await ask(one, Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            assert "T" not in on_disk(one, "topics")["topicConfigTable"]
            assert "T@G" not in on_disk(one, "consumerOffset")["offsetTable"]
            assert (await answer_of(one, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T"))["groupList"] == []
            assert one.broker.store.queue("T", 0) is None
            assert (await ask(one, Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            await one.send("T", b"new")
            assert [record.body for record in (await one.pull("T", 0, 0)).records] == [b"new"]

    async def test_a_deleted_topic_does_not_come_back_after_a_kill(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            for queue_id in (0, 1):
                await one.send("T", b"gone", queue_id)
                await one.send("U", b"stays", queue_id)
            assert (await ask(one, Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            disk = one.disk.copy()
            await one.send("T", b"new", 1)
            recreated = one.disk.copy()
        async with memory_broker(disk=disk) as one:
            assert one.broker.store.queue("T", 0) is None
            await one.send("T", b"new", 0)
            assert [record.body for record in (await one.pull("T", 0, 0)).records] == [b"new"]
            assert [record.body for record in (await one.pull("U", 1, 0)).records] == [b"stays"]
        async with memory_broker(disk=recreated) as one:
            assert one.broker.store.queue("T", 0) is None
            assert [record.body for record in (await one.pull("T", 1, 0)).records] == [b"new"]

    async def test_a_kill_at_any_step_leaves_a_topic_whole_or_deleted(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its files go only when the next start knows why."""
        killed: list[MemoryDisk] = []
        async with memory_broker(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=200) as one:
            for queue_id in range(4):
                await one.send("T", b"gone", queue_id)
            await one.send("U", b"stays")
            change = MemoryDisk._change

            def noting(disk: MemoryDisk) -> None:
                if disk is one.disk:
                    killed.append(disk.copy())
                change(disk)

            monkeypatch.setattr(MemoryDisk, "_change", noting)
            assert (await ask(one, Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            monkeypatch.undo()
        seen = set()
        for disk in killed:
            is_noted = b'"T"' in (disk.read_file(f"{ROOT}/{TOMBSTONES}") or b"")
            files = sum("/consumequeue/T/" in path for path in disk.files())
            seen.add((is_noted, files))
            async with memory_broker(
                disk=disk, mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=200
            ) as one:
                queues = len(one.broker.store.queues.of_topic("T"))
                assert queues == (0 if is_noted else 4)
                assert one.broker.store.queue_end("U", 0) == 1
        assert {(True, files) for files in range(1, 5)} <= seen
        assert {files for is_noted, files in seen if not is_noted} == {4}

    async def test_a_topic_deleted_later_in_the_log_than_a_power_cut_left_of_it_can_be_made_again(
        self, autojump_clock: MockClock
    ) -> None:
        async with memory_broker() as one:
            await one.send("T", b"gone")
            await ask(one, Code.DELETE_TOPIC_IN_BROKER, topic="T")
            end = one.broker.store.log.end
            disk = one.disk.copy()
        tombstones = json.loads(disk.read_file(f"{ROOT}/{TOMBSTONES}") or b"")
        tombstones["gone"][0][3] = end + 100_000
        disk.write_file(f"{ROOT}/{TOMBSTONES}", json.dumps(tombstones).encode())
        async with memory_broker(disk=disk) as one:
            assert (await one.send("T", b"new")).code == 0
            disk = one.disk.copy()
        async with memory_broker(disk=disk) as one:
            assert [record.body for record in (await one.pull("T", 0, 0)).records] == [b"new"]

    async def test_a_slave_changes_nothing(self, autojump_clock: MockClock) -> None:
        async with memory_broker(broker_role="SLAVE", broker_id=1) as one:
            assert (await ask(one, Code.UPDATE_AND_CREATE_TOPIC, topic="T")).code == ResponseCode.SYSTEM_ERROR
            assert (await ask(one, Code.DELETE_TOPIC_IN_BROKER, topic="T")).code == ResponseCode.SYSTEM_ERROR
            body = SubscriptionGroupConfig(groupName="G").to_json()
            for code in (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.DELETE_SUBSCRIPTIONGROUP):
                assert (await ask(one, code, body)).code == ResponseCode.SYSTEM_ERROR

    async def test_a_failing_disk_is_reported(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            write_file = one.disk.write_file

            def full(path: str, data: bytes) -> None:
                raise OSError(28, "No space left on device", path)

            one.disk.write_file = full  # type: ignore[method-assign]
            answer = await ask(one, Code.UPDATE_AND_CREATE_TOPIC, topic="T")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "topics.json" in (answer.remark or "")
            one.disk.write_file = write_file  # type: ignore[method-assign]

    async def test_system_topics(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            names = (await answer_of(one, Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
            assert {"TBW102", "DefaultCluster", NAME, "DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC"} <= set(names)

    async def test_queue_statistics(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic(one)
            await one.send("T", queue_id=1)
            table = (await answer_of(one, Code.GET_TOPIC_STATS_INFO, topic="T"))["offsetTable"]
            assert table == {
                key(0): {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0},
                key(1): {"lastUpdateTimestamp": START_MS, "maxOffset": 1, "minOffset": 0},
            }
            assert (await ask(one, Code.GET_TOPIC_STATS_INFO, topic="U")).code == ResponseCode.TOPIC_NOT_EXIST


class TestGroups:
    async def test_creation_change_and_deletion_are_on_disk(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            group = SubscriptionGroupConfig(groupName="G", retryMaxTimes=3, consumeBroadcastEnable=False)
            for times in (3, 5):
                group.retryMaxTimes = times
                answer = await ask(one, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.to_json())
                assert answer.code == 0
                assert on_disk(one, "subscriptionGroup")["subscriptionGroupTable"]["G"]["retryMaxTimes"] == times
            table = (await answer_of(one, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]
            assert table["G"] == fastjson.loads(group.to_json())
            assert "TOOLS_CONSUMER" in table
            await commit(one, "G", 0, 5)
            assert (await ask(one, Code.DELETE_SUBSCRIPTIONGROUP, groupName="G")).code == 0
            assert one.broker.tables.offsets.get("G", "T", 0) == 5
            assert (await ask(one, Code.DELETE_SUBSCRIPTIONGROUP, groupName="G", removeOffset="true")).code == 0
            assert "G" not in on_disk(one, "subscriptionGroup")["subscriptionGroupTable"]
            assert on_disk(one, "consumerOffset")["offsetTable"] == {}

    @pytest.mark.parametrize("name", ["", "a b", "g" * 256])
    async def test_invalid_names_are_refused(self, autojump_clock: MockClock, name: str) -> None:
        async with memory_broker() as one:
            body = SubscriptionGroupConfig(groupName=name).to_json()
            answer = await ask(one, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR


class TestSettings:
    async def test_shown_and_changed(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            shown = await ask(one, Code.GET_BROKER_CONFIG)
            lines = bytes(shown.body).decode().splitlines()
            assert {"brokerName=broker-a", "fileReservedTime=72", "flushDiskType=ASYNC_FLUSH"} <= set(lines)
            assert shown.ext is not None
            before = fastjson.loads(shown.ext["version"])
            assert (await ask(one, Code.UPDATE_BROKER_CONFIG, b"deleteWhen=05\nmaxMessageSize=10\n")).code == 0
            shown = await ask(one, Code.GET_BROKER_CONFIG)
            assert "deleteWhen=05" in bytes(shown.body).decode().splitlines()
            assert shown.ext is not None
            assert fastjson.loads(shown.ext["version"])["counter"] == before["counter"] + 1
            assert (await one.send("T", b"x" * 11)).code == ResponseCode.MESSAGE_ILLEGAL

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            (b"storePathRootDir=/etc", ResponseCode.NO_PERMISSION),
            (b"rocketmqHome=/etc", ResponseCode.NO_PERMISSION),
            (b"brokerConfigPath=/etc", ResponseCode.NO_PERMISSION),
            (b"configBlackList=", ResponseCode.NO_PERMISSION),
            (b"listenPort=1", ResponseCode.SYSTEM_ERROR),
            (b"brokerName=other", ResponseCode.SYSTEM_ERROR),
            (b"nobodyKnows=1", ResponseCode.SYSTEM_ERROR),
            (b"maxMessageSize=many", ResponseCode.SYSTEM_ERROR),
            (b"maxMessageSize=5\nbrokerPermission=9", ResponseCode.SYSTEM_ERROR),
            (b"\\u12", ResponseCode.SYSTEM_ERROR),
            (b"aclEnable=true", ResponseCode.SYSTEM_ERROR),
            (b"", ResponseCode.SUCCESS),
        ],
    )
    async def test_fixed_settings_cannot_be_changed(self, autojump_clock: MockClock, text: bytes, code: int) -> None:
        async with memory_broker() as one:
            before = bytes((await ask(one, Code.GET_BROKER_CONFIG)).body)
            answer = await ask(one, Code.UPDATE_BROKER_CONFIG, text)
            assert answer.code == code
            assert bool(answer.remark) == bool(code)
            assert bytes((await ask(one, Code.GET_BROKER_CONFIG)).body) == before

    async def test_the_length_of_bit_maps_follows_from_other_settings(self, autojump_clock: MockClock) -> None:
        for settings, expected in (({}, 112), ({"expect_consumer_num_use_filter": 100}, 336)):
            async with memory_broker(**settings) as one:
                lines = bytes((await ask(one, Code.GET_BROKER_CONFIG)).body).decode().splitlines()
                assert f"bitMapLengthConsumeQueueExt={expected}" in lines
                assert one.broker.tables.filters.bloom.bits == expected
                for bits, code in ((expected, ResponseCode.SUCCESS), (64, ResponseCode.SYSTEM_ERROR)):
                    text = f"bitMapLengthConsumeQueueExt={bits}".encode()
                    assert (await ask(one, Code.UPDATE_BROKER_CONFIG, text)).code == code


class TestOffsets:
    async def test_offsets_of_queues(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic(one)
            for _ in range(3):
                await one.send("T")
                await trio.sleep(10)
            queue = {"topic": "T", "queueId": 0}
            lower, upper = {"boundaryType": "LOWER"}, {"boundaryType": "upper"}
            for code, ext, name, value in [
                (Code.GET_MAX_OFFSET, {}, "offset", "3"),
                (Code.GET_MIN_OFFSET, {}, "offset", "0"),
                (Code.GET_EARLIEST_MSG_STORETIME, {}, "timestamp", str(START_MS)),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": START_MS + 10_000}, "offset", "1"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": START_MS + 15_000}, "offset", "1"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": START_MS + 15_001}, "offset", "2"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": 0}, "offset", "0"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": START_MS + 99_000}, "offset", "2"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": START_MS + 12_000} | lower, "offset", "2"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": START_MS + 99_000} | lower, "offset", "3"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": START_MS + 19_000} | upper, "offset", "1"),
                (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": 0} | upper, "offset", "0"),
            ]:
                answer = await ask(one, code, **queue, **ext)
                assert (answer.code, answer.ext) == (0, {name: value}), (code, ext)
            unknown = {"topic": "nowhere", "queueId": 9}
            assert (await ask(one, Code.GET_MAX_OFFSET, **unknown)).ext == {"offset": "0"}
            assert (await ask(one, Code.GET_MIN_OFFSET, **unknown)).ext == {"offset": "0"}
            assert (await ask(one, Code.GET_EARLIEST_MSG_STORETIME, **unknown)).ext == {"timestamp": "-1"}

    async def test_offsets_of_groups(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            place = {"consumerGroup": "G", "topic": "T", "queueId": 0}
            young = await ask(one, Code.QUERY_CONSUMER_OFFSET, **place)
            assert (young.code, young.ext) == (0, {"offset": "0"})
            for offset, expected in ((7, "7"), (3, "3"), (-1, "0")):
                answer = await ask(one, Code.UPDATE_CONSUMER_OFFSET, **place, commitOffset=offset)
                assert answer.code == 0
                assert (await ask(one, Code.QUERY_CONSUMER_OFFSET, **place)).ext == {"offset": expected}
            bad = await ask(one, Code.UPDATE_CONSUMER_OFFSET, **(place | {"topic": "a@b"}), commitOffset=1)
            assert bad.code == ResponseCode.SYSTEM_ERROR

    async def test_a_new_group_on_an_old_queue_has_no_offset(self, autojump_clock: MockClock) -> None:
        async with memory_broker(access_message_in_memory_max_ratio=0) as one:
            await one.send("T")
            answer = await ask(one, Code.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="T", queueId=0)
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"

    async def test_offsets_are_written_every_five_seconds_and_at_shutdown(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            place = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "5"}
            await one.call(Code.UPDATE_CONSUMER_OFFSET, place, version=121)
            await trio.sleep(5.1)
            assert on_disk(one, "consumerOffset")["offsetTable"] == {"T@G": {"0": 5}}
            await one.call(Code.UPDATE_CONSUMER_OFFSET, place | {"commitOffset": "6"}, version=121)
        async with memory_broker(disk=one.disk) as again:
            assert users(await answer_of(again, Code.GET_ALL_CONSUMER_OFFSET)) == {"offsetTable": {"T@G": {"0": 6}}}
            before = json.loads(again.disk.read_file(f"{ROOT}/config/consumerOffset.json.bak") or b"")
            assert users(before) == {"offsetTable": {"T@G": {"0": 5}}}

    async def test_awaited_commits_are_on_disk_before_the_answer(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await commit(one, "G", 0, 5)
            assert on_disk(one, "consumerOffset")["offsetTable"] == {"T@G": {"0": 5}}
            place = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "6"}
            assert (await one.call(Code.UPDATE_CONSUMER_OFFSET, place, version=121)).code == 0
            assert on_disk(one, "consumerOffset")["offsetTable"] == {"T@G": {"0": 5}}

    async def test_copies_to_another_group_are_on_disk(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic(one)
            await commit(one, "G", 1, 5)
            await commit(one, "G", 0, 7, "gone")
            assert (await ask(one, Code.CLONE_GROUP_OFFSET, srcGroup="G", destGroup="H")).code == 0
            assert on_disk(one, "consumerOffset")["offsetTable"]["T@H"] == {"1": 5}
            assert one.broker.tables.offsets.topics_of("H") == ["T"]

    async def test_corrections(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            for group, offset in (("A", 5), ("B", 3), ("C", 1)):
                await commit(one, group, 0, offset)
            answer = await answer_of(one, Code.QUERY_CORRECTION_OFFSET, compareGroup="B", topic="T", filterGroups="C,X")
            assert answer == {"correctionOffsets": {"0": 3}}
            behind = await answer_of(one, Code.QUERY_CORRECTION_OFFSET, compareGroup="C", topic="T", filterGroups="C")
            assert behind == {"correctionOffsets": {"0": (1 << 63) - 1}}


class TestProgress:
    async def test_progress_of_one_group_and_of_all_groups(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic(one)
            for _ in range(4):
                await one.send("T")
                await trio.sleep(1)
            await commit(one, "CG", 0, 3)
            await commit(one, "CG", 0, 1, "gone")
            await one.pull("T", 0, 0)
            await trio.sleep(10)
            await one.pull("T", 0, 0)
            await trio.sleep(10)
            stats = await answer_of(one, Code.GET_CONSUME_STATS, consumerGroup="CG")
            assert stats["offsetTable"] == {
                key(0): {"brokerOffset": 4, "consumerOffset": 3, "lastTimestamp": START_MS + 2000},
                key(1): {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
            }
            assert stats["consumeTps"] > 0
            assert (await answer_of(one, Code.GET_CONSUME_STATS, consumerGroup="X"))["offsetTable"] == {}
            everything = await answer_of(one, Code.GET_BROKER_CONSUME_STATS, isOrder="false")
            assert everything["brokerAddr"] == one.broker.identity.address
            assert everything["totalDiff"] == 1
            groups = {name: stats for entry in everything["consumeStatsList"] for name, stats in entry.items()}
            assert len(groups["CG"]) == 1
            assert groups["TOOLS_CONSUMER"] == []
            ordered = await answer_of(one, Code.GET_BROKER_CONSUME_STATS, isOrder="true")
            assert ordered["totalDiff"] == 0

    async def test_topics_the_online_group_does_not_subscribe_to_are_omitted(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic(one)
            await commit(one, "CG", 0, 1)
            await one.heartbeat("c", "CG", tags("U"))
            assert (await answer_of(one, Code.GET_CONSUME_STATS, consumerGroup="CG"))["offsetTable"] == {}
            assert (await answer_of(one, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="U"))["groupList"] == ["CG"]
            assert (await answer_of(one, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T"))["groupList"] == ["CG"]

    async def test_offsets_by_time(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic(one, queues=1)
            for _ in range(3):
                await one.send("T")
                await trio.sleep(10)
            await commit(one, "CG", 0, 2)
            [span] = (await answer_of(one, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="CG"))["consumeTimeSpanSet"]
            assert span["messageQueue"] == {"brokerName": NAME, "queueId": 0, "topic": "T"}
            assert (span["minTimeStamp"], span["maxTimeStamp"]) == (START_MS, START_MS + 20_000)
            assert (span["consumeTimeStamp"], span["delayTime"]) == (START_MS + 10_000, 10_000)
            assert span["consumeTimeStampStr"].endswith(":000")
            unknown = await ask(one, Code.QUERY_CONSUME_TIME_SPAN, topic="U", group="CG")
            assert unknown.code == ResponseCode.TOPIC_NOT_EXIST

    async def test_entries_of_a_queue(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            for n in range(4):
                await one.send("T", TAGS="AB"[n % 2])
            await one.heartbeat("c", "CG", tags("T", "B"))
            request = {"topic": "T", "queueId": 0, "index": 1, "count": 2}
            body = await answer_of(one, Code.QUERY_CONSUME_QUEUE, **request, consumerGroup="CG")
            assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 4)
            assert [(entry["tagsCode"], entry["eval"]) for entry in body["queueData"]] == [(66, False), (65, False)]
            assert body["subscriptionData"]["subString"] == "B"
            offline = await answer_of(one, Code.QUERY_CONSUME_QUEUE, **request, consumerGroup="X")
            assert offline["filterData"] == "X@T is not online!"
            missing = await ask(one, Code.QUERY_CONSUME_QUEUE, **(request | {"index": 99}))
            assert (missing.code, missing.body) == (0, b"")
            assert missing.remark == "Index 99 of 0@T is not exist!"
            nowhere = await ask(one, Code.QUERY_CONSUME_QUEUE, **(request | {"queueId": 9}))
            assert (nowhere.code, nowhere.remark) == (1, "9@T is not exist!")

    async def test_extended_entries_are_evaluated(self, autojump_clock: MockClock) -> None:
        async with memory_broker(enable_consume_queue_ext=True, enable_calc_filter_bit_map=True) as one:
            sql = SubscriptionData("T", "a > 5", subVersion=1, expressionType=SQL92)
            await one.heartbeat("c1", "CG", sql)
            await one.heartbeat("c2", "TAGS", tags("T", "B"))
            await trio.sleep(1)
            for number in (3, 9):
                await one.send("T", TAGS="AB"[number % 2], a=str(number))
            request = {"topic": "T", "queueId": 0, "index": 0, "count": 2}
            for group, expected in (("CG", [False, True]), ("TAGS", [True, True])):
                body = await answer_of(one, Code.QUERY_CONSUME_QUEUE, **request, consumerGroup=group)
                assert [entry["eval"] for entry in body["queueData"]] == expected, group
            assert [json.loads(entry["extendDataJson"])["tagsCode"] for entry in body["queueData"]] == [66, 66]
            assert [entry["bitMap"].count("1") for entry in body["queueData"]] == [0, 3]


class TestNumbers:
    async def test_runtime_info(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            for _ in range(20):
                await one.send("T", b"x")
                await one.pull("T", 0, 0, maxMsgNums=1)
                await trio.sleep(1)
            await one.send("T", DELAY="18")
            table = (await answer_of(one, Code.GET_BROKER_RUNTIME_INFO))["table"]
            assert all(isinstance(value, str) for value in table.values())
            assert table["msgPutTotalTodayNow"] == "21"
            assert table["msgGetTotalTodayNow"] == "20"
            assert [float(one) for one in table["putTps"].split()] == pytest.approx([1, 1, 1], abs=0.2)
            assert table["commitLogMaxOffset"] == str(one.broker.store.log.end)
            assert table["scheduleMessageOffset_18"] == "0,1"
            assert table["earliestMessageTimeStamp"] == str(START_MS)
            assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 20 seconds ]"
            assert table["brokerVersionDesc"] == "V4_9_8"

    async def test_failed_puts_are_those_of_the_store(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await topic(one, queues=1)
            # What a Java broker counts of these.
            for counted, body, fields in (
                (0, b"x", {"queueId": 9}),
                (0, b"x", {"topic": "New", "defaultTopic": "none"}),
                (0, b"x", {"properties": "p\x01" + "x" * 40_000}),
                (1, b"x", {"properties": "p\x01" + "中" * 12_000}),
                (1, b"x" * ((1 << 16) + 1), {}),
                (1, b"x" * ((1 << 16) + 1), {"properties": "TRAN_MSG\x01true\x02PGROUP\x01p"}),
                (1, b"x" * ((1 << 16) + 1), {"properties": "DELAY\x013"}),
            ):
                before = int((await answer_of(one, Code.GET_BROKER_RUNTIME_INFO))["table"]["putMessageFailedTimes"])
                assert (await one.send("T", body, fields={"queueId": 0} | fields)).code != 0
                after = int((await answer_of(one, Code.GET_BROKER_RUNTIME_INFO))["table"]["putMessageFailedTimes"])
                assert after - before == counted, fields
            assert one.broker.statistics.put_failed == 7, "which our own metrics show"

    async def test_runtime_info_has_every_key_of_java(self, autojump_clock: MockClock, vectors: Any) -> None:
        lines = (vectors / "frames/admin-codes.jsonl").read_text().splitlines()
        [java] = [json.loads(line) for line in lines if json.loads(line)["seq"] == 62]
        expected = {name for name in json.loads(java["body"])["table"] if not name.startswith("commitLogDiskRatio_")}
        async with memory_broker() as one:
            for level in ("1", "2", "3"):
                await one.send("T", DELAY=level)
            table = (await answer_of(one, Code.GET_BROKER_RUNTIME_INFO))["table"]
            # Puts are not timed one by one: they take microseconds, in a turn of many.
            assert expected - table.keys() == set()

    async def test_statistics_by_name(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await one.send("T", b"x")
            await trio.sleep(11)
            await one.send("T", b"x")
            await trio.sleep(11)
            body = await answer_of(one, Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T")
            assert body["statsMinute"] == {"sum": 2, "tps": pytest.approx(0.1), "avgpt": 1.0}
            assert body.keys() == {"statsDay", "statsHour", "statsMinute"}
            unknown = await ask(one, Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="U")
            assert (unknown.code, unknown.remark) == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")

    @pytest.mark.parametrize("days", [-1, 1])
    async def test_rates_do_not_depend_on_the_wall_clock(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, days: int
    ) -> None:
        """Set back by a day, the statistics stood still for a day, and the broker had run for -1 days."""
        async with memory_broker() as one:
            monkeypatch.setattr(one.broker.parts.clock, "_start_ms", START_MS + days * 86_400_000)
            for _ in range(10):
                await one.send("T", b"x")
                await trio.sleep(10)
            body = await answer_of(one, Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="T")
            assert body["statsMinute"] == {"sum": 6, "tps": pytest.approx(0.1), "avgpt": 1.0}
            table = (await answer_of(one, Code.GET_BROKER_RUNTIME_INFO))["table"]
            assert [float(rate) for rate in table["putTps"].split()] == pytest.approx([0.1] * 3, abs=0.02)
            assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 40 seconds ]"

    async def test_delay_offsets(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await one.send("T", DELAY="1")
            await one.send("T", DELAY="18")
            await trio.sleep(2)
            assert await answer_of(one, Code.GET_ALL_DELAY_OFFSET) == {"offsetTable": {"1": 1, "18": 0}}


class TestConnections:
    async def test_connections_of_consumers_and_producers(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await one.heartbeat("c1", "CG", tags("T", "A"), producer="PG")
            group = await answer_of(one, Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
            [connection] = group["connectionSet"]
            assert (connection["clientId"], connection["language"], connection["version"]) == ("c1", "PYTHON", 409)
            assert connection["clientAddr"].startswith("10.0.0.1:")
            assert group["subscriptionTable"]["T"]["subString"] == "A"
            producers = await answer_of(one, Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
            assert [found["clientId"] for found in producers["connectionSet"]] == ["c1"]
            [info] = (await answer_of(one, Code.GET_ALL_PRODUCER_INFO))["data"]["PG"]
            assert info["remoteIP"].startswith("/10.0.0.1:")
            nobody = await ask(one, Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="X")
            assert nobody.code == ResponseCode.CONSUMER_NOT_ONLINE
            nothing = await ask(one, Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="X")
            assert nothing.code == ResponseCode.SYSTEM_ERROR


class Consumer:
    """A client that answers a broker's requests to consumers; `mute` makes it silent."""

    def __init__(self, *, mute: bool = False, status: dict[MessageQueue, int] | None = None) -> None:
        self.mute = mute
        self.status = status or {}
        self.asked: list[Request] = []
        self.table: HandlerTable = {
            220: Handler(self._hear, ResetOffsetHeader),
            221: Handler(self._tell_status, ConsumerStatusHeader),
            307: Handler(self._tell, GetConsumerRunningInfoHeader),
            309: Handler(self._tell, ConsumeMessageDirectlyHeader),
        }

    def _hear(self, request: Request) -> None:
        self.asked.append(request)

    def _tell_status(self, request: Request) -> Reply | None:
        self.asked.append(request)
        return None if self.mute else Reply(body=ConsumerStatusBody(self.status).to_json())

    def _tell(self, request: Request) -> Reply | None:
        self.asked.append(request)
        return None if self.mute else Reply(body=b'{"told":true}', remark="not set any response code")


class TestRelays:
    @pytest.fixture
    async def one(self, autojump_clock: MockClock) -> AsyncIterator[RunningBroker]:
        async with memory_broker() as running:
            await topic(running)
            yield running

    async def test_running_info(self, autojump_clock: MockClock, one: RunningBroker) -> None:
        consumer = Consumer()
        async with one.client(consumer.table) as client:
            await client.heartbeat("c", "CG", tags("T"))
            asked = {"consumerGroup": "CG", "clientId": "c", "jstackEnable": "true"}
            answer = await ask(one, Code.GET_CONSUMER_RUNNING_INFO, **asked)
            assert (answer.code, bytes(answer.body)) == (0, b'{"told":true}')
            assert consumer.asked[0].header == GetConsumerRunningInfoHeader("CG", "c", True)

    async def test_absent_silent_and_outdated_clients(self, autojump_clock: MockClock, one: RunningBroker) -> None:
        running_info = {"consumerGroup": "CG", "clientId": "c"}
        assert (await ask(one, Code.GET_CONSUMER_RUNNING_INFO, **running_info)).code == ResponseCode.SYSTEM_ERROR
        consumer = Consumer(mute=True)
        async with one.client(consumer.table) as client:
            await client.heartbeat("c", "CG", tags("T"))
            start = trio.current_time()
            late = await ask(one, Code.GET_CONSUMER_RUNNING_INFO, **running_info)
            assert late.code == ResponseCode.CONSUME_MSG_TIMEOUT
            assert trio.current_time() - start == pytest.approx(10, abs=0.1)
            group = one.broker.clients.consumers.get("CG")
            assert group is not None
            for member in group.members.values():
                member.version = 61
            old = await ask(one, Code.GET_CONSUMER_RUNNING_INFO, **running_info)
            assert old.code == ResponseCode.SYSTEM_ERROR
            assert "too low" in (old.remark or "")

    async def test_a_client_that_disconnects_meanwhile(self, autojump_clock: MockClock, one: RunningBroker) -> None:
        consumer = Consumer(mute=True)
        answers = []

        async def info() -> None:
            answers.append(await ask(one, Code.GET_CONSUMER_RUNNING_INFO, consumerGroup="CG", clientId="c"))

        async with trio.open_nursery() as nursery, one.client(consumer.table) as client:
            await client.heartbeat("c", "CG", tags("T"))
            nursery.start_soon(info)
            await trio.sleep(1)
        assert answers[0].code == ResponseCode.SYSTEM_ERROR

    async def test_one_message_is_relayed_to_one_consumer(self, autojump_clock: MockClock, one: RunningBroker) -> None:
        sent = await one.send("T", b"again")
        consumer = Consumer()
        assert sent.ext is not None
        async with one.client(consumer.table) as client:
            await client.heartbeat("c", "CG", tags("T"))
            message = {"consumerGroup": "CG", "clientId": "c", "msgId": sent.ext["msgId"]}
            assert (await ask(one, Code.CONSUME_MESSAGE_DIRECTLY, **message)).code == 0
            [request] = consumer.asked
            assert request.header.brokerName == NAME
            assert decode(bytes(request.body)).body == b"again"
            for wrong in ({"msgId": "x"}, {"msgId": sent.ext["msgId"][:-1] + "7"}, {"clientId": "nobody"}):
                answer = await ask(one, Code.CONSUME_MESSAGE_DIRECTLY, **(message | wrong))
                assert answer.code == ResponseCode.SYSTEM_ERROR, wrong

    async def test_progress_of_many_clients_is_asked_a_few_at_a_time_and_bounded(
        self, autojump_clock: MockClock, one: RunningBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client_relays, "ASKED_AT_ONCE", 2)
        async with AsyncExitStack() as stack:
            for number in range(5):
                # One of them is mute, and takes one of the two places for 5 s.
                told_by = Consumer(status={MessageQueue("T", NAME, number): 5}, mute=number == 0)
                client = await stack.enter_async_context(one.client(told_by.table))
                await client.heartbeat(f"c{number}", "CG", tags("T"))
            began = trio.lowlevel.current_statistics().tasks_living
            body = await answer_of(one, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="CG")
            assert sorted(body["consumerTable"]) == ["c1", "c2", "c3", "c4"]
            monkeypatch.setattr(client_relays, "MAX_STATUS", 200)
            body = await answer_of(one, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="CG")
            assert 0 < len(body["consumerTable"]) < 4
            assert trio.lowlevel.current_statistics().tasks_living <= began

    async def test_progress_reported_by_clients(self, autojump_clock: MockClock, one: RunningBroker) -> None:
        queue = MessageQueue("T", NAME, 0)
        first, second, mute = Consumer(status={queue: 5}), Consumer(status={queue: 6}), Consumer(mute=True)
        async with one.client(first.table) as a, one.client(second.table) as b, one.client(mute.table) as c:
            for client, name in ((a, "a"), (b, "b"), (c, "c")):
                await client.heartbeat(name, "CG", tags("T"))
            body = await answer_of(one, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="CG")
            assert body == {"consumerTable": {"a": {key(0): 5}, "b": {key(0): 6}}, "messageQueueTable": {}}
            only = await answer_of(
                one, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="CG", clientAddr="b"
            )
            assert only["consumerTable"] == {"b": {key(0): 6}}
        nobody = await ask(one, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="X")
        assert nobody.code == ResponseCode.SYSTEM_ERROR

    async def test_resetting_a_group(self, autojump_clock: MockClock, one: RunningBroker) -> None:
        for queue_id in (0, 1):
            for _ in range(4):
                await one.send("T", queue_id=queue_id)
        reset = {"topic": "T", "group": "CG", "timestamp": 0, "isForce": "true"}
        missing = await ask(one, Code.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
        assert (missing.code, missing.remark) == (1, "THe consumer group <CG> not exist")
        await commit(one, "CG", 0, 4)
        await commit(one, "CG", 1, 2)
        offline = await ask(one, Code.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        unknown = await ask(one, Code.INVOKE_BROKER_TO_RESET_OFFSET, **(reset | {"topic": "U"}))
        assert unknown.code == ResponseCode.SYSTEM_ERROR
        java, cpp = Consumer(), Consumer()
        async with one.client(java.table) as a, one.client(cpp.table) as b:
            await a.heartbeat("a", "CG", tags("T"))
            await b.heartbeat("b", "CG", tags("T"))
            group = one.broker.clients.consumers.get("CG")
            assert group is not None
            for member in group.members.values():
                member.language = Language.CPP.name if member.client_id == "b" else "JAVA"
            for ext, expected in [
                ({}, {0: 0, 1: 0}),
                ({"timestamp": -1}, {0: 4, 1: 4}),
                ({"timestamp": -1, "isForce": "false"}, {0: 4, 1: 2}),
            ]:
                body = await answer_of(one, Code.INVOKE_BROKER_TO_RESET_OFFSET, **(reset | ext))
                assert body == {"offsetTable": {key(queue_id): offset for queue_id, offset in expected.items()}}
                await trio.sleep(0.1)
                for heard in (java.asked.pop(), cpp.asked.pop()):
                    assert heard.header.isForce is False
                    table = ResetOffsetBody.from_json(heard.body).offsetTable
                    assert {queue.queue_id: offset for queue, offset in table.items()} == expected
            await answer_of(one, Code.INVOKE_BROKER_TO_RESET_OFFSET, **reset)
            await trio.sleep(0.1)
            assert bytes(java.asked[-1].body).startswith(b'{"offsetTable":{{')
            assert bytes(cpp.asked[-1].body).startswith(b'{"offsetTable":[')


async def test_looking_up_messages(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        ids = []
        for n in range(3):
            answer = await one.send("T", b"%d" % n, KEYS=f"same k{n}")
            assert answer.ext is not None
            ids.append(int(answer.ext["msgId"][16:], 16))
            await trio.sleep(5)
        ask_for = {"topic": "T", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": START_MS * 2}
        from tests.support.records import decode_all

        both = await ask(one, Code.QUERY_MESSAGE, key="same", **ask_for)
        assert [record.body for record in decode_all(bytes(both.body))] == [b"2", b"1", b"0"]
        assert both.ext is not None
        assert both.ext.keys() == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
        few = await ask(one, Code.QUERY_MESSAGE, key="same", **(ask_for | {"maxNum": 2}))
        assert len(decode_all(bytes(few.body))) == 2
        early = await ask(one, Code.QUERY_MESSAGE, key="same", **(ask_for | {"endTimestamp": START_MS + 1000}))
        assert [record.body for record in decode_all(bytes(early.body))] == [b"0"]
        nothing = await ask(one, Code.QUERY_MESSAGE, key="other", **ask_for)
        assert nothing.code == ResponseCode.QUERY_NOT_FOUND
        viewed = await ask(one, Code.VIEW_MESSAGE_BY_ID, offset=ids[1])
        assert decode(bytes(viewed.body)).body == b"1"
        for wrong in (ids[1] + 1, 1 << 40, -1):
            assert (await ask(one, Code.VIEW_MESSAGE_BY_ID, offset=wrong)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("code", [9999, 13, 22, 27, 105, 301, 513])
async def test_unserved_requests(autojump_clock: MockClock, code: int) -> None:
    async with memory_broker() as one:
        answer = await one.call(code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
