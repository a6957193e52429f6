"""Which queues of a topic belong to which member of a consumer group: the six strategies of RocketMQ.

Every member computes its own share from the same two sorted lists, without asking the others. The shares of one
list of members are disjoint and together are all queues; that is the whole contract of a strategy, and it holds only
if all members use the same one. Members of one group may be written in Java and in Python: the results are the same.

A strategy is called with (group, client id, queues, client ids), both lists sorted, the own id among the ids.

Java: client/consumer/rebalance/AllocateMessageQueue*.java
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from hashlib import md5
from typing import TypeAlias

from rocketlet.common.message import MessageQueue

Allocation: TypeAlias = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def averagely(group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Contiguous blocks; the first members get one more where it does not divide. RocketMQ's default."""
    index = members.index(client_id)
    share, extra = divmod(len(queues), len(members))
    begin = index * share + min(index, extra)
    return list(queues[begin : begin + share + (index < extra)])


def averagely_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Round robin: queue i to member i modulo their number."""
    return list(queues[members.index(client_id) :: len(members)])


def by_config(configured: Iterable[MessageQueue]) -> Allocation:
    """Always these queues, whatever other members there are. Two members with the same list both consume it."""
    fixed = list(configured)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        return list(fixed)

    return allocate


def by_machine_room(rooms: Iterable[str]) -> Allocation:
    """Only queues of brokers named `room@broker` with one of these rooms, in blocks; the rest go round one by one."""
    room_names = frozenset(rooms)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        local = [queue for queue in queues if _named_room(queue.broker_name) in room_names]
        index = members.index(client_id)
        share, extra = divmod(len(local), len(members))
        allocated = local[index * share : (index + 1) * share]
        if index < extra:
            allocated.append(local[len(members) * share + index])
        return allocated

    return allocate


def _named_room(broker_name: str) -> str | None:
    room, separator, queue_part = broker_name.partition("@")
    return room if separator and "@" not in queue_part else None


def by_nearest_machine_room(
    inner: Allocation, room_of_queue: Callable[[MessageQueue], str], room_of_client: Callable[[str], str]
) -> Allocation:
    """Queues go to members of their own room; those of a room without a member are shared by all."""

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        my_room = room_of_client(client_id)
        inhabited = {room_of_client(member) for member in members}
        allocated: list[MessageQueue] = []
        near = [queue for queue in queues if room_of_queue(queue) == my_room]
        if near:
            allocated += inner(
                group, client_id, near, [member for member in members if room_of_client(member) == my_room]
            )
        for room in sorted({room_of_queue(queue) for queue in queues} - inhabited):
            orphans = [queue for queue in queues if room_of_queue(queue) == room]
            allocated += inner(group, client_id, orphans, members)
        return allocated

    return allocate


def by_consistent_hash(virtual_nodes: int = 10) -> Allocation:
    """Members stand on a ring many times over; a queue goes to the next one clockwise. Few move when one leaves."""

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        ring = {_ring_position(f"{member}-{i}"): member for member in members for i in range(virtual_nodes)}
        positions = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            index = bisect_left(positions, _ring_position(_java_text(queue)))
            return ring[positions[index % len(positions)]]

        return [queue for queue in queues if owner(queue) == client_id]

    return allocate


def _ring_position(key: str) -> int:
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    """MessageQueue.toString() of Java: its hash decides, so it may not change."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def allocate(
    strategy: Allocation, group: str, client_id: str, queues: Iterable[MessageQueue], members: Iterable[str]
) -> list[MessageQueue]:
    """Sorts both lists and asks the strategy; nothing for a client that is not among the members (yet)."""
    sorted_queues, sorted_members = sorted(queues), sorted(set(members))
    if client_id not in sorted_members or not sorted_queues:
        return []
    return strategy(group, client_id, sorted_queues, sorted_members)
