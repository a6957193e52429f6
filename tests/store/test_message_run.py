"""A run writes byte for byte what its messages write one by one: log, queues and index, across files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.handlers.send_batch import alike_run, message_ids, mixed_run
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_record import BatchItem, encode_batch
from rocketlet.store.alike_run import AlikeRun
from rocketlet.store.errors import DiskFull, MessageIllegal, PropertiesTooLarge
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Put
from rocketlet.store.message_run import MixedRun, Shared
from rocketlet.store.message_store import MessageStore
from tests.support.store_model import HOST, small_config

MORE = b"WAIT\x01true\x02CLUSTER\x01C"
SHARED = Shared("T", 3, 1, 1_700_000_000_000, HOST, HOST, 2)
BIG: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 15, "max_message_size": 1 << 15}


async def opened(disk: MemoryDisk | None = None, **changes: Any) -> MessageStore:
    times = iter(range(1_700_000_000_000, 1_800_000_000_000, 700))
    store = MessageStore(disk or MemoryDisk(), small_config(**(BIG | changes)), lambda: next(times))
    await store.open()
    return store


def files_of(store: MessageStore) -> dict[str, bytes]:
    store._dispatch.enter_keys()
    disk: Any = store._disk
    return dict(disk.files())


async def both(steps: list[Any], **changes: Any) -> tuple[MessageStore, MessageStore]:
    """One store that got runs, and one that got their messages one by one, at the same times."""
    runs, ones = await opened(**changes), await opened(**changes)
    now = 1_700_000_000_000
    for number, step in enumerate(steps):
        now += 1300 * (number % 2)  # two steps each share a time
        for store in (runs, ones):
            store._writing._clock = lambda now=now: now  # type: ignore[misc]
        if isinstance(step, Put):
            assert runs.put(step) == ones.put(step)
        elif step is None:
            runs.settle()
            ones.settle()
        else:
            appended, single = runs.put_run(step), ones.put_batch(step.puts())
            assert appended.log_offsets.tolist() == [one.log_offset for one in single]
            assert (appended.queue_offset, appended.end) == (single[0].queue_offset, single[-1].end)
            assert appended.size == sum(one.size for one in single)
    runs.settle()
    ones.settle()
    assert files_of(runs) == files_of(ones)
    assert runs.dispatched.value == ones.dispatched.value
    assert replace(runs.statistics(), disk_ratio=0) == replace(ones.statistics(), disk_ratio=0)
    return runs, ones


def batch_of(
    count: int, *, flag: int = 7, body_size: int = 9, tail: str = "\x02TAGS\x01A", keyed: bool = False
) -> bytes:
    return encode_batch([
        BatchItem(
            flag, bytes([65 + number % 26]) * body_size,
            (f"KEYS\x01k{number % 3}\x02" if keyed else "").encode() + f"UNIQ_KEY\x01{number % 17:08X}{tail}".encode(),
        )
        for number in range(count)
    ])  # fmt: skip


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.builds(
                batch_of, st.integers(1, 60), flag=st.integers(-5, 5), body_size=st.integers(0, 40),
                tail=st.sampled_from(["", "\x02", "\x02TAGS\x01A", "\x02TAGS\x01B\x02x\x01y\x02"]), keyed=st.booleans(),
            ),
            st.lists(
                st.builds(
                    BatchItem, st.integers(-9, 9), st.binary(max_size=50),
                    st.sampled_from([
                        b"", b"UNIQ_KEY\x01abc", b"KEYS\x01a b\x02", b"TAGS\x01t\x02KEYS\x01\xc3\xa9", b"\x02x\x01",
                        b"UNIQ_KEY\x01same\x02UNIQ_KEY\x01twice",
                    ]),
                ),
                min_size=1, max_size=50,
            ).map(encode_batch),
            st.integers(0, 3).map(lambda n: Put("T", n, b"one", b"UNIQ_KEY\x01u", 5, [b"u"], born_host=HOST)),
        ),
        max_size=8,
    )
)  # fmt: skip
async def test_a_run_writes_the_same_bytes(parts: list[Any]) -> None:
    steps = [
        (alike_run(part, SHARED, MORE) or mixed_run(part, SHARED, MORE)) if isinstance(part, bytes) else part
        for part in parts
    ]
    await both(steps)


@pytest.mark.parametrize("keyed", [False, True])
async def test_uniform_and_mixed_runs_agree(keyed: bool) -> None:
    raw = batch_of(50, keyed=keyed)
    alike, mixed = alike_run(raw, SHARED, MORE), mixed_run(raw, SHARED, MORE)
    assert isinstance(alike, AlikeRun)
    assert alike.puts() == mixed.puts()
    await both([alike, None, mixed])


async def test_more_keys_in_a_turn_than_are_indexed_one_by_one() -> None:
    puts = [Put("T", 0, b"x", b"", 0, [b"u%d" % n, b"k"], born_host=HOST) for n in range(50)]
    store, _ = await both([*puts, mixed_run(batch_of(3), SHARED, MORE), None, *puts])
    assert store.index.statistics().entries == 203


async def test_filter_units_are_kept_message_by_message() -> None:
    run = alike_run(batch_of(30), SHARED, MORE)
    await both([run, None, run], enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=200)


async def test_limits() -> None:
    store = await opened(max_message_size=200)
    for body, properties, error in [
        (b"x" * 201, b"", MessageIllegal),
        (b"x", b"p\x01" + b"x" * 32750, PropertiesTooLarge),
        (b"x", b"p\x01a\0", MessageIllegal),
    ]:
        with pytest.raises(error):
            store.put_run(mixed_run(encode_batch([BatchItem(0, body, properties)] * 2), SHARED, MORE))
    assert store.log.end == 0
    appended = store.put_run(mixed_run(encode_batch([BatchItem(0, b"x" * 200, b"")] * 9), SHARED, MORE))
    assert len(appended.log_offsets) == 9  # together they may exceed the limit of a single message


async def test_a_property_with_a_zero_byte_in_a_uniform_run() -> None:
    store = await opened()
    run = alike_run(batch_of(30, tail="\x02x\x01\0"), SHARED, MORE)
    assert isinstance(run, AlikeRun)
    with pytest.raises(MessageIllegal, match="U\\+0000"):
        store.put_run(run)
    assert store.log.end == 0


async def test_a_run_longer_than_a_log_file() -> None:
    store = await opened(mapped_file_size_commit_log=2048)
    with pytest.raises(MessageIllegal):
        store.put_run(mixed_run(batch_of(20), SHARED, MORE))
    assert (store.log.end, store.queue_end("T", 3)) == (0, 0)


async def test_a_disk_that_fills_up_while_dispatching() -> None:
    """Undispatched messages are dispatched when there is room again, none twice."""
    run = alike_run(batch_of(40), SHARED, MORE)
    assert run is not None
    reference = await opened()
    reference._writing._clock = lambda: 5
    reference.put_run(run)
    reference.settle()
    needed = sum(len(data) for data in files_of(reference).values())
    tried = 0
    for capacity in range(0, needed + 40_000, 4096):
        disk = MemoryDisk()
        store = await opened(disk)
        store._writing._clock = lambda: 5
        disk.capacity = disk._used() + capacity
        try:
            store.put_run(run)
        except DiskFull:
            continue
        store.settle()
        store._dispatch.enter_keys()
        store.settle()
        tried += bool(store.refusal)
        disk.capacity = 1 << 40
        store._set_full(None)
        store.settle()
        assert files_of(store) == files_of(reference)
    assert tried


def test_ids() -> None:
    assert message_ids(HOST, numpy.array([1, 1 << 40])) == ",".join(
        [offset_message_id(HOST, 1), offset_message_id(HOST, 1 << 40)]
    )


def test_messages_that_can_share_a_run() -> None:
    assert SHARED.fits()
    assert not SHARED._replace(topic="t" * 128).fits()
    assert not SHARED._replace(born_host=bytes(20)).fits()
    assert isinstance(mixed_run(batch_of(1), SHARED, b""), MixedRun)
