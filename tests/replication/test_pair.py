"""Our master and slaves, in virtual time."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from rocketlet.remoting.memory_network import MemoryStream
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.replication.stream_codec import SLICE, report
from tests.support.pair import pair
from tests.support.store_model import message


async def test_a_slave_has_the_whole_log_and_serves_it(autojump_clock: MockClock) -> None:
    async with pair(slaves=0) as cluster:
        for number in range(30):
            assert (await cluster.master.send("T", b"%d " % number * 300, number % 4)).code == 0
        slave = await cluster.start("slave-1")
        await cluster.caught_up()
        for number in range(30, 40):
            await cluster.master.send("T", b"%d" % number, number % 4)
        await cluster.caught_up()
        cluster.same_log()
        assert sum(slave.store.get("T", queue, 0, 32).count for queue in range(4)) == 40


async def test_a_sync_master_acknowledges_only_what_a_slave_has(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER") as cluster:
        await trio.sleep(5)
        assert (await cluster.master.send("T", b"first")).code == 0
        for _ in range(5):
            before = trio.current_time()
            assert (await cluster.master.send("T", b"second")).code == 0
            assert trio.current_time() - before < 0.1
            cluster.same_log()
        await cluster.kill("slave-1")
        assert (await cluster.master.send("T", b"alone")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert (await cluster.master.send("T", b"alone", WAIT="false")).code == 0
        await cluster.start("slave-1")
        await cluster.caught_up()
        await trio.sleep(1)
        assert (await cluster.master.send("T", b"together again")).code == 0
        cluster.same_log()


async def test_slices_have_the_size_that_is_set_and_go_out_together(autojump_clock: MockClock) -> None:
    async with pair(slaves=0, ha_transfer_batch_size=1000) as cluster:
        for number in range(30):
            await cluster.master.send("T", b"%d " % number * 100)
        stream = await cluster.network.of_host("10.1.0.77").dial(cluster.master.ha_address)
        await stream.send_all(report(1))
        first = data = await stream.receive_some(1 << 20)
        end, at, slices = cluster.master.store.log.end, 1, list[bytes]()
        while at < end:
            while len(data) < SLICE.size or len(data) < SLICE.size + SLICE.unpack_from(data)[1]:
                data += await stream.receive_some(1 << 20)
            offset, size = SLICE.unpack_from(data)
            assert offset == at
            assert 0 < size <= 1000
            slices.append(data[SLICE.size : SLICE.size + size])
            at, data = at + size, data[SLICE.size + size :]
        assert b"".join(slices) == cluster.master.log()[1:end]
        assert len(first) == 8 * (SLICE.size + 1000)


async def test_with_sync_flush_slaves_get_flushed_bytes_only(autojump_clock: MockClock) -> None:
    async with pair(slaves=0, flush_disk_type="SYNC_FLUSH") as cluster:
        store = cluster.master.store
        await cluster.master.send("T", b"flushed")
        stream = await cluster.network.of_host("10.1.0.77").dial(cluster.master.ha_address)
        assert isinstance(stream, MemoryStream)
        await stream.send_all(report(store.log.end))
        await trio.testing.wait_all_tasks_blocked()
        while stream.bytes_to_receive:
            await stream.receive_some()
        store.put(message("T", 0, b"not yet"))
        store.settle()
        await trio.testing.wait_all_tasks_blocked()
        assert store.appended.value > store.flushed.value
        assert stream.bytes_to_receive == 0
        await store.flush()
        await trio.testing.wait_all_tasks_blocked()
        assert stream.bytes_to_receive > len(b"not yet")


def recorded() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Recorded requests to RocketMQ's slave, and its answers."""
    path = Path(__file__).parents[1] / "vectors" / "frames" / "errors-slave.jsonl"
    frames = [json.loads(line) for line in path.read_text().splitlines()]
    asked = {frame["seq"]: frame for frame in frames if not frame["response"] and frame["to"] == "broker"}
    answers = [frame for frame in frames if frame["response"] and frame["from"] == "broker"]
    return [(asked[answer["request"]["seq"]], answer) for answer in answers if answer["request"]["seq"] in asked]


async def test_a_slave_answers_as_rocketmqs_slave(autojump_clock: MockClock) -> None:
    async with pair() as cluster:
        for _ in range(2):
            await cluster.master.send("TopicM", b"hi")
        await cluster.caught_up()
        await trio.sleep(2)
        slave = cluster.slave()
        for asked, answered in recorded():
            frame = base64.b64decode(asked["b64"])
            head = int.from_bytes(frame[4:8], "big") & 0xFFFFFF
            answer = await slave.call(asked["code"], asked["header"].get("extFields"), frame[8 + head :])
            assert answer.code == answered["code"], (asked["name"], answer.code, answer.remark)
            wanted = answered["header"].get("extFields") or {}
            for name in ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "offset"):
                if name in wanted and name in (answer.ext or {}):
                    assert (answer.ext or {})[name] == wanted[name], (asked["name"], name)
        assert len(recorded()) >= 9
        assert slave.store.log.end == cluster.master.store.log.end
