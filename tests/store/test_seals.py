from __future__ import annotations

import logging
from random import Random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.checkpoint import Progress, read_progress
from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.seal_layout import Seal, broken_blocks, decode, encode, seal_of
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.recovery import load_log
from rocketlet.store.seal_files import drop_foreign_seals, drop_seals, seal_path, sealed_end
from tests.support.store_model import ROOT, StoreModel, message, small_config


def seal_on(disk: MemoryDisk, log_offset: int) -> Seal | None:
    data = disk.read_file(seal_path(ROOT, log_offset))
    return decode(data) if data is not None else None


def zero(model: StoreModel, log_offset: int) -> None:
    """Zeros in place of 1 KiB of the log."""
    path = f"{ROOT}/commitlog/{log_offset // 8192 * 8192:020d}"
    content = bytearray(model.disk.files()[path])
    content[log_offset % 8192 : log_offset % 8192 + 1024] = bytes(1024)
    model.disk.put_file(path, bytes(content))


def save_progress_and_go_on(model: StoreModel) -> Progress:
    """Write a progress point, as is done every minute, and two more files of messages, which are sealed too."""
    model.run(model.store._thorough.save)
    progress = read_progress(model.disk, ROOT)
    assert progress is not None
    end = model.store.log.end + 2 * 8192
    while model.store.log.end < end:
        model.put(message("T", 0, b"later" * 20))
    model.store.settle()
    model.run(model.store.flush)
    assert model.run(model.store._seals.seal_all) == 2
    return progress


@given(st.binary(min_size=1, max_size=400), st.integers(1, 100), st.data())
def test_any_changed_byte_is_detected_in_its_block(content: bytes, block_size: int, data: st.DataObject) -> None:
    def read(source: bytes):
        return lambda at, size: source[at : at + size]

    seal = seal_of(4096, len(content), read(content), block_size)
    assert decode(encode(seal)) == seal
    assert list(broken_blocks(seal, read(content))) == []
    at = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[at] ^= data.draw(st.integers(1, 255))
    assert list(broken_blocks(seal, read(bytes(changed)))) == [at // block_size]
    begin, end = seal.block(at // block_size)
    assert begin <= at < end <= len(content)


@given(st.binary(max_size=100), st.data())
def test_a_damaged_seal_is_ignored(content: bytes, data: st.DataObject) -> None:
    raw = bytearray(encode(seal_of(0, len(content), lambda at, size: content[at : at + size], 10)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    assert decode(bytes(raw)) is None
    assert decode(bytes(raw[:-1])) is None


def test_the_bytes_of_a_seal() -> None:
    raw = encode(Seal(1 << 30, 5, 4, (0x11223344, 0x55667788)))
    assert raw.hex() == (
        "524f434b5345414c" "00000001" "00000004" "0000000040000000" "0000000000000005" "00000002"
        "11223344" "55667788" + f"{seal_layout.checksum(raw[:-4]):08x}"
    )  # fmt: skip


async def test_full_files_are_sealed_as_they_are_flushed(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk(page_size=64)
    store = MessageStore(disk, small_config(), lambda: 1_700_000_000_000, on_progress=lambda _: None)
    await store.open()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(40):
            store.put(message("T", 0, b"%d" % number * 100))
        store.settle()
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    full = [file for file in store.log.files.files if file.end <= store.log.end]
    assert len(full) == len(store.log.files.files) - 1 > 3
    for file in full:
        seal = seal_on(disk, file.begin)
        assert seal is not None
        assert list(broken_blocks(seal, file.region.read)) == []
    assert seal_on(disk, full[-1].end) is None
    await store.close()


async def test_damage_is_not_sealed(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(page_size=64)
    store = MessageStore(disk, small_config(), lambda: 1_700_000_000_000, on_progress=lambda _: None)
    await store.open()
    for number in range(20):
        store.put(message("T", 0, b"%d" % number * 100))
    await store.close()
    path = f"{ROOT}/commitlog/00000000000000002048"
    content = bytearray(disk.files()[path])
    content[100] ^= 1
    disk.put_file(path, bytes(content))
    store = MessageStore(disk, small_config(), lambda: 1_700_000_000_000, on_progress=lambda _: None)
    await store.open()
    with caplog.at_level(logging.ERROR, "rocketlet.store.seals"):
        sealed = await store._seals.seal_all()
    assert sealed == len(store.log.files.files) - 2  # not the damaged one, not the last
    assert seal_on(disk, 2048) is None
    assert "damaged at log offset 2048" in caplog.text
    assert await store._seals.seal_all() == 0


async def test_no_seals_when_disabled(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk(page_size=64)
    store = MessageStore(disk, small_config(seal_enable=False), lambda: 0, on_progress=lambda _: None)
    await store.open()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for _ in range(40):
            store.put(message("T", 0, b"x" * 100))
        store.settle()
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert not [path for path in disk.files() if "seals" in path]


class TestASealIsProofThatTheLogWasFlushed:
    """Even without a checkpoint: records after damage in a sealed file are kept."""

    @staticmethod
    def model() -> StoreModel:
        model = StoreModel(small_config(mapped_file_size_commit_log=8192, seal_enable=True), page_size=512)
        number = 0
        while len(model.store.log.files.files) < 4:
            model.put(message("T", number % 2, b"message %d " % number * 8, (b"k%d" % number,)))
            number += 1
        model.store.settle()
        model.run(model.store.flush)
        assert model.run(model.store._seals.seal_all) == 3
        return model

    @pytest.mark.parametrize("file", [0, 1, 2])
    @pytest.mark.parametrize("at", [0, 512, 2048, 8192 - 1024])
    def test_zeros_inside_a_sealed_file_lose_only_their_records(self, file: int, at: int) -> None:
        model = self.model()
        model.kill()
        path = f"{ROOT}/commitlog/{file * 8192:020d}"
        content = bytearray(model.disk.files()[path])
        content[at : at + 1024] = bytes(1024)
        model.disk.put_file(path, bytes(content))
        store = model.store = model._new()
        report = model.run(store.open)
        assert not report.was_clean
        assert store.log.end == model.kept[-1].at.end
        begin, end = file * 8192 + at, file * 8192 + at + 1024
        lost = [one for one in model.kept if one.at.log_offset < end and one.at.end > begin]
        for one in model.kept:
            is_there = store.record_at(one.at.log_offset) == one.raw
            assert is_there != (one in lost), one.at
        assert len(report.losses) == (1 if lost else 0) or at == 8192 - 1024
        assert not lost or report.kept

    def test_damage_at_the_progress_point_does_not_take_the_proof_away(self) -> None:
        model = self.model()
        progress = save_progress_and_go_on(model)
        model.kill()
        zero(model, progress.record_offset // 1024 * 1024)
        store = model.store = model._new()
        report = model.run(store.open)
        assert any("does not fit" in line for line in report.lines())
        assert store.log.end == model.kept[-1].at.end
        assert len(report.losses) == 1

    def test_a_lost_queue_does_not_take_the_proof_away(self) -> None:
        model = self.model()
        progress = save_progress_and_go_on(model)
        model.kill()
        for path in list(model.disk.files()):
            if "/consumequeue/T/" in path:
                model.disk.remove(path)
        zero(model, progress.log_offset // 8192 * 8192 + 8192 + 2048)
        store = model.store = model._new()
        report = model.run(store.open)
        assert any("does not fit" in line for line in report.lines())
        assert store.log.end == model.kept[-1].at.end
        assert len(report.losses) == 1

    def test_seals_of_files_that_another_program_wrote_are_dropped(self) -> None:
        model = self.model()
        model.kill()
        content = model.disk.files()[f"{ROOT}/commitlog/{8192:020d}"]
        model.disk.put_file(f"{ROOT}/commitlog/{8192:020d}", content[:4096] + b"other".ljust(4096))
        model.disk.put_file(f"{ROOT}/commitlog/{2 * 8192:020d}", b"other".ljust(8192, b"\0"))
        store = model._new()
        load_log(model.disk, store.log)
        drop_foreign_seals(model.disk, ROOT, store.log.files)
        assert [seal_on(model.disk, begin) is not None for begin in range(0, 3 * 8192, 8192)] == [True, False, False]

    def test_a_log_that_ends_in_damage_keeps_its_sealed_length(self) -> None:
        model = self.model()
        model.kill()
        for begin in (3 * 8192,):
            model.disk.remove(f"{ROOT}/commitlog/{begin:020d}")
        path = f"{ROOT}/commitlog/{2 * 8192:020d}"
        content = model.disk.files()[path]
        model.disk.put_file(path, content[:4096].ljust(8192, b"\0"))
        store = model.store = model._new()
        model.run(store.open)
        assert store.log.end == 3 * 8192
        assert store.put(message("T", 0, b"goes on")).log_offset == 3 * 8192

    def test_a_log_whose_sealed_files_are_gone_ends_with_the_files_that_are_left(self) -> None:
        model = self.model()
        model.kill()
        for begin in (2 * 8192, 3 * 8192):
            model.disk.remove(f"{ROOT}/commitlog/{begin:020d}")
        path = f"{ROOT}/commitlog/{8192:020d}"
        content = model.disk.files()[path]
        model.disk.put_file(path, content[:4096].ljust(8192, b"\0"))
        store = model.store = model._new()
        model.run(store.open)
        assert store.log.end == 2 * 8192
        assert store.put(message("T", 0, b"goes on")).log_offset == 2 * 8192

    def test_truncated_bytes_are_kept_aside(self) -> None:
        model = StoreModel(small_config(mapped_file_size_commit_log=8192), page_size=512)
        for number in range(20):
            model.put(message("T", 0, b"message %d " % number * 8))
        model.kill()
        path = f"{ROOT}/commitlog/{0:020d}"
        content = bytearray(model.disk.files()[path])
        begin = model.kept[10].at.log_offset
        content[begin : begin + 1024] = bytes(1024)
        model.disk.put_file(path, bytes(content))
        store = model.store = model._new()
        report = model.run(store.open)
        assert store.log.end == begin
        (kept,) = report.kept
        assert model.disk.read_file(kept) == bytes(content)[begin:].rstrip(b"\0")

    def test_a_seal_that_was_dropped_does_not_come_back(self) -> None:
        model = self.model()
        drop_seals(model.disk, ROOT, 8192)
        for seed in range(20):
            assert sealed_end(model.disk.crash(Random(seed)), ROOT, 8192) == 8192
