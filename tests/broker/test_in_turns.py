"""Work on large tables yields to other tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.json_file import JsonFile
from rocketlet.common import fastjson, json_pieces
from rocketlet.common.message import MessageQueue
from rocketlet.remoting import in_turns as module
from rocketlet.remoting.in_turns import collect, encode_in_turns, in_turns, one_at_a_time
from rocketlet.remoting.protocol.inspection import ProducerInfo, ProducerTableInfo, TopicOffset
from rocketlet.remoting.protocol.membership import ConsumerData, HeartbeatData, ProducerData
from rocketlet.remoting.protocol.queue import object_map
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import memory_broker, tags


async def test_other_tasks_run_between_items(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000_000))
    monkeypatch.setattr(module, "stopwatch", lambda: next(clock) * 0.004)
    seen: list[int] = []
    others: list[int] = []

    async def other() -> None:
        while True:
            others.append(len(seen))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await in_turns(range(1000), seen.append)
        nursery.cancel_scope.cancel()
    assert seen == list(range(1000))
    assert len(set(others)) > 5  # 15 or so, as trio shuffles them


async def test_of_many_texts_one_is_collected_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000_000))
    monkeypatch.setattr(module, "stopwatch", lambda: next(clock) * 0.004)
    made: list[int] = []
    between: list[int] = []
    texts: list[list[bytes]] = []

    def pieces(number: int) -> Iterator[bytes]:
        for _ in range(6):
            made.append(number)
            yield b"x"

    @one_at_a_time
    async def ask(number: int) -> None:
        texts.append(await collect(pieces(number)))

    async def look() -> None:
        while len(texts) < 20:
            before = len(made)
            await trio.lowlevel.checkpoint()
            between.append(len(made) - before)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        for number in range(20):
            nursery.start_soon(ask, number)
    assert made == sorted(made, key=made.index)
    assert texts == [[b"xxxxxx"]] * 20
    assert max(between) <= 8  # 40 and more, if each made its first pieces before anybody else had a turn


async def test_rows_are_gathered_for_one_text_at_a_time() -> None:
    steps: list[str] = []

    @one_at_a_time
    async def answer(name: str) -> None:
        steps.append(name)
        await trio.lowlevel.checkpoint()
        await collect([b"x"])
        steps.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer, "a")
        nursery.start_soon(answer, "b")
    assert steps in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


async def test_one_handlers_requests_do_not_wait_for_anothers() -> None:
    is_free, done = trio.Event(), list[str]()

    @one_at_a_time
    async def slow() -> None:
        await is_free.wait()
        done.append("slow")

    @one_at_a_time
    async def quick() -> None:
        done.append("quick")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        await wait_all_tasks_blocked()
        await quick()
        is_free.set()
    assert done == ["quick", "slow"]


async def test_a_table_is_saved_while_large_answers_wait_for_each_other() -> None:
    """A send to a new topic is answered when the table of topics is on the disk."""
    disk, is_free = MemoryDisk(), trio.Event()
    file = JsonFile(disk, "t.json", dict, pieces=lambda: iter([b"{}"]))

    @one_at_a_time
    async def answer() -> None:
        await is_free.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(answer)
        file.changed()
        await file.saved()
        is_free.set()
    assert disk.read_file("t.json") == b"{}"


async def test_short_work_is_done_in_one_turn() -> None:
    began = trio.lowlevel.current_statistics().tasks_living
    seen: list[int] = []
    await in_turns(range(20), seen.append)
    assert seen == list(range(20))
    assert trio.lowlevel.current_statistics().tasks_living == began


def table(groups: int, queues: int = 4) -> ConsumerOffsets:
    offsets = ConsumerOffsets()
    for group in range(groups):
        for queue in range(queues):
            offsets.commit(f"G{group}", "T", queue, group + queue)
    return offsets


@pytest.mark.parametrize("groups", [0, 1, 3])
async def test_the_offsets_file_equals_the_body(groups: int) -> None:
    offsets = table(groups)
    file = JsonFile(MemoryDisk(), "/c/consumerOffset.json", pieces=offsets.pieces)
    file.changed()
    await file.saved()
    read = file.load()
    assert read == fastjson.loads(msgspec.json.encode(offsets.to_body()))
    again = ConsumerOffsets()
    again.load(read)
    assert again.to_body() == offsets.to_body()


async def test_a_table_that_changes_during_a_write_is_written_consistently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stopwatch", lambda: time.perf_counter() * 1000)
    offsets = table(500)
    file = JsonFile(MemoryDisk(), "/c/consumerOffset.json", pieces=offsets.pieces)
    file.changed()

    async def change() -> None:
        for group in range(500):
            list(offsets.forgetting(group=f"G{group}")) if group % 3 == 0 else offsets.commit(f"G{group}", "T", 9, 1)
            offsets.commit(f"new{group}", "T", 0, 1)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await file.saved()
    read = ConsumerOffsets()
    read.load(file.load())
    for group in range(500):
        if group % 3:
            assert [read.get(f"G{group}", "T", queue) for queue in range(4)] == [group + n for n in range(4)]


class Steps(trio.abc.Instrument):
    """Counts the loop's task steps."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


QUEUES = 300
WIDE, GROUP = {"topic": "Wide"}, {"group": "CG", "topic": "Wide"}
WIDE_TOPIC = {
    **WIDE, "readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES), "perm": "6", "topicSysFlag": "0",
    "order": "false", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG",
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, WIDE),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG", **WIDE}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**GROUP, "timestamp": "-1", "isForce": "true"}),
        (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "CG", "destGroup": "DG", "offline": "false", **WIDE}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, GROUP),
        (RequestCode.GET_ALL_PRODUCER_INFO, {}),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, {}),
        (RequestCode.QUERY_CORRECTION_OFFSET, {"filterGroups": "", "compareGroup": "DG", **WIDE}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "CG", "removeOffset": "true"}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, WIDE),
        (RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "GROUP_GET_NUMS", "statsKey": "Wide@CG"}),
    ],
)
async def test_a_request_about_many_rows_yields_between_them(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, code: RequestCode, fields: Mapping[str, str]
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", -1.0)
    monkeypatch.setattr(module, "_BETWEEN_LOOKS", 1)
    monkeypatch.setattr(json_pieces, "PIECE", 1)
    async with memory_broker() as one:
        assert (await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, WIDE_TOPIC)).code == 0
        consumer = ConsumerData("CG", subscriptionDataSet=[tags("Wide")])
        beat = HeartbeatData("c", [ProducerData(f"P{number}") for number in range(QUEUES)], [consumer])
        assert (await one.call(RequestCode.HEART_BEAT, None, beat.to_json())).code == 0
        for queue_id in range(QUEUES):
            one.broker.tables.offsets.commit("CG", "Wide", queue_id, 0)
            one.broker.statistics.pull_flow("CG", "Wide", queue_id)
            one.broker.tables.groups.find(f"G{queue_id}")
            one.broker.tables.topics.create(f"T{queue_id}", 1, reason="for a test")
        await trio.sleep(1)
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        answer = await one.call(code, fields)
        trio.lowlevel.remove_instrument(steps)
        assert answer.code == 0, answer.remark
        assert steps.count > QUEUES


async def test_a_topic_of_many_queues_is_deleted_at_one_moment(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs while its offsets and files are deleted finds all of it or nothing, and no message or offset of a
    topic of the same name that was created meanwhile goes with it."""
    monkeypatch.setattr(module, "AT_ONCE", -1.0)
    monkeypatch.setattr(module, "_BETWEEN_LOOKS", 1)
    async with memory_broker() as one:
        tables, store = one.broker.tables, one.broker.store
        assert (await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, WIDE_TOPIC)).code == 0
        for queue_id in range(QUEUES):
            assert (await one.send("Wide", b"old", queue_id)).code == 0
            tables.offsets.commit("CG", "Wide", queue_id, 1)
        seen = set()
        again: list[int] = []

        async def look() -> None:
            while True:
                has_topic, queues = tables.topics.get("Wide") is not None, len(store.queues.of_topic("Wide"))
                seen.add((has_topic, queues, tables.tombstones.last))
                if not has_topic:
                    break
                await trio.lowlevel.checkpoint()
            assert (await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, WIDE_TOPIC)).code == 0
            for queue_id in range(QUEUES):
                assert tables.offsets.get("CG", "Wide", queue_id) is None
                assert (await one.send("Wide", b"new", queue_id)).code == 0
                tables.offsets.commit("CG", "Wide", queue_id, 0)
                again.append(queue_id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            assert (await one.call(RequestCode.DELETE_TOPIC_IN_BROKER, WIDE)).code == 0
        assert seen == {(True, QUEUES, 0), (False, 0, 1)}
        assert len(again) == len(tables.offsets.of("CG", "Wide")) == QUEUES
        for queue_id in range(QUEUES):
            assert [record.body for record in (await one.pull("Wide", queue_id, 0)).records] == [b"new"]


async def test_a_map_written_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE", 3)
    for size in (0, 1, 3, 10):
        whole = {MessageQueue("T", "b", number): TopicOffset(number, 2, 1) for number in range(size)}
        found = await encode_in_turns(whole)
        assert found == whole
        assert bytes(object_map(found)) == bytes(object_map(whole))


def test_producers_in_pieces_are_the_same() -> None:
    one, other = ProducerInfo("a", "JAVA", 1, "/1.2.3.4:5", 409), ProducerInfo("b")
    for groups in ([], [("g", [one])], [("g", [one]), ("g", [other]), ("h", [other, one])]):
        whole: dict[str, list[ProducerInfo]] = {}
        for group, producers in groups:
            whole.setdefault(group, []).extend(producers)
        assert json.loads(b"".join(ProducerTableInfo.pieces(groups))) == json.loads(ProducerTableInfo(whole).to_json())
