from __future__ import annotations

import logging
import random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.store.layout import seal_layout
from rocketlet.store.layout.bit_mending import LONGEST, flipped_bit, mended
from rocketlet.store.layout.seal_layout import Seal, broken_blocks, decode, encode, seal_of
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.seal_files import read_seal
from tests.support.store_model import ROOT, message, small_config


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
        seal = read_seal(disk, ROOT, file.begin)
        assert seal is not None
        assert list(broken_blocks(seal, file.region.read)) == []
    assert read_seal(disk, ROOT, full[-1].end) is None
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
    assert read_seal(disk, ROOT, 2048) is None
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


class TestBitMending:
    @given(st.binary(min_size=1, max_size=300), st.data())
    def test_one_flipped_bit_is_found(self, body: bytes, data: st.DataObject) -> None:
        from rocketlet.common.message_record import body_crc

        place = data.draw(st.integers(0, len(body) * 8 - 1))
        damaged = bytearray(body)
        damaged[place // 8] ^= 1 << place % 8
        assert flipped_bit(bytes(damaged), body_crc(body)) == place
        assert mended(bytes(damaged), body_crc(body)) == body

    def test_a_flipped_bit_of_the_sum(self) -> None:
        from rocketlet.common.message_record import body_crc

        assert mended(b"sound", body_crc(b"sound") ^ 0x400) == b"sound"

    def test_more_damage_is_not_guessed_at(self) -> None:
        from rocketlet.common.message_record import body_crc

        chance = random.Random(7)
        for _ in range(200):
            body = chance.randbytes(100)
            damaged = bytearray(body)
            damaged[chance.randrange(50)] ^= chance.randrange(1, 256)
            damaged[50 + chance.randrange(50)] ^= chance.randrange(1, 256)
            assert mended(bytes(damaged), body_crc(body)) is None

    def test_a_long_body_is_not_searched(self) -> None:
        assert mended(b"\1" + bytes(LONGEST), 12345) is None
