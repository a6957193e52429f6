from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.consuming.queue_allocation import (
    Allocation,
    allocate,
    averagely,
    averagely_by_circle,
    by_config,
    by_consistent_hash,
    by_machine_room,
    by_nearest_machine_room,
)
from rocketlet.common.message import MessageQueue


def queues(count: int, broker: str = "b") -> list[MessageQueue]:
    return [MessageQueue("T", broker, i) for i in range(count)]


def rooms_of_names(queue: MessageQueue) -> str:
    return queue.broker_name.partition("@")[0]


PARTITIONING: list[Allocation] = [
    averagely,
    averagely_by_circle,
    by_consistent_hash(),
    by_machine_room({"r1", "r2"}),
    by_nearest_machine_room(averagely, rooms_of_names, lambda client: client.partition("@")[0]),
]


@pytest.mark.parametrize("strategy", PARTITIONING)
@given(
    spread=st.lists(st.tuples(st.sampled_from(["r1@a", "r1@b", "r2@c"]), st.integers(0, 9)), max_size=20, unique=True),
    members=st.lists(st.sampled_from([f"r{i % 3}@{i}" for i in range(8)]), min_size=1, unique=True),
)
def test_members_shares_are_disjoint_and_cover_all_queues(
    strategy: Allocation, spread: list[tuple[str, int]], members: list[str]
) -> None:
    everything = [MessageQueue("T", broker, i) for broker, i in spread]
    shares = [allocate(strategy, "g", member, everything, members) for member in members]
    assert sorted(chain.from_iterable(shares)) == sorted(everything)


@given(st.integers(1, 40), st.integers(1, 12))
def test_average_shares_differ_by_at_most_one(queue_count: int, member_count: int) -> None:
    members = [f"c{i:02}" for i in range(member_count)]
    for strategy in (averagely, averagely_by_circle):
        sizes = [len(allocate(strategy, "g", member, queues(queue_count), members)) for member in members]
        assert max(sizes) - min(sizes) <= 1


def test_blocks_are_contiguous_and_the_first_members_get_one_more() -> None:
    shares = [allocate(averagely, "g", member, queues(8), ["x", "y", "z"]) for member in "xyz"]
    assert [[queue.queue_id for queue in share] for share in shares] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_by_circle_deals_round_robin() -> None:
    shares = [allocate(averagely_by_circle, "g", member, queues(5), ["x", "y"]) for member in "xy"]
    assert [[queue.queue_id for queue in share] for share in shares] == [[0, 2, 4], [1, 3]]


def test_a_fixed_list_ignores_the_members() -> None:
    fixed = queues(2)
    assert allocate(by_config(fixed), "g", "x", queues(9), ["x", "y"]) == fixed


def test_a_room_shares_only_the_queues_of_its_brokers() -> None:
    all_queues = queues(3, "r1@a") + queues(3, "r2@b") + queues(2, "plain")
    shares = [allocate(by_machine_room(["r1"]), "g", member, all_queues, ["x", "y"]) for member in "xy"]
    assert [[(queue.broker_name, queue.queue_id) for queue in share] for share in shares] == [
        [("r1@a", 0), ("r1@a", 2)],
        [("r1@a", 1)],
    ]


def test_near_queues_stay_in_their_room_and_orphans_are_shared() -> None:
    strategy = by_nearest_machine_room(averagely, rooms_of_names, lambda client: client.partition("@")[0])
    all_queues = queues(2, "r1@a") + queues(2, "r2@b") + queues(2, "r3@c")
    shares = {member: allocate(strategy, "g", member, all_queues, ["r1@x", "r2@y"]) for member in ["r1@x", "r2@y"]}
    assert [queue.broker_name for queue in shares["r1@x"]] == ["r1@a", "r1@a", "r3@c"]
    assert [queue.broker_name for queue in shares["r2@y"]] == ["r2@b", "r2@b", "r3@c"]


def test_few_queues_move_on_a_ring_when_a_member_leaves() -> None:
    members = [f"c{i}" for i in range(5)]
    strategy = by_consistent_hash(50)
    before = {queue: m for m in members for queue in allocate(strategy, "g", m, queues(200), members)}
    after = {queue: m for m in members[:4] for queue in allocate(strategy, "g", m, queues(200), members[:4])}
    moved = [queue for queue in before if before[queue] != after[queue]]
    assert all(before[queue] == "c4" for queue in moved)


def test_a_client_that_is_not_listed_gets_nothing() -> None:
    assert allocate(averagely, "g", "z", queues(4), ["x", "y"]) == []
    assert allocate(averagely, "g", "x", [], ["x"]) == []


def test_a_client_listed_twice_counts_once() -> None:
    assert len(allocate(averagely, "g", "x", queues(4), ["x", "x", "y"])) == 2
