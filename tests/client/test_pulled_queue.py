"""What may be committed of batches that are delivered and finished in parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.consuming.process_queue import Totals
from rocketlet.client.consuming.pulled_queue import Pulled, PulledQueue
from rocketlet.client.consuming.received_messages import MessageReader
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_record import Record, encode

QUEUE = MessageQueue("T", "a", 0)
READER = MessageReader("", 1 << 20)


def put(queue: PulledQueue, offsets: list[int]) -> Pulled:
    raw = b"".join(encode(Record("T", 0, offset, 0, b"x" * (offset % 5))) for offset in offsets)
    return queue.put_batch(READER.batch(raw, QUEUE), offsets[-1] + 1)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_the_lowest_unfinished_offset_may_be_committed(sizes: list[int], data: st.DataObject) -> None:
    totals = Totals()
    queue = PulledQueue(QUEUE, 10, 0, (totals,))
    assert queue.committable() == 10
    open_offsets: set[int] = set()
    parts = []
    begin = 10
    for size in sizes:
        offsets = [begin + 2 * n for n in range(size)]  # a filtered batch has gaps
        begin = offsets[-1] + 1
        batch = put(queue, offsets)
        open_offsets.update(offsets)
        at = 0
        while at < size:
            end = data.draw(st.integers(at + 1, size))
            parts.append((batch, at, end))
            at = end
    for batch, at, end in data.draw(st.permutations(parts)):
        assert queue.committable() == min(open_offsets)
        assert queue.count == totals.count == len(open_offsets)
        assert queue.bytes == totals.bytes == sum(offset % 5 for offset in open_offsets)
        queue.finish_part(batch, at, end)
        open_offsets.difference_update(batch.messages.offsets[at:end])
    assert (queue.committable(), queue.count, queue.bytes, totals) == (begin, 0, 0, Totals())


def test_a_pull_that_found_nothing_advances_the_queue() -> None:
    queue = PulledQueue(QUEUE, 0, 0)
    queue.put_batch(READER.batch(b"", QUEUE), 9)
    assert (queue.committable(), queue.count, queue.span) == (9, 0, 0)


def test_the_open_range_spans_all_batches() -> None:
    queue = PulledQueue(QUEUE, 0, 0)
    batch = put(queue, [4, 9])
    assert (queue.count, queue.open_range, queue.pulled_to) == (2, (4, 9), 10)
    queue.finish_part(batch, 0, 1)
    assert (queue.committable(), queue.span) == (9, 0)


def test_a_dropped_queue_counts_in_no_total() -> None:
    totals = Totals()
    queue = PulledQueue(QUEUE, 0, 0, (totals,))
    batch = put(queue, [1, 2, 3])
    queue.drop()
    assert totals == Totals()
    queue.finish_part(batch, 0, 3)
    assert (totals, queue.committable()) == (Totals(), 4)
