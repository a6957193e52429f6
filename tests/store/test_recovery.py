"""Recoveries from more than a crash: damage in the middle, missing files, contradicting settings, two brokers'
histories.

For crashes see test_crashes.py, for Java's directories test_java_stores.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import trio

from rocketlet.common.message_record import decode
from rocketlet.store import real_region
from rocketlet.store.config import StoreConfig
from rocketlet.store.disk import Usage
from rocketlet.store.dry_disk import DryDisk
from rocketlet.store.errors import CorruptStore
from rocketlet.store.kept_aside import keep_aside
from rocketlet.store.layout.consume_queue_entry import LOST
from rocketlet.store.layout.queue_rules import LOST_MARK
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.reading import GetStatus
from rocketlet.store.real_disk import RealDisk
from rocketlet.store.real_region import RealRegion
from tests.support.store_model import ROOT, StoreModel, message, small_config

LOG = f"{ROOT}/commitlog"


def model_of(count: int, **settings: object) -> StoreModel:
    """A cleanly closed store with that many messages."""
    model = StoreModel(small_config(**settings), page_size=512)
    for number in range(count):
        model.put(message("T", number % 3, b"message %d " % number * 8, (b"u%d" % number,), b"TagA"))
    model.store.settle()
    model.close()
    return model


def change(disk: MemoryDisk, offset: int, change: Callable[[bytearray, int], None], size: int = 2048) -> None:
    path = f"{LOG}/{offset - offset % size:020d}"
    content = bytearray(disk.files()[path])
    change(content, offset % size)
    disk.put_file(path, bytes(content))


def scribble(length: int) -> Callable[[bytearray, int], None]:
    def damage(content: bytearray, at: int) -> None:
        content[at : at + length] = Random(at).randbytes(length)

    return damage


def flip_sign(content: bytearray, at: int) -> None:
    content[at] ^= 0x80


def reopen(model: StoreModel) -> StoreModel:
    model.store = model._new()
    model.report = model.run(model.store.open)
    return model


def forget_progress(model: StoreModel) -> None:
    """As in another program's directory."""
    model.disk.remove(f"{ROOT}/rocketlet/progress.json")
    model.disk.remove(f"{ROOT}/rocketlet/flushed")


def entry_of(model: StoreModel, number: int) -> tuple[int, int, int]:
    one = model.kept[number]
    queue = model.store.queue(one.put.topic, one.put.queue_id)
    assert queue is not None
    found = queue.entry(one.at.queue_offset)
    assert found is not None
    return found


def assert_all_but(model: StoreModel, *lost: int) -> None:
    """Every message except these exists, with its entry and its keys; these are skipped."""
    for number, one in enumerate(model.kept):
        raw = model.store.record_at(one.at.log_offset)
        keys = model.store.find_by_key("T", f"u{number}", 32, 0, 1 << 62).records
        if number in lost:
            assert raw != one.raw
            assert keys == []
        else:
            assert raw == one.raw
            assert entry_of(model, number) == (one.at.log_offset, one.at.size, one.put.tags_code)
            assert [offset for offset, _ in keys] == [one.at.log_offset]
    for queue in model.store.queues:
        offset, seen = queue.begin, 0
        while (result := model.store.get(queue.topic, queue.queue_id, offset, 32)).status is not (
            GetStatus.OFFSET_OVERFLOW_ONE
        ):
            seen += result.count
            offset = result.next_offset
        wanted = [n for n, one in enumerate(model.kept) if one.put.queue_id == queue.queue_id and n not in lost]
        assert seen == len(wanted)
        assert queue.end == sum(1 for one in model.kept if one.put.queue_id == queue.queue_id)


class TestDamageInTheMiddle:
    def test_only_the_damaged_record_is_lost(self) -> None:
        model = model_of(60)
        forget_progress(model)
        at = model.kept[20].at
        change(model.disk, at.log_offset + 100, scribble(40))
        reopen(model)
        assert [(loss.log_offset, loss.size) for loss in model.report.losses] == [(at.log_offset, at.size)]
        assert_all_but(model, 20)
        assert entry_of(model, 20)[2] == LOST
        raw = model.store.record_at(at.log_offset)
        assert raw is not None
        record = decode(raw)
        assert (record.topic, record.queue_id, record.queue_offset) == ("T", 2, at.queue_offset)
        assert record.prepared_offset == LOST_MARK
        assert record.body.startswith(b"This message was lost")
        assert any("were damaged" in line for line in model.report.lines())

    def test_damaged_bytes_are_kept_aside(self) -> None:
        model = model_of(60)
        forget_progress(model)
        at = model.kept[20].at
        change(model.disk, at.log_offset + 100, scribble(40))
        damaged = model.disk.files()[f"{LOG}/{at.log_offset - at.log_offset % 2048:020d}"]
        reopen(model)
        (path,) = model.report.kept
        inside = at.log_offset % 2048
        assert model.disk.read_file(path) == damaged[inside : inside + at.size]

    def test_a_second_opening_repairs_nothing(self) -> None:
        model = model_of(60)
        forget_progress(model)
        change(model.disk, model.kept[20].at.log_offset + 100, scribble(40))
        reopen(model)
        model.close()
        reopen(model)
        assert not model.report.changed
        model.close()
        forget_progress(model)
        reopen(model)
        assert not model.report.changed, model.report.lines()
        assert_all_but(model, 20)

    def test_queues_rebuilt_later_know_the_lost_messages(self) -> None:
        model = model_of(60)
        forget_progress(model)
        change(model.disk, model.kept[20].at.log_offset + 100, scribble(40))
        reopen(model)
        model.close()
        for path in list(model.disk.files()):
            if "/consumequeue/" in path or "/index/" in path:
                model.disk.remove(path)
        reopen(model)
        assert_all_but(model, 20)
        assert entry_of(model, 20)[2] == LOST

    def test_several_lost_records_in_one_stretch_are_known_from_their_queues(self) -> None:
        model = model_of(60)
        forget_progress(model)
        first, last = model.kept[20].at, model.kept[23].at
        if first.log_offset // 2048 != last.log_offset // 2048:
            pytest.fail("choose others")
        change(model.disk, first.log_offset, scribble(last.end - first.log_offset - 20))
        reopen(model)
        assert_all_but(model, 20, 21, 22, 23)
        assert [entry_of(model, number)[2] for number in (20, 21, 22, 23)] == [LOST] * 4

    def test_a_stretch_unknown_to_any_queue_leaves_filled_gaps(self) -> None:
        model = model_of(60)
        forget_progress(model)
        for path in list(model.disk.files()):
            if "/consumequeue/" in path:
                model.disk.remove(path)
        change(model.disk, model.kept[20].at.log_offset, scribble(model.kept[20].at.size - 10))
        reopen(model)
        assert_all_but(model, 20)
        assert entry_of(model, 20)[2] == LOST

    def test_damage_up_to_a_files_end(self) -> None:
        model = model_of(60)
        forget_progress(model)
        lost = [number for number, one in enumerate(model.kept) if 2048 + 1500 <= one.at.log_offset < 4096]
        begin = model.kept[lost[0]].at.log_offset
        change(model.disk, begin, scribble(4096 - begin))
        reopen(model)
        assert_all_but(model, *lost)
        model.put(message("T", 0, b"and on it goes"))
        model.store.settle()

    def test_a_missing_file_in_the_middle(self) -> None:
        model = model_of(60)
        forget_progress(model)
        model.disk.remove(f"{LOG}/{4096:020d}")
        reopen(model)
        lost = [number for number, one in enumerate(model.kept) if 4096 <= one.at.log_offset < 6144]
        assert_all_but(model, *lost)
        assert any("a file before it is missing" in line for line in model.report.lines())

    def test_the_last_record_of_a_closed_store(self) -> None:
        model = model_of(61)
        forget_progress(model)
        last = model.kept[-1].at
        change(model.disk, last.log_offset + 100, scribble(30))
        reopen(model)
        assert model.store.log.end == last.end
        assert_all_but(model, 60)

    @pytest.mark.parametrize("had_crashed", [False, True])
    def test_a_log_truncated_by_java_does_not_come_back(self, had_crashed: bool) -> None:
        """After the end of a log truncated by Java there are intact old records, older than those before them.

        If Java got it from a broker of ours that had crashed, that one's flush mark lies behind the cut.
        """
        model = model_of(60)
        marks = model.disk.files()[f"{ROOT}/rocketlet/flushed"]
        forget_progress(model)
        if had_crashed:
            model.disk.put_file(f"{ROOT}/rocketlet/flushed", marks)
            model.disk.put_file(f"{ROOT}/abort", b"")
        cut = model.kept[30].at.log_offset
        old = model.kept[30:]
        content = bytearray(model.disk.files()[f"{LOG}/{cut - cut % 2048:020d}"])
        # What a broker does that continues there with a shorter record.
        model.kept = model.kept[:30]
        new = message("T", old[0].put.queue_id, b"short")
        twin = StoreModel(small_config(), page_size=512)
        twin.now = model.now + 60_000
        twin.store.log.open_at(cut)
        twin.store.log.files.files.clear()
        twin.store.queues.find_or_make("T", new.queue_id).next_offset = old[0].at.queue_offset
        twin.put(new)
        raw = twin.kept[0].raw
        content[cut % 2048 : cut % 2048 + len(raw)] = raw
        model.disk.put_file(f"{LOG}/{cut - cut % 2048:020d}", bytes(content))
        reopen(model)
        assert model.store.log.end == cut + len(raw)
        assert model.report.losses == []
        assert model.store.record_at(old[3].at.log_offset) is None

    def test_after_a_crash_damage_that_cannot_be_a_tear_is_corruption(self) -> None:
        model = model_of(60)
        forget_progress(model)
        model.disk.remove(f"{ROOT}/checkpoint")
        model.disk.put_file(f"{ROOT}/abort", b"")
        change(model.disk, model.kept[20].at.log_offset + 100, scribble(40))
        reopen(model)
        assert not model.report.was_clean
        assert_all_but(model, 20)

    def test_after_a_crash_a_possible_tear_ends_the_log(self) -> None:
        model = model_of(60)
        forget_progress(model)
        model.disk.remove(f"{ROOT}/checkpoint")
        model.disk.put_file(f"{ROOT}/abort", b"")
        at = model.kept[20].at.log_offset
        sector = at - at % 512 + 512

        def tear(content: bytearray, place: int) -> None:
            content[sector % 2048 : sector % 2048 + 512] = bytes(512)

        change(model.disk, at, tear)
        reopen(model)
        assert model.report.losses == []
        assert model.store.log.end <= sector
        assert model.report.cut_bytes > 0

    def test_after_a_crash_flushed_records_after_a_torn_page_are_kept(self) -> None:
        model = model_of(60)
        forget_progress(model)
        model.disk.put_file(f"{ROOT}/abort", b"")
        at = model.kept[20].at

        def tear(content: bytearray, place: int) -> None:
            content[place : place + at.size - 4] = bytes(at.size - 4)

        change(model.disk, at.log_offset, tear)
        reopen(model)  # the checkpoint knows of newer messages
        assert_all_but(model, 20)

    @pytest.mark.parametrize("inside", [2, 5, 8, 33, 95], ids=["size", "magic", "CRC", "log offset", "body"])
    def test_one_flipped_bit_loses_the_record_and_is_reported(self, inside: int) -> None:
        """The bit could be guessed. A single wrong guess would deliver a message that nobody sent."""
        model = model_of(60)
        forget_progress(model)
        one = model.kept[20]

        def flip(content: bytearray, place: int) -> None:
            content[place] ^= 0x10

        change(model.disk, one.at.log_offset + inside, flip)
        reopen(model)
        assert [(loss.log_offset, loss.size) for loss in model.report.losses] == [(one.at.log_offset, one.at.size)]
        assert any("were damaged" in line for line in model.report.lines())
        assert_all_but(model, 20)
        assert entry_of(model, 20)[2] == LOST


class TestProgress:
    def test_a_progress_point_of_another_history_is_ignored(self) -> None:
        model = model_of(60)
        progress = model.disk.read_file(f"{ROOT}/rocketlet/progress.json")
        assert progress is not None
        other = model_of(50)
        other.disk.put_file(f"{ROOT}/rocketlet/progress.json", progress)
        reopen(other)
        assert other.report.records == 50
        assert any("does not fit" in line for line in other.report.lines())
        assert_all_but(other)

    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version":99}', b'{"version":1}', b"\0" * 100])
    def test_an_unreadable_progress_point_is_not_an_error(self, text: bytes) -> None:
        model = model_of(20)
        model.disk.put_file(f"{ROOT}/rocketlet/progress.json", text)
        reopen(model)
        assert_all_but(model)

    def test_a_missing_queue_is_rebuilt(self) -> None:
        model = model_of(60)
        for path in list(model.disk.files()):
            if "/consumequeue/T/1/" in path:
                model.disk.remove(path)
        reopen(model)
        assert model.report.records == 60
        assert_all_but(model)

    def test_a_missing_index_file_is_rebuilt(self) -> None:
        model = model_of(60)
        newest = max(path for path in model.disk.files() if "/index/" in path)
        model.disk.remove(newest)
        reopen(model)
        assert_all_but(model)

    def test_a_log_that_lost_its_end_is_reported(self) -> None:
        model = model_of(60)
        last = max(path for path in model.disk.files() if path.startswith(LOG))
        model.disk.remove(last)
        reopen(model)
        assert any("had been flushed up to" in line for line in model.report.lines())


class TestRefusals:
    def test_settings_that_contradict_the_files(self) -> None:
        model = model_of(60)
        for change, name in (
            ({"mapped_file_size_commit_log": 4096}, "mappedFileSizeCommitLog"),
            ({"mapped_file_size_commit_log": 1024}, "mappedFileSizeCommitLog"),
            ({"mapped_file_size_consume_queue": 60}, "mappedFileSizeConsumeQueue"),
        ):
            model.config = small_config(**change)
            with pytest.raises(CorruptStore, match=name):
                reopen(model)
        model.config = small_config()
        reopen(model)
        assert not model.report.changed

    def test_one_file_of_another_size(self) -> None:
        model = model_of(3)
        model.config = StoreConfig(store_path_root_dir=ROOT)
        with pytest.raises(CorruptStore, match="has 2048 bytes"):
            reopen(model)

    def test_a_missing_log(self) -> None:
        model = model_of(20)
        for path in list(model.disk.files()):
            if path.startswith(LOG):
                model.disk.remove(path)
        with pytest.raises(CorruptStore, match="is its disk mounted"):
            reopen(model)
        forget_progress(model)
        with pytest.raises(CorruptStore, match="is its disk mounted"):
            reopen(model)  # the checkpoint knows as well

    @pytest.mark.parametrize("path", ["dledger-n0/data/00000000000000000000", "consumequeue/CURRENT"])
    def test_stores_of_another_kind(self, path: str) -> None:
        disk = MemoryDisk()
        disk.put_file(f"{ROOT}/{path}", b"x")
        model = StoreModel.__new__(StoreModel)
        model.disk, model.config, model.now = disk, small_config(), 0
        with pytest.raises(CorruptStore, match="plain files"):
            reopen(model)

    def test_a_refused_store_is_unlocked(self) -> None:
        model = model_of(3)
        model.config = small_config(mapped_file_size_commit_log=4096)
        for _ in range(2):
            with pytest.raises(CorruptStore):
                reopen(model)


def test_an_empty_directory_opens() -> None:
    model = StoreModel(small_config())
    assert (model.store.log.begin, model.store.log.end, model.report.records) == (0, 0, 0)
    model.close()
    model.open()


def test_unknown_files_in_the_directories_are_left_alone() -> None:
    model = model_of(20)
    strays = [f"{LOG}/zz.tmp", f"{ROOT}/consumequeue/T/zz", f"{ROOT}/consumequeue/a b/0/x", f"{ROOT}/index/zz.bak"]
    for path in strays:
        model.disk.put_file(path, b"x")
    reopen(model)
    assert_all_but(model)
    assert sorted(model.report.strays) == sorted([*strays[:2], f"{ROOT}/consumequeue/a b/0", strays[3]])
    assert all(model.disk.exists(path) for path in strays)


def test_a_queue_offset_below_zero_keeps_the_next_place_of_its_queue() -> None:
    """No checksum covers it; this is a flipped bit."""
    model = model_of(30)
    forget_progress(model)
    change(model.disk, model.kept[15].at.log_offset + 20, flip_sign)
    for path in list(model.disk.files()):
        if "/consumequeue/" in path:
            model.disk.remove(path)
    reopen(model)
    for number, one in enumerate(model.kept):
        assert entry_of(model, number) == (one.at.log_offset, one.at.size, one.put.tags_code)


def test_a_flushed_body_of_zeros_from_another_broker_survives_a_crash() -> None:
    model = StoreModel(small_config(), page_size=512)
    put = message("T", 0, b"body")
    put.properties = b"name\x01value" + b"z" * 700
    model.put(put)
    model.put(message("T", 0, b"after"))
    model.store.settle()
    model.run(model.store.flush)
    model.run(model.store._thorough.save)
    path = f"{LOG}/{0:020d}"
    model.disk.put_file(path, model.disk.files()[path].replace(b"z" * 700, bytes(700)))
    model.kept[0].raw = model.kept[0].raw.replace(b"z" * 700, bytes(700))
    model.note_flushed()
    model.crash_and_open(Random(1))
    assert len(model.kept) == 2


async def test_a_recovery_of_files_can_be_cancelled_between_them(tmp_path: Path) -> None:
    config = small_config(store_path_root_dir=str(tmp_path), seal_enable=False)
    store = MessageStore(RealDisk(), config, lambda: 1, on_progress=lambda _: None)
    await store.open()
    while len(store.log.files.files) < 4:
        store.put(message("T", 0, b"x" * 400))
    store.settle()
    assert store._lock is not None
    store._lock.release()  # as a kill would
    begun: list[str] = []
    token = trio.lowlevel.current_trio_token()
    with trio.CancelScope() as scope:

        def stop(line: str) -> None:
            begun.append(line)
            # By the token, because without it the waiting task itself would run this, and learn of it only later.
            trio.from_thread.run_sync(scope.cancel, trio_token=token)

        await MessageStore(RealDisk(), config, lambda: 1, on_progress=stop).open()
    assert scope.cancelled_caught
    assert len(begun) == 1
    lines: list[str] = []
    again = MessageStore(RealDisk(), config, lambda: 1, on_progress=lines.append)
    report = await again.open()
    assert lines[0] == (
        "recovery: all 4 log files are checked before the store opens: there is no progress point, as in a store that"
        " was RocketMQ's until now"
    )
    assert [line.rpartition(", ")[2] for line in lines[1:5]] == [f"{number} of 4" for number in range(1, 5)]
    assert report.records > 10
    await again.close()


async def test_a_recovery_maps_few_queues_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may hold the messages of more queues than a process may map, of topics that were deleted."""
    config = small_config(store_path_root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 16)
    store = MessageStore(RealDisk(), config, lambda: 0, on_progress=lambda _: None)
    await store.open()
    for queue_id in range(20):
        store.put(message("T", queue_id, b"x"))
    store.settle()
    assert store._lock is not None
    store._lock.release()  # and nothing else of a close: as after a kill
    del store
    gc.collect()
    most = RealRegion.mapped + 5
    monkeypatch.setattr(real_region, "_most_small_files", lambda: most)
    for path in (tmp_path / "consumequeue").rglob("0" * 20):
        path.write_bytes(bytes(path.stat().st_size))
    again = MessageStore(RealDisk(), config, lambda: 0, on_progress=lambda _: None)
    await again.open()
    assert [again.queue_end("T", queue_id) for queue_id in range(20)] == [1] * 20
    await again.close()


@pytest.mark.parametrize("pieces", [(3, 5, 9), (17,), (8, 8, 1), (1,) * 17])
def test_more_than_one_part_is_kept_aside_in_several(pieces: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """144 MB were cut, and 64 MiB of them kept."""
    monkeypatch.setattr("rocketlet.store.kept_aside._LARGEST", 8)
    disk = MemoryDisk()
    paths = keep_aside(disk, ROOT, 7, [b"x" * size for size in pieces])
    assert paths == [f"{ROOT}/rocketlet/damaged/{offset:020d}-0" for offset in (7, 15, 23)]
    assert [disk.read_file(path) for path in paths] == [b"x" * 8, b"x" * 8, b"x"]


def test_a_line_tells_of_what_a_full_disk_cannot_keep(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    monkeypatch.setattr(disk, "usage", lambda path: Usage(1 << 40, 1000))
    assert keep_aside(disk, ROOT, 7, [b"x" * 500]) == []
    assert "500 bytes are not kept" in caplog.text


@pytest.mark.parametrize("on_another_disk", [False, True])
def test_all_that_is_cut_is_kept_aside(on_another_disk: bool) -> None:
    """Of a log that RocketMQ wrote: without marks and seals nothing proves that it goes on behind the damage."""
    model = StoreModel(small_config(mapped_file_size_commit_log=2048), page_size=512)
    for number in range(60):
        model.put(message("T", 0, b"message %d " % number * 8))
    model.kill()
    before = {path: data for path, data in model.disk.files().items() if path.startswith(LOG)}
    assert len(before) > 4
    path = f"{LOG}/{2048:020d}"
    content = before[path][:512] + bytes(1024) + before[path][1536:]
    model.disk.put_file(path, content)
    if on_another_disk:
        model.disk.fail_next_rename = True
    store = model.store = model._new()
    report = model.run(store.open)
    end, files = store.log.end, model.disk.files()
    assert 2048 < end < 2048 + 1536
    assert set(report.kept) == {path for path in files if "/damaged/" in path}
    tail = files[f"{ROOT}/rocketlet/damaged/{end:020d}-0"]
    assert tail == content[end - 2048 :].rstrip(b"\0")
    for path, data in before.items():
        begin = int(path.rpartition("/")[2])
        if begin > 2048:
            assert path not in files
            assert files[f"{ROOT}/rocketlet/damaged/{begin:020d}-0"].rstrip(b"\0") == data.rstrip(b"\0")


def test_a_dry_run_moves_mapped_files_too() -> None:
    disk = MemoryDisk()
    disk.put_file("log/1", b"one")
    dry = DryDisk(disk)
    dry.open("log/1").buffer[0:1] = b"O"
    dry.rename("log/1", "aside/1")
    assert not dry.exists("log/1")
    assert bytes(dry.open("aside/1").buffer) == b"One"
    assert dry.changes == {"log/1", "aside/1"}
    assert disk.files() == {"log/1": b"one"}
