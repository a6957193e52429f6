"""A flush mark says no more than what was flushed, whatever a crash leaves of it, and damage before it is healed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.disk import PAGE
from rocketlet.store.errors import FlushFailed
from rocketlet.store.flush_marks import FlushMarks, flushed_end, forget_flushed
from rocketlet.store.layout.file_names import FLUSHED
from rocketlet.store.layout.flush_mark_layout import FILE_SIZE, SIZE, FlushMark, encode, marks_in, place_of
from rocketlet.store.mapped_file_queue import MappedFileQueue
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from rocketlet.store.recovery import load_log
from tests.support.store_model import ROOT, StoreModel, message, small_config

LOG_SIZE = 8192
MARKS = f"{ROOT}/{FLUSHED}"
LOG_OFFSETS = st.integers(1, 1 << 62)


def model_of(files: int, *, page_size: int = 512) -> StoreModel:
    """A store without seals that has so many log files, not flushed."""
    model = StoreModel(small_config(mapped_file_size_commit_log=LOG_SIZE, seal_enable=False), page_size)
    put_until(model, files * LOG_SIZE - 1024)
    return model


def put_until(model: StoreModel, end: int) -> None:
    while model.store.log.end < end:
        number = len(model.kept)
        model.put(message("T", number % 2, b"message %d " % number * 8, (b"k%d" % number,)))
    model.store.settle()


def zero(model: StoreModel, begin: int, end: int) -> None:
    """Zeros in the place of a part of one log file."""
    path = f"{ROOT}/commitlog/{begin - begin % LOG_SIZE:020d}"
    content = bytearray(model.disk.files()[path])
    content[begin % LOG_SIZE : begin % LOG_SIZE + end - begin] = bytes(end - begin)
    model.disk.put_file(path, bytes(content))


def reopen(model: StoreModel) -> None:
    model.store = model._new()
    model.report = model.run(model.store.open)


def known_end(disk: MemoryDisk, model: StoreModel) -> int:
    """Up to where the files say that they were flushed."""
    store = MessageStore(disk, model.config, lambda: 0)
    load_log(disk, store.log)
    return flushed_end(disk, ROOT, store.log.files)


class TestDamageBeforeAMark:
    """Killed before the first checkpoint, without a seal."""

    @pytest.mark.parametrize("file", [0, 1, 2, 3])
    @pytest.mark.parametrize("at", [0, 512, 2048])
    def test_zeros_lose_only_the_records_they_hit(self, file: int, at: int) -> None:
        model = model_of(4)
        model.run(model.store.flush)
        assert not model.disk.exists(f"{ROOT}/rocketlet/progress.json")
        assert not model.disk.exists(f"{ROOT}/rocketlet/seals")
        model.kill()
        begin = file * LOG_SIZE + at
        end = begin + (4096 if file < 3 else 1024)
        zero(model, begin, end)
        damaged = model.disk.files()[f"{ROOT}/commitlog/{file * LOG_SIZE:020d}"]
        lost = [one for one in model.kept if one.at.log_offset < end and one.at.end > begin]
        reopen(model)
        assert model.store.log.end == model.kept[-1].at.end
        assert lost
        for one in model.kept:
            assert (model.store.record_at(one.at.log_offset) == one.raw) == (one not in lost), one.at
        assert len(model.report.losses) == 1
        (kept,) = model.report.kept
        stretch = damaged[lost[0].at.log_offset % LOG_SIZE : lost[-1].at.end % LOG_SIZE]
        assert model.disk.read_file(kept) == stretch.rstrip(b"\0")

    def test_so_do_zeros_at_the_mark_itself(self) -> None:
        """The mark of the file before is left, and proves what lies before that."""
        model = model_of(1)
        for files in (2, 3, 4):
            model.run(model.store.flush)
            put_until(model, files * LOG_SIZE - 1024)
        model.run(model.store.flush)
        model.kill()
        zero(model, 1024, 2048)
        zero(model, 3 * LOG_SIZE + 1024, model.kept[-1].at.end)
        reopen(model)
        assert [loss.log_offset // LOG_SIZE for loss in model.report.losses] == [0]
        assert 3 * LOG_SIZE < model.store.log.end <= 3 * LOG_SIZE + 1024

    def test_what_was_never_flushed_is_cut_and_kept_aside(self) -> None:
        """Later files are no proof: a power cut leaves the same."""
        model = model_of(4)
        model.kill()
        zero(model, 1024, 2048)
        reopen(model)
        assert model.report.losses == []
        assert model.store.log.end <= 1024
        assert len(model.report.kept) == 4, "the rest of the first file, and those after it"

    def test_what_lies_behind_the_mark_is_judged_by_itself(self) -> None:
        """The last flushed records went bad, and the pages after them were never written."""
        model = StoreModel(
            small_config(mapped_file_size_commit_log=LOG_SIZE, seal_enable=False, max_message_size=6000), 512
        )
        put_until(model, 1000)
        model.put(message("T", 0, b"longer than what a mark looks at" * 150))
        model.run(model.store.flush)
        flushed, count = model.store.log.end, len(model.kept)
        put_until(model, flushed + 1024)
        model.kill()
        last, next_one = model.kept[count - 1].at, model.kept[count].at
        zero(model, last.log_offset, last.log_offset + 50)
        zero(model, next_one.log_offset, next_one.end)
        reopen(model)
        assert [(loss.log_offset, loss.size) for loss in model.report.losses] == [(last.log_offset, last.size)]
        assert model.store.log.end == flushed


@mock.patch("rocketlet.store.flush_marks._TAIL", 8)  # which survives a crash by chance
@given(
    steps=st.lists(st.one_of(st.integers(1, 12), st.sampled_from(["flush", "fail", "save"])), min_size=1, max_size=12),
    page_size=st.sampled_from([64, 128, 512]),
    seed=st.integers(0, 1 << 32),
)
def test_after_any_power_cut_a_mark_says_no_more_than_was_flushed(
    steps: list[int | str], page_size: int, seed: int
) -> None:
    model = StoreModel(small_config(mapped_file_size_commit_log=2048, seal_enable=False), page_size)
    for step in steps:
        if isinstance(step, int):
            for number in range(step):
                model.put(message("T", 0, b"x" * (37 * number % 300)))
            model.store.settle()
            continue
        model.disk.fail_next_flush = step == "fail"
        try:
            model.run(model.store._log_flush.flush_once)
            if step == "save":
                model.run(model.store._thorough.save)
        except FlushFailed:
            pass
        model.disk.fail_next_flush = False
    killed = model.disk.copy()
    if model.store.flushed.failure is None:
        assert known_end(killed, model) == model.store.flushed.value
    random = Random(seed)
    for _ in range(4):
        assert known_end(model.disk.crash(random), model) <= model.store.flushed.value


@given(LOG_OFFSETS, LOG_OFFSETS, st.integers(1, 4096), st.integers(0, (1 << 32) - 1), st.data())
def test_any_changed_byte_makes_a_mark_void(
    first: int, second: int, tail: int, tail_sum: int, data: st.DataObject
) -> None:
    marks = [FlushMark(end, min(tail, end), tail_sum) for end in (first, second)]
    content = bytearray(FILE_SIZE)
    for number, mark in enumerate(marks):
        content[place_of(number) : place_of(number) + SIZE] = encode(mark)
    assert list(marks_in(bytes(content))) == marks
    content[place_of(0) + data.draw(st.integers(0, SIZE - 1))] ^= data.draw(st.integers(1, 255))
    assert list(marks_in(bytes(content))) == marks[1:]
    assert list(marks_in(bytes(content)[: place_of(1) + SIZE - 1])) == []


def test_the_bytes_of_a_mark() -> None:
    assert encode(FlushMark(1 << 30, 4096, 0x11223344)).hex() == (
        "524f434b464c5348" "00000001" "00001000" "0000000040000000" "11223344" "55aab0b2"
    )  # fmt: skip


class TestAMarkOfAnotherLog:
    def test_is_void_where_the_bytes_before_it_are_others(self) -> None:
        model = model_of(2)
        model.run(model.store.flush)
        end = model.store.log.end
        assert known_end(model.disk, model) == end
        zero(model, end - 8, end)
        assert known_end(model.disk, model) == 0

    def test_is_void_where_its_file_is_gone(self) -> None:
        model = model_of(2)
        model.run(model.store.flush)
        model.disk.remove(f"{ROOT}/commitlog/{LOG_SIZE:020d}")
        assert known_end(model.disk, model) == 0

    @pytest.mark.parametrize("seed", range(20))
    def test_is_forgotten_for_good_before_the_log_is_cut(self, seed: int) -> None:
        model = model_of(2)
        model.run(model.store.flush)
        model.run(model.store._thorough.save)
        end = model.store.log.end
        forget_flushed(model.disk, ROOT, end)
        assert known_end(model.disk, model) == end
        forget_flushed(model.disk, ROOT, end - 1)
        assert known_end(model.disk.crash(Random(seed)), model) == 0

    def test_a_recovery_that_cuts_the_log_forgets_it(self) -> None:
        model = model_of(2)
        model.run(model.store.flush)
        model.kill()
        zero(model, model.store.log.end - 600, model.store.log.end)
        reopen(model)
        assert model.store.log.end < model.kept[-1].at.end
        assert not model.disk.exists(MARKS)

    @pytest.mark.parametrize("content", [b"", b"\0" * 100, b"x" * FILE_SIZE, b"x" * 10_000])
    def test_files_of_any_content_are_written_over(self, content: bytes) -> None:
        model = model_of(1)
        model.disk.put_file(MARKS, content)
        model.run(model.store.flush)
        assert known_end(model.disk, model) == model.store.log.end
        assert len(model.disk.files()[MARKS]) == FILE_SIZE


class TestSomethingElseOfThatName:
    """On the machine's disk."""

    @staticmethod
    def folder(path: Path) -> None:
        path.mkdir()
        (path / "file").write_bytes(b"")

    @staticmethod
    def other_file(path: Path) -> None:
        (path.parent / "other").write_bytes(b"of somebody else")
        path.symlink_to("other")

    @pytest.mark.parametrize(
        ("make", "is_replaced"),
        [
            (os.mkfifo, True),
            (other_file, True),
            (lambda path: path.symlink_to("/dev/zero"), True),
            (lambda path: path.symlink_to("nowhere"), True),
            (lambda path: path.symlink_to(path), True),
            (folder, False),
        ],
    )
    def test_is_neither_read_nor_written(self, make: Callable[[Path], None], is_replaced: bool, tmp_path: Path) -> None:
        disk, root = RealDisk(), str(tmp_path)
        path = tmp_path / FLUSHED
        path.parent.mkdir()
        make(path)
        files = MappedFileQueue(disk, f"{root}/commitlog", PAGE)
        files.make(0).buffer[:4] = b"1234"
        assert flushed_end(disk, root, files) == 0
        forget_flushed(disk, root, 0)
        FlushMarks(disk, root, files).note_of(4)()
        assert flushed_end(disk, root, files) == (4 if is_replaced else 0)
        if (path.parent / "other").exists():
            assert (path.parent / "other").read_bytes() == b"of somebody else"


def test_a_mark_that_cannot_be_written_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(1)
    model.disk.capacity = model.disk.statistics().reserved_bytes
    with caplog.at_level(logging.WARNING, "rocketlet.store.flush_marks"):
        model.run(model.store._log_flush.flush_once)
    assert model.store.flushed.value == model.store.log.end
    assert "No space left" in caplog.text
    assert known_end(model.disk, model) == 0
