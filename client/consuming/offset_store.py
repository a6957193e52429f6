"""Committed offsets: at the broker, or in a local file for broadcasting consumers.

`update` notes an offset in memory; `persist` writes what was noted since. Reading asks the
underlying store: an administrator may have moved a group's offset, and this client forgets a queue that it releases.

Java: client/consumer/store/RemoteBrokerOffsetStore.java, LocalFileOffsetStore.java
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from rocketlet.client.errors import ClientError, NoRoute, TimedOut, Unreachable
from rocketlet.client.talking.broker_calls import BrokerCalls
from rocketlet.client.talking.side_by_side import for_each
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.offsets import ResetOffsetBody

log = logging.getLogger("rocketlet.client.offset_store")

DEFAULT_DIRECTORY = "~/.rocketmq_offsets"  # RocketMQ's, so that a Java consumer's files are found


class OffsetStore:
    """One group's offsets in the queues of one client."""

    def __init__(self) -> None:
        self._noted: dict[MessageQueue, int] = {}

    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset; None where there is none. Raises ClientError where that cannot be known."""
        raise NotImplementedError

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note how far the queue is consumed."""
        self._noted[queue] = offset

    def noted(self, queue: MessageQueue) -> int | None:
        """What was noted last."""
        return self._noted.get(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Store what was noted for these queues. A failure is logged; the next call tries again."""
        raise NotImplementedError

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is no longer ours."""
        self._noted.pop(queue, None)


class RemoteOffsets(OffsetStore):
    """Offsets at the queue's broker, for clustering consumers. Commits are one-way, as RocketMQ's are."""

    def __init__(self, group: str, brokers: BrokerCalls, reader: Callable[[str], str | None]) -> None:
        super().__init__()
        self._group = group
        self._brokers = brokers
        self._reader = reader

    async def read(self, queue: MessageQueue) -> int | None:
        address = self._reader(queue.broker_name)
        if address is None:
            raise NoRoute("the queue's broker is in no route", topic=queue.topic, broker=queue.broker_name)
        offset = await self._brokers.committed(address, self._group, queue)
        return offset if offset is not None and offset >= 0 else None

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        # Even if it has not changed: a commit is one-way, and the last one may not have arrived.
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            offset = self._noted.get(queue)
            if offset is None:
                continue
            address = self._reader(queue.broker_name)
            if address is None:
                log.warning("offset %d of %s cannot be committed: its broker is in no route", offset, queue)
            else:
                by_address.setdefault(address, []).append(queue)
        await for_each(list(by_address.items()), partial(self._commit, wait))

    async def _commit(self, wait: bool, place: tuple[str, list[MessageQueue]]) -> None:
        address, queues = place
        for queue in queues:
            offset = self._noted.get(queue)
            if offset is None:
                continue  # given up meanwhile
            try:
                await self._brokers.commit(address, self._group, queue, offset, wait=wait)
            except ClientError as error:
                log.warning("offset %d of %s was not committed: %s", offset, queue, error)
                if isinstance(error, (Unreachable, TimedOut)):
                    return  # so would be the others, each after as long


class LocalOffsets(OffsetStore):
    """Offsets in `<directory>/<client id>/<group>/offsets.json`, for broadcasting consumers.

    Written to a temporary file and renamed, with the previous file kept as `.bak`, so that a crash leaves one of
    them whole. The format is RocketMQ's.
    """

    def __init__(self, directory: str, client_id: str, group: str) -> None:
        super().__init__()
        root = Path(directory or DEFAULT_DIRECTORY).expanduser()
        self._path = root / _path_part(client_id) / _path_part(group) / "offsets.json"
        self._written: dict[MessageQueue, int] = {}
        self._load()

    def _load(self) -> None:
        for path in (self._path, self._path.with_suffix(".json.bak")):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            try:
                self._noted = dict(ResetOffsetBody.from_json(data).offsetTable)
            except BodyError as error:
                log.warning("the offsets in %s cannot be read (%s); trying the previous copy", path, error)
                continue
            self._written = dict(self._noted)
            return

    async def read(self, queue: MessageQueue) -> int | None:
        return self.noted(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        if self._noted == self._written:
            return
        try:
            self._write()
        except OSError as error:
            log.error("the offsets were not written to %s, trying again at the next commit: %s", self._path, error)
        else:
            self._written = dict(self._noted)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".json.tmp")
        with open(temporary, "wb") as file:
            file.write(ResetOffsetBody(dict(self._noted)).to_json())  # a copy: any thread may note an offset
            file.flush()
            os.fsync(file.fileno())
        if self._path.exists():
            os.replace(self._path, self._path.with_suffix(".json.bak"))
        os.replace(temporary, self._path)

    def forget(self, queue: MessageQueue) -> None:
        """Nothing: a local offset outlives the assignment."""


def _path_part(name: str) -> str:
    """A client id or group as one step of a path; ids hold an address with @ and #, which are left."""
    return "".join(sign if sign.isalnum() or sign in "-_.%@#|" else "_" for sign in name).strip(".") or "_"
