"""A column run writes byte for byte what its messages write one by one, or nothing: log, queues and index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.java_hashes import index_hashes
from rocketlet.common.property_places import property_places
from rocketlet.store.column_run import ColumnRun
from rocketlet.store.errors import DiskFull
from rocketlet.store.message import Put
from rocketlet.store.message_run import Shared
from rocketlet.store.message_store import MessageStore
from tests.store.test_message_run import files_of, opened
from tests.support.store_model import HOST

SHARED = Shared("T", 0, 1, 1_700_000_000_000, HOST, HOST, 2)
TEXT = b"UNIQ_KEY\x01%08d\x02KEYS\x01k %04d\x02mine\x01x"


def column_run(queue_ids: list[int], bodies: list[bytes], text: bytes = TEXT, **shared: Any) -> ColumnRun:
    count = len(queue_ids)
    rows = [text % (number, number // 3) if b"%" in text else text for number in range(count)]
    table = numpy.frombuffer(b"".join(rows), numpy.uint8).reshape(count, -1)
    hashes = index_hashes(b"T#", table, property_places(rows[0]).keys)
    return ColumnRun(
        SHARED._replace(**shared), 7, numpy.array(queue_ids), numpy.arange(count) + 5, list(bodies), table,
        numpy.arange(count) % 2 * 77, hashes,
    )  # fmt: skip


def puts(run: ColumnRun) -> list[Put]:
    """The same messages."""
    result = []
    for row, body in enumerate(run.bodies):
        text = run.properties[row].tobytes()
        keys = [text[place] for place in property_places(text).keys]
        put = run.shared.put(bytes(body), text, int(run.tags_codes[row]), keys, run.flag)
        result.append(replace(put, queue_id=int(run.queue_ids[row]), born_timestamp=int(run.born_timestamps[row])))
    return result


async def twins(queues: int, **settings: Any) -> tuple[MessageStore, MessageStore]:
    """Two stores with so many queues, at a time that stands still."""
    stores = await opened(**settings), await opened(**settings)
    for store in stores:
        store._writing._clock = lambda: 1_700_000_000_000
        for queue_id in range(queues):
            store.put(Put("T", queue_id, b"first", tags_code=1, born_host=HOST, store_host=HOST))
    return stores


RUNS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.lists(st.binary(max_size=300), min_size=1)),
    min_size=1,
    max_size=8,
)


@given(RUNS, st.booleans())
async def test_a_column_run_writes_what_its_messages_write_alone(
    steps: list[tuple[list[int], list[bytes]]], settles: bool
) -> None:
    runs, ones = await twins(3)
    for number, (queue_ids, some) in enumerate(steps):
        run = column_run(queue_ids, [some[place % len(some)] for place in range(len(queue_ids))])
        appended = runs.put_columns(run)
        each = [ones.put(put) for put in puts(run)]
        if appended is None:  # it does not fit into the log file
            assert ones.log.end // ones.log.file_size > runs.log.end // runs.log.file_size
            assert [runs.put(put) for put in puts(run)] == each
        else:
            assert appended.log_offsets.tolist() == [one.log_offset for one in each]
            assert appended.queue_offsets.tolist() == [one.queue_offset for one in each]
            assert appended.sizes.tolist() == [one.size for one in each]
            assert appended.end == each[-1].end
        if settles and number % 2:
            runs.settle()
            ones.settle()
    runs.settle()
    ones.settle()
    assert files_of(runs) == files_of(ones)
    assert replace(runs.statistics(), disk_ratio=0) == replace(ones.statistics(), disk_ratio=0)


async def test_what_may_be_refused_is_left_to_put() -> None:
    store, _ = await twins(2)
    store.settle()
    before = files_of(store)
    limit = store.config.max_message_size
    for run in (
        column_run([0, 1], [b"x", b"y" * limit]),
        column_run([0, 1], [b"x", b"y"], b"long\x01" + b"z" * 32_767),
        column_run([0, 2], [b"x", b"y"]),  # the first of its queue
        column_run([0, 0], [b"x", b"y"], topic="Other"),
    ):
        assert store.put_columns(run) is None
    store._writing.refuse(DiskFull("full"))
    assert store.put_columns(column_run([0, 1], [b"x", b"y"])) is None
    assert files_of(store) == before
    assert store.queue_end("T", 0) == store.queue_end("T", 1) == 1


@pytest.mark.parametrize("kept_back", [0, 1, 2, 3])
async def test_what_is_not_confirmed_is_not_filed(kept_back: int) -> None:
    store, _ = await twins(2)
    store.settle()
    appended = store.put_columns(column_run([0, 1, 0], [b"a", b"b", b"c"]))
    assert appended is not None
    ends = [store.log.begin, *(appended.log_offsets + appended.sizes).tolist()]
    store._dispatch.limit = ends[3 - kept_back]
    store.settle()
    assert store.queue_end("T", 0) + store.queue_end("T", 1) == 2 + 3 - kept_back
    store._dispatch.limit = None
    store.settle()
    assert (store.queue_end("T", 0), store.queue_end("T", 1)) == (3, 2)
