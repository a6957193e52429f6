"""Which client holds which queue of a group while it consumes in order.

A lock lives in memory only. It ends with its holder's connection, or 60 s after its holder last asked for it (clients
ask every 20 s), so a vanished client does not block its queues. Asking again renews a lock. Pure: the time is an
argument.

Slaves get the locks (`entries`, whenever `version` has grown, `carry` there). A slave that becomes the master continues
with them (`succeed`), each lock as if just renewed. An unknown holder may still consume for as long as a client trusts
a lock that it cannot renew; so for that time a queue without a known holder is granted to nobody.

Invariants: a queue of a group has at most one holder that is not expired; only the holder can unlock.

Java: broker/client/rebalance/RebalanceLockManager.java
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Queue = TypeVar("Queue", bound=Hashable)

LIFETIME_MS = 60_000
TRUSTED_MS = 30_000  # how long clients consume without renewing their lock (RebalanceLockMaxLiveTime)
# Orderly consumers lock the queues they consume; no real broker comes near this. It bounds what peers can make us hold.
MAX_LOCKS = 50_000
LONGEST_NAME = 255  # of a group, a client, a broker and a topic


@dataclass(slots=True)
class Lock:
    client_id: str
    refreshed: int

    def held(self, now: int, lifetime: int) -> bool:
        return now - self.refreshed <= lifetime


@dataclass(frozen=True, slots=True)
class QueueLocksStatistics:
    groups: int
    locks: int


class QueueLocks(Generic[Queue]):
    """The lock table of one broker."""

    def __init__(self, lifetime_ms: int = LIFETIME_MS) -> None:
        self._lifetime = lifetime_ms
        self._groups: dict[str, dict[Queue, Lock]] = {}
        # The same by group and client: a group may have 50,000 locks, and 10,000 members that leave at once.
        self._held: dict[tuple[str, str], dict[Queue, None]] = {}
        self._count = 0
        self._staged: list[tuple[str, Queue, str]] = []
        self._closed_until = 0
        self.version = 0
        """Grows whenever a queue gets or loses a holder."""

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now: int) -> list[Queue]:
        """Grant or renew queues that are free, expired or the client's own. Returns those it holds now."""
        if len(group) > LONGEST_NAME or len(client_id) > LONGEST_NAME:
            return []
        locks = self._groups.get(group) or {}
        granted: dict[Queue, None] = {}
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= MAX_LOCKS or now < self._closed_until:
                    continue
                locks[queue] = Lock(client_id, now)
                self._hold(group, client_id, queue)
                self._count += 1
                self.version += 1
            elif lock.client_id == client_id:
                lock.refreshed = now
            elif not lock.held(now, self._lifetime):
                self._release(group, lock.client_id, queue)
                self._hold(group, client_id, queue)
                lock.client_id, lock.refreshed = client_id, now
                self.version += 1
            else:
                continue
            granted[queue] = None
        if locks:
            self._groups[group] = locks
        return list(granted)

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Unlock those of the queues that this client holds."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._release(group, client_id, queue)
                self._count -= 1
                self.version += 1
        if not locks:
            del self._groups[group]

    def client_left(self, group: str, client_id: str) -> None:
        """Unlock everything that a client holds in a group."""
        self.unlock(group, client_id, list(self._held.get((group, client_id), ())))

    def holder(self, group: str, queue: Queue, now: int) -> str | None:
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock is not None and lock.held(now, self._lifetime) else None

    def expire(self, now: int) -> None:
        """Drop expired locks, so that groups that left cost nothing."""
        for group, locks in list(self._groups.items()):
            remaining = {}
            for queue, lock in locks.items():
                if lock.held(now, self._lifetime):
                    remaining[queue] = lock
                else:
                    self._release(group, lock.client_id, queue)
            if remaining:
                self._groups[group] = remaining
            else:
                del self._groups[group]
            self._count -= len(locks) - len(remaining)
            self.version += len(locks) - len(remaining)

    # ---- for the next master

    def entries(self) -> list[tuple[str, Queue, str]]:
        """Group, queue and holder of each lock, for a slave to `carry`."""
        return [
            (group, queue, lock.client_id) for group, locks in self._groups.items() for queue, lock in locks.items()
        ]

    def carry(self, entries: list[tuple[str, Queue, str]]) -> None:
        """The master's current locks; they take effect at `succeed`."""
        self._staged = entries[:MAX_LOCKS]

    def succeed(self, now: int) -> None:
        """Continue the previous master's table."""
        self._groups, self._held, self._count = {}, {}, 0
        for group, queue, client_id in self._staged:
            locks = self._groups.setdefault(group, {})
            if queue not in locks:
                locks[queue] = Lock(client_id, now)
                self._hold(group, client_id, queue)
                self._count += 1
        self._staged = []
        self._closed_until = now + TRUSTED_MS
        self.version += 1

    def _hold(self, group: str, client_id: str, queue: Queue) -> None:
        self._held.setdefault((group, client_id), {})[queue] = None

    def _release(self, group: str, client_id: str, queue: Queue) -> None:
        held = self._held[group, client_id]
        del held[queue]
        if not held:
            del self._held[group, client_id]

    def statistics(self) -> QueueLocksStatistics:
        return QueueLocksStatistics(len(self._groups), self._count)

    def __repr__(self) -> str:
        numbers = self.statistics()
        return f"<QueueLocks: {numbers.locks} locks in {numbers.groups} groups>"
