"""All queues of a store, by topic and queue id: one look-up gives all that a put and a dispatch need.

A queue object is created with its first message, not by a look-up, so that reads of unknown queues grow nothing.
Queues with unflushed entries are in `dirty`.

Java: store/DefaultMessageStore.java#consumeQueueTable, store/queue/ConsumeQueueStore.java
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocketlet.common.topic import SCHEDULE_TOPIC, is_legal_name
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_ext import ConsumeQueueExt
from rocketlet.store.disk import PAGE, Disk
from rocketlet.store.dropped_queues import DroppedQueues
from rocketlet.store.errors import CorruptStore
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, are_past
from rocketlet.store.layout.file_names import (
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    offset_name,
    parse_offset,
    queue_ext_folder,
    queue_folder,
)
from rocketlet.store.layout.queue_rules import delay_of, parse_delay_levels
from rocketlet.store.mapped_file import MappedFile
from rocketlet.store.mapped_file_queue import FilesFlush, MappedFileQueue, Oddity

QueueKey = tuple[str, int]

_MAX_MISSING = 64  # extension files created in one gap, at most
MANY = 64  # from this many files on, one flush of the whole disk is cheaper


class ConsumeQueueTable:
    """The queues, found by (topic, queue id)."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._root = config.store_path_root_dir
        self._file_size = config.queue_file_size
        self._ext_size = config.mapped_file_size_consume_queue_ext
        self._with_ext = config.enable_consume_queue_ext
        self.delays = parse_delay_levels(config.message_delay_level)
        self.queues: dict[QueueKey, ConsumeQueue] = {}
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self.dropped = DroppedQueues(self._delete_folders)
        self.dirty: list[ConsumeQueue] = []

    def load(self, log_begin: int, *, repair: bool) -> list[Oddity]:
        """Find the queues' files. Their ends are not known before recovery. Oddities are reported and left out.

        To repair, a short file is extended to full length, and where a file is missing, those before or after it
        are deleted (`_close_gaps`). Raises CorruptStore where mappedFileSizeConsumeQueue is not the size of the files.
        """
        odd: list[Oddity] = []
        folder = f"{self._root}/{CONSUME_QUEUE}"
        for topic in self._disk.entries(folder):
            for entry in self._disk.entries(f"{folder}/{topic.name}"):
                path = f"{folder}/{topic.name}/{entry.name}"
                if not entry.is_directory or not entry.name.isdigit() or not is_legal_name(topic.name):
                    odd.append(Oddity(path, "foreign", entry.size))
                    continue
                queue = self._new(topic.name, int(entry.name))
                odd += self._load_files(queue.files, repair=repair)
                self._close_gaps(queue.files, log_begin, repair=repair)
                if queue.ext is not None:
                    odd += self._load_files(queue.ext.files, repair=repair)
                    if repair:
                        self._fill_gaps(queue.ext.files)
                    queue.ext.open()
        return odd

    def _load_files(self, files: MappedFileQueue, *, repair: bool) -> list[Oddity]:
        odd = files.load()
        for oddity in odd:
            is_offset = parse_offset(oddity.path.rpartition("/")[2]) is not None
            if is_offset and (oddity.what == "foreign" or oddity.size > files.file_size):
                raise CorruptStore(
                    f"{oddity.path} has {oddity.size} bytes and does not fit mappedFileSizeConsumeQueue (or …Ext)"
                    f" {files.file_size}: set it to the size that the files of this store have"
                )
            if repair and oddity.what == "length":
                self._disk.extend(oddity.path, files.file_size)
        return odd

    def _close_gaps(self, files: MappedFileQueue, log_begin: int, *, repair: bool) -> None:
        """Of files with gaps between them keep one run of adjacent ones: the newest with an entry of a message that
        retention has deleted, else the oldest.

        A crash can undo any of the deletions of retention, and can lose the name of any file that was just made.
        Entries of messages that are still in the log are rebuilt from it in either case. Of a queue without such
        messages the files alone say at which offset it goes on, and must not go back to one that was assigned.
        """
        gaps = [oddity.begin for oddity in files.load() if oddity.what == "gap"]
        if not gaps:
            return
        begins = [file.begin for file in files.files] + gaps
        starts = [begin for begin in begins if begin - files.file_size not in begins]
        for start in reversed(starts):
            files.load(start)
            if any(are_past(file.buffer, log_begin).any() for file in files.files):
                break
        if repair:
            remaining = {file.begin for file in files.files}
            for begin in begins:
                if begin not in remaining:
                    self._disk.remove(f"{files.directory}/{offset_name(begin)}")
            # One that came back could not be told any more from those whose messages retention has deleted.
            self._disk.sync_directory(files.directory)

    def _fill_gaps(self, files: MappedFileQueue) -> None:
        """Make extension files that are missing, all hole, so that entries find the units of those before and after."""
        for oddity in files.load():
            if oddity.what == "gap":
                last = files.last
                assert last is not None
                if oddity.begin - last.end > _MAX_MISSING * files.file_size:
                    self._disk.remove(oddity.path)
                    continue
                for begin in range(last.end, oddity.begin, files.file_size):
                    files.make(begin)
                files.files.append(MappedFile(self._disk, oddity.path, oddity.begin, files.file_size))

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.queues.get((topic, queue_id))

    def find_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        """REQUIRES a checked name. Makes no file."""
        return self.queues.get((topic, queue_id)) or self._new(topic, queue_id)

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        assert is_legal_name(topic), "names are checked before they become part of a path"
        self.dropped.claim(topic, queue_id)
        folder = f"{self._root}/{queue_folder(topic, queue_id)}"
        queue = ConsumeQueue(self._disk, folder, topic, queue_id, self._file_size)
        ext_folder = f"{self._root}/{queue_ext_folder(topic, queue_id)}"
        if self._with_ext or self._disk.entries(ext_folder):
            queue.ext = ConsumeQueueExt(self._disk, ext_folder, self._ext_size)
        if topic == SCHEDULE_TOPIC:
            queue.delay_ms = self.delay_of(queue_id + 1)
        self.queues[topic, queue_id] = self._by_topic.setdefault(topic, {})[queue_id] = queue
        return queue

    def detached(self) -> ConsumeQueue:
        """A queue that is in no table and never gets an entry: dispatch notes records under it that go into none."""
        return ConsumeQueue(self._disk, "", "", -1, self._file_size)

    @property
    def writes_ext(self) -> bool:
        return self._with_ext

    def delay_of(self, level: int) -> int:
        """Milliseconds of a delay level; a level above the last is the last, an unknown one a second."""
        return delay_of(self.delays, level)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return list(self._by_topic.get(topic, {}).values())

    def topics(self) -> set[str]:
        return set(self._by_topic)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.queues.values())

    def drop(self, queues: Iterable[ConsumeQueue]) -> None:
        """Take queues out of the table; `dropped` deletes their files."""
        for queue in queues:
            topic, queue_id = queue.topic, queue.queue_id
            del self.queues[topic, queue_id]
            remaining = self._by_topic[topic]
            del remaining[queue_id]
            if not remaining:
                del self._by_topic[topic]
            self.dropped.add(topic, {queue_id: queue}, is_empty=not remaining)

    def drop_topic(self, topic: str) -> int:
        """Take all queues of a topic out of the table, at once; returns how many. For 65,535 that takes 7 ms."""
        queues = self._by_topic.pop(topic, {})
        for queue_id in queues:
            del self.queues[topic, queue_id]
        if queues:
            self.dropped.add(topic, queues, is_empty=True)
        return len(queues)

    def _delete_folders(self, topic: str) -> None:
        for kind in (CONSUME_QUEUE, CONSUME_QUEUE_EXT):
            self._disk.remove_directory(f"{self._root}/{kind}/{topic}")

    def flush_of_dirty(self, least_pages: int) -> QueueFlush:
        """The flush of queues with at least so many dirty pages. One at a time."""
        return QueueFlush(self, self._disk, self._root, least_pages)


class QueueFlush:
    """A flush of queues: take all steps of `gather`, call `run` once, where it may wait, and `done` when it succeeded.

    Queues stay dirty until it is done, so that one that was given up in between has lost none of them.
    """

    __slots__ = ("_disk", "_ends", "_least_pages", "_root", "_steps", "_table")

    def __init__(self, table: ConsumeQueueTable, disk: Disk, root: str, least_pages: int) -> None:
        self._table = table
        self._disk = disk
        self._root = root
        self._least_pages = least_pages
        self._steps: list[FilesFlush] = []
        self._ends: list[tuple[ConsumeQueue, int, int, int]] = []

    def gather(self) -> Iterator[None]:
        """Look at each dirty queue, of which there may be 65,535: between two steps others may run."""
        live = self._table.queues
        for queue in self._table.dirty.copy():
            if live.get((queue.topic, queue.queue_id)) is not queue:
                queue.is_dirty = False  # it was dropped
            elif queue.end * ENTRY_SIZE // PAGE - queue.flushed * ENTRY_SIZE // PAGE >= self._least_pages:
                self._add(queue)
            yield

    def _add(self, queue: ConsumeQueue) -> None:
        ext_end = 0
        self._steps.append(queue.files.flush_of(queue.flushed * ENTRY_SIZE, queue.end * ENTRY_SIZE))
        if queue.ext is not None:
            ext_end = queue.ext.end
            self._steps.append(queue.ext.files.flush_of(queue.ext.flushed, ext_end))
        self._ends.append((queue, queue.end, ext_end, queue.cuts))

    def run(self) -> None:
        is_durable = len(self._steps) >= MANY and self._disk.sync_all(self._root)
        self._steps.reverse()
        while self._steps:
            self._steps.pop()(is_durable=is_durable)  # it may be the last to hold the mapping of a deleted file
        while self._table.dropped.deleted:
            self._table.dropped.deleted.pop().forget()

    def done(self) -> None:
        for queue, end, ext_end, cuts in self._ends:
            if queue.cuts != cuts:
                continue
            queue.flushed = max(queue.flushed, end)
            if queue.ext is not None:
                queue.ext.flushed = max(queue.ext.flushed, ext_end)
            queue.is_dirty = queue.end > end
        self._table.dirty = [queue for queue in self._table.dirty if queue.is_dirty]
