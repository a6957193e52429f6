"""Sequences of steps that once broke the state machine of test_crashes.py, shortened, with the cause of each.

There were five causes. The last bytes of a record without properties are zeros; if only these reach into a new page,
that page is a hole after a power cut, and recovery took the record for torn. And a crash undid one deletion by
retention but not the next, and recovery kept the queue files before the gap: the queue went back to offsets that had
been assigned. And of two queue files that were just made a crash kept the names and no length: the second was taken for
one behind a gap, was not extended, and could not be made again. And the name of a queue file that was made in an
earlier life, for a message that was refused, was never flushed: a power cut took it, with the offset in it. Nor was the
deletion of a queue file whose messages a crash had taken: it came back, and the queue went on behind them.
"""

from __future__ import annotations

from random import Random

import pytest

from rocketlet.common.message_record import record_size, topic_field
from rocketlet.store.check import check
from rocketlet.store.memory_disk import MemoryDisk
from tests.store.test_crashes import Crashes
from tests.support.store_model import ROOT, StoreModel, message, small_config


class TestZerosThatReachAloneIntoAPage:
    @pytest.mark.parametrize("inside", [1, 2])
    @pytest.mark.parametrize("page_size", [64, 128, 512])
    def test_zeros_belong_to_the_last_record(self, page_size: int, inside: int) -> None:
        model = StoreModel(small_config(), page_size)
        model.put(message("T", 0, b"first", (b"a",), b"TagA"))
        model.put_ending_at("T", 0, inside)
        assert model.store.log.end % page_size == inside
        model.run(model.store.flush)
        report = model.crash_and_open(Random(0))
        assert len(model.kept) == 2
        assert not report.cut_bytes
        model.put(message("T", 0, b"and on it goes"))
        model.run(model.store.flush)
        model.crash_and_open(Random(0))
        assert len(model.kept) == 3

    def test_zeros_belong_to_a_record_with_only_its_head_and_topic(self) -> None:
        model = StoreModel(small_config(), 64)
        bare = record_size(0, topic_field("T"), 0)
        model.put_ending_at("T", 0, (2 - bare) % 64)
        model.put(message("T", 0, b""))
        assert model.store.log.end % 64 == 2
        model.run(model.store.flush)
        assert not model.crash_and_open(Random(0)).cut_bytes

    def test_zeros_prove_that_earlier_damage_is_damage(self) -> None:
        """The last record is the only one after the damage."""
        model = StoreModel(small_config(mapped_file_size_commit_log=8192), 64)
        for number in range(5):
            model.put(message("T", 0, b"message %d" % number, (b"a",)))
        model.put_ending_at("T", 0, 2)
        model.store.settle()
        model.close()
        model.disk.remove(f"{ROOT}/rocketlet/progress.json")
        path, at = f"{ROOT}/commitlog/{0:020d}", model.kept[4].at.log_offset
        content = bytearray(model.disk.files()[path])
        content[at : at + 40] = Random(0).randbytes(40)
        model.disk.put_file(path, bytes(content))
        model.store = model._new()
        model.run(model.store.open)
        assert model.store.record_at(model.kept[5].at.log_offset) == model.kept[5].raw

    def test_zeros_do_not_complete_a_record_with_a_missing_page(self) -> None:
        model = StoreModel(small_config(), 64)
        model.put(message("T", 0, b"first"))
        model.run(model.store.flush)
        end = model.store.log.end
        model.put_ending_at("T", 0, 1)
        model.kill()
        path, missing = f"{ROOT}/commitlog/{0:020d}", end - end % 64 + 64
        content = model.disk.files()[path]
        model.disk.put_file(path, content[:missing].ljust(len(content), b"\0"))
        model.open()
        assert model.store.log.end == end


@pytest.mark.parametrize("whole", [1, 0])
def test_several_queue_files_without_a_length(whole: int) -> None:
    model = StoreModel(small_config(mapped_file_size_consume_queue=60))
    for number in range(12):
        model.put(message("T", 0, b"%d" % number))
    model.store.settle()
    model.run(model.store.flush)
    model.kill()
    for begin in (60, 120, 180)[whole:]:
        model.disk.put_file(f"{ROOT}/consumequeue/T/0/{begin:020d}", b"")
    model.open()
    assert len(model.kept) == 12


class TestAQueueWithoutAMessageInTheLog:
    """Only its files say at which offset it continues."""

    def queue_of_three_files(self) -> StoreModel:
        """Eight messages in the first two log files, whose queue has files of 3 entries each; then others."""
        model = StoreModel(small_config(mapped_file_size_consume_queue=60, mapped_file_size_commit_log=1024), 64)
        for _ in range(8):
            model.put(message("Idle", 0, b"x" * 100))
        while model.store.log.end < 3 * 1024:
            model.put(message("Busy", 0, b"x" * 100))
        model.close()
        model.open()
        return model

    @pytest.mark.parametrize("revived", [(0,), (60,), (0, 60)])
    def test_it_continues_whatever_deletions_a_crash_undoes(self, revived: tuple[int, ...]) -> None:
        model = self.queue_of_three_files()
        before = model.disk.files()
        while model.store.log.begin < 2048:
            assert model.retain()
        for begin in revived:
            path = f"{ROOT}/consumequeue/Idle/0/{begin:020d}"
            assert not model.disk.exists(path)
            model.disk.put_file(path, before[path])
        model.kill()
        model.open()
        queue = model.store.queue("Idle", 0)
        assert queue is not None
        assert (queue.begin, queue.end, queue.next_offset) == (8, 8, 8)

    def test_it_does_not_continue_at_a_file_whose_entries_were_lost(self) -> None:
        """A crash can keep the name of a later queue file and lose the one before it."""
        model = self.queue_of_three_files()
        while model.store.log.begin < 2048:
            assert model.retain()
        model.disk.put_file(f"{ROOT}/consumequeue/Idle/0/{240:020d}", bytes(60))
        model.kill()
        model.open()
        queue = model.store.queue("Idle", 0)
        assert queue is not None
        assert queue.next_offset == 8

    def test_what_recovery_deletes_does_not_come_back(self) -> None:
        model = self.queue_of_three_files()
        path = f"{ROOT}/consumequeue/Idle/0/{240:020d}"
        model.disk.put_file(path, bytes(60))
        model.kill()
        model.open()
        assert not any(model.disk.crash(Random(seed)).exists(path) for seed in range(10))

    def test_it_continues_where_a_crash_took_the_only_message_of_its_only_file(self) -> None:
        """The file reached the disk before the log did, and retention believed in its entry."""
        model = StoreModel(small_config(mapped_file_size_consume_queue=60, mapped_file_size_commit_log=1024), 64)
        for _ in range(3):
            model.put(message("Idle", 0, b"x" * 100))
        while model.store.log.end < 2 * 1024:
            model.put(message("Busy", 0, b"x" * 100))
        model.close()
        model.open()
        model.put(message("Idle", 0, b"never flushed"))
        model.store.settle()
        queues = model.store.queues.flush_of_dirty(0)
        for _ in queues.gather():
            pass
        queues.run()
        queues.done()
        assert model.retain()
        model.crash_and_open(Random(0))
        assert sum(one.put.topic == "Idle" for one in model.kept) == 3
        queue = model.store.queue("Idle", 0)
        assert queue is not None
        assert (queue.begin, queue.end, queue.next_offset) == (3, 3, 3)
        model.close()
        assert check(model.disk, model.config).is_sound
        assert not model.open().changed
        model.put(message("Idle", 0, b"and on it goes"))
        assert model.kept[-1].at.queue_offset == 3

    @pytest.mark.parametrize("ending", ["close", "kill"])
    @pytest.mark.parametrize("seed", range(5))
    def test_it_continues_where_its_file_was_made_in_an_earlier_life(self, seed: int, ending: str) -> None:
        """For a message that was refused: nothing was written, so neither was its name."""
        model = StoreModel(small_config(mapped_file_size_consume_queue=60, mapped_file_size_commit_log=1024), 64)
        model.put(message("Busy", 0, b"x" * 100))
        assert not model.put(message("Idle", 0, b""), message("Idle", 0, b"x" * 1000))
        assert model.disk.exists(f"{ROOT}/consumequeue/Idle/0/{0:020d}")
        getattr(model, ending)()
        model.open()
        model.put(message("Idle", 0, b"x" * 100))
        while model.store.log.end < 1024:
            model.put(message("Busy", 0, b"x" * 100))
        model.close()
        model.open()
        assert model.retain()
        model.crash_and_open(Random(seed))
        queue = model.store.queue("Idle", 0)
        assert queue is not None
        assert (queue.begin, queue.end, queue.next_offset) == (1, 1, 1)


class TestSequences:
    """As found by the state machine."""

    def test_a_record_without_properties_that_was_flushed_before_a_refused_rename(self) -> None:
        a, retry = "TopicA", "%RETRY%group"
        state = Crashes()
        state.begin(page_size=64, log_size=2048, queue_size=60)
        state.put(
            [
                message(a, 0, b"x" * 204, (), b"refund", sys_flag=12),
                message(retry, 1, b"", (b"order-1", b"b"), b"refund"),
                message("TopicB", 1, b"x" * 499, (b"order-2",), b"refund", sys_flag=12),
                message(retry, 1, bytes(270), (b"order-2",), b"refund", sys_flag=12),
                message(retry, 1, b"", (b"b", b"a", b"c")),
                message(a, 0, b"x" * 92, (b"order-2", b"order-1", b"c")),
                message(a, 0, b"x" * 130, (), b"refund"),
                message(a, 1, bytes(82), (), b"refund", sys_flag=4),
            ],
            settle=False,
        )
        state.put_batch([message(a, 0, b""), message(a, 0, b"x" * 213, (), b"refund")])
        empty = [message(a, 0, b"")] * 4
        state.put([*empty, message(a, 0, b"x" * 206, (), b"refund", sys_flag=12)], settle=True)
        state.put_batch([message(a, 0, b"x" * 164, (), b"TagA"), message(a, 0, bytes(127))])
        state.put([message(a, 0, b"x" * 249), message(a, 0, b"t", (b"a", b"b"))], settle=True)
        state.put(
            [message(retry, 0, b"G[", (), b"TagA"), message(retry, 0, b"x" * 98, (b"order-2", b"a", b"b"))], settle=True
        )
        keys = (b"a", b"order-1", b"order-2")
        state.put(
            [
                message(retry, 0, bytes(96), (b"a",), b"TagA"),
                message(retry, 0, bytes(248), keys, b"refund"),
                message(a, 0, b"\xf47\xf1\x8c\x9a", keys),
            ],
            settle=True,
        )
        state.put(
            [
                message(a, 0, b"x" * 173, keys, b"refund"),
                message(a, 0, bytes(223), (b"a", b"b", b"order-1")),
                message(retry, 0, b"", (), b"TagA"),
                message(retry, 0, b"xxxxx", (), b"refund"),
                message(a, 0, b"x" * 34),
            ],
            settle=True,
        )
        state.fail_a_rename()
        state.crash(seed=0, cuts=())
        state.reads_what_was_put()

    def test_a_queue_set_back_to_3_by_an_undone_deletion(self) -> None:
        keys = (b"a", b"b", b"c")
        state = Crashes()
        state.begin(page_size=64, queue_size=60, log_size=2048)
        state.put(
            [
                message("TopicA", 0, b"", (b"a", b"b")),
                message("TopicA", 0, bytes(277), (b"a",)),
                message("TopicA", 0, b"", keys, b"TagA"),
                message("TopicA", 0, b"x" * 100, keys),
                message("TopicA", 0, b"x" * 525, (b"a",)),
                message("TopicA", 0, bytes(136), (), b"refund"),
                message("TopicA", 0, b"x" * 100, keys),
            ],
            settle=True,
        )
        state.restart()
        state.retain(after=1, seed=8516)
        state.put(
            [message("%RETRY%group", 1, bytes(275), (b"a", b"b", b"order-1"), b"refund", sys_flag=8)], settle=False
        )
        state.put([message("TopicB", 1, b"\x16\xf5", (), b"refund")], settle=True)
        state.flush_thoroughly()
        state.retain(after=None, seed=34473)
        state.crash(cuts=(11,), seed=390245138)
        state.reads_what_was_put()

    def test_a_queue_set_back_to_6_by_a_power_cut_while_saving_progress(self) -> None:
        keys = (b"a", b"b", b"c")
        state = Crashes()
        state.begin(page_size=64, queue_size=60, log_size=2048)
        state.put(
            [
                message("TopicA", 0, b"x" * 228),
                message("TopicA", 0, b"", (b"a", b"b")),
                message("TopicA", 0, bytes(277), (b"a",)),
                message("TopicA", 0, b"", keys, b"TagA"),
                message("TopicA", 0, b"x" * 100, keys),
                message("TopicA", 0, b"x" * 525, (b"a",)),
                message("TopicA", 0, bytes(136), (), b"refund"),
                message("TopicA", 0, b"x" * 100, keys),
            ],
            settle=True,
        )
        state.put([message("TopicA", 0, b"", keys), message("TopicA", 0, b"", (b"a", b"b"))], settle=True)
        state.put(
            [message("%RETRY%group", 0, bytes(71), (b"order-2", b"c", b"b"), b"refund", sys_flag=12)], settle=True
        )
        state.put_batch(
            [
                message("TopicB", 1, bytes(79), (b"order-1", b"c", b"a"), b"refund"),
                message("TopicB", 0, bytes(255), (), b"refund"),
                message("TopicB", 1, bytes(246), (b"b", b"order-2", b"c"), b"TagA"),
                message("TopicB", 1, b"x" * 115, (), b"refund"),
            ]
        )
        state.restart()
        state.retain(after=4, seed=858)
        state.put([message("TopicA", 1, b"x" * 24, (b"c",), b"TagA")], settle=True)
        state.retain(after=None, seed=53177)
        state.cut_the_power_while_saving(after=3, seed=74)
        state.reads_what_was_put()


def test_the_disk_in_memory_leaves_a_page_of_zeros_as_a_hole() -> None:
    disk = MemoryDisk(page_size=64)
    region = disk.create("/f", 256)
    region.reserve(0, 256)
    region.buffer[64] = 1
    region.flush()
    after = disk.crash(Random(0))
    if after.exists("/f"):
        assert after.open("/f").next_data(0) == (64, 128)
