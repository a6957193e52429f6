"""Messages and stores for the store's benchmarks.

Java: (none)
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

from rocketlet.common.clock import system_clock
from rocketlet.common.java_numbers import string_hash
from rocketlet.store.config import StoreConfig
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
_TAG = string_hash("TagA")


def messages(count: int, size: int, queues: int = 8, first: int = 0) -> list[Put]:
    """Messages like a Java client's: a unique key, a key, a tag, a cluster."""
    body = b"x" * size
    made = []
    for number in range(first, first + count):
        unique, key = b"7F0000010A1B18B4AAC20A1B%08X" % number, b"order-%d" % number
        properties = b"UNIQ_KEY\x01%b\x02CLUSTER\x01DefaultCluster\x02KEYS\x01%b\x02TAGS\x01TagA" % (unique, key)
        made.append(Put("BenchmarkTest", number % queues, body, properties, _TAG, (unique, key), 0, 0, 1, HOST, HOST))
    return made


@contextlib.contextmanager
def directory(under: str | None) -> Iterator[str]:
    """A temporary directory."""
    path = tempfile.mkdtemp(prefix="rocketlet-store-", dir=under)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def opened(path: str, **settings: Any) -> AsyncIterator[MessageStore]:
    """A store on the machine's disk, closed afterwards."""
    store = MessageStore(RealDisk(), StoreConfig(store_path_root_dir=path, **settings), system_clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def fill(store: MessageStore, count: int, size: int, turn: int = 32) -> None:
    """Append messages, turn by turn."""
    for begin in range(0, count, turn):
        for message in messages(min(turn, count - begin), size, first=begin):
            store.put(message)
        store.settle()
