"""A column run writes byte for byte what its messages write one by one, or nothing: log, queues and index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.property_places import property_places
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.errors import DiskFull
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore
from tests.store.test_message_run import files_of, opened
from tests.support.column_runs import column_run
from tests.support.store_model import HOST

TEXT = b"UNIQ_KEY\x01%08d\x02KEYS\x01k %04d\x02mine\x01x"


def puts(queue_ids: list[int], bodies: list[bytes], text: bytes = TEXT, topic: str = "T") -> list[Put]:
    """Alike messages, one for each queue id."""
    result = []
    for number, queue_id in enumerate(queue_ids):
        properties = text % (number, number // 3) if b"%" in text else text
        keys = [properties[place] for place in property_places(properties).keys]
        body = bodies[number % len(bodies)]
        result.append(
            Put(
                topic,
                queue_id,
                body,
                properties,
                number % 2 * 77,
                keys,
                7,
                1,
                1_700_000_000_000 + number,
                HOST,
                HOST,
                2,
            )
        )
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
        sent = puts(queue_ids, some)
        appended = runs.put_columns(column_run(sent))
        each = [ones.put(put) for put in sent]
        if appended is None:  # it does not fit into the log file
            assert ones.log.end // ones.log.file_size > runs.log.end // runs.log.file_size
            assert [runs.put(put) for put in sent] == each
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
    for sent in (
        puts([0, 1], [b"x", b"y" * limit]),
        puts([0, 1], [b"x", b"y"], b"long\x01" + b"z" * 32_767),
        puts([0, 2], [b"x", b"y"]),  # the first of its queue
        puts([0, 0], [b"x", b"y"], topic="Other"),
    ):
        assert store.put_columns(column_run(sent)) is None
    store._writing.refuse(DiskFull("full"))
    assert store.put_columns(column_run(puts([0, 1], [b"x", b"y"]))) is None
    assert files_of(store) == before
    assert store.queue_end("T", 0) == store.queue_end("T", 1) == 1


async def test_delayed_messages_are_left_to_put() -> None:
    store, _ = await twins(0)
    delayed = puts([2, 2], [b"x"], topic=SCHEDULE_TOPIC)
    store.put(delayed[0])
    assert store.put_columns(column_run(delayed)) is None


async def test_of_a_topic_deleted_before_it_is_filed_nothing_is_filed() -> None:
    store, _ = await twins(2)
    store.settle()
    assert store.put_columns(column_run(puts([0] * 10 + [1, 1], [b"x"]))) is not None
    dropped = [store.queue("T", 0), store.queue("T", 1)]
    store.drop_topic("T")
    store.settle()
    assert store.dispatched.value == store.log.end
    assert [queue.end for queue in dropped if queue is not None] == [1, 1]
    assert store.queue("T", 0) is None
    store.put(puts([1], [b"new"])[0])
    store.settle()
    assert store.queue_end("T", 1) == 1


@pytest.mark.parametrize("kept_back", [0, 1, 2, 3])
async def test_what_is_not_confirmed_is_not_filed(kept_back: int) -> None:
    store, _ = await twins(2)
    store.settle()
    appended = store.put_columns(column_run(puts([0, 1, 0], [b"a", b"b", b"c"])))
    assert appended is not None
    ends = [store.log.begin, *(appended.log_offsets + appended.sizes).tolist()]
    store._dispatch.limit = ends[3 - kept_back]
    store.settle()
    assert store.queue_end("T", 0) + store.queue_end("T", 1) == 2 + 3 - kept_back
    store._dispatch.limit = None
    store.settle()
    assert (store.queue_end("T", 0), store.queue_end("T", 1)) == (3, 2)
