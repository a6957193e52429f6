"""A listener that runs once per business key, across redeliveries and, with a file, across restarts.

RocketMQ delivers at least once: after a crash, a rebalance or a lost acknowledgement a message is redelivered. If that
must not repeat an effect, remember the keys that are done:

    done = SqliteKeys("orders.db")

    @once(done)
    def listener(message):
        charge(message)

Its limits: a key is remembered **after** the listener has succeeded: a crash between the effect and that
note lets the message run again, so an effect on your own database is best put into one transaction with the key
(`SqliteKeys` on that database's file, or a unique index of yours). Two consumers of a group never get the same message
at once, except around a rebalance; while a key is being processed, a second delivery of it is deferred. `MemoryKeys`
forgets at its end and holds the newest `most` keys; `SqliteKeys` is for the processes of one machine.

Java: none; users ask for it, apache/rocketmq#1192, #4933
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rocketlet.client.consuming.consume_results import consumed
from rocketlet.client.coroutines import as_coroutine_function, completed
from rocketlet.common.message import ReceivedMessage

if TYPE_CHECKING:
    import sqlite3

Answer = TypeVar("Answer")


class Keys(Protocol):
    """Remembers keys. Safe to call from many threads at once."""

    def begin(self, key: str) -> bool | None:
        """True: proceed, the key is yours. False: it is done. None: another delivery is being processed."""

    def done(self, key: str) -> None:
        """The key is done, for good."""

    def failed(self, key: str) -> None:
        """Release the key: it was not done."""


class _LockedKeys:
    """Knows which keys are being worked on; a subclass remembers those that are done."""

    def __init__(self) -> None:
        self._working: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, key: str) -> bool | None:
        with self._lock:
            if key in self._working:
                return None
            if self._is_done(key):
                return False
            self._working.add(key)
            return True

    def done(self, key: str) -> None:
        with self._lock:
            self._remember(key)
            self._working.discard(key)

    def failed(self, key: str) -> None:
        with self._lock:
            self._working.discard(key)

    def _is_done(self, key: str) -> bool:
        raise NotImplementedError

    def _remember(self, key: str) -> None:
        raise NotImplementedError


class MemoryKeys(_LockedKeys):
    """The newest `most` keys, in memory."""

    def __init__(self, most: int = 100_000) -> None:
        super().__init__()
        self._most = most
        self._done: OrderedDict[str, None] = OrderedDict()

    def _is_done(self, key: str) -> bool:
        return key in self._done

    def _remember(self, key: str) -> None:
        self._done[key] = None
        if len(self._done) > self._most:
            self._done.popitem(last=False)


class SqliteKeys(_LockedKeys):
    """Keys in a table of an SQLite file; `keep` of the newest are kept (0: all).

    The table is `consumed_keys(key primary key, place)`. A key that is being worked on is known to this process only.
    """

    _TRIM_EVERY = 1000

    def __init__(self, path: str, keep: int = 0) -> None:
        import sqlite3

        super().__init__()
        self._database: sqlite3.Connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS consumed_keys (place INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE)"
        )
        self._keep = keep
        self._since_trim = 0

    def _is_done(self, key: str) -> bool:
        return self._database.execute("SELECT 1 FROM consumed_keys WHERE key = ?", (key,)).fetchone() is not None

    def _remember(self, key: str) -> None:
        self._database.execute("INSERT OR IGNORE INTO consumed_keys (key) VALUES (?)", (key,))
        self._since_trim += 1
        if self._keep and self._since_trim >= self._TRIM_EVERY:
            self._since_trim = 0
            self._database.execute(
                "DELETE FROM consumed_keys WHERE place <= (SELECT max(place) FROM consumed_keys) - ?", (self._keep,)
            )

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def __enter__(self) -> SqliteKeys:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class InProgress(Exception):
    """Another delivery of the same key is being consumed; raised so that this one is redelivered later."""


def business_key(message: ReceivedMessage) -> str:
    """The first of the message's KEYS, or its unique id: what `once` uses unless it is told otherwise."""
    return f"{message.topic}#{message.keys[0] if message.keys else message.message_id}"


def once(
    keys: Keys, key: Callable[[ReceivedMessage], str] = business_key
) -> Callable[[Callable[[ReceivedMessage], Answer]], Callable[[ReceivedMessage], Answer]]:
    """Wraps a listener of one message, plain or async, so that it runs once for each key.

    A listener that raises, or that asks for the message again, leaves its key free.

        @once(MemoryKeys())
        def listener(message): ...
    """

    def wrap(listener: Callable[[ReceivedMessage], Answer]) -> Callable[[ReceivedMessage], Answer]:
        is_async = iscoroutinefunction(listener)
        call: Callable[..., Any] = listener if is_async else as_coroutine_function(listener)

        async def run_once(message: ReceivedMessage) -> Any:
            name = key(message)
            is_ours = keys.begin(name)
            if is_ours is None:
                raise InProgress(
                    f"key {name} is being consumed in another delivery of its message; this one will be redelivered"
                )
            if not is_ours:
                return None
            succeeded = False
            try:
                answer = await call(message)
                succeeded = consumed(answer)
                return answer
            finally:
                (keys.done if succeeded else keys.failed)(name)

        once_only: Callable[..., Any] = run_once if is_async else lambda message: completed(run_once(message))
        return wraps(listener)(once_only)

    return wrap
