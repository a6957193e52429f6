"""Messages with any delivery time, with a broker in virtual time: delivery, crashes, recalls."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.receipt_handle import RecallHandle, parse_recall_handle
from rocketlet.remoting.protocol.popping import RecallMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_broker import RunningBroker, memory_broker
from tests.support.virtual_time import START_MS


async def arrived(one: RunningBroker, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in (await one.pull(topic, queue_id, 0)).records]


async def test_each_way_to_set_a_delivery_time(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", b"now")
        for name, value in (
            ("TIMER_DELIVER_MS", str(START_MS + 5_000)), ("TIMER_DELAY_MS", "5000"), ("TIMER_DELAY_SEC", "5"),
        ):  # fmt: skip
            assert (await one.send("T", name.encode(), **{name: value})).code == 0
        assert await arrived(one) == [b"now"]
        await trio.sleep(4.99)
        assert await arrived(one) == [b"now"]
        await trio.sleep(0.02)
        pulled = (await one.pull("T", 0, 1)).records
        assert [record.body for record in pulled] == [b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC"]
        assert all(0 <= record.store_timestamp - START_MS - 5_000 <= 2 for record in pulled)
        assert decode_bytes(pulled[0].properties)["TIMER_DELIVER_MS"] == str(START_MS + 5_000)


async def test_a_delivery_time_in_the_past_means_now(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        answer = await one.send("T", b"late", TIMER_DELIVER_MS=str(START_MS - 1))
        assert "recallHandle" not in (answer.ext or {})
        assert await arrived(one) == [b"late"]


@pytest.mark.parametrize("value", ["soon", "1.5", "9" * 400, str(START_MS + 259_200_000 + 1000), "٣"])
async def test_an_invalid_or_too_distant_delivery_time(autojump_clock: MockClock, value: str) -> None:
    async with memory_broker() as one:
        assert (await one.send("T", b"x", TIMER_DELIVER_MS=value)).code == 13
        assert await arrived(one) == []


async def test_a_delay_level_overrides_a_delivery_time(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", b"x", DELAY="1", TIMER_DELAY_SEC="100")
        await trio.sleep(1.1)
        assert await arrived(one) == [b"x"]


async def test_delivery_times_in_any_order(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        delays = [3, 1, 70, 2, 200, 69, 0.5, 300.25]
        for delay in delays:
            await one.send("T", str(delay).encode(), TIMER_DELAY_MS=str(int(delay * 1000)))
        await trio.sleep(301)
        assert await arrived(one) == [str(delay).encode() for delay in sorted(delays)]


async def test_a_crash_at_any_moment_loses_or_duplicates_nothing(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        for number in range(40):
            await one.send("T", b"%d" % number, TIMER_DELAY_MS=str(1000 + 100 * number))
        disks = []
        for _ in range(8):
            await trio.sleep(0.55)
            disks.append(one.disk.copy())
        now = START_MS + int(trio.current_time() * 1000)
    for disk in disks:
        async with memory_broker(disk=disk, start_ms=now) as two:
            await trio.sleep(1)
            assert sorted(map(int, await arrived(two) + await rest(two))) == list(range(40))


async def rest(one: RunningBroker) -> list[bytes]:
    return [record.body for record in (await one.pull("T", 0, 32)).records]


async def test_a_message_is_recalled_by_its_handle(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        kept = await one.send("T", b"kept", TIMER_DELAY_SEC="5")
        sent = await one.send("T", b"recalled", TIMER_DELAY_SEC="5")
        text = (sent.ext or {})["recallHandle"]
        assert text != (kept.ext or {})["recallHandle"]
        handle = parse_recall_handle(text)
        assert (handle.topic, handle.broker_name, handle.deliver_ms) == ("T", "broker-a", START_MS + 5_000)
        answer = await one.call(RequestCode.RECALL_MESSAGE, RecallMessageHeader("PG", "T", text))
        assert (answer.code, (answer.ext or {})["msgId"]) == (0, handle.message_id)
        assert (await one.call(RequestCode.RECALL_MESSAGE, RecallMessageHeader("PG", "T", text))).code == 604
        disk = one.disk.copy()
        await trio.sleep(6)
        assert await arrived(one) == [b"kept"]
    async with memory_broker(disk=disk) as two:
        await trio.sleep(6)
        assert await arrived(two) == [b"kept"]


async def test_invalid_recalls_are_refused(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        sent = await one.send("T", b"x", TIMER_DELAY_SEC="5")
        handle = parse_recall_handle((sent.ext or {})["recallHandle"])
        for topic, text in (
            ("T", "no handle"), ("U", str(handle)), ("T", str(RecallHandle("T", "broker-b", handle.deliver_ms, "1"))),
            ("T", str(RecallHandle("T", "broker-a", handle.deliver_ms + 1, handle.message_id))),
            ("T", str(RecallHandle("T", "broker-a", START_MS - 1, handle.message_id))),
        ):  # fmt: skip
            assert (await one.call(RequestCode.RECALL_MESSAGE, RecallMessageHeader("PG", topic, text))).code == 604
        await trio.sleep(6)
        assert await arrived(one) == [b"x"]
        assert (await one.call(RequestCode.RECALL_MESSAGE, RecallMessageHeader("PG", "T", str(handle)))).code == 604


async def test_waiting_messages_keep_their_log_files(autojump_clock: MockClock) -> None:
    settings = {"timer_max_delay_sec": 31_622_400, "file_reserved_time": 4}
    async with memory_broker(**settings) as one:
        await one.send("T", b"x", TIMER_DELAY_SEC=str(5 * 3600))
        await trio.sleep(3 * 3600)
        assert one.broker.store.queue_end("rmq_sys_wheel_timer", 0) >= 2
        await trio.sleep(2 * 3600 + 1)
        assert await arrived(one) == [b"x"]


async def test_an_undeliverable_message_is_skipped(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", b"long" * 10_000, TIMER_DELAY_SEC="5")
        await one.send("T", b"short", TIMER_DELAY_SEC="5")
        await trio.sleep(1)
        disk = one.disk.copy()
    async with memory_broker(disk=disk, max_message_size=1000) as two:
        await trio.sleep(8)
        assert await arrived(two) == [b"short"]
        assert two.broker.parts.timers.statistics().pending == 0
