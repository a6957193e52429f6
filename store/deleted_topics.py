"""Which topics the broker has deleted, as it has noted it: where the log ended at that moment.

Their messages are in the log until its files are deleted, so a recovery would make their queues again; and a progress
point from before the deletion lists queues whose files are gone. What the note says of a topic holds for what lies
before it in the log. Who creates the topic again begins each queue at 0, after that place.

Java: none; there the queues of a deleted topic come back after a kill
"""

from __future__ import annotations

import json
from contextlib import suppress

from rocketlet.common import fastjson
from rocketlet.store.disk import Disk
from rocketlet.store.layout.file_names import TOMBSTONES

_TOPIC = "topic"  # as the kind of a tombstone; the others are of groups
_NEVER = 1 << 63


class DeletedTopics:
    """The deletions of one store. Pure."""

    def __init__(self, ends: dict[str, int] | None = None) -> None:
        """`ends`: where the log ended when a topic was deleted, by its name."""
        self._ends = ends or {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._ends

    def since(self, topic: str, log_offset: int) -> bool:
        """Whether the topic was deleted when the log was at least that long: all of it before there is gone."""
        return log_offset <= self._ends.get(topic, -1)

    def before(self, topic: str, log_offset: int) -> bool:
        """Whether the topic was deleted before a record of it was appended there."""
        return self._ends.get(topic, _NEVER) <= log_offset


def lower_deletions(disk: Disk, root: str, log_end: int) -> None:
    """The log is cut there: what it gets at the same offsets was not deleted. Raises OSError."""
    for path in (f"{root}/{TOMBSTONES}", f"{root}/{TOMBSTONES}.bak"):
        data = disk.read_file(path) or b""
        with suppress(fastjson.InvalidJson, LookupError, TypeError, ValueError):
            body = fastjson.loads(data)
            lowered = [[number, kind, name, min(int(at), log_end)] for number, kind, name, at in body["gone"]]
            if lowered != body["gone"]:
                disk.write_file(path, json.dumps({**body, "gone": lowered}).encode())


def read_deleted_topics(disk: Disk, root: str) -> DeletedTopics:
    """The deletions that the broker has noted; none where its file and the one before cannot be read."""
    for path in (f"{root}/{TOMBSTONES}", f"{root}/{TOMBSTONES}.bak"):
        data = disk.read_file(path) or b""
        with suppress(fastjson.InvalidJson, LookupError, TypeError, ValueError):
            gone = fastjson.loads(data)["gone"]
            return DeletedTopics({name: int(at) for _, kind, name, at in gone if kind == _TOPIC})
    return DeletedTopics()
