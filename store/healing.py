"""Something readable in the place of a damaged stretch of the log, so that every reader gets over it, Java's too.

The bytes that stood there are first kept in `rocketlet/damaged/<offset>-<n>`. No message is ever guessed from them:
what a checksum does not confirm is lost, and is reported as lost. Each message that is known to have been there (by the
header of the damaged record where its lengths hold, else by the queue entries that point into the stretch) is replaced
by a *lost record*: a true record of the same topic, queue and queue offset, so that the queue keeps its numbers
wherever it is rebuilt, whose body is a sentence and whose prepared offset is `LOST_MARK`. Rebuilding gives it the tags
code `LOST`, which our pulls skip. A part in which no message is known becomes a record of type rollback, which gets no
queue entry and no index entry anywhere. A stretch to the end of a file becomes a blank record.

Nothing else ever writes into the middle of the log, and this only while the store is opened or repaired.

Java: (none: it cuts the log there)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocketlet.common.host import UNKNOWN_HOST
from rocketlet.common.message_flags import ROLLBACK, gets_queue_entry
from rocketlet.common.message_record import (
    BLANK_SIZE,
    Fault,
    Outline,
    blank,
    outline,
    pack_into,
    record_size,
    topic_field,
)
from rocketlet.common.topic import is_legal_name
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.disk import Disk
from rocketlet.store.kept_aside import keep_aside
from rocketlet.store.layout.queue_rules import LOST_MARK
from rocketlet.store.log_walk import Loss
from rocketlet.store.mapped_file import MappedFile

_NO_TOPIC = "-"  # of a part in which no message is known
_SENTENCE = b"This message was lost: its bytes on the disk were damaged. What was left is in rocketlet/damaged. "
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """A message that is known to have been in a damaged stretch."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int


class Healing:
    """Heals losses of one log. `identities` are the messages that were replaced by lost records."""

    def __init__(self, disk: Disk, log: CommitLog, queues: Iterable[ConsumeQueue], root: str) -> None:
        self._disk = disk
        self._log = log
        self._queues = queues
        self._root = root
        self.identities: list[Identity] = []
        self.kept: list[str] = []

    def heal(self, loss: Loss) -> bool:
        """Make a loss readable; False where it is too short to hold a record."""
        pieces = list(self._pieces(loss))
        if any(size < _least(ends_file=ends_file) for _, _, size, ends_file in pieces):
            return False
        identities = self._identities(loss)
        self._save_damaged(loss)
        for file, at, size, ends_file in pieces:
            if ends_file:
                file.write(at, blank(size))
                continue
            begin, end = file.begin + at, file.begin + at + size
            self._fill(
                file, loss, begin, end, [identity for identity in identities if begin <= identity.log_offset < end]
            )
        return True

    def _pieces(self, loss: Loss) -> Iterable[tuple[MappedFile, int, int, bool]]:
        """(file, place in it, size, whether it goes to the file's end) of each part of a loss."""
        place, end = loss.log_offset, loss.log_offset + loss.size
        while place < end:
            file = self._log.files.find(place)
            assert file is not None
            stop = min(end, file.end)
            yield file, place - file.begin, stop - place, stop == file.end
            place = stop

    def _identities(self, loss: Loss) -> list[Identity]:
        """The messages that were there, in the order of the log."""
        begin, end = loss.log_offset, loss.log_offset + loss.size
        if loss.fault is Fault.BODY_CRC:
            file = self._log.files.find(begin)
            assert file is not None
            record = outline(file.buffer, begin - file.begin, file.size, False, begin)
            if isinstance(record, Outline) and record.size == loss.size:
                topic = record.topic.decode("utf-8", "replace")
                if not gets_queue_entry(record.sys_flag) or not is_legal_name(topic):
                    return []
                return [Identity(topic, record.queue_id, record.queue_offset, begin, record.size)]
        identities = []
        for queue in self._queues:
            for offset, log_offset, size in queue.pointing_into(begin, end):
                identities.append(Identity(queue.topic, queue.queue_id, offset, log_offset, size))
        return sorted(identities, key=lambda identity: identity.log_offset)

    def _save_damaged(self, loss: Loss) -> None:
        """Save what was there."""
        pieces = (bytes(file.buffer[at : at + size]).rstrip(b"\0") for file, at, size, _ in self._pieces(loss))
        self.kept += keep_aside(self._disk, self._root, loss.log_offset, pieces)

    def _fill(self, file: MappedFile, loss: Loss, begin: int, end: int, identities: list[Identity]) -> None:
        """Lost records over [begin, end): one for each known message, as near as it fits to where that was."""
        parts: list[tuple[int, int, Identity | None]] = []
        place = begin
        for message in identities:
            start, stop = max(message.log_offset, place), min(message.log_offset + message.size, end)
            if stop - start < record_size(0, topic_field(message.topic), 0):
                continue  # too short for a record; the gap in the queue is filled when it is rebuilt
            if start - place >= _least(ends_file=False):
                parts.append((place, start, None))
                place = start
            parts.append((place, stop, message))
            place = stop
        if end - place >= _least(ends_file=False) or not parts:
            parts.append((place, end, None))
        elif place < end:
            parts[-1] = (parts[-1][0], end, parts[-1][2])
        for start, stop, identity in parts:
            if identity is None:
                self._fill_unknown(file, loss, start, stop)
            else:
                self._write(
                    file, loss, start, stop, identity.topic, identity.queue_id, identity.queue_offset, sys_flag=0
                )
                self.identities.append(
                    Identity(identity.topic, identity.queue_id, identity.queue_offset, start, stop - start)
                )

    def _fill_unknown(self, file: MappedFile, loss: Loss, begin: int, end: int) -> None:
        while begin < end:
            stop = end if end - begin <= _LARGEST else min(begin + _LARGEST, end - _least(ends_file=False))
            self._write(file, loss, begin, stop, _NO_TOPIC, 0, 0, ROLLBACK)
            begin = stop

    def _write(
        self, file: MappedFile, loss: Loss, begin: int, end: int, topic: str, queue_id: int, queue_offset: int,
        sys_flag: int,
    ) -> None:  # fmt: skip
        field = topic_field(topic)
        body_size = end - begin - record_size(0, field, 0)
        body = (_SENTENCE * (body_size // len(_SENTENCE) + 1))[:body_size]
        at, time = begin - file.begin, loss.store_timestamp
        file.region.reserve(at, at + end - begin)
        pack_into(
            file.buffer, at, end - begin, queue_id, 0, queue_offset, begin, sys_flag, time, UNKNOWN_HOST, time,
            UNKNOWN_HOST, 0, LOST_MARK, body, field, b"",
        )  # fmt: skip


def _least(*, ends_file: bool) -> int:
    """The shortest stretch that can be made readable."""
    return BLANK_SIZE if ends_file else record_size(0, topic_field(_NO_TOPIC), 0)
