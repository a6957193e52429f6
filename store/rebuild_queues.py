"""Bringing queues in line with the log: for recovery, which writes, and for checks, which only count.

Records come in the order of the log. For each queue the entries they make are gathered and, a piece at a time, compared
with the queue's files; only what differs is written, so that a sound store is not made dirty. The log has the last
word:

- A record that goes back in its queue (the queue was deleted and recreated, or a Java broker assigned offsets twice)
  begins the queue again from there: the later record wins.
- A record that jumps ahead skips messages that the log has lost; their entries become `LOST`, so that offsets stay.
- Everything after the last record of a queue becomes zeros.

- Queues of topics that were deleted after their last record are not made: they are `gone`.

Two ways to begin. *Whole*: the walk begins where the log does; entries before a queue's first record belong to messages
that retention deleted, and are only checked to be that. *From a progress point*: its ends of queues are known to be
good, and a first record that does not follow one of them is `NotContinuous`: then the whole log has to be walked. Of a
topic that was deleted after that point the ends say nothing any more, and its files may be gone.

Java: store/ConsumeQueue.java#recover, #truncateDirtyLogicFiles, store/DefaultMessageStore.java#recoverTopicQueueTable
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketlet.common.message_flags import PREPARED, gets_queue_entry
from rocketlet.common.message_record import Outline
from rocketlet.common.topic import is_legal_name
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.deleted_topics import DeletedTopics
from rocketlet.store.layout.consume_queue_entry import (
    ENTRY,
    ENTRY_SIZE,
    LOST,
    PRE_BLANK,
    are_past,
    entries_of,
    entry_dtype,
)
from rocketlet.store.layout.queue_ext_layout import is_address, to_offset
from rocketlet.store.layout.queue_rules import entry_code, most_missing
from rocketlet.store.log_walk import Found
from rocketlet.store.mapped_file import MappedFile, data_pieces
from rocketlet.store.record_columns import RecordColumns

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PIECE = 1 << 16  # entries gathered for a queue before they are compared
_FEW = 8  # as many entries one by one cost what those of a queue cost together
_pack = ENTRY.pack


class NotContinuous(Exception):
    """The log does not continue as a progress point says; all of it has to be walked."""


@dataclass(slots=True)
class QueueFinding:
    """What was wrong with one queue: entries that were missing or other, and entries too many."""

    topic: str
    queue_id: int
    differing: int = 0
    surplus: int = 0


@dataclass(slots=True)
class _Gathered:
    """One queue while the log is walked."""

    queue: ConsumeQueue
    next: int  # offset of the next record
    start: int  # offset of the first gathered entry
    first: int  # offset of the first record of this walk
    finding: QueueFinding
    entries: bytearray = field(default_factory=bytearray)
    bad: list[tuple[int, int]] = field(default_factory=list)  # [from, to) that differed, for counting
    is_started: bool = False


class QueueRebuild:
    """See the module's docstring. `repair` says whether to write."""

    def __init__(
        self,
        table: ConsumeQueueTable,
        log_begin: int,
        known_ends: dict[str, int] | None,
        *,
        repair: bool,
        known_at: int = 0,
        deleted: DeletedTopics | None = None,
    ) -> None:
        """`known_ends`: ends of queues at the progress point `known_at`, where the walk begins; None if it begins with
        the log."""
        self._table = table
        self._log_begin = log_begin
        self._known_ends = known_ends
        self._known_at = known_at
        self._deleted = deleted or DeletedTopics()
        self._repair = repair
        self._gathered: dict[tuple[bytes, int], _Gathered | None] = {}
        self.strange_topics: set[bytes] = set()
        # Queues whose files may not be on the disk as they are, and from which byte on.
        self.touched: dict[ConsumeQueue, int] = {}
        self.gone: list[ConsumeQueue] = []  # whose topic was deleted after their last record; known when it is finished
        self._without_files: list[_Gathered] = []  # that go on, and had their files deleted

    # ---- while the log is walked

    def add(self, batch: list[Found], all_tags: list[bytes | None]) -> None:
        """Records with their tags."""
        delays = self._table.delays
        self._add(
            (
                record.topic, record.queue_id, record.queue_offset, record.sys_flag, log_offset, record.size,
                entry_code(record, tags, delays),
            )
            for (log_offset, record), tags in zip(batch, all_tags, strict=True)
        )  # fmt: skip

    def add_columns(self, columns: RecordColumns) -> None:
        """The same for columns."""
        import numpy

        in_queues = (columns.sys_flags & PREPARED == 0).nonzero()[0]
        groups = columns.by_queue(in_queues)
        if len(groups) * _FEW > len(in_queues):
            self._add_rows(columns, in_queues)
            return
        entries = numpy.empty(len(columns.sizes), entry_dtype())
        entries["log_offset"], entries["size"] = columns.log_offsets, columns.sizes
        entries["tags_code"] = columns.tags_codes
        for rows in groups:
            offsets = columns.queue_offsets[rows]
            first = int(offsets[0])
            name = columns.topics[columns.topic_of[rows[0]]], int(columns.queue_ids[rows[0]])
            queue = (
                self._gathered[name] if name in self._gathered
                else self._begin(*name, first, int(columns.log_offsets[rows[0]]))
            )  # fmt: skip
            if queue is None:
                continue
            if first != queue.next or not (offsets[1:] - offsets[:-1] == 1).all():
                self._add_rows(columns, rows)
                continue
            queue.entries += entries[rows].tobytes()
            queue.next = first + len(rows)
            if len(queue.entries) >= _PIECE * ENTRY_SIZE:
                self._apply(queue)

    def _add_rows(self, columns: RecordColumns, rows: NDArray[Any]) -> None:
        """Some of them, one by one."""
        topics = map(columns.topics.__getitem__, columns.topic_of[rows].tolist())
        others = (
            columns.queue_ids, columns.queue_offsets, columns.sys_flags, columns.log_offsets, columns.sizes,
            columns.tags_codes,
        )  # fmt: skip
        self._add(zip(topics, *(column[rows].tolist() for column in others), strict=True))

    def _add(self, rows: Iterable[tuple[bytes, int, int, int, int, int, int]]) -> None:
        """Topic, queue, queue offset, sys flag, log offset, size and tags code of each record."""
        gathered = self._gathered
        for topic, queue_id, offset, sys_flag, log_offset, size, code in rows:
            if sys_flag & PREPARED:  # a bit of rolled back ones too: `gets_queue_entry`, without a call
                continue
            try:
                queue = gathered[topic, queue_id]
            except KeyError:
                queue = self._begin(topic, queue_id, offset, log_offset)
            if queue is None:
                continue
            if offset != queue.next:
                offset = self._jump(queue, offset, log_offset, size)
            queue.entries += _pack(log_offset, size, code)
            queue.next = offset + 1
            if len(queue.entries) >= _PIECE * ENTRY_SIZE:
                self._apply(queue)

    def is_expected(self, record: Outline) -> bool:
        """Whether a record can come next in its queue."""
        if not gets_queue_entry(record.sys_flag):
            return True
        queue = self._gathered.get((record.topic, record.queue_id))
        return queue is None or record.queue_offset >= queue.next

    def _begin(self, topic: bytes, queue_id: int, offset: int, log_offset: int) -> _Gathered | None:
        name = topic.decode("utf-8", "replace")
        if not is_legal_name(name) or queue_id < 0 or offset < 0:
            self.strange_topics.add(topic)
            self._gathered[topic, queue_id] = None
            return None
        if self._known_ends is not None and offset != self._known_ends.get(f"{name}/{queue_id}", 0):
            is_made_again = offset == 0 and self._deleted.before(name, log_offset)
            if not is_made_again:
                raise NotContinuous(f"{name}:{queue_id} goes on at {offset}")
        queue = self._table.find_or_make(name, queue_id)
        gathered = _Gathered(queue, offset, offset, offset, QueueFinding(name, queue_id))
        self._gathered[topic, queue_id] = gathered
        if self._known_ends is not None and offset and not queue.files.find((offset - 1) * ENTRY_SIZE):
            self._without_files.append(gathered)  # of a deleted topic: those of others have been looked at
        return gathered

    def check_deleted(self) -> None:
        """To be called after the walk. Raises NotContinuous where the files of a queue are gone, but its topic was not
        deleted, as the log has it: the queue simply goes on. So the entries before have to be made again."""
        for gathered in self._without_files:
            if gathered.first and not self._is_gone(gathered.queue, gathered):
                queue = gathered.queue
                raise NotContinuous(f"{queue.topic}:{queue.queue_id} was deleted, but goes on at {gathered.first}")

    def _jump(self, queue: _Gathered, offset: int, log_offset: int, size: int) -> int:
        """A record whose offset is not the next one; the offset that its entry gets."""
        if offset < 0:  # as a flipped bit leaves it, see `most_missing`
            return queue.next
        if offset > queue.next:
            missing = offset - queue.next
            if missing > most_missing(log_offset - self._log_begin):
                return queue.next
            queue.entries += _pack(log_offset, size, LOST) * missing
            return offset
        # What the later record replaces is not compared: in sound files it is not there any more.
        del queue.entries[max(offset - queue.start, 0) * ENTRY_SIZE :]
        queue.next = max(offset, queue.start)
        self._apply(queue)
        queue.bad = [(begin, min(end, offset)) for begin, end in queue.bad if begin < offset]
        queue.start = queue.next = offset
        if offset < queue.first:
            queue.first, queue.is_started = offset, False
        return offset

    # ---- comparing and writing

    def _apply(self, queue: _Gathered) -> None:
        """Compare what was gathered with the files, and write what differs."""
        if not queue.is_started:
            queue.is_started = True
            self._make_ground(queue)
        at, data = queue.start * ENTRY_SIZE, bytes(queue.entries)
        queue.start, queue.entries = queue.next, bytearray()
        size = queue.queue.files.file_size
        while data:
            position = at % size
            piece = data[: size - position]
            self._compare(queue, at - position, position, piece)
            at += len(piece)
            data = data[len(piece) :]
        # There may be more queues than a process may have mappings (vm.max_map_count, 65,530 by default), and many of
        # them may belong to topics that were deleted.
        queue.queue.forget()

    def _compare(self, queue: _Gathered, begin: int, position: int, piece: bytes) -> None:
        """`piece` belongs at byte `position` of the file that begins at byte `begin` of the queue."""
        files = queue.queue.files
        file = files.find(begin + position)
        first = (begin + position) // ENTRY_SIZE
        if file is None:
            queue.bad.append((first, first + len(piece) // ENTRY_SIZE))
            if self._repair:
                self._write(queue.queue, files.make(begin), position, piece)
            return
        present = file.read_data(position, len(piece))
        if present == piece:
            return
        merged, differing = self._merge(queue.queue, present, piece)
        queue.bad += [(first + index, first + index + 1) for index in differing]
        if differing and self._repair:
            self._write(queue.queue, file, position, merged)

    def _merge(self, queue: ConsumeQueue, present: bytes, expected_bytes: bytes) -> tuple[bytes, list[int]]:
        """(what should stand there, which entries that changes). An entry that points to an extension unit is as good
        as one with the tags code, if the unit says the same."""
        found, expected = entries_of(present), entries_of(expected_bytes).copy()
        differing: list[int] = (found != expected).nonzero()[0].tolist()
        if queue.ext is None:
            return expected_bytes, differing
        remaining = []
        for index in differing:
            offset, size, code = found[index].tolist()
            unit = queue.ext.read(code) if is_address(code) else None
            if unit is not None and (offset, size, unit.tags_code) == expected[index].tolist():
                expected[index] = found[index]
            else:
                remaining.append(index)
        return expected.tobytes(), remaining

    def _write(self, queue: ConsumeQueue, file: MappedFile, at: int, data: bytes) -> None:
        file.write(at, data)
        self._touch(queue, file.begin + at)

    def _touch(self, queue: ConsumeQueue, at: int) -> None:
        self.touched[queue] = min(self.touched.get(queue, at), at)

    def _make_ground(self, queue: _Gathered) -> None:
        """Make sure that the files can hold a queue that begins with its first record, with nothing false before it."""
        files = queue.queue.files
        at = queue.first * ENTRY_SIZE
        if files.files and not files.files[0].begin <= at <= files.files[-1].end:
            if self._repair:
                files.drop_all()
            else:
                queue.bad.append((queue.first, queue.first + 1))
        if files.files:
            if self._known_ends is None:
                self._correct_past(queue, at)
        elif self._repair and at % files.file_size:
            file = files.make(at - at % files.file_size)
            self._write(queue.queue, file, 0, PRE_BLANK * (at % files.file_size // ENTRY_SIZE))

    def _correct_past(self, queue: _Gathered, at: int) -> None:
        """Entries before the first record of the log must be those of deleted messages, or pre-blank."""
        for file in queue.queue.files.files:
            if file.begin >= at:
                break
            first = file.begin // ENTRY_SIZE
            for index in (
                (~are_past(file.buffer[: min(at - file.begin, file.size)], self._log_begin)).nonzero()[0].tolist()
            ):
                queue.bad.append((first + index, first + index + 1))
                if self._repair:
                    self._write(queue.queue, file, index * ENTRY_SIZE, PRE_BLANK)

    # ---- at the end of the walk

    def finish(self, *, trim: bool) -> list[QueueFinding]:
        """Finish all queues. With `trim`, what follows the ends of idle ones becomes zeros too.

        Returns the findings, without sound queues.
        """
        walked: dict[ConsumeQueue, _Gathered] = {
            gathered.queue: gathered for gathered in self._gathered.values() if gathered is not None
        }
        # They are not made only to be deleted: 20,000 of them took a minute.
        self.gone = [queue for queue in self._table if self._is_gone(queue, walked.get(queue))]
        for queue in self.gone:
            walked.pop(queue, None)
            self.touched.pop(queue, None)
            queue.forget()
        for gathered in walked.values():
            self._apply(gathered)
        # Unchanged entries, too, may only be in the page cache if the process was killed.
        for queue, gathered in walked.items():
            self._touch(queue, gathered.first * ENTRY_SIZE)
        findings = []
        gone = set(self.gone)
        for queue in list(self._table):
            if queue in gone:
                continue
            present = walked.get(queue)
            finding = QueueFinding(queue.topic, queue.queue_id)
            if present is not None:
                end = present.next
                finding.differing = sum(to - begin for begin, to in present.bad)
            else:
                end = self._end_of_idle(queue)
            if present is not None or trim:
                finding.surplus = _surplus(queue, end)
                last = queue.files.last
                if self._repair and (finding.surplus or (last is not None and last.begin >= end * ENTRY_SIZE)):
                    queue.cut(end)
                    self._touch(queue, end * ENTRY_SIZE)
            if self._repair:
                self._open(queue, end, trim=trim or present is not None)
            queue.forget()
            if finding.differing or finding.surplus:
                findings.append(finding)
        return findings

    def _is_gone(self, queue: ConsumeQueue, walked: _Gathered | None) -> bool:
        """Whether its topic was deleted after the last record of a queue, which is the last one of the walk if it had
        any."""
        deleted = self._deleted
        if queue.topic not in deleted:
            return False
        if walked is not None:
            return deleted.since(queue.topic, _log_end(walked))
        if self._known_ends is None:
            return False  # nothing of it is left in the log: its files alone say where it goes on
        is_empty = f"{queue.topic}/{queue.queue_id}" not in self._known_ends
        return is_empty or deleted.since(queue.topic, self._known_at)

    def _end_of_idle(self, queue: ConsumeQueue) -> int:
        """Where a queue without a record in this walk ends."""
        if self._known_ends is not None:
            return self._known_ends.get(f"{queue.topic}/{queue.queue_id}", 0)
        end = queue.files.begin // ENTRY_SIZE
        for file in queue.files.files:
            is_past = are_past(file.buffer, self._log_begin)
            if not is_past.all():
                return end + int(is_past.argmin())
            end = file.end // ENTRY_SIZE
        return end

    def _open(self, queue: ConsumeQueue, end: int, *, trim: bool) -> None:
        begin = queue.files.begin // ENTRY_SIZE if queue.files.files else end
        if not queue.files.files and self._known_ends is None:
            begin = end = 0
        queue.open_at(min(begin, end), end)
        queue.correct_begin(self._log_begin)
        if queue.ext is not None and trim:
            queue.ext.cut(_ext_end(queue))


def _log_end(queue: _Gathered) -> int:
    """The log offset after the last record of a queue."""
    entry = bytes(queue.entries[-ENTRY_SIZE:])
    if not entry:  # it was written already, with all the others
        at = (queue.next - 1) * ENTRY_SIZE
        file = queue.queue.files.find(at)
        assert file is not None
        entry = file.read_data(at - file.begin, ENTRY_SIZE)
    log_offset, size, _ = ENTRY.unpack(entry)
    return int(log_offset + size)


def _surplus(queue: ConsumeQueue, end: int) -> int:
    """How many entries there are after the end of a queue."""
    surplus = 0
    for file in queue.files.files:
        for _, piece in data_pieces(file, min(max(end * ENTRY_SIZE - file.begin, 0), file.size)):
            if any(piece):
                surplus += -(-len(piece.rstrip(b"\0")) // ENTRY_SIZE)
    return surplus


def _ext_end(queue: ConsumeQueue) -> int:
    """The end of the newest extension unit that an entry points to."""
    assert queue.ext is not None
    offset = queue.end
    while offset > queue.begin:
        offset -= 1
        entry = queue.entry(offset)
        if entry is not None and is_address(entry[2]):
            unit = queue.ext.read(entry[2])
            return to_offset(entry[2]) + (unit.size if unit is not None else 0)
    return queue.ext.files.begin
