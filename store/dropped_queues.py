"""Queues that were dropped and whose files are still there.

A worker thread deletes them, a few at a time: an unlink waits for the journal of the file system. On a busy disk
20,000 queues stopped the loop for 8 s.

Meanwhile a queue may be made anew, on the loop, under the name of one of them. It must find none of the old files, and
lose none of its own: `claim` deletes what still waits, in place, or waits for what the thread has just begun. The
thread never again looks at a name that was claimed.

A crash leaves any of the files, as the directories are not synced; recovery takes them for a queue.

Java: store/DefaultMessageStore.java#deleteTopics
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from rocketlet.store.consume_queue import ConsumeQueue

_FOLDERS = -1  # in the place of a queue id: the folders of the topic itself


class DroppedQueues:
    """See the module's docstring. `delete_folders` deletes those of a topic that are empty."""

    def __init__(self, delete_folders: Callable[[str], None]) -> None:
        self._delete_folders = delete_folders
        self._waiting: dict[str, dict[int, ConsumeQueue]] = {}
        self._emptied: set[str] = set()  # topics that have no queue any more, so that their folders go last
        self._taken: dict[tuple[str, int], Callable[[], None]] = {}  # what the thread does next
        self._busy: tuple[str, int] | None = None  # what it is doing
        self._changed = threading.Condition()  # with which both of these are changed
        # Whose files are deleted, and mapped. The system frees a file with its last mapping, in up to 1 ms, 20,000 in
        # 16 s: the thread of the next flush does it, and nobody waits for it.
        self.deleted: list[ConsumeQueue] = []

    def add(self, topic: str, queues: dict[int, ConsumeQueue], *, is_empty: bool) -> None:
        """Have the files of these queues deleted. `is_empty`: the topic has no others."""
        self._waiting.setdefault(topic, {}).update(queues)
        if is_empty:
            self._emptied.add(topic)

    def claim(self, topic: str, queue_id: int) -> None:
        """Return when nothing is left of a queue of that name, and nothing of a new one can be deleted. Raises
        OSError."""
        self._emptied.discard(topic)
        with self._changed:
            self._taken.pop((topic, _FOLDERS), None)
            self._changed.wait_for(lambda: self._busy not in ((topic, queue_id), (topic, _FOLDERS)))
            delete = self._taken.pop((topic, queue_id), None)
        queue = self._waiting.get(topic, {}).pop(queue_id, None)
        if queue is not None:
            delete = self._deletion_of(queue)
        if delete is not None:
            delete()

    def take(self, count: int) -> bool:
        """Take the next queues, so that nobody uses their files any more; whether `delete` has something to do.
        REQUIRES that it is not running."""
        while self._waiting and len(self._taken) < count:
            topic, queues = next(iter(self._waiting.items()))
            if queues:
                queue_id, queue = queues.popitem()
                self._taken[topic, queue_id] = self._deletion_of(queue)
                continue
            del self._waiting[topic]
            if topic in self._emptied:
                self._emptied.discard(topic)
                self._taken[topic, _FOLDERS] = partial(self._delete_folders, topic)
        return bool(self._taken)

    def _deletion_of(self, queue: ConsumeQueue) -> Callable[[], None]:
        delete_files = queue.leave()

        def delete() -> None:
            delete_files()
            self.deleted.append(queue)

        return delete

    def delete(self) -> None:
        """Delete what was taken. For a thread. Raises OSError."""
        while True:
            with self._changed:
                if not self._taken:
                    return
                self._busy = next(iter(self._taken))
                delete = self._taken.pop(self._busy)
            try:
                delete()
            finally:
                with self._changed:
                    self._busy = None
                    self._changed.notify_all()
