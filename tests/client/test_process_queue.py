from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.consuming.process_queue import ProcessQueue, Totals
from rocketlet.common.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("T", "a", 0)


def message(offset: int, size: int = 10) -> ReceivedMessage:
    return ReceivedMessage(
        topic="T",
        body=b"x" * size,
        queue=QUEUE,
        queue_offset=offset,
        log_offset=0,
        message_id=str(offset),
        offset_message_id="",
        born_timestamp=0,
        born_host="",
        store_timestamp=0,
        store_host="",
        reconsume_times=0,
        tags=None,
        keys=(),
        flag=0,
        sys_flag=0,
        properties={},
        prepared_transaction_offset=0,
    )


def filled(*offsets: int, start: int = 0) -> ProcessQueue:
    queue = ProcessQueue(QUEUE, start, 0)
    queue.put([message(offset) for offset in offsets], (offsets[-1] + 1) if offsets else start)
    return queue


def test_the_lowest_unfinished_offset_may_be_committed() -> None:
    queue = filled(5, 6, 7, start=5)
    queue.finish([6, 7])
    assert queue.committable() == 5
    queue.finish([5])
    assert queue.committable() == 8


def test_skipped_offsets_are_committed_once_nothing_is_unfinished() -> None:
    queue = filled(start=3)
    queue.put([], 9)
    assert queue.committable() == 9
    queue.put([message(11)], 20)
    assert queue.committable() == 11
    queue.finish([11])
    assert queue.committable() == 20


@given(st.lists(st.tuples(st.sampled_from(["put", "finish"]), st.integers(0, 30)), max_size=60))
def test_it_agrees_with_a_simple_model_and_never_commits_ahead(steps: list[tuple[str, int]]) -> None:
    queue = ProcessQueue(QUEUE, 0, 0)
    open_offsets: dict[int, int] = {}
    end, committed = 0, 0
    for kind, n in steps:
        if kind == "put":
            batch = range(end + n % 2, end + n % 2 + n % 4)
            queue.put([message(offset, offset % 7) for offset in batch], max(batch.stop, end))
            open_offsets |= {offset: offset % 7 for offset in batch}
            end = max(batch.stop, end)
        elif open_offsets:
            offset = sorted(open_offsets)[n % len(open_offsets)]
            queue.finish([offset])
            del open_offsets[offset]
        assert (queue.count, queue.bytes) == (len(open_offsets), sum(open_offsets.values()))
        assert queue.committable() == (min(open_offsets) if open_offsets else end)
        assert queue.span == (max(open_offsets) - min(open_offsets) if open_offsets else 0)
        assert queue.committable() >= committed
        committed = queue.committable()


def test_a_message_pulled_twice_is_held_once() -> None:
    queue = filled(1, 2)
    queue.put([message(2)], 3)
    assert (queue.count, queue.bytes) == (2, 20)


def test_an_orderly_batch_is_finished_or_redelivered() -> None:
    queue = filled(1, 2, 3)
    assert [m.queue_offset for m in queue.oldest(2)] == [1, 2]
    assert [m.queue_offset for m in queue.oldest(2)] == [1, 2]
    assert queue.committable() == 1
    queue.finish([1, 2])
    assert queue.committable() == 3
    assert [m.queue_offset for m in queue.oldest(2)] == [3]


def test_a_lock_is_trusted_for_thirty_seconds() -> None:
    queue = filled(1)
    assert not queue.is_locked(0)
    queue.locked, queue.last_lock = True, 1000
    assert queue.is_locked(31_000)
    assert not queue.is_locked(31_001)


def test_a_queue_not_pulled_for_two_minutes_is_stalled() -> None:
    queue = filled(1)
    assert not queue.is_stalled(120_000)
    assert queue.is_stalled(120_001)


def test_properties_and_repr_show_the_state() -> None:
    queue = filled(4, 9)
    assert (queue.count, queue.bytes, queue.open_range, queue.pulled_to) == (2, 20, (4, 9), 10)
    assert repr(queue) == "<ProcessQueue T/a/0: 2 open, pulled to 10>"
    queue.drop()
    assert "dropped" in repr(queue)


def test_totals_include_a_queue_until_it_is_dropped() -> None:
    totals = Totals()
    first = ProcessQueue(QUEUE, 0, 0, (totals,))
    second = ProcessQueue(MessageQueue("T", "a", 1), 0, 0, (totals,))
    first.put([message(0, 5), message(1, 7)], 2)
    second.put([message(0, 11)], 1)
    first.finish([0])
    assert totals == Totals(2, 18)
    first.drop()
    first.drop()
    first.finish([1])
    assert totals == Totals(1, 11)
