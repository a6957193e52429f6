"""A store to look at from a notebook: arrays over its files, read-only, without a broker, a lock or a recovery.

    from rocketlet.store.view import StoreView

    view = StoreView("/data/store")
    view.topics()                                # {"Orders": [0, 1, 2, 3]}
    entries = view.queue("Orders", 0).to_numpy() # log_offset, size, tags_code; no copy while it is one file
    heads = view.heads()                         # one row a record: topic-less heads, by numpy
    view.messages("Orders", 0, 10, 20)           # decoded records of offsets 10 to 19

`rocketlet.open_store(path)` is the same, and also takes the directory of `rocketlet up`.

It shows what is in the files at the moment. Beside a running broker it is current up to the last entry; after a crash
it may show what a recovery would cut. Nothing can be written through it.

Java: (none)
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_record import Record, decode
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.dry_disk import DryDisk
from rocketlet.store.geometry import check_is_store, found_config, store_in
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, LOST, count_valid, is_pre_blank
from rocketlet.store.layout.log_scan import LONGEST_ZEROS, chain, head_dtype
from rocketlet.store.mapped_file import MappedFile, data_end
from rocketlet.store.real_disk import RealDisk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def open_store(directory: str | os.PathLike[str]) -> StoreView:
    """The store in a directory, or in the one directory of a broker below it, as `rocketlet up` makes them; to read.

    Raises CorruptStore where there is none, or where there are several to choose from.
    """
    return StoreView(store_in(RealDisk(), os.fspath(directory)))


class StoreView:
    """The files of a store as they are."""

    def __init__(self, directory: str, config: StoreConfig | None = None) -> None:
        """The sizes of the files are found out from the files. Raises CorruptStore where there is no store."""
        disk = RealDisk()
        config = replace(config or StoreConfig(), store_path_root_dir=directory.rstrip("/"))
        check_is_store(disk, config.store_path_root_dir)
        config = found_config(disk, config)
        dry = DryDisk(disk)
        self.log = CommitLog(dry, config.commit_log_path, config.mapped_file_size_commit_log)
        self.log.files.load()
        self.log.end = max((_end_of(file) for file in self.log.files.files), default=0)
        self.queues = ConsumeQueueTable(dry, config)
        self.queues.load(self.log.begin, repair=False)
        for queue in self.queues:
            _find_ends(queue, self.log.begin)

    def topics(self) -> dict[str, list[int]]:
        """Topics with their queue ids."""
        result: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self.queues.queues):
            result.setdefault(topic, []).append(queue_id)
        return result

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue, for its `begin`, `end`, `entry` and `to_numpy`. Raises KeyError."""
        return self.queues.queues[topic, queue_id]

    def heads(self) -> NDArray[Any]:
        """The first 48 bytes of every record as a table: size, magic, body_crc, queue_id, flag, queue_offset,
        log_offset, sys_flag, born_timestamp (big-endian). A copy of 48 bytes a record."""
        import numpy

        return numpy.concatenate([heads_of(data) for data in self.log.to_numpy()] or [numpy.empty(0, head_dtype())])

    def messages(self, topic: str, queue_id: int, begin: int = 0, end: int | None = None) -> list[Record]:
        """The messages of queue offsets [begin, end), decoded; those that are gone or lost are left out."""
        queue = self.queue(topic, queue_id)
        records = []
        for offset in range(max(begin, queue.begin), min(queue.end if end is None else end, queue.end)):
            entry = queue.entry(offset)
            if entry is None or entry[2] == LOST or is_pre_blank(entry[0], entry[1]):
                continue
            view = self.log.read(entry[0], entry[1])
            if view is not None:
                records.append(decode(view))
        return records


def heads_of(data: NDArray[np.uint8]) -> NDArray[Any]:
    """The heads of the records of one log file's bytes."""
    import numpy

    places, _ = chain(data.data, 0, len(data))
    dtype = head_dtype()
    rows = data[numpy.array(places, numpy.int64)[:, None] + numpy.arange(dtype.itemsize)]
    heads: NDArray[Any] = rows.view(dtype).reshape(-1)
    return heads


def _end_of(file: MappedFile) -> int:
    # The zeros that a record ends with, and the tags code 0 of a queue entry, may reach alone into a page, which then
    # is a hole.
    _, end = chain(file.buffer, 0, min(data_end(file, 0) + LONGEST_ZEROS, file.size))
    return file.begin + end if end else 0


def _find_ends(queue: ConsumeQueue, log_begin: int) -> None:
    begin = end = queue.files.begin // ENTRY_SIZE
    for file in queue.files.files:
        count = count_valid(file.buffer[: min(data_end(file, 0) + ENTRY_SIZE, file.size)])
        end = file.begin // ENTRY_SIZE + count
        if count * ENTRY_SIZE < file.size:
            break
    queue.open_at(begin, end)
    queue.correct_begin(log_begin)
