"""The name server's only lasting state: small texts by namespace and key, kept in one JSON file.

The namespace that matters is ORDER_TOPIC_CONFIG (topic → `broker:queues;broker:queues`), handed to brokers when they
register and to clients with a route. Clients write to every name server and read from one.

Invariant: memory never shows what the file does not hold. A change is written first and visible once it is durable; a
failed write changes nothing and is reported to the caller.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicO":"broker-a:4"}}}          as RocketMQ writes it

Java: namesrv/kvconfig/KVConfigManager.java
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

import trio

from rocketlet.common import fastjson
from rocketlet.common.errors import RocketletError
from rocketlet.namesrv.durable_file import DurableFile

log = logging.getLogger("rocketlet.namesrv.kv_config")

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

# The whole table as JSON. A listing of a namespace has to fit a frame of 16 MiB, even with every character escaped.
MAX_BYTES = 8 << 20
# Keys, each namespace counted as one more: 800,000 empty ones fit into MAX_BYTES too, and took 20 to 60 ms to copy, to
# write and to count.
MAX_KEYS = 200_000

PRINT_FIRST_S = 60
PRINT_EVERY_S = 600
PRINT_MOST = 100

Tables = dict[str, dict[str, str]]


class KvFileDamaged(RocketletError):
    """Neither the file nor its backup can be read. Not raised if there is no file at all."""


class KvConfigFull(RocketletError):
    """The change would take the table over MAX_BYTES or MAX_KEYS; it was not made."""


class KvConfig:
    """Reads are plain calls; `put` and `delete` return when the change is durable."""

    def __init__(self, file: DurableFile) -> None:
        self._file = file
        self._tables: Tables = {}
        self._writing = trio.Lock()
        self.changes = 0  # grows with every change, so that answers built from the table can be cached

    def __repr__(self) -> str:
        return f"<KvConfig {self._file.path}: {sum(map(len, self._tables.values()))} keys>"

    def load(self) -> None:
        """Raises KvFileDamaged, or OSError if the file may not be read."""
        self._tables = _load(self._file)

    # ---- reads

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """None if the namespace was never written; one whose last key was deleted is empty, as in RocketMQ."""
        return self._tables.get(namespace)

    # ---- changes

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Raises KvConfigFull, or OSError."""
        async with self._writing:
            keys = self._tables.get(namespace, {})
            if key not in keys and self._count() + 1 + (namespace not in self._tables) > MAX_KEYS:
                raise KvConfigFull(
                    f"the KV table has {self._count()} keys and namespaces, the limit is {MAX_KEYS} (MAX_KEYS)"
                )
            await self._change({**self._tables, namespace: {**keys, key: value}})

    async def delete(self, namespace: str, key: str) -> None:
        """Raises OSError. A missing key is no error."""
        async with self._writing:
            if self.get(namespace, key) is not None:
                remaining = {name: value for name, value in self._tables[namespace].items() if name != key}
                await self._change({**self._tables, namespace: remaining})

    def _count(self) -> int:
        return len(self._tables) + sum(map(len, self._tables.values()))

    async def _change(self, tables: Tables) -> None:
        data = fastjson.dumps({"configTable": tables})
        if len(data) > MAX_BYTES:
            raise KvConfigFull(f"the KV table would take {len(data)} bytes, the limit is {MAX_BYTES} (MAX_BYTES)")
        await self._file.replace(data)
        self._tables = tables
        self.changes += 1

    # ---- for the operator

    async def print_periodically(self) -> None:
        """Log as much of the table as the log takes at once: after a minute, and then every ten."""
        await trio.sleep(PRINT_FIRST_S)
        while True:
            rows = ((name, *row) for name, table in self._tables.items() for row in table.items())
            for row in islice(rows, PRINT_MOST):
                log.info("kv config of namespace %s: %s = %s", *row)
            remaining = sum(map(len, self._tables.values())) - PRINT_MOST
            if remaining > 0:
                log.info("kv config: and %d more", remaining)
            await trio.sleep(PRINT_EVERY_S)


def _load(file: DurableFile) -> Tables:
    data = file.read()
    if data is not None:
        try:
            return _parse(data)
        except ValueError as error:
            damage = f"{file.path}: {error}"
    else:
        damage = f"{file.path} is missing"
    # RocketMQ's own writer deletes the file before it renames the new one, so a power cut can leave only the backup, or
    # an empty file beside it.
    backup = file.read_backup()
    if backup is not None:
        try:
            tables = _parse(backup)
        except ValueError as error:
            damage += f"; {file.path}.bak: {error}"
        else:
            log.warning("%s; took %s.bak, which is one change older", damage, file.path)
            return tables
    if data is None:
        if backup is not None:
            log.warning("%s; starting without KV configuration", damage)
        return {}
    raise KvFileDamaged(f"{damage}. Repair the file, or move it away to start without KV configuration")


def _parse(data: bytes) -> Tables:
    """Raises ValueError."""
    try:
        content: Any = fastjson.loads(data)
    except fastjson.InvalidJson as error:
        raise ValueError(str(error)) from error
    tables = content.get("configTable") if isinstance(content, dict) else None
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ValueError('no object with an object "configTable" of objects')
    return {
        namespace: {key: _text(value) for key, value in table.items() if value is not None}
        for namespace, table in tables.items()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else fastjson.dumps(value).decode()
