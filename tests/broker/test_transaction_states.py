"""The bookkeeping of transactions: what is over, how far the queues are done, and which copy represents which
message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.transaction_states import Place, TransactionStates


def test_done_advances_over_ended_transactions() -> None:
    states = TransactionStates(0, 0)
    states.ended(1, b"b")
    assert states.done == 0
    assert states.is_over(1)
    states.ended(0, b"a")
    assert states.done == 2
    assert not states.is_over(2)
    assert states.statistics().ended == 0


def test_op_done_stops_at_what_is_still_needed() -> None:
    states = TransactionStates(0, 10)
    states.ended(2, b"c")
    states.op_written(10, [2])
    assert states.op_done == 10, "half message 2 would look open after a restart"
    states.ended(0, b"a")
    states.op_written(11, [0])
    states.ended(1, b"b")
    states.op_written(12, [1])
    assert (states.done, states.op_done) == (3, 13)


def test_a_copy_stands_for_its_original() -> None:
    states = TransactionStates(0, 0)
    states.put_back(0, Place(5, 500), b"k")
    assert states.done == 1
    assert states.copy_of(b"k") == Place(5, 500)
    states.put_back(5, Place(7, 700), b"k")
    assert states.copy_of(b"k") == Place(7, 700)
    states.ended(7, b"k")
    assert states.copy_of(b"k") is None


def test_learning_a_queue_with_copies() -> None:
    states = TransactionStates(3, 0)
    states.learn(3, b"k")
    states.learn(4, b"other")
    states.learn_copy(Place(5, 500), b"k")
    states.finish_learning()
    assert states.is_over(3)
    assert not states.is_over(5)
    assert states.copy_of(b"k") == Place(5, 500)
    assert states.done == 4


def test_deleted_files_take_their_half_messages_along() -> None:
    states = TransactionStates(0, 0)
    states.ended(3, b"d")
    states.put_back(1, Place(4, 400), b"k")
    states.skip_to(3, 2)
    assert (states.done, states.op_done) == (4, 2)
    assert states.copy_of(b"k") == Place(4, 400)
    assert "done=4" in repr(states)


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=6))
def test_any_order_of_ends(order: list[int], kept_open: list[int]) -> None:
    states = TransactionStates(0, 0)
    open_now = set(range(12))
    written: list[int] = []
    for offset in order:
        if offset in kept_open:
            continue
        states.ended(offset, b"%d" % offset)
        states.op_written(len(written), [offset])
        written.append(offset)
        open_now.discard(offset)
        first_open = min(open_now, default=12)
        assert states.done == first_open
        assert [states.is_over(each) for each in range(12)] == [each not in open_now for each in range(12)]
        assert all(named < first_open for named in written[: states.op_done])
        assert states.op_done == len(written) or written[states.op_done] >= first_open
