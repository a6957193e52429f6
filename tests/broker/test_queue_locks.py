"""Queue locks: one holder at a time, whatever clients do and however they vanish."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketlet.broker.queue_locks import LIFETIME_MS, TRUSTED_MS, QueueLocks
from tests.support.compared import Compared

CLIENTS = st.sampled_from(["a", "b", "c"])
QUEUES = st.lists(st.integers(0, 4), max_size=5)


def test_free_queues_are_granted_and_held_ones_refused() -> None:
    locks: QueueLocks[int] = QueueLocks()
    assert locks.lock("g", "a", [0, 1], 0) == [0, 1]
    assert locks.lock("g", "b", [1, 2], 10) == [2]
    assert locks.lock("g", "a", [1], 20) == [1]
    assert locks.holder("g", 2, 20) == "b"


def test_locks_of_different_groups_are_independent() -> None:
    locks: QueueLocks[int] = QueueLocks()
    assert locks.lock("g", "a", [0], 0) == [0]
    assert locks.lock("h", "b", [0], 0) == [0]


def test_a_queue_asked_for_twice_is_granted_once() -> None:
    locks: QueueLocks[int] = QueueLocks()
    assert locks.lock("g", "a", [0, 0], 0) == [0]


def test_a_client_that_left_a_group_holds_no_locks() -> None:
    locks: QueueLocks[int] = QueueLocks()
    locks.lock("g", "a", [0, 1], 0)
    locks.lock("g", "b", [2], 0)
    locks.lock("h", "a", [0], 0)
    locks.client_left("g", "a")
    locks.client_left("nobody knows it", "a")
    assert locks.lock("g", "c", [0, 1, 2], 1) == [0, 1]
    assert locks.holder("h", 0, 1) == "a"


def test_a_client_that_leaves_costs_its_own_locks_only() -> None:
    locks: QueueLocks[int] = QueueLocks()
    locks.lock("g", Compared("a"), range(1000), 0)
    locks.lock("g", "b", [1000], 0)
    before = Compared.count
    locks.client_left("g", "b")
    locks.client_left("g", "c")
    assert Compared.count == before
    assert locks.statistics().locks == 1000


def test_a_lock_expires_a_minute_after_its_holder_last_asked() -> None:
    locks: QueueLocks[int] = QueueLocks()
    locks.lock("g", "a", [0], 0)
    assert locks.lock("g", "b", [0], LIFETIME_MS) == []
    assert locks.lock("g", "b", [0], LIFETIME_MS + 1) == [0]
    assert locks.holder("g", 0, LIFETIME_MS + 1) == "b"


def test_asking_again_renews_a_lock() -> None:
    locks: QueueLocks[int] = QueueLocks()
    locks.lock("g", "a", [0], 0)
    locks.lock("g", "a", [0], 50_000)
    assert locks.lock("g", "b", [0], 100_000) == []


def test_only_the_holder_can_unlock() -> None:
    locks: QueueLocks[int] = QueueLocks()
    locks.lock("g", "a", [0, 1], 0)
    locks.unlock("g", "b", [0])
    assert locks.holder("g", 0, 1) == "a"
    locks.unlock("g", "a", [0])
    assert locks.holder("g", 0, 1) is None
    locks.unlock("unknown", "a", [0])
    assert locks.statistics().locks == 1


def test_expired_locks_are_forgotten() -> None:
    locks: QueueLocks[int] = QueueLocks()
    locks.lock("g", "a", [0, 1], 0)
    locks.lock("g", "b", [2], 50_000)
    locks.expire(LIFETIME_MS + 1)
    assert locks.statistics().locks == 1
    locks.expire(50_000 + LIFETIME_MS + 1)
    assert locks.statistics().groups == 0
    assert "0 locks" in repr(locks)


class OneHolder(RuleBasedStateMachine):
    """A client that was granted a queue less than a minute ago and did not unlock it holds it, and nobody else does."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: QueueLocks[int] = QueueLocks()
        self.now = 0
        self.granted: dict[int, tuple[str, int]] = {}

    @rule(client=CLIENTS, queues=QUEUES)
    def lock(self, client: str, queues: list[int]) -> None:
        granted = self.locks.lock("g", client, queues, self.now)
        assert set(granted) <= set(queues)
        for queue in set(queues):
            owner, since = self.granted.get(queue, (client, self.now))
            free = owner == client or self.now - since > LIFETIME_MS
            assert (queue in granted) == free
        for queue in granted:
            self.granted[queue] = (client, self.now)

    @rule(client=CLIENTS, queues=QUEUES)
    def unlock(self, client: str, queues: list[int]) -> None:
        self.locks.unlock("g", client, queues)
        for queue in queues:
            if self.granted.get(queue, ("", 0))[0] == client:
                del self.granted[queue]

    @rule(client=CLIENTS)
    def leave(self, client: str) -> None:
        self.locks.client_left("g", client)
        self.granted = {queue: granted for queue, granted in self.granted.items() if granted[0] != client}

    @rule(ms=st.integers(0, LIFETIME_MS))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def expire(self) -> None:
        self.locks.expire(self.now)

    @invariant()
    def holders_agree(self) -> None:
        for queue in range(5):
            owner, since = self.granted.get(queue, ("", -LIFETIME_MS * 10))
            expected = owner if owner and self.now - since <= LIFETIME_MS else None
            assert self.locks.holder("g", queue, self.now) == expected

    @invariant()
    def locks_by_client_agree(self) -> None:
        held = {(group, client, queue) for (group, client), queues in self.locks._held.items() for queue in queues}
        assert held == {(group, client, queue) for group, queue, client in self.locks.entries()}


TestOneHolder = OneHolder.TestCase


def test_a_new_master_keeps_the_holders_and_grants_no_other_queue_early() -> None:
    old: QueueLocks[int] = QueueLocks()
    old.lock("g", "a", [0, 1], 0)
    new: QueueLocks[int] = QueueLocks()
    new.carry(old.entries())
    new.succeed(100_000)
    assert new.lock("g", "b", [0, 1, 2], 100_001) == []
    assert new.lock("g", "a", [0, 1, 2], 100_001) == [0, 1]
    assert new.lock("g", "b", [0, 1, 2], 100_000 + TRUSTED_MS) == [2]
    assert new.lock("g", "b", [0], 100_002 + LIFETIME_MS) == [0], "its holder has not come"
    assert new.statistics().locks == 3


def test_the_version_grows_only_when_a_holder_changes() -> None:
    locks: QueueLocks[int] = QueueLocks(10)
    seen = [locks.version]
    for step in (
        lambda: locks.lock("g", "a", [0, 1], 0),
        lambda: locks.unlock("g", "a", [1]),
        lambda: locks.lock("g", "b", [0], 20),
        lambda: locks.expire(40),
    ):
        step()
        seen.append(locks.version)
    assert seen == sorted(set(seen))
    locks.lock("g", "a", [0], 50)
    before = locks.version
    locks.lock("g", "a", [0], 51)
    locks.lock("g", "b", [0], 51)
    locks.unlock("g", "b", [0])
    locks.expire(52)
    assert locks.version == before
