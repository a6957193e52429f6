"""The store as the broker sees it: putting, dispatching, reading, waiting; limits and refusals."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from rocketlet.broker.handlers.send_batch import mixed_run
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.message_flags import COMMIT, PREPARED, ROLLBACK
from rocketlet.common.message_properties import find
from rocketlet.common.message_record import BatchItem, decode, encode_batch
from rocketlet.common.settings import with_updates
from rocketlet.common.topic import HALF_TOPIC, SCHEDULE_TOPIC, InvalidName
from rocketlet.store.config import FlushDiskType, StoreConfig
from rocketlet.store.errors import (
    Closed,
    DiskFull,
    FlushFailed,
    FlushTimeout,
    MessageIllegal,
    PropertiesTooLarge,
    StoreLocked,
    SystemRefuses,
)
from rocketlet.store.memory_disk import MemoryDisk, MemoryRegion
from rocketlet.store.message import Put
from rocketlet.store.message_run import Shared
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import GetStatus
from rocketlet.store.real_disk import RealDisk
from tests.support.records import decode_all
from tests.support.store_model import HOST, ROOT, message, small_config

NOW = 1_700_000_000_000
SHARED = Shared("T", 0, 0, NOW, HOST, HOST)


def store_on(disk: MemoryDisk, config: StoreConfig | None = None) -> MessageStore:
    return MessageStore(disk, config or small_config(), lambda: NOW, on_progress=lambda _: None)


async def opened(disk: MemoryDisk | None = None, **settings: object) -> MessageStore:
    store = store_on(disk or MemoryDisk(page_size=64), small_config(**settings))
    await store.open()
    return store


def bodies(store: MessageStore, topic: str, queue_id: int = 0, offset: int = 0, **more: object) -> list[bytes]:
    result = store.get(topic, queue_id, offset, 32, **more)  # type: ignore[arg-type]
    return [record.body for record in decode_all(result.body())] if result.count else []


class TestPutting:
    async def test_a_message_is_in_the_log_at_once_and_in_its_queue_after_dispatch(self) -> None:
        store = await opened()
        found = store.put(message("T", 1, b"hello", (b"unique", b"key"), b"TagA", flag=3, reconsume_times=2))
        assert (found.log_offset, found.queue_offset, found.store_timestamp) == (0, 0, NOW)
        assert found.end == found.size == store.log.end
        assert (store.queue_end("T", 1), store.dispatched.value, store.appended.value) == (0, 0, 0)
        store.settle()
        assert (store.queue_end("T", 1), store.dispatched.value, store.appended.value) == (1, found.end, found.end)
        raw = store.record_at(0)
        assert raw is not None
        record = decode(raw)
        assert (record.body, record.flag, record.reconsume_times, record.store_timestamp) == (b"hello", 3, 2, NOW)
        assert find(record.properties, b"TAGS") == b"TagA"
        assert [offset for offset, _ in store.find_by_key("T", "key", 32, 0, 1 << 62).records] == [0]
        assert [offset for offset, _ in store.find_by_key("T", "unique", 32, 0, 1 << 62).records] == [0]

    async def test_offsets_are_counted_by_queue(self) -> None:
        store = await opened()
        found = [store.put(message(topic, queue, b"")) for topic, queue in (("A", 0), ("A", 1), ("A", 0), ("B", 0))]
        assert [one.queue_offset for one in found] == [0, 0, 1, 0]

    async def test_a_batch_is_whole_in_one_file(self) -> None:
        store = await opened()
        store.put(message("T", 0, b"x" * 1200))
        found = store.put_batch([message("T", 0, b"a" * 200), message("T", 1, b"b" * 200), message("T", 0, b"c" * 200)])
        assert [one.log_offset for one in found] == [2048, 2048 + found[0].size, 2048 + 2 * found[0].size]
        assert [one.queue_offset for one in found] == [1, 0, 2]
        end = store.log.end
        with pytest.raises(MessageIllegal):
            store.put_batch([message("T", 0, b"fits"), message("T", 0, b"x" * 1501)])
        with pytest.raises(MessageIllegal, match="does not fit into a log file"):
            store.put_batch([message("T", 0, b"x" * 1400), message("T", 0, b"x" * 1400)])
        assert store.log.end == end
        assert store.put(message("T", 0, b"")).queue_offset == 3

    async def test_half_and_rolled_back_records_get_no_offset(self) -> None:
        store = await opened()
        for kind, offset in ((PREPARED, 0), (ROLLBACK, 0), (COMMIT, 0), (0, 1), (PREPARED, 0), (0, 2)):
            assert store.put(message("T", 0, b"", (b"key",), sys_flag=kind)).queue_offset == offset
        store.settle()
        assert store.queue_end("T", 0) == 3
        # Rolled back ones are not in the index; half ones are.
        assert len(store.find_by_key("T", "key", 32, 0, 1 << 62).records) == 5

    async def test_a_delay_levels_entries_carry_the_delivery_time(self) -> None:
        store = await opened(message_delay_level="1s 5s")
        for queue_id, delay in ((0, 1000), (1, 5000), (7, 5000)):
            store.put(message(SCHEDULE_TOPIC, queue_id, b"", tags=b"ignored"))
            store.settle()
            queue = store.queue(SCHEDULE_TOPIC, queue_id)
            assert queue is not None
            entry = queue.entry(0)
            assert entry is not None
            assert entry[2] == NOW + delay

    async def test_limits_have_their_own_errors(self) -> None:
        store = await opened(max_message_size=100)
        with pytest.raises(MessageIllegal, match="maxMessageSize allows 100"):
            store.put(message("T", 0, b"x" * 101))
        with pytest.raises(PropertiesTooLarge, match="32767"):
            store.put(Put("T", 0, b"", b"p" * 32768, born_host=HOST, store_host=HOST))
        with pytest.raises(MessageIllegal, match="U\\+0000"):
            store.put(Put("T", 0, b"", b"p\x01" + bytes(600), born_host=HOST, store_host=HOST))
        with pytest.raises(InvalidName):
            store.put(message("../../etc", 0, b""))
        with pytest.raises(InvalidName):
            store.put(message("T" * 128, 0, b""))
        assert store.put(message("%RETRY%" + "g" * 200, 0, b"")).queue_offset == 0
        with pytest.raises(MessageIllegal, match="log file"):
            store.put(Put("T", 0, b"x" * 100, b"p" * 5000, born_host=HOST, store_host=HOST))
        assert store.log.end < 400
        assert store.queue("T", 0) is None or store.queue_end("T", 0) == 0

    async def test_a_closed_store_refuses(self) -> None:
        store = store_on(MemoryDisk())
        with pytest.raises(Closed, match="not open"):
            store.put(message("T", 0, b""))
        await store.open()
        await store.close()
        with pytest.raises(Closed, match="closed"):
            store.put(message("T", 0, b""))
        await store.close()

    async def test_a_directory_has_only_one_store(self) -> None:
        disk = MemoryDisk()
        store = await opened(disk)
        with pytest.raises(StoreLocked):
            await store_on(disk).open()
        await store.close()
        await (await opened(disk)).close()


class TestReading:
    async def test_statuses_and_next_offsets(self) -> None:
        store = await opened()
        assert store.get("T", 0, 0, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
        store.watch("T", 0)
        assert store.get("T", 0, 5, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
        for number in range(7):
            store.put(message("T", 0, b"%d" % number))
        store.settle()
        cases = {
            0: (GetStatus.FOUND, 5),  # one queue file a pull
            5: (GetStatus.FOUND, 7),
            7: (GetStatus.OFFSET_OVERFLOW_ONE, 7),
            9: (GetStatus.OFFSET_OVERFLOW_BADLY, 7),
            -1: (GetStatus.OFFSET_TOO_SMALL, 0),
        }
        for offset, expected in cases.items():
            result = store.get("T", 0, offset, 32)
            assert (result.status, result.next_offset) == expected
            assert (result.min_offset, result.max_offset) == (0, 7)
        assert bodies(store, "T", offset=2) == [b"2", b"3", b"4"]

    async def test_consecutive_messages_are_one_slice(self) -> None:
        store = await opened()
        for number in range(3):
            store.put(message("T", 0, b"%d" % number))
        store.put(message("T", 1, b"between"))
        store.put(message("T", 0, b"after"))
        store.settle()
        result = store.get("T", 0, 0, 32)
        assert (result.count, len(result.slices)) == (4, 2)
        assert all(isinstance(piece, memoryview) and piece.readonly for piece in result.slices)
        assert result.size == sum(map(len, result.slices)) == len(result.body())

    @pytest.mark.parametrize(
        ("settings", "asked", "found"),
        [
            ({}, 3, 3),
            ({"max_transfer_count_on_message_in_memory": 2}, 32, 2),
            ({"max_transfer_bytes_on_message_in_memory": 350}, 32, 2),
            ({"max_transfer_bytes_on_message_in_memory": 1}, 32, 1),  # the first goes whatever its size
            ({"access_message_in_memory_max_ratio": 0, "max_transfer_count_on_message_in_disk": 3}, 32, 3),
            ({"access_message_in_memory_max_ratio": 0, "max_transfer_bytes_on_message_in_disk": 500}, 32, 3),
        ],
    )
    async def test_limits_of_a_pull(self, settings: dict[str, int], asked: int, found: int) -> None:
        store = await opened(mapped_file_size_consume_queue=2000, **settings)
        for _ in range(8):
            store.put(message("T", 0, b"x" * 60))  # 152 bytes a record
        store.settle()
        result = store.get("T", 0, 0, asked)
        assert (result.count, result.next_offset) == (found, found)
        assert store.get("T", 0, 0, 32, max_bytes=310).count == min(found, 2) or found < 2

    async def test_filters(self) -> None:
        store = await opened(mapped_file_size_consume_queue=2000)
        for number in range(9):
            store.put(message("T", 0, b"%d" % number, tags=b"TagA" if number % 3 else b"TagB"))
        store.settle()
        code = message("T", 0, b"", tags=b"TagB").tags_code
        result = store.get("T", 0, 0, 32, match=lambda found: found == code)
        assert [record.body for record in decode_all(result.body())] == [b"0", b"3", b"6"]
        assert result.next_offset == 9  # after the last one examined
        assert store.get("T", 0, 0, 1, match=lambda found: found == code).next_offset == 1
        nothing = store.get("T", 0, 0, 32, match=lambda _: False)
        assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 9)
        odd = bodies(store, "T", match_record=lambda record: decode(record).body in (b"1", b"7"))
        assert odd == [b"1", b"7"]

    async def test_a_pull_examines_800_entries(self) -> None:
        store = await opened(mapped_file_size_consume_queue=40_000, mapped_file_size_commit_log=1 << 20)
        for _ in range(900):
            store.put(message("T", 0, b""))
        store.settle()
        assert store.get("T", 0, 0, 32, match=lambda _: False).next_offset == 800

    async def test_by_offset_time_and_id(self) -> None:
        clock = iter(range(NOW, NOW + 10**6, 1000))
        store = MessageStore(MemoryDisk(), small_config(), lambda: next(clock), on_progress=lambda _: None)
        await store.open()
        for number in range(6):
            store.put(message("T", 0, b"%d" % number))
        store.settle()
        assert store.earliest_time("T", 0) == NOW
        assert [store.store_time_at("T", 0, offset) for offset in (1, 5, 6)] == [NOW + 1000, NOW + 5000, -1]
        assert [store.offset_at_time("T", 0, NOW + at) for at in (-5, 0, 1, 5000, 5001)] == [0, 0, 1, 5, 6]
        assert store.offset_at_time("Nobody", 0, NOW) == 0
        assert store.earliest_time("Nobody", 0) == -1
        assert store.record_at(3) is None
        assert store.record_at(-1) is None
        assert store.record_at(10**9) is None
        assert store.store_time_of(3) == -1

    async def test_a_key_is_verified_beyond_its_hash(self) -> None:
        store = await opened()
        store.put(message("T", 0, b"mine", (b"Aa",)))
        other = store.put(message("T", 0, b"other", (b"BB",)))  # hashes as Aa does
        store.settle()
        found = store.find_by_key("T", "Aa", 32, 0, 1 << 62)
        assert [decode(raw).body for _, raw in found.records] == [b"mine"]
        assert (found.index_log_offset, found.index_timestamp) == (other.log_offset, NOW)

    async def test_a_lookup_off_the_loop_finds_the_same(self) -> None:
        disk, now = MemoryDisk(page_size=64), NOW
        store = MessageStore(disk, small_config(), lambda: now, on_progress=lambda _: None)
        await store.open()
        for number in range(40):
            now = NOW + 1000 * number
            put = store.put(message("T", 0, bytes(number * 30 + 1), (b"k%d" % number,)))
            store.settle()
        look_ups: list[Callable[[], object]] = [
            lambda: store.offset_at_time("T", 0, NOW + 17_500),
            lambda: store.earliest_time("T", 0),
            lambda: store.store_time_at("T", 0, 39),
            lambda: store.record_at(put.log_offset),
            lambda: store.record_at(3),
            lambda: store.store_time_at("T", 0, 40),
            lambda: store.find_by_key("T", "k7", 32, 0, 1 << 62),
        ]
        at_once = [look_up() for look_up in look_ups]
        disk.cold = True
        assert [await store.with_cold_reads(look_up) for look_up in look_ups] == at_once
        assert [look_up() for look_up in look_ups] == at_once  # one that may wait still does

    async def test_a_filter_reads_old_records_off_the_loop(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk)
        for number in range(100):
            store.put(message("T", 0, b"%d" % number))
            store.settle()
        await store.close()
        store = await opened(disk)
        disk.cold = True
        looked_at: list[bytes] = []

        def wanted(record: memoryview) -> bool:
            looked_at.append(decode(record).body)
            return looked_at[-1].endswith(b"7")

        found, loads = [], 0
        offset = 0
        while offset < 100:
            result = store.get("T", 0, offset, 32, match_record=wanted)
            if result.unread:
                loads += 1
                await store.warm(result)
                continue
            assert result.next_offset > offset
            if result.count:
                found += [record.body for record in decode_all((await store.load(result)).body())]
            offset = result.next_offset
        assert found == [b"%d" % number for number in range(7, 100, 10)]
        assert loads > 0

    async def test_old_messages_are_read_off_the_loop(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk)
        store.put(message("T", 0, b"old"))
        store.settle()
        await store.close()
        disk.cold = True
        store = await opened(disk)
        store.put(message("T", 0, b"new"))
        store.settle()
        result = store.get("T", 0, 0, 32)
        assert result.cold
        assert result.slices == []
        with pytest.raises(AssertionError):
            result.body()
        await store.load(result)
        assert [record.body for record in decode_all(result.body())] == [b"old", b"new"]
        assert not store.get("T", 0, 1, 32).cold
        store.config = with_updates(store.config, {"accessMessageInMemoryMaxRatio": "0"})
        disk.cool()
        assert store.get("T", 0, 1, 32).cold  # so much has been written since that it may no longer be in memory
        disk.cold = False
        assert bodies(store, "T") == [b"old", b"new"]

    async def test_a_slow_reader_keeps_its_bytes(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk, file_reserved_time=0)
        for number in range(20):
            store.put(message("T", 0, b"%d" % number * 60))
        store.settle()
        held = store.get("T", 0, 0, 3)
        await store._log_flush.flush_once()
        await store._thorough.save()
        assert await store.delete_expired() > 0
        assert store.log.begin > 0
        assert [record.body[:1] for record in decode_all(held.body())] == [b"0", b"1", b"2"]
        assert store.get("T", 0, 0, 3).status is GetStatus.OFFSET_TOO_SMALL


class TestWaiting:
    async def test_watching_a_queue_without_messages(self) -> None:
        store = await opened()
        mark = store.watch("T", 3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mark.reach, 1)
            await trio.testing.wait_all_tasks_blocked()
            store.put(message("T", 3, b""))
            await trio.testing.wait_all_tasks_blocked()
            assert mark.statistics().waiting == 1
            store.settle()
        assert mark.value == 1
        with pytest.raises(InvalidName):
            store.watch("a/b", 0)

    async def test_group_commit(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            before = store.statistics().flush_rounds

            async def send(number: int) -> None:
                found = store.put(message("T", 0, b"%d" % number))
                store.settle()
                await store.flushed_to(found.end, 5000)
                assert store.flushed.value >= found.end

            async with trio.open_nursery() as senders:
                for number in range(50):
                    senders.start_soon(send, number)
            assert store.statistics().flush_rounds - before <= 3
            nursery.cancel_scope.cancel()

    async def test_async_flush_waits_for_pages_or_the_thorough_interval(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        clock = TrioWallClock(NOW, autojump_clock)
        store = MessageStore(MemoryDisk(), small_config(mapped_file_size_commit_log=1 << 20), clock)
        await store.open()
        # Virtual minutes pass at once, so that a missing flush is a failure and not an endless wait.
        with trio.fail_after(60):
            await self._flushes(store)

    async def _flushes(self, store: MessageStore) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await trio.sleep(1)
            store.put(message("T", 0, b"few bytes"))
            store.settle()
            begin = trio.current_time()
            await store.flushed.reach(store.log.end)
            assert 8 <= trio.current_time() - begin <= 11  # flushCommitLogThoroughInterval
            store.put(message("T", 0, b"x" * 1500))
            for _ in range(20):
                store.put(message("T", 0, b"x" * 1000))
            store.settle()
            begin = trio.current_time()
            await store.flushed.reach(store.log.end)
            assert trio.current_time() - begin <= 0.6  # flushIntervalCommitLog
            store.put(message("T", 0, b""))
            store.want_flush()
            store.settle()
            begin = trio.current_time()
            await store.flushed.reach(store.log.end)
            assert trio.current_time() == begin
            nursery.cancel_scope.cancel()

    async def test_waiting_for_a_flush_times_out(self, autojump_clock: trio.testing.MockClock) -> None:
        store = await opened()  # and nobody runs it
        found = store.put(message("T", 0, b""))
        with pytest.raises(FlushTimeout, match="syncFlushTimeout"):
            await store.flushed_to(found.end, 5000)
        assert trio.current_time() == 5
        assert store.flushed.statistics().waiting == 0

    async def test_a_failed_flush_is_never_reported_as_success(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        outcomes = []

        async def send() -> None:
            found = store.put(message("T", 0, b"acknowledged?"))
            store.settle()
            try:
                await store.flushed_to(found.end, 5000)
            except FlushFailed as error:
                outcomes.append(str(error))

        with pytest.raises(ExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                await nursery.start(store.run)
                disk.fail_next_flush = True
                async with trio.open_nursery() as senders:
                    for _ in range(3):
                        senders.start_soon(send)
                await send()  # nor later ones, although the disk reports success again
        assert caught.value.split(FlushFailed)[1] is None
        assert len(outcomes) >= 3
        assert all("flush failed" in outcome for outcome in outcomes)
        assert store.flushed.value == 0
        with pytest.raises(FlushFailed):
            await store.close()
        assert disk.exists(f"{ROOT}/abort")

    async def test_a_failed_progress_rename_is_logged_and_harmless(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk)
        store.put(message("T", 0, b"kept"))
        store.settle()
        disk.fail_next_rename = True
        await store._log_flush.flush_once()
        await store._thorough.save()
        assert "cannot write checkpoint or progress" in caplog.text
        assert not store.refusal
        again = await opened(disk.crash(Random(1)))
        assert bodies(again, "T") == [b"kept"]

    async def test_a_store_that_cannot_be_marked_open_is_not_opened(self) -> None:
        disk = MemoryDisk(page_size=64)
        disk.fail_next_rename = True
        with pytest.raises(OSError, match="Input/output"):
            await opened(disk)
        await (await opened(disk)).close()


class TestFailedPuts:
    async def test_what_rocketmq_counts_is_counted(self) -> None:
        store = await opened(max_message_size=100, mapped_file_size_commit_log=1 << 20)
        long = message("T", 0, b"")
        for properties, expected in ((b"p\x01" + "中".encode() * 12_000, 1), (b"p\x01" + b"x" * 40_000, 1)):
            long.properties = properties
            with pytest.raises(PropertiesTooLarge):
                store.put(long)
            assert store.statistics().puts_failed == expected, "40,000 characters are refused before it counts"
        with pytest.raises(MessageIllegal):
            store.put(message("T", 0, b"x" * 101))
        assert store.statistics().puts_failed == 2
        batch = [BatchItem(0, b"fits", b""), BatchItem(0, b"x" * 101, b"")]
        with pytest.raises(MessageIllegal):
            store.put_run(mixed_run(encode_batch(batch), SHARED, b""))
        with pytest.raises(MessageIllegal):
            store.put_batch([message("T", 0, b"x" * 101)])
        await store.close()
        with pytest.raises(Closed):
            store.put(message("T", 0, b""))
        assert store.statistics().puts_failed == 2

    async def test_a_full_disk_counts_once_and_not_while_it_is_known_to_be_full(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk, mapped_file_size_commit_log=8192, message_index_enable=False)
        disk.capacity = disk.statistics().reserved_bytes
        for number, refused in enumerate(
            (
                lambda: store.put(message("T", 0, b"")),
                lambda: store.put_batch([message("T", 0, b"")] * 2),
                lambda: store.put_run(mixed_run(encode_batch([BatchItem(0, b"", b"")] * 2), SHARED, b"")),
            ),
            1,
        ):
            for _ in range(2):
                with pytest.raises(DiskFull):
                    refused()
                assert store.statistics().puts_failed == number
            store._set_full(None)


class TestFullDisk:
    async def test_sends_are_refused_and_reads_continue(self) -> None:
        disk = MemoryDisk(page_size=64, capacity=3000)
        store = await opened(disk, message_index_enable=False)
        with pytest.raises(DiskFull, match="no space left"):
            for number in range(100):
                store.put(message("T", 0, b"%02d" % number))
                store.settle()
        count = store.queue_end("T", 0)
        assert 0 < count < 100
        with pytest.raises(DiskFull):
            store.put(message("T", 0, b""))
        assert "no space left" in store.refusal
        assert bodies(store, "T")[0] == b"00"
        disk.capacity = None
        await store._retention.tick()
        assert store.refusal == ""
        assert store.put(message("T", 0, b"again")).queue_offset == count

    async def test_dispatch_waits_until_there_is_room(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk, mapped_file_size_commit_log=8192)
        store.put(message("T", 0, b""))
        store.settle()
        store.log.make_room(1000)
        disk.capacity = disk.statistics().reserved_bytes
        mark = store.watch("T", 0)
        found = store.put(message("T", 0, b"in the queue, not in the index", (b"k1", b"k2")))
        store.settle()
        assert store.find_by_key("T", "k2", 32, 0, 1 << 62).records == []  # which indexes the waiting keys
        store.settle()
        assert "No space left" in store.refusal
        disk.capacity = None
        await store._retention.tick()
        assert (store.appended.value, store.dispatched.value, mark.value) == (found.end, found.end, 2)
        assert len(store.find_by_key("T", "k2", 32, 0, 1 << 62).records) == 1
        assert not store.refusal

    async def test_a_store_with_undispatched_messages_is_not_closed_cleanly(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk, mapped_file_size_commit_log=8192)
        store.put(message("T", 0, b""))
        store.log.make_room(1000)
        disk.capacity = disk.statistics().reserved_bytes
        store.put(message("T", 0, b"kept", (b"key",)))
        store.settle()
        await store.close()
        disk.capacity = None
        again = await opened(disk, mapped_file_size_commit_log=8192)
        assert not again.report.was_clean
        assert bodies(again, "T") == [b"", b"kept"]

    async def test_a_message_whose_queue_has_no_room_is_not_logged(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk, mapped_file_size_commit_log=8192, message_index_enable=False)
        store.log.make_room(1000)
        end = store.log.end
        disk.capacity = disk.statistics().reserved_bytes
        for refused in (
            lambda: store.put(message("T", 0, b"")),
            lambda: store.put_batch([message("T", 0, b"")] * 2),
            lambda: store.put_run(mixed_run(encode_batch([BatchItem(0, b"", b"")] * 2), SHARED, b"")),
        ):
            with pytest.raises(DiskFull):
                refused()
            assert store.log.end == end
            store._set_full(None)
        disk.capacity = None
        assert store.put(message("T", 0, b"now")).queue_offset == 0


class TestASystemThatRefusesFiles:
    """Too many open or mapped files: only the queue that needs another one is refused."""

    @pytest.mark.parametrize(
        ("number", "advice"),
        [
            (errno.EMFILE, "LimitNOFILE"),
            (errno.ENFILE, "file-max"),
            (errno.ENOMEM, "max_map_count"),
            (errno.EACCES, "permissions"),
        ],
    )
    async def test_a_refused_queue_names_the_missing_resource(self, number: int, advice: str) -> None:
        disk = Refusing("/New/", number)
        store = await opened(disk)
        store.put(message("Old", 0, b"1"))
        with pytest.raises(SystemRefuses, match=advice):
            store.put(message("New", 0, b"2"))
        assert not store.refusal
        assert store.put(message("Old", 0, b"3")).queue_offset == 1
        store.settle()
        assert bodies(store, "Old") == [b"1", b"3"]
        disk.refused = ""
        assert store.put(message("New", 0, b"4")).queue_offset == 0
        store.settle()
        await store.close()
        again = await opened(disk)
        assert again.report.was_clean
        assert bodies(again, "New") == [b"4"]

    async def test_a_failed_next_file_leaves_the_queue_unchanged(self) -> None:
        disk = Refusing("", errno.EMFILE)
        store = await opened(disk, mapped_file_size_consume_queue=60)
        for _ in range(3):
            store.put(message("T", 0, b"x"))
        disk.refused = "/T/0/"
        for _ in range(2):
            with pytest.raises(SystemRefuses):
                store.put(message("T", 0, b"x"))
        store.settle()
        assert store.queue_end("T", 0) == 3
        disk.refused = ""
        assert store.put(message("T", 0, b"x")).queue_offset == 3
        store.settle()
        assert store.queue_end("T", 0) == 4

    async def test_a_failing_index_refuses_sends_until_it_recovers(self) -> None:
        disk = Refusing("/index/", errno.EMFILE)
        store = await opened(disk)
        store.put(message("T", 0, b"", (b"key",)))
        store.settle()
        store._dispatch.enter_keys()
        store.settle()
        assert "LimitNOFILE" in store.refusal
        disk.refused = ""
        await store._retention.tick()
        assert not store.refusal
        assert len(store.find_by_key("T", "key", 32, 0, 1 << 62).records) == 1

    async def test_keys_are_indexed_before_a_lookup_and_when_there_are_many(self) -> None:
        store = await opened()
        for number in range(300):
            store.put(message("T", 0, b"", (b"u%d" % number, b"k")))
            store.settle()
        assert store.index.statistics().entries == 512
        assert len(store.find_by_key("T", "u299", 32, 0, 1 << 62).records) == 1
        assert store.index.statistics().entries == 600

    async def test_keys_are_indexed_without_numpy_while_it_is_imported(self) -> None:
        store = await opened()
        store._dispatch.spares_numpy = True
        keys = [*(b"k%d" % number for number in range(60)), "schlüssel".encode()]
        store.put(message("T", 0, b"", tuple(keys)))
        store.settle()
        for key in keys:
            assert len(store.find_by_key("T", key.decode(), 32, 0, 1 << 62).records) == 1

    async def test_an_unwritable_extension_is_omitted(self) -> None:
        store = await opened(Refusing("consumequeue_ext", errno.EMFILE), enable_consume_queue_ext=True)
        store.put(message("T", 0, b"body", (), b"A"))
        store.settle()
        assert bodies(store, "T") == [b"body"]

    @pytest.mark.parametrize("as_run", [False, True])
    async def test_a_topic_deleted_before_dispatch_leaves_nothing(self, as_run: bool) -> None:
        disk = Refusing("/index/", errno.EMFILE)
        store = await opened(disk)
        store.put(message("Other", 0, b"", (b"key",)))
        if as_run:
            store.put_run(mixed_run(encode_batch([BatchItem(0, b"x", b"")] * 2), SHARED, b""))
        else:
            store.put(message("T", 0, b"x"))
        assert store.drop_topic("T") == 1
        await store.remove_dropped()
        disk.refused = ""
        store.settle()
        assert not store.refusal
        assert not [path for path in disk.files() if "/T/" in path]
        assert store.put(message("T", 0, b"anew")).queue_offset == 0
        store.settle()
        assert bodies(store, "T") == [b"anew"]


class Refusing(MemoryDisk):
    """Refuses to create files whose path contains `refused`."""

    def __init__(self, refused: str, number: int) -> None:
        super().__init__(page_size=64)
        self.refused, self.number = refused, number

    def create(self, path: str, size: int) -> MemoryRegion:
        if self.refused and self.refused in path:
            raise OSError(self.number, os.strerror(self.number), path)
        return super().create(path, size)


class TestTopics:
    async def test_a_deleted_topic_starts_again_at_zero(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk)
        for topic in ("Gone", "Stays", "Unused"):
            for _ in range(7):
                store.put(message(topic, 0, b""))
        store.settle()
        await store._log_flush.flush_once()
        await store._thorough.save()
        assert store.drop_topic("Gone") == 1
        await store.remove_dropped()
        assert store.queue("Gone", 0) is None
        assert not [path for path in disk.files() if "/Gone/" in path]
        assert store.put(message("Gone", 0, b"")).queue_offset == 0
        store.settle()
        assert await store.clean_unused({"Stays", "Gone"}.__contains__) == 1
        await store.close()
        again = await opened(disk)
        assert not again.report.changed
        assert not again.report.records
        assert again.queues.topics() == {"Gone", "Stays"}
        await again.close()

    async def test_system_topics_are_not_cleaned(self) -> None:
        store = await opened()
        store.put(message(HALF_TOPIC, 0, b""))
        store.settle()
        assert await store.clean_unused(lambda topic: False) == 0

    async def test_a_queue_that_is_used_again_before_its_files_are_deleted_begins_at_zero(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk)
        for topic in ("Again", "Gone"):
            for queue_id in range(3):
                for number in range(7):
                    store.put(message(topic, queue_id, b"old %d" % number))
        store.settle()
        assert (store.drop_topic("Again"), store.drop_topic("Gone")) == (3, 3)
        assert store.put(message("Again", 1, b"anew")).queue_offset == 0
        store.settle()
        await store.remove_dropped()
        assert bodies(store, "Again", 1) == [b"anew"]
        assert {path.rpartition("/")[0] for path in disk.files() if "/consumequeue/" in path} == {
            "/store/consumequeue/Again/1"
        }
        await store.close()
        again = await opened(disk)
        assert bodies(again, "Again", 1) == [b"anew"]
        assert again.queues.topics() == {"Again"}
        await again.close()

    async def test_closing_deletes_the_files_of_dropped_queues(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk)
        store.put(message("Gone", 0, b""))
        store.settle()
        store.drop_topic("Gone")
        await store.close()
        assert not [path for path in disk.files() if "/Gone/" in path]

    async def test_others_run_while_many_queues_are_deleted(self) -> None:
        disk = MemoryDisk(page_size=64)
        store = await opened(disk)
        for queue_id in range(200):
            store.put(message("Wide", queue_id, b""))
        store.settle()
        left: list[int] = []

        async def look() -> None:
            while not left or left[-1]:
                left.append(sum("/Wide/" in path for path in disk.files()))
                await trio.lowlevel.checkpoint()

        store.drop_topic("Wide")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await store.remove_dropped()
        assert any(0 < count < 200 for count in left)

    async def test_files_of_dropped_queues_are_deleted_by_a_worker_thread(self, tmp_path: Path) -> None:
        """The system makes each wait for its journal: 20,000 queues stopped the loop for 8 s."""
        deleted: list[tuple[str, bool]] = []

        class Watched(RealDisk):
            def remove(self, path: str) -> None:
                deleted.append((path, threading.current_thread() is threading.main_thread()))
                super().remove(path)

            def remove_directory(self, path: str) -> None:
                deleted.append((path, threading.current_thread() is threading.main_thread()))
                super().remove_directory(path)

        config = small_config(store_path_root_dir=str(tmp_path))
        store = MessageStore(Watched(), config, lambda: 0, on_progress=lambda _: None)
        await store.open()
        for queue_id in range(3):
            store.put(message("Gone", queue_id, b"x"))
        store.settle()
        store.drop_topic("Gone")
        await store.remove_dropped()
        assert not (tmp_path / "consumequeue/Gone").exists()
        assert len(deleted) > 6
        assert not any(on_loop for _, on_loop in deleted)
        await store.close()

    async def test_a_dropped_queue_is_empty_for_who_still_holds_it(self) -> None:
        store = await opened()
        for number in range(20):
            store.put(message("T", 0, b"%d" % number))
        store.settle()
        queue = store.queue("T", 0)
        assert queue is not None
        assert len(queue.files.files) > 1
        store.drop_topic("T")
        await store.remove_dropped()
        assert queue.drop_before(store.log.end, store.log.end) == 0
        assert queue.search_time(0, store.store_time_of) == queue.end
        assert (queue.begin, queue.entry(queue.begin)) == (20, None)
        await store.close()

    async def test_a_deleted_topic_is_forgotten_in_a_few_steps_for_each_of_its_queues(self) -> None:
        """All of it is one step of the loop: it must not look at the queues of other topics too."""
        store = await opened()
        for topic, count in (("Wide", 100), ("Other", 1000)):
            for queue_id in range(count):
                store.queues.find_or_make(topic, queue_id)
        lines = 0

        def trace(*_: object) -> Any:
            nonlocal lines
            lines += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            store.drop_topic("Wide")
        finally:
            sys.settrace(before)
        assert 100 < lines < 300
        assert store.queues.topics() == {"Other"}

    async def test_queues_whose_messages_are_gone(self) -> None:
        store = await opened(file_reserved_time=0)
        store.put(message("Old", 0, b""))
        store.put(message(HALF_TOPIC, 0, b""))
        for _ in range(30):
            store.put(message("New", 0, b"x" * 100))
        store.settle()
        await store._log_flush.flush_once()
        await store._thorough.save()
        await store.delete_expired()
        assert (store.queue_begin("Old", 0), store.queue_end("Old", 0)) == (1, 1)
        assert await store.clean_expired_queues() == 1
        assert store.queue("Old", 0) is None
        assert store.queue_end(HALF_TOPIC, 0) == 1


async def test_statistics_describe_the_store() -> None:
    store = await opened()
    for number in range(15):
        store.put(message("T", number % 2, b"x" * 100, (b"k%d" % number,)))
    store.settle()
    store.get("T", 0, 0, 32)
    found = store.statistics()
    assert (found.log_begin, found.log_end, found.log_files) == (0, store.log.end, 2)
    assert (found.queues, found.index_files, found.index_entries) == (2, 2, 15)
    assert (found.puts, found.gets, found.waiting, found.refusal) == (15, 1, 0, "")
    assert found.put_bytes > 1500


async def test_settings_can_change_at_run_time() -> None:
    store = await opened()
    store.config = with_updates(store.config, {"maxMessageSize": "10"})
    with pytest.raises(MessageIllegal, match="allows 10"):
        store.put(message("T", 0, b"x" * 11))
