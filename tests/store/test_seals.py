from __future__ import annotations

import logging

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.seal_layout import Seal, broken_blocks, decode, encode, seal_of
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.seal_files import seal_path
from tests.support.store_model import ROOT, message, small_config


def seal_on(disk: MemoryDisk, log_offset: int) -> Seal | None:
    data = disk.read_file(seal_path(ROOT, log_offset))
    return decode(data) if data is not None else None


@given(st.binary(min_size=1, max_size=400), st.integers(1, 100), st.data())
def test_any_changed_byte_is_seen_in_its_block(content: bytes, block_size: int, data: st.DataObject) -> None:
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
def test_a_damaged_seal_is_none(content: bytes, data: st.DataObject) -> None:
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


async def test_no_seals_where_they_are_switched_off(autojump_clock: trio.testing.MockClock) -> None:
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
