"""Sends: what is stored, what is refused with which code, and when the answer is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketlet.broker.handlers import send_batch
from rocketlet.broker.handlers.send_message import stored_properties
from rocketlet.common import message_properties
from rocketlet.common.message_flags import MULTI_TAGS
from rocketlet.common.message_record import BatchItem, Record, encode_batch
from rocketlet.common.subscription import tags_code
from rocketlet.remoting import in_turns
from rocketlet.remoting.command import Command
from rocketlet.remoting.protocol.configuration import CreateTopicHeader
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import SEE_FAQ, ResponseCode
from rocketlet.store.errors import FlushFailed
from tests.support.memory_broker import ROOT, RunningBroker, memory_broker
from tests.support.virtual_time import START_MS

EVER = {"beginTimestamp": "0", "endTimestamp": str(1 << 60)}
REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def stored(one: RunningBroker, topic: str, queue_id: int = 0) -> list[Record]:
    """All records of a queue."""
    from rocketlet.common.message_record import decode

    queue = one.broker.store.queue(topic, queue_id)
    found = []
    for offset in range(queue.begin, queue.end) if queue else ():
        entry = queue.entry(offset) if queue else None
        raw = one.broker.store.record_at(entry[0]) if entry else None
        assert raw is not None
        found.append(decode(raw))
    return found


async def create_topic(one: RunningBroker, topic: str, **fields: Any) -> Command:
    given: dict[str, Any] = {"topic": topic, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    return await one.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader(**(given | fields)))


async def test_a_send_stores_what_it_carries(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        answer = await one.send("T", b"hello", 2, TAGS="A", KEYS="k1 k2", WAIT="true", mine="x", fields={"flag": 9})
        [record] = stored(one, "T", 2)
        assert answer.ext == {"msgId": "7F00000100002A9F0000000000000000", "queueId": "2", "queueOffset": "0", **REGION}
        assert (record.body, record.flag, record.topic, record.queue_id) == (b"hello", 9, "T", 2)
        assert message_properties.decode_bytes(record.properties) == {
            "TAGS": "A",
            "KEYS": "k1 k2",
            "mine": "x",
            "UNIQ_KEY": f"{1:032X}",
            "CLUSTER": "DefaultCluster",
        }
        assert (record.born_timestamp, record.store_host) == (START_MS, bytes.fromhex("7f00000100002a9f"))
        assert record.born_host[:4] == bytes([10, 0, 0, 1])
        for key in ("k1", "k2", f"{1:032X}"):
            found = await one.call(RequestCode.QUERY_MESSAGE, {"topic": "T", "key": key, "maxNum": "9"})
            assert found.code == 0, key


async def test_code_10_and_unknown_header_fields(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        header = SendMessageHeader(1, "T", "PG", "TBW102", 4, properties="TAGS\x01A\x02")
        answer = await one.call(RequestCode.SEND_MESSAGE, header, b"x")
        assert answer.code == 0
        [record] = stored(one, "T", 1)
        assert record.properties == b"TAGS\x01A\x02CLUSTER\x01DefaultCluster"


@pytest.mark.parametrize("body", [b"", b"x" * (1 << 16)])
async def test_the_shortest_and_the_longest_body(autojump_clock: MockClock, body: bytes) -> None:
    async with memory_broker() as one:
        assert (await one.send("T", body)).code == 0
        assert stored(one, "T")[0].body == body


async def test_refusals(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await create_topic(one, "T")
        for expected, topic, given in [
            (ResponseCode.SYSTEM_ERROR, "a topic!", {}),
            (ResponseCode.SYSTEM_ERROR, "", {}),
            (ResponseCode.SYSTEM_ERROR, "t" * 128, {}),
            (ResponseCode.SYSTEM_ERROR, "../../etc", {}),
            (ResponseCode.NO_PERMISSION, "SCHEDULE_TOPIC_XXXX", {}),
            (ResponseCode.NO_PERMISSION, "RMQ_SYS_TRANS_HALF_TOPIC", {}),
            (ResponseCode.NO_PERMISSION, "RMQ_SYS_TRANS_OP_HALF_TOPIC", {}),
            (ResponseCode.NO_PERMISSION, "TRANS_CHECK_MAX_TIME_TOPIC", {}),
            (ResponseCode.NO_PERMISSION, "SELF_TEST_TOPIC", {}),
            (ResponseCode.NO_PERMISSION, "OFFSET_MOVED_EVENT", {}),
            (ResponseCode.SYSTEM_ERROR, "T", {"queueId": 4}),
            (ResponseCode.TOPIC_NOT_EXIST, "New", {"defaultTopic": "none"}),
            (ResponseCode.TOPIC_NOT_EXIST, "New", {"defaultTopicQueueNums": 0}),
            (ResponseCode.SYSTEM_ERROR, "T", {"properties": "DELAY\x01soon"}),
            (ResponseCode.MESSAGE_ILLEGAL, "T", {"properties": "p\x01" + "x" * 32767}),
        ]:
            answer = await one.send(topic, fields={"queueId": 0} | given)
            assert answer.code == expected, (topic, answer)
            assert answer.remark
            assert answer.ext == REGION
        answer = await one.send("T", b"x" * ((1 << 16) + 1))
        assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
        assert one.broker.statistics.put_failed == 16
        assert one.broker.store.log.end == 0


async def test_a_negative_queue_id_lets_the_broker_choose(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await create_topic(one, "T", writeQueueNums=3, readQueueNums=5)
        chosen = {(await one.send("T", queue_id=-1)).ext["queueId"] for _ in range(40)}  # type: ignore[index]
        assert chosen == {"0", "1", "2"}
        assert (await one.send("T", queue_id=4)).code == 0  # below the larger of both counts


async def test_a_topic_created_by_a_send_is_on_disk_before_the_answer(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        assert (await one.send("T", queue_id=3)).code == 0
        after_power_cut = one.disk.crash(Random(1))
        table = json.loads(after_power_cut.read_file(f"{ROOT}/config/topics.json") or b"")
        assert table["topicConfigTable"]["T"]["writeQueueNums"] == 4
        topic = one.broker.tables.topics.get("T")
        assert topic is not None
        assert topic.plain


async def test_a_send_is_refused_when_its_topic_cannot_be_saved(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        write_file = one.disk.write_file

        def full(path: str, data: bytes) -> None:
            raise OSError(28, "No space left on device", path)

        one.disk.write_file = full  # type: ignore[method-assign]
        answer = await one.send("U")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "topics.json" in (answer.remark or "")
        one.disk.write_file = write_file  # type: ignore[method-assign]
        assert (await one.send("U")).code == 0


async def test_auto_creation_disabled(autojump_clock: MockClock) -> None:
    async with memory_broker(auto_create_topic_enable=False) as one:
        answer = await one.send("T")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert (answer.remark or "").startswith(f"topic[T] not exist, apply first please!{SEE_FAQ}")
        assert (await one.send("%RETRY%G")).code == 0


async def test_a_unit_topic_is_marked(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", fields={"unitMode": True})
        topic = one.broker.tables.topics.get("T")
        assert topic is not None
        assert topic.sys_flag == 1


async def test_sends_are_refused_before_the_start_time(autojump_clock: MockClock) -> None:
    async with memory_broker(start_accept_send_request_time_stamp=START_MS + 60_000) as one:
        await create_topic(one, "T")
        answer = await one.send("T")
        assert (answer.code, answer.ext) == (ResponseCode.SYSTEM_ERROR, REGION)
        assert "startAcceptSendRequestTimeStamp" in (answer.remark or "")
        await trio.sleep(61)
        assert (await one.send("T")).code == 0


async def test_a_read_only_broker_refuses_ordered_topics(autojump_clock: MockClock) -> None:
    async with memory_broker(broker_permission=4) as one:
        await create_topic(one, "T")
        assert (await one.send("T")).code == 0
        one.broker.tables.topics.follow_order(["T"])
        assert (await one.send("T")).code == ResponseCode.NO_PERMISSION


async def test_a_slave_refuses_sends(autojump_clock: MockClock) -> None:
    async with memory_broker(broker_role="SLAVE", broker_id=1) as one:
        answer = await one.send("TBW102")
        assert (answer.code, answer.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, REGION)


async def test_region_and_trace_follow_their_settings(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"regionId=here\ntraceOn=false\n")
        answer = await one.send("T")
        assert answer.ext is not None
        assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("here", "false")


async def test_multi_tag_topics_mark_their_messages(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await create_topic(one, "T", topicFilterType="MULTI_TAG")
        await one.send("T", fields={"sysFlag": 0x301})
        assert stored(one, "T")[0].sys_flag == 0x301 | MULTI_TAGS


async def test_address_bits_set_by_a_client_are_ignored(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", fields={"sysFlag": 0x30})
        await one.send("T", fields={"sysFlag": 0x30})
        assert [record.sys_flag for record in stored(one, "T")] == [0, 0]


async def test_a_cluster_name_set_by_a_client_is_replaced(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", CLUSTER="Other", TAGS="A")
        properties = message_properties.decode_bytes(stored(one, "T")[0].properties)
        assert properties["CLUSTER"] == "DefaultCluster"
        assert stored(one, "T")[0].properties.count(b"CLUSTER") == 1


class TestRetries:
    async def test_a_send_tried_too_often_becomes_a_dead_letter(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await one.send("%RETRY%G", b"again", fields={"reconsumeTimes": 2, "maxReconsumeTimes": 3})
            await one.send("%RETRY%G", b"dead", fields={"reconsumeTimes": 3, "maxReconsumeTimes": 3})
            assert [record.body for record in stored(one, "%RETRY%G")] == [b"again"]
            assert [(r.body, r.reconsume_times) for r in stored(one, "%DLQ%G")] == [(b"dead", 3)]

    async def test_the_groups_own_limit_applies(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            await one.send("%RETRY%G", b"again", fields={"reconsumeTimes": 15})
            await one.send("%RETRY%G", b"dead", fields={"reconsumeTimes": 16})
            assert [record.body for record in stored(one, "%DLQ%G")] == [b"dead"]

    async def test_old_clients_cannot_set_the_limit(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            header = SendMessageHeaderV2(
                0, "%RETRY%G", "PG", "TBW102", 4, reconsumeTimes=3, maxReconsumeTimes=3, properties=""
            )
            assert (await one.call(310, header, b"again", version=100)).code == 0
            assert len(stored(one, "%RETRY%G")) == 1

    async def test_a_group_that_may_not_be_created(self, autojump_clock: MockClock) -> None:
        async with memory_broker(auto_create_subscription_group=False) as one:
            answer = await one.send("%RETRY%G")
            assert (answer.code, answer.ext) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, REGION)


class TestDetours:
    async def test_a_delay_counts_from_its_send(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            answer = await one.send("T", b"later", 1, DELAY="2")
            assert answer.ext is not None
            assert answer.ext["queueId"] == "1"
            assert stored(one, "T", 1) == []
            await trio.sleep(5.5)
            assert [record.body for record in stored(one, "T", 1)] == [b"later"]

    async def test_disabled_transactions_are_refused(self, autojump_clock: MockClock) -> None:
        async with memory_broker(reject_transaction_message=True) as one:
            answer = await one.send("T", TRAN_MSG="true", PGROUP="PG")
            assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, REGION)

    async def test_a_half_message_is_not_in_its_topics_queues(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            assert (await one.send("T", TRAN_MSG="TRUE", PGROUP="PG")).code == 0
            assert stored(one, "T") == []
            assert len(stored(one, "RMQ_SYS_TRANS_HALF_TOPIC")) == 1


class TestBatches:
    ITEMS = (
        BatchItem(1, b"a", b"TAGS\x01A\x02WAIT\x01true"),
        BatchItem(2, b"b", b"KEYS\x01k\x02"),
        BatchItem(3, b"", b""),
    )

    async def send(self, one: RunningBroker, body: bytes, code: int = 320, **fields: Any) -> Command:
        given: dict[str, Any] = {"topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "batch": True}
        header = SendMessageHeaderV2(**({"queueId": 1, "properties": "WAIT\x01true"} | given | fields))
        return await one.call(code, header, body)

    @pytest.mark.parametrize("code", [310, 320])
    async def test_a_batchs_messages_are_consecutive(self, autojump_clock: MockClock, code: int) -> None:
        async with memory_broker() as one:
            answer = await self.send(one, encode_batch(self.ITEMS), code)
            records = stored(one, "T", 1)
            assert answer.ext is not None
            assert answer.ext["msgId"] == ",".join(f"7F00000100002A9F{record.log_offset:016X}" for record in records)
            assert answer.ext["queueOffset"] == "0"
            assert [(record.flag, record.body, record.queue_offset) for record in records] == [
                (1, b"a", 0),
                (2, b"b", 1),
                (3, b"", 2),
            ]
            shared = b"WAIT\x01true\x02CLUSTER\x01DefaultCluster"
            assert [record.properties for record in records] == [
                b"TAGS\x01A\x02WAIT\x01true\x02" + shared,
                b"KEYS\x01k\x02" + shared,
                shared,
            ]
            flow = one.broker.statistics.put_flow("T", 1)
            assert (flow.calls, flow.messages) == (1, 3)

    async def test_refusals(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            whole = encode_batch(self.ITEMS)
            for expected, body, fields in [
                (ResponseCode.SYSTEM_ERROR, b"", {}),
                (ResponseCode.SYSTEM_ERROR, b"garbage", {}),
                (ResponseCode.SYSTEM_ERROR, whole[:-1], {}),
                (ResponseCode.MESSAGE_ILLEGAL, whole, {"properties": "DELAY\x011"}),
                (ResponseCode.MESSAGE_ILLEGAL, whole, {"sysFlag": 4}),
                (ResponseCode.MESSAGE_ILLEGAL, whole, {"topic": "%RETRY%" + "g" * 121}),
                (ResponseCode.MESSAGE_ILLEGAL, encode_batch([BatchItem(0, b"x" * (1 << 16), b"")]), {}),
            ]:
                answer = await self.send(one, body, **fields)
                assert (answer.code, answer.ext) == (expected, REGION), fields
            assert one.broker.store.log.end == 0

    async def test_a_large_batch_is_decoded_in_turns(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(send_batch, "LARGE", 100)
        monkeypatch.setattr(send_batch, "_AT_ONCE", 2)
        monkeypatch.setattr(in_turns, "AT_ONCE", -1.0)
        items = [BatchItem(n, b"x" * (n % 5), b"KEYS\x01k%d" % n) for n in range(40)]
        async with memory_broker() as one, trio.open_nursery() as nursery:
            answers: list[Command] = []

            async def send() -> None:
                answers.append(await self.send(one, encode_batch(items)))

            nursery.start_soon(send)
            order: list[int] = []
            while not answers:
                assert (await one.call(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
                order.append(len(answers))
            assert order.count(0) > 1  # others were served meanwhile
            assert answers[0].code == 0
            assert len((answers[0].ext or {})["msgId"].split(",")) == 40
            assert [(record.flag, record.body) for record in stored(one, "T", 1)] == [(n.flag, n.body) for n in items]
            found = await one.call(
                RequestCode.QUERY_MESSAGE, {"topic": "T", "key": "k39", "maxNum": "1", **EVER}, timeout=5
            )
            assert found.code == 0

    @pytest.mark.parametrize("body", [b"garbage" * 30, encode_batch(ITEMS * 20)[:-1]])
    async def test_a_large_body_that_is_no_batch_is_refused_like_a_small_one(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, body: bytes
    ) -> None:
        monkeypatch.setattr(send_batch, "LARGE", 100)
        async with memory_broker() as one:
            answer = await self.send(one, body)
            assert (answer.code, answer.ext) == (ResponseCode.SYSTEM_ERROR, REGION)
            assert one.broker.store.log.end == 0

    @pytest.mark.parametrize("large", [100, 1 << 20])
    @pytest.mark.parametrize("size", [0, 1])
    async def test_messages_and_keys_of_a_batch_are_bounded(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, large: int, size: int
    ) -> None:
        monkeypatch.setattr(send_batch, "LARGE", large)
        monkeypatch.setattr(send_batch, "MAX_MESSAGES", 50)
        monkeypatch.setattr(send_batch, "MAX_KEYS", 60)
        async with memory_broker() as one:
            for count, keys, code in [(50, b"", 0), (51, b"", 13), (30, b"KEYS\x01a b", 0), (31, b"KEYS\x01a b", 13)]:
                items = [BatchItem(0, b"x" * (n % 2 * size), keys) for n in range(count)]
                answer = await self.send(one, encode_batch(items))
                assert answer.code == code, (count, keys, answer.remark)

    async def test_properties_of_the_request_are_stored_with_each_message_and_bounded_by_that(
        self, autojump_clock: MockClock
    ) -> None:
        """Else 4 MiB become 6 GB of log."""
        async with memory_broker() as one:
            answer = await self.send(
                one, encode_batch([BatchItem(0, b"", b"")] * 100), properties="a\x01" + "b" * 30_000
            )
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "twice maxMessageSize" in (answer.remark or "")
            assert one.broker.store.log.end == 0

    async def test_code_320_without_a_batch_is_a_single_send(self, autojump_clock: MockClock) -> None:
        async with memory_broker() as one:
            assert (await self.send(one, b"plain", batch=False)).code == 0
            assert [record.body for record in stored(one, "T", 1)] == [b"plain"]


@contextmanager
def stuck_disk(one: RunningBroker) -> Iterator[None]:
    """Flushes do not finish inside the block; after it, those that began continue."""
    free = trio.Event()
    store = one.broker.store
    flush_once = store._log_flush.flush_once

    async def stuck() -> None:
        await free.wait()
        await flush_once()

    store._log_flush.flush_once = stuck  # type: ignore[method-assign]
    try:
        yield
    finally:
        store._log_flush.flush_once = flush_once  # type: ignore[method-assign]
        free.set()


class TestSyncFlush:
    async def test_a_send_is_durable_when_answered(self, autojump_clock: MockClock) -> None:
        async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
            await one.send("T")
            answer = await one.send("T", b"kept")
            assert answer.code == 0
            assert one.broker.store.flushed.value == one.broker.store.log.end

    async def test_answers_of_one_turn_share_a_flush(self, autojump_clock: MockClock) -> None:
        async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
            await one.send("T")
            rounds = one.broker.store.statistics().flush_rounds
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(one.send, "T")
            assert len(stored(one, "T")) == 51
            assert one.broker.store.statistics().flush_rounds - rounds <= 3

    async def test_wait_false_does_not_wait(self, autojump_clock: MockClock) -> None:
        async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
            await one.send("T")
            with stuck_disk(one):
                assert (await one.send("T", WAIT="false")).code == 0

    async def test_a_late_disk_gives_code_10_with_all_fields(self, autojump_clock: MockClock) -> None:
        async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
            await one.send("T")
            began = trio.current_time()
            with stuck_disk(one):
                answer = await one.send("T")
            assert trio.current_time() - began >= 5
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert answer.remark is not None
            assert "within 5000 ms (syncFlushTimeout)" in answer.remark
            assert answer.ext is not None
            assert answer.ext.keys() == {"msgId", "queueId", "queueOffset", *REGION}
            assert (await one.send("T")).code == 0

    async def test_a_late_send_does_not_delay_others(self, autojump_clock: MockClock) -> None:
        async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
            await one.send("T")
            answers: list[int] = []

            async def send() -> None:
                answers.append((await one.send("T")).code)

            async with trio.open_nursery() as nursery:
                with stuck_disk(one):
                    nursery.start_soon(send)
                    await trio.sleep(3)
                    nursery.start_soon(send)
                    await trio.sleep(3)
                    assert answers == [ResponseCode.FLUSH_DISK_TIMEOUT]
            assert answers == [ResponseCode.FLUSH_DISK_TIMEOUT, 0]

    async def test_a_failed_flush_is_never_answered_as_success(self, autojump_clock: MockClock) -> None:
        answers = []
        with pytest.RaisesGroup(pytest.RaisesExc(FlushFailed, match="flush failed"), flatten_subgroups=True):
            async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
                await one.send("T")
                one.disk.fail_next_flush = True
                answers.append(await one.send("T"))
        assert answers[0].code == ResponseCode.SYSTEM_ERROR
        assert answers[0].remark is not None
        assert "flush failed" in answers[0].remark

    async def test_a_sync_master_without_a_slave_says_so(self, autojump_clock: MockClock) -> None:
        async with memory_broker(broker_role="SYNC_MASTER") as one:
            await one.send("T")
            assert (await one.send("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert (await one.send("T", WAIT="false")).code == 0
            assert len(stored(one, "T")) == 3


async def test_a_full_disk_gives_code_14_and_reads_continue(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", b"first")
        one.disk.capacity = 0
        answers = [await one.send("T", b"x" * 60_000) for _ in range(6)]
        assert answers[-1].code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await one.pull("T", 0, 0)).code == 0
        one.disk.capacity = None


async def test_oneway_sends_are_stored_and_not_answered(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        header = SendMessageHeaderV2(0, "T", "PG", "TBW102", 4, properties="")
        from rocketlet.remoting.protocol.header import to_ext

        await one.pool.oneway(one.address, Command(310, ext=to_ext(header), body=b"quiet"))
        await trio.sleep(0.1)
        assert [record.body for record in stored(one, "T")] == [b"body", b"quiet"]


async def test_a_send_that_waited_out_a_stall_is_refused(autojump_clock: MockClock) -> None:
    async with memory_broker(broker_fast_failure_enable=True) as one:
        await one.send("T")
        async with trio.open_nursery() as nursery:
            answers: list[Command] = []

            async def send() -> None:
                answers.append(await one.send("T"))

            nursery.start_soon(send)
            await trio.sleep(0)
            # As if a disk had blocked the whole process.
            one.broker.parts.overload.waited_ms = 2001
            one.broker.parts.overload.before_io_wait = lambda timeout: None  # type: ignore[method-assign]
        assert answers[0].code == ResponseCode.SYSTEM_BUSY
        assert (answers[0].remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
        one.broker.parts.overload.waited_ms = 1999
        assert (await one.send("T")).code == 0


# Separators and the names that matter, in every order.
TANGLED = st.lists(
    st.sampled_from(
        ["\x01", "\x02", "A", "WAIT", "XWAIT", "CLUSTER", "TAGS", "KEYS", "UNIQ_KEY", "k1 k2", "true", "ü"]
    ),
    max_size=24,
).map("".join)
CLUSTER = b"\x02CLUSTER\x01C"


@given(TANGLED)
def test_stored_properties_equal_the_parsed_text(text: str) -> None:
    seen = message_properties.decode(text)
    stored, keys, code, wait, named = stored_properties(text, CLUSTER)
    expected = {name: value for name, value in seen.items() if name not in ("WAIT", "CLUSTER")}
    assert message_properties.decode_bytes(stored) == {**expected, "CLUSTER": "C"}
    assert stored.endswith(CLUSTER) or stored == CLUSTER[1:]
    assert not stored.removesuffix(CLUSTER).endswith(b"\x02")
    assert wait == (seen.get("WAIT") != "false")
    assert keys == message_properties.index_keys(text.encode())
    assert code == tags_code(seen.get("TAGS", "").encode())
    assert {name.decode(): value.decode() for name, value in named.items() if name} == seen
    kept, *rest = stored_properties(text, CLUSTER, keep_wait=True)
    assert rest == [keys, code, wait, named]
    if "WAIT" in seen:
        expected["WAIT"] = seen["WAIT"]
    assert message_properties.decode_bytes(kept) == {**expected, "CLUSTER": "C"}


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", b"CLUSTER\x01C"),
        ("\x02", b"CLUSTER\x01C"),
        ("A\x01b", b"A\x01b\x02CLUSTER\x01C"),
        ("A\x01b\x02\x02", b"A\x01b\x02CLUSTER\x01C"),
        ("WAIT\x01true", b"CLUSTER\x01C"),
        ("A\x01b\x02WAIT\x01true", b"A\x01b\x02CLUSTER\x01C"),
        ("WAIT\x01true\x02A\x01b\x02WAIT\x01true", b"A\x01b\x02CLUSTER\x01C"),
        ("A\x01b\x02WAIT\x01true\x02D\x01e\x02WAIT\x01true\x02", b"A\x01b\x02D\x01e\x02CLUSTER\x01C"),
        ("WAIT\x01true\x02WAIT\x01false\x02A\x01b", b"A\x01b\x02CLUSTER\x01C"),
        ("CLUSTER\x01other\x02A\x01b\x02", b"A\x01b\x02CLUSTER\x01C"),
        ("\x02\x02A\x01b\x02junk", b"\x02\x02A\x01b\x02junk\x02CLUSTER\x01C"),
        ("A\x01\ud800", b"A\x01\xed\xa0\x80\x02CLUSTER\x01C"),
    ],
)
def test_stored_properties(text: str, stored: bytes) -> None:
    assert stored_properties(text, CLUSTER)[0] == stored


@given(TANGLED, st.integers(0, 3))
def test_checked_and_unchecked_sends_store_the_same(text: str, queue_id: int) -> None:
    header = {"queueId": queue_id, "properties": text, "flag": 3, "sysFlag": 0x301, "reconsumeTimes": 2}

    async def main() -> None:
        async with memory_broker() as one:
            await create_topic(one, "T")
            await one.send("T", b"body", fields=header)
            assert one.broker.parts.send_terms.now.is_open
            one.broker.parts.send_terms.now = replace(one.broker.parts.send_terms.now, is_open=False)
            await one.send("T", b"body", fields=header)
            short, long = stored(one, "T", queue_id)
            assert replace(long, queue_offset=0, log_offset=0) == short
            dispatched = [one.broker.store.queue("T", queue_id).entry(n)[2] for n in (0, 1)]  # type: ignore[union-attr,index]
            assert dispatched[0] == dispatched[1]
            for key in ("k1", "k2", "k", "A", "true"):
                found = await one.call(RequestCode.QUERY_MESSAGE, {"topic": "T", "key": key, "maxNum": "9"})
                assert found.code != 0 or len(bytes(found.body)) == short.size + long.size

    trio.run(main, clock=MockClock(autojump_threshold=0))
