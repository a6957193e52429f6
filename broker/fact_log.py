"""Facts in the log, in their own topic: with them pops and timers continue after a crash, and on another broker.

A record's body is a version (1 byte) and the queue offset at which the last complete snapshot begins (8 bytes; -1 if
there is none), followed by facts. So the newest record says where reading begins. The facts of a snapshot are
interleaved with facts of concurrent events; the last record of a snapshot is the first that names its begin. A snapshot
cut short by a crash is read too, as ordinary facts: readers must not take its beginning for that of a complete one.
Replicas have the log, so they have the facts.

The topic is in no topic table: no client can read it or send to it, and it is not registered.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from struct import Struct
from typing import Final

import trio

from rocketlet.common.message_record import decode
from rocketlet.common.topic import STATE_TOPIC
from rocketlet.store.errors import MessageIllegal
from rocketlet.store.layout.consume_queue_entry import LOST
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.fact_log")

VERSION: Final = 1
# Bytes of one record; a turn with more facts writes several.
LONGEST_RECORD: Final = 256 << 10
# Facts since the last snapshot before the next is due: reading them takes a fifth of a second.
SNAPSHOT_BYTES: Final = 4 << 20
SNAPSHOT_RECORDS: Final = 20_000
READ_AT_ONCE: Final = 64
NO_SNAPSHOT: Final = -1

_HEAD = Struct(">Bq")


class FactLog:
    """One queue of facts. `note` collects facts, `write` appends them: both within the same turn."""

    def __init__(self, store: MessageStore, queue_id: int) -> None:
        self._store = store
        self._queue_id = queue_id
        self._noted: list[bytes] = []
        self._begin = NO_SNAPSHOT  # of the last complete snapshot
        self._new_begin: int | None = None  # of the one being written
        self.last_end = 0
        """Where the newest record ends that `read` found, as a log offset."""
        self._bytes = self._records = self._snapshot_bytes = 0  # since the last snapshot; of the last snapshot

    def note(self, fact: bytes) -> None:
        """Collect a fact for the next `write`."""
        self._noted.append(fact)

    @property
    def has_noted(self) -> bool:
        """Whether there is something to write."""
        return bool(self._noted)

    def forget(self) -> None:
        """Discard the noted facts."""
        self._noted = []

    def write(self) -> None:
        """Append the noted facts. Raises PutRefused; unwritten facts then stay noted."""
        noted = self._noted
        if not noted:
            return
        longest = min(LONGEST_RECORD, self._store.config.max_message_size) - _HEAD.size
        written = 0
        try:
            size = 0
            for number, fact in enumerate(noted):
                if number > written and size + len(fact) > longest:
                    self._append(b"".join(noted[written:number]))
                    written, size = number, 0
                size += len(fact)
            self._append(b"".join(noted[written:]))
            written = len(noted)
        except MessageIllegal:
            written = len(noted)  # it would be refused again
            raise
        finally:
            del noted[:written]

    def _append(self, facts: bytes) -> None:
        self._store.put(Put(STATE_TOPIC, self._queue_id, _HEAD.pack(VERSION, self._begin) + facts))
        self._bytes += len(facts)
        self._records += 1

    # ---- snapshots

    @property
    def wants_snapshot(self) -> bool:
        """Whether reading all facts would take too long, or the last snapshot is about to leave the log."""
        if self._bytes > max(SNAPSHOT_BYTES, 4 * self._snapshot_bytes) or self._records > SNAPSHOT_RECORDS:
            return True
        return self._store.queue_begin(STATE_TOPIC, self._queue_id) > max(self._begin, 0)

    def begin_snapshot(self) -> None:
        """The facts noted from now on make up the whole state."""
        self.write()
        queue = self._store.queue(STATE_TOPIC, self._queue_id)
        self._new_begin = queue.next_offset if queue is not None else 0
        self._bytes = self._records = 0

    def end_snapshot(self) -> None:
        """The snapshot is completely written. REQUIRES `begin_snapshot`."""
        assert self._new_begin is not None
        self.write()
        self._begin, self._new_begin = self._new_begin, None
        self._snapshot_bytes = self._bytes
        self._append(b"")
        self._bytes = self._records = 0

    # ---- after a restart

    async def read(self, take: Callable[[bytes, bool], None]) -> int:
        """Pass on the facts of each record since the last complete snapshot's begin, and whether they were written
        during that snapshot. Returns the number of records."""
        self._noted, self._new_begin = [], None
        queue = self._store.queue(STATE_TOPIC, self._queue_id)
        begin, end = (queue.begin, queue.end) if queue is not None else (0, 0)
        self._begin = NO_SNAPSHOT
        self.last_end = queue.log_end() if queue is not None else 0
        for offset in range(end - 1, begin - 1, -1):
            fact = self._body(offset)
            if fact is not None:
                self._begin = fact[0]
                break
        self._bytes = self._records = 0
        async for named, body in self._bodies(max(self._begin, begin), end):
            self._bytes += len(body)
            self._records += 1
            take(body, named != self._begin)
        return self._records

    async def _bodies(self, begin: int, end: int) -> AsyncIterator[tuple[int, bytes]]:
        for number, offset in enumerate(range(begin, end)):
            if number % READ_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            fact = self._body(offset)
            if fact is None:
                log.error("queue %d of %s: no facts can be read at %d", self._queue_id, STATE_TOPIC, offset)
            else:
                yield fact

    def _body(self, offset: int) -> tuple[int, bytes] | None:
        queue = self._store.queue(STATE_TOPIC, self._queue_id)
        entry = queue.entry(offset) if queue is not None else None
        if entry is None or entry[2] == LOST:
            return None
        raw = self._store.record_at(entry[0], entry[1])
        body = decode(raw).body if raw is not None else b""
        if len(body) < _HEAD.size or body[0] != VERSION:
            return None
        return _HEAD.unpack_from(body)[1], body[_HEAD.size :]

    def __repr__(self) -> str:
        return f"<FactLog {self._queue_id}: {self._records} records since the snapshot at {self._begin}>"
