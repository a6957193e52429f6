"""A store to look at from a notebook: arrays over its files, read-only, without a broker, a lock or a recovery.

    from rocketlet.store.view import StoreView

    view = StoreView("/data/store")
    view.topics()                                # {"Orders": [0, 1, 2, 3]}
    entries = view.queue("Orders", 0).to_numpy() # log_offset, size, tags_code; no copy while it is one file
    heads = view.heads()                         # one row a record: topic-less heads, by numpy
    view.messages("Orders", 0, 10, 20)           # decoded records of offsets 10 to 19

`rocketlet.open_store(path)` is the same, and also takes the directory of `rocketlet up`.

It shows what is in the files at the moment. Beside a running broker it is current up to the last entry; after a crash
it may show what a recovery would cut. What is damaged is logged as a warning with its place: a damaged entry keeps its
row, so that row i is always queue offset `begin` + i, and of a file of the log the heads end where it is damaged. Zeros
at the end of a queue look like its end: only `rocketlet store check` compares it with the log. Nothing can be written
through it.

Java: (none)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_record import Record, decode
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.dry_disk import DryDisk
from rocketlet.store.geometry import check_is_store, found_config, store_in
from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, LOST, are_past, entries_of, is_pre_blank, is_valid
from rocketlet.store.layout.log_scan import LONGEST_ZEROS, chain, head_dtype, is_blank_of, is_zero
from rocketlet.store.mapped_file import MappedFile, data_end
from rocketlet.store.mapped_file_queue import Oddity
from rocketlet.store.real_disk import RealDisk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_log = logging.getLogger("rocketlet.store.view")

_CHECK = "`rocketlet store check` says more"


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
        _report(self.log.files.load())
        self.log.end = max((_end_of(file) for file in self.log.files.files), default=0)
        self.queues = ConsumeQueueTable(dry, config)
        _report(self.queues.load(self.log.begin, repair=False))
        for queue in self.queues:
            _find_ends(queue, self.log.begin, self.log.end)

    def topics(self) -> dict[str, list[int]]:
        """Topics with their queue ids."""
        result: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self.queues.queues):
            result.setdefault(topic, []).append(queue_id)
        return result

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue, for its `begin`, `end`, `entry`, `to_numpy` and `to_arrow`. Raises KeyError where there is none."""
        queue = self.queues.queues.get((topic, queue_id))
        if queue is None:
            raise KeyError(f"there is no queue {queue_id!r} of topic {topic!r}; topics() lists all")
        return queue

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
            if entry is None or entry[2] == LOST or is_pre_blank(*entry[:2]) or not is_valid(*entry[:2]):
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


def _report(oddities: Iterable[Oddity]) -> None:
    for oddity in oddities:
        _log.warning("%s is left out (%s); %s", oddity.path, _ODD.get(oddity.what, oddity.what), _CHECK)


_ODD = {"foreign": "it is no file of a store", "length": "its length is wrong", "gap": "there is a gap before it"}


def _end_of(file: MappedFile) -> int:
    # The zeros that a record ends with, and the tags code 0 of a queue entry, may reach alone into a page, which then
    # is a hole.
    data = min(data_end(file, 0) + LONGEST_ZEROS, file.size)
    _, end = chain(file.buffer, 0, data)
    if not is_blank_of(file.buffer, end, file.size) and not is_zero(file.buffer, end, data):
        _log.warning("%s can be read to byte %d only, and has data behind it; %s", file.path, end, _CHECK)
    return file.begin + end if end else 0


def _find_ends(queue: ConsumeQueue, log_begin: int, log_end: int) -> None:
    """The queue ends after its last entry that is set, and begins after the last one that is past: what lies between
    them is the queue, also where it is damaged."""
    import numpy

    files = queue.files.files
    marks = numpy.zeros((4, sum(file.size for file in files) // ENTRY_SIZE), bool)
    for number, file in enumerate(files):
        _mark(marks[:, number * file.size // ENTRY_SIZE :], file, log_begin, log_end)
    is_set, is_valid, is_past, is_beyond = marks
    end = _after_last(is_set)
    live = (is_valid & ~is_past).nonzero()[0]
    begin = _after_last(is_past[: live[0]] if len(live) else is_past)
    bad = ~is_valid[:end]
    # Before an entry of the log, one beyond its end is damage; behind them all, the log has grown meanwhile.
    good = min(_after_last(is_valid & ~is_beyond), end)
    bad[:good] |= is_beyond[:good]
    rows = bad[begin:].nonzero()[0] + begin
    base = queue.files.begin // ENTRY_SIZE
    if len(rows):
        _log.warning(
            "%s: %d entries of queue %d of %s are damaged, the first at queue offset %d, and keep their rows as they"
            " are; %s",
            queue.files.directory, len(rows), queue.queue_id, queue.topic, base + rows[0], _CHECK,
        )  # fmt: skip
    queue.open_at(base + begin, base + end)


def _mark(marks: NDArray[Any], file: MappedFile, log_begin: int, log_end: int) -> None:
    """Mark of each entry of a file whether it is set, valid, of a deleted message, and of one beyond the log's end."""
    data = file.buffer[: min(data_end(file, 0) + ENTRY_SIZE, file.size)]
    entries = entries_of(data)
    offsets, sizes = entries["log_offset"], entries["size"]
    is_set, is_valid, is_past, is_beyond = marks[:, : len(entries)]
    is_set[:] = (offsets != 0) | (sizes != 0) | (entries["tags_code"] != 0)
    is_valid[:] = (sizes > 0) & (offsets >= 0)
    is_past[:] = are_past(data, log_begin)
    is_beyond[:] = is_valid & ~is_past & (offsets > log_end - sizes)


def _after_last(marks: NDArray[Any]) -> int:
    """How many there are up to the last that is marked."""
    marked = marks.nonzero()[0]
    return int(marked[-1]) + 1 if len(marked) else 0
