"""The store of a broker: log, queues and index over one directory, and the tasks that keep them durable and bounded.

The root of this package: it composes the parts, and no other module of the package imports it.

    store = MessageStore(RealDisk(), config, system_clock)
    report = await store.open()             # load, recover
    nursery.start_soon(store.run)           # flush, checkpoint, retention, seals
    appended = store.put(message)           # plain def: in the log when it returns
    store.settle()                          # once a turn: queues, index, watermarks
    await store.flushed_to(appended.end, 5000)
    await store.close()

`put` and `settle` belong to one turn: between a put and its settle the message is in the log but in no queue, and
waiting pulls do not know of it. Code that puts outside a connection's turn must call `settle` too.

Invariants (design): `flushed <= appended`, `dispatched <= appended`; with a refusal set nothing is written any more.

Java: store/DefaultMessageStore.java
"""

from __future__ import annotations

import errno
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

import trio

from rocketlet.common.clock import WallClock
from rocketlet.common.message_flags import PREPARED, ROLLBACK, TRANSACTION_MASK
from rocketlet.common.message_record import HEAD_SIZE, PROPERTIES_MAX
from rocketlet.common.topic import RETRY_TOPIC_MAX_LENGTH, check_topic_name, is_system_topic
from rocketlet.store.checkpoint import CheckpointFile
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.consume_queue_table import ConsumeQueueTable
from rocketlet.store.disk import Disk, Lock
from rocketlet.store.dispatch import Dispatch, LastRecord
from rocketlet.store.errors import (
    Closed,
    DiskFull,
    FlushTimeout,
    Following,
    MessageIllegal,
    NotWritable,
    PropertiesTooLarge,
    PutRefused,
    SystemRefuses,
)
from rocketlet.store.flush import LogFlush, ThoroughFlush
from rocketlet.store.layout.file_names import ABORT, LOCK
from rocketlet.store.log_slices import LogSlices
from rocketlet.store.lookup import Lookup
from rocketlet.store.message import Appended, FoundByKey, Put, StoreStatistics
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.message_run import AppendedRun, NotedRun, Run
from rocketlet.store.offload import offload, offload_in_steps
from rocketlet.store.reading import GetResult, MatchCode, MatchRecord, MatchUnit, Reading, Span
from rocketlet.store.recovery import Recovery, RecoveryReport
from rocketlet.store.replay import FilterBits, Replay
from rocketlet.store.replica import Replica
from rocketlet.store.retention import Retention
from rocketlet.store.seals import Seals
from rocketlet.store.watermark import Watermark

_log = logging.getLogger("rocketlet.store.message_store")

_TOGETHER = 512  # queues that are looked at before others may run
_REMOVED_TOGETHER = 16  # queues whose files are deleted before others may run
_SPARE = 65536  # a record may be longer than the longest body by this
_HEAD_AND_LENGTH = HEAD_SIZE + 2


class MessageStore(Lookup):
    """See the module's docstring. Not for threads: everything happens in one trio run."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        clock: WallClock,
        *,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(
            disk,
            CommitLog(disk, config.commit_log_path, config.mapped_file_size_commit_log),
            ConsumeQueueTable(disk, config),
            MessageIndex(disk, config),
        )
        self.config = config
        self._clock = clock
        self._on_progress = on_progress or _log.info
        self._root = config.store_path_root_dir
        self._checkpoint = CheckpointFile(disk, self._root)
        self._dispatch = Dispatch(self.queues, self.index, with_index=config.message_index_enable)
        self.appended = Watermark()
        self.dispatched = self._dispatch.dispatched
        self._log_flush = LogFlush(disk, self.log, self.appended, lambda: self.config)
        self.flushed = self._log_flush.flushed
        self.confirmed: Watermark | None = None  # up to where every replica that counts has the log, where they elect
        self._thorough = ThoroughFlush(
            disk, self.log, self._log_flush, self.queues, self.index, self._dispatch, self._checkpoint,
            lambda: self.config,
        )  # fmt: skip
        self._reading = Reading(self.log, disk.memory())
        self.slices = LogSlices(disk, self.log, self._hot_from)
        self._retention = Retention(
            disk, self.log, self.queues, self.index, clock, lambda: self.config,
            lambda: min(self.flushed.value, self._thorough.saved), self._set_full, self,
        )  # fmt: skip
        self._seals = Seals(disk, self.log, self.flushed, lambda: self.config)
        self._lock: Lock | None = None
        self._refusal: NotWritable | Closed | None = Closed(f"{self._root}: the store is not open")
        self.report = RecoveryReport()  # of the opening
        self._put_count = self._failed_put_count = self._put_bytes = self._get_count = 0

    # ---- life

    async def open(self, *, whole: bool = False) -> RecoveryReport:
        """Lock the directory and recover it. Raises StoreLocked, CorruptStore, OSError.

        Cancelled, it leaves the directory as a kill at that moment would, for the next opening to recover.
        `whole`: check everything, even after a clean shutdown.
        `on_progress` is told of each step, from a worker thread.
        """
        self._lock = self._disk.lock(f"{self._root}/{LOCK}")
        try:
            recovery = Recovery(
                self._disk, self.config, self.log, self.queues, self.index, self._checkpoint, self._on_progress
            )
            report = await offload_in_steps(self._disk, lambda go_on: recovery.run(whole=whole, go_on=go_on))
            for line in report.lines():
                _log.log(logging.WARNING if report.changed else logging.INFO, "%s: %s", self._root, line)
            self.report = report
            self._begin_at(report)
            if not report.is_saved:
                await self._thorough.save()
            await offload(self._disk, self._mark_open)
        except BaseException:
            self._lock.release()
            self._lock = None
            raise
        self._refusal = None
        return report

    def _begin_at(self, report: RecoveryReport) -> None:
        last = report.last
        dispatched = last.log_offset + last.size if last is not None else report.log_end
        self._dispatch.last = last
        self.dispatched.advance(dispatched)
        self.appended.advance(report.log_end)
        self.flushed.advance(report.log_end)
        self._reading.hot_from = report.log_end
        self._seals.trusted_from = report.walked_from
        if report.is_saved:
            self._thorough.saved = dispatched

    def _mark_open(self) -> None:
        if not self._disk.exists(f"{self._root}/{ABORT}"):
            self._disk.write_file(f"{self._root}/{ABORT}", b"")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush until cancelled. Raises FlushFailed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._log_flush.run)
            nursery.start_soon(self._thorough.run)
            nursery.start_soon(self._retention.run)
            nursery.start_soon(self._seals.run)
            nursery.start_soon(self._load_numpy)
            task_status.started()

    async def _load_numpy(self) -> None:
        """Import numpy, which takes 60 ms, in a worker thread and not in the first turn that has a use for it. A store
        that has taken no message yet does without its 12 MB."""
        self._dispatch.spares_numpy = "numpy" not in sys.modules
        await self.appended.reach(self.appended.value + 1)
        await offload(self._disk, partial(import_module, "numpy"))
        self._dispatch.spares_numpy = False

    async def close(self) -> None:
        """Dispatch and flush everything, then mark the store as cleanly closed. Call it after `run` has ended.

        Raises FlushFailed; the directory then stays marked as not cleanly closed, as it does where a full disk left
        messages undispatched. In any case nothing is written afterwards.
        """
        if self._lock is None:
            return
        self._refusal = self._refusal or Closed(f"{self._root}: the store is closed")
        try:
            with trio.CancelScope(shield=True):
                self.settle()
                self._dispatch.enter_keys()
                await self._log_flush.flush_once()
                await self.remove_dropped()
                await self._thorough.save()
                if not self._dispatch.is_behind and self.flushed.failure is None:
                    await offload(self._disk, self._remove_abort)
        finally:
            self._lock.release()
            self._lock = None

    def _remove_abort(self) -> None:
        self._disk.remove(f"{self._root}/{ABORT}")
        self._disk.sync_directory(self._root)

    # ---- writing

    def put(self, message: Put) -> Appended:
        """Append one message to the log. Raises PutRefused, with nothing written."""
        if self._refusal is not None:
            raise self._refused()
        queue = self.queues.queues.get((message.topic, message.queue_id))
        if queue is None:
            queue = self._new_queue(message.topic, message.queue_id)
        try:
            size = self._size_of(message, queue)
            return self._append(message, queue, size)
        except PutRefused:
            # Properties of too many characters RocketMQ refuses before it counts; those of too many bytes after.
            if _characters(message.properties) <= PROPERTIES_MAX:
                self._failed_put_count += 1
            raise

    def put_batch(self, messages: Sequence[Put]) -> list[Appended]:
        """Append messages one after another in one file: all or none. Raises PutRefused, with nothing written."""
        if self._refusal is not None:
            raise self._refused()
        sized = []
        for message in messages:
            queue = self.queues.queues.get((message.topic, message.queue_id))
            if queue is None:
                queue = self._new_queue(message.topic, message.queue_id)
            sized.append((message, queue, self._size_of(message, queue)))
        try:
            for queue, count in Counter(queue for _, queue, _ in sized).items():
                self._prepare(queue, count)
            self.log.make_room(sum(size for _, _, size in sized))
        except PutRefused as error:
            self._has_no_room(error)
            raise
        return [self._append(message, queue, size) for message, queue, size in sized]

    def put_run(self, run: Run) -> AppendedRun:
        """`put_batch` of messages that share all but body, flag, properties and what follows from these.

        Raises PutRefused, with nothing written.
        """
        if self._refusal is not None:
            raise self._refused()
        topic, queue_id = run.shared.topic, run.shared.queue_id
        queue = self.queues.queues.get((topic, queue_id)) or self._new_queue(topic, queue_id)
        assert queue.delay_ms is None
        sizes = run.sizes(queue.topic_field)
        ends = sizes.cumsum()
        size, count = int(ends[-1]), len(sizes)
        # If the longest record is within the limit, so is each message.
        is_long = run.longest_properties > PROPERTIES_MAX or int(sizes.max()) > self.config.max_message_size
        if is_long or run.has_zero_properties():
            for message in run.puts():
                self._size_of(message, queue)
        try:
            if queue.next_offset + count > queue.prepared:
                self._prepare(queue, count)
            begin = self.log.room_for(size)
        except PutRefused as error:
            self._has_no_room(error)
            raise
        now, queue_offset = self._clock(), queue.next_offset
        log_offsets = begin + ends - sizes
        self.log.append_run(run.encode(queue.topic_field, sizes, log_offsets, queue_offset, now))
        queue.next_offset += count
        self._dispatch.noted.append(NotedRun(queue, queue_offset, log_offsets, sizes, now, run))
        self._put_count += count
        self._put_bytes += size
        return AppendedRun(log_offsets, size, queue_offset, now, begin + size)

    def _size_of(self, message: Put, queue: ConsumeQueue) -> int:
        """The size of its record; raises where it breaks a limit."""
        properties_size, body_size = len(message.properties), len(message.body)
        if properties_size > PROPERTIES_MAX:
            raise PropertiesTooLarge(f"{properties_size} bytes of properties; a message holds at most {PROPERTIES_MAX}")
        if 0 in message.properties:
            # No checksum covers properties. That none holds a zero is what tells a record from one whose last sectors
            # never reached the disk; a recovery would have to cut the log there, and all that follows with it.
            raise MessageIllegal("a property holds the character U+0000, which cannot be stored; remove it")
        size = (
            _HEAD_AND_LENGTH - 16 + len(message.born_host) + len(message.store_host)
            + body_size + len(queue.topic_field) + properties_size
        )  # fmt: skip
        limit = self.config.max_message_size
        if body_size > limit or size > limit + _SPARE:
            raise MessageIllegal(f"a message of {body_size} bytes; maxMessageSize allows {limit}")
        return size

    def _append(self, message: Put, queue: ConsumeQueue, size: int) -> Appended:
        now = self._clock()
        kind = message.sys_flag & TRANSACTION_MASK
        if kind != PREPARED and kind != ROLLBACK:
            queue_offset = queue.next_offset
            noted_offset = queue_offset
            if queue_offset >= queue.prepared:
                self._prepare(queue, 1)
        else:
            queue_offset, noted_offset = 0, -1
        try:
            offset = self.log.append(
                size, message.queue_id, message.flag, queue_offset, message.sys_flag, message.born_timestamp,
                message.born_host, now, message.store_host, message.reconsume_times, message.prepared_offset,
                message.body, queue.topic_field, message.properties,
            )  # fmt: skip
        except DiskFull as error:
            self._refuse(error)
            raise
        if noted_offset >= 0:
            queue.next_offset = queue_offset + 1
        tags_code = message.tags_code if queue.delay_ms is None else now + queue.delay_ms
        keys = message.keys if kind != ROLLBACK else ()
        self._dispatch.noted.append((queue, noted_offset, offset, size, tags_code, now, keys, message.filter_bits))
        self._put_count += 1
        self._put_bytes += size
        return Appended(offset, size, queue_offset, now, offset + size)

    def _has_no_room(self, error: PutRefused) -> None:
        """A batch cannot be written. RocketMQ counts that, and no batch with an illegal message."""
        self._failed_put_count += 1
        if isinstance(error, DiskFull):
            self._refuse(error)

    def _prepare(self, queue: ConsumeQueue, count: int) -> None:
        """See that a queue has room for the entries of so many messages. Raises NotWritable; others go on."""
        try:
            queue.prepare(count)
        except OSError as error:
            refusal = _refusal_of(error, queue.files.directory)
            if isinstance(refusal, DiskFull):
                self._refuse(refusal)
            else:
                _log.error("a message to %s:%d is refused: %s", queue.topic, queue.queue_id, refusal)
            raise refusal from error

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        check_topic_name(topic)
        if len(topic.encode()) > RETRY_TOPIC_MAX_LENGTH:
            raise MessageIllegal(f"the topic {topic[:40]}... is longer than {RETRY_TOPIC_MAX_LENGTH} bytes")
        return self.queues.find_or_make(topic, queue_id)

    def settle(self) -> None:
        """File what was put in this turn, and wake waiting pulls. Call it once a turn, before the next."""
        if self.confirmed is not None:
            # First to the replicas: what is filed here, they have confirmed before.
            self.appended.advance(self.log.end)
        try:
            self._dispatch.settle()
        except OSError as error:
            self._refuse(_refusal_of(error, self._root))
        self.appended.advance(self.log.end)

    # ---- replicas that elect their master

    def hold_unconfirmed(self) -> Watermark:
        """File only what `confirm` says from now on, so that nobody reads what may yet be cut off. What the opening
        finds in the log is filed all the same. REQUIRES a store that is not open yet."""
        self._dispatch.limit = 0
        self.confirmed = Watermark()
        return self.confirmed

    def confirm(self, end: int, settle: Callable[[], None]) -> None:
        """The log is confirmed up to there: have `settle` file it, then tell those who wait."""
        assert self.confirmed is not None
        if end > self.confirmed.value:
            self._dispatch.limit = end
            settle()
            self.confirmed.advance(end)

    # ---- following another broker's log

    def follow(self, filter_bits: FilterBits, settle: Callable[[], None] | None = None) -> Replica:
        """From now on take no messages, but the bytes of another log. REQUIRES an open store.

        `filter_bits` makes the bit map of a message, where queues keep them; `settle` is called instead of the store's
        own, which it has to call, by whoever has more to do when messages came.
        """
        self.settle()
        self._refusal = Following(f"{self._root}: this store follows its master's log; send to the master")
        replay = Replay(self.queues, self._dispatch, filter_bits)
        return Replica(self.log, replay, settle or self.settle, lambda: not self._dispatch.is_behind)

    def lead(self, replica: Replica) -> int:
        """Take messages again, from the end of the last whole record on; returns how many bytes of a partial record
        were dropped. Raises DiskFull where records of the log could not be filed yet."""
        dropped = replica.drop_rest()
        self.settle()
        if self._dispatch.is_behind:
            raise DiskFull(f"{self._root}: no space left on the disk to file all messages")
        self._refusal = None
        return dropped

    @property
    def last_record(self) -> LastRecord | None:
        """The newest record that is filed; None where there never was one."""
        return self._dispatch.last

    def _hot_from(self) -> int:
        recent = self._disk.memory() * self.config.access_message_in_memory_max_ratio // 100
        return max(self._reading.hot_from, self.log.end - recent)

    def is_recent(self, log_offset: int) -> bool:
        """Whether so little was written since that it is still in memory."""
        return log_offset >= self._hot_from()

    async def flushed_to(self, end: int, timeout_ms: float | None = None) -> None:
        """Wait until the log is on disk up to there. Raises FlushTimeout or FlushFailed."""
        await self._log_flush.reach(end, timeout_ms)

    def flush_is_late(self, timeout_ms: float) -> FlushTimeout:
        """The error for a send that has waited this long for `flushed`."""
        return self._log_flush.is_late(timeout_ms)

    async def flush(self) -> None:
        """File and flush all that was put, whether `run` runs or not; for tables that refer to it and are saved next.

        Raises FlushFailed.
        """
        self.settle()
        await self._log_flush.flush_once()

    def want_flush(self) -> None:
        """Make sure that what was put is flushed soon, without waiting for it (waitStoreMsgOK=false)."""
        self._log_flush.request(self.log.end)

    def _refused(self) -> NotWritable | Closed:
        assert self._refusal is not None
        return self._refusal.with_traceback(None)

    def _refuse(self, error: NotWritable) -> None:
        if self._refusal is None:
            _log.error("sends are refused from now on: %s", error)
            self._refusal = error

    def _set_full(self, error: DiskFull | None) -> None:
        """The disk is too full, or (None) no longer is."""
        if error is not None:
            self._refuse(error)
        elif isinstance(self._refusal, DiskFull | SystemRefuses):
            self._refusal = None
            self.settle()  # what could not be filed; may refuse again
            if self._refusal is None:
                _log.warning("%s: what sends were refused for is over; they are taken again", self._root)

    @property
    def refusal(self) -> str:
        """Why messages are refused now; empty while they are taken."""
        return str(self._refusal or "")

    # ---- reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        match: MatchCode | None = None,
        match_unit: MatchUnit | None = None,
        match_record: MatchRecord | None = None,
        max_bytes: int | None = None,
        record_cost: int = 1,
    ) -> GetResult:
        """Messages of a queue from an offset on. A result that is `cold` needs `load` before its body is there."""
        self._get_count += 1
        queue = self.queues.queues.get((topic, queue_id))
        return self._reading.get(
            queue, offset, max_count, self.config, match, match_unit, match_record, max_bytes, record_cost
        )

    def at(self, spans: list[Span], size: int) -> GetResult:
        """Records at known places, `size` bytes in all: a slice for each part, or `cold`, as with `get`."""
        return self._reading.at(spans, size, self.config)

    async def load(self, result: GetResult) -> GetResult:
        """Read the messages of a cold result, in a worker thread. Returns the same result, warm."""
        if result.cold:
            result.slices = await offload(self._disk, self._reading.loader(result.spans))
            result.cold = False
        return result

    async def warm(self, result: GetResult) -> None:
        """Have the records read that the filter of this pull has to look into; then it can be made again."""
        await offload(self._disk, self._reading.loader(result.unread))

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue itself, for its entries and `to_numpy`."""
        return self.queues.find(topic, queue_id)

    def queue_end(self, topic: str, queue_id: int) -> int:
        """The offset after the last one that can be read; 0 for a queue without messages."""
        queue = self.queues.find(topic, queue_id)
        return queue.end if queue is not None else 0

    def queue_begin(self, topic: str, queue_id: int) -> int:
        """The first offset whose message is still there; 0 for a queue that never had one."""
        queue = self.queues.find(topic, queue_id)
        return queue.begin if queue is not None else 0

    def watch(self, topic: str, queue_id: int) -> Watermark:
        """The end of a queue as a watermark; also for one that has no message yet."""
        queue = self.queues.find(topic, queue_id)
        if queue is None:
            check_topic_name(topic)
            queue = self.queues.find_or_make(topic, queue_id)
        return queue.watch()

    # ---- deleting

    async def delete_expired(self) -> int:
        """Delete log files past their time now, whatever the hour; returns how many."""
        deleted = 0
        while await self._retention.tick(requested=True):
            deleted += 1
        return deleted

    async def clean_expired_queues(self) -> int:
        """Delete queue files, and whole queues but the system's, whose messages are gone; returns queues deleted.

        A queue that is deleted begins again at offset 0, as in RocketMQ.
        """
        await self._retention.clean_queues()
        return await self.drop_where(
            lambda queue: queue.begin == queue.end == queue.next_offset and queue.end > 0
            and not is_system_topic(queue.topic)
        )  # fmt: skip

    async def clean_unused(self, is_used: Callable[[str], bool]) -> int:
        """Delete the queues of topics that are neither used nor the system's; returns how many."""
        return await self.drop_where(lambda queue: not is_used(queue.topic) and not is_system_topic(queue.topic))

    async def drop_where(self, is_gone: Callable[[ConsumeQueue], bool]) -> int:
        """Delete the queues of which that holds; other tasks run in between."""
        count, every = 0, list(self.queues)
        for at in range(0, len(every), _TOGETHER):
            part = [queue for queue in every[at : at + _TOGETHER] if self.queue(queue.topic, queue.queue_id) is queue]
            dropped = [queue for queue in part if is_gone(queue)]
            self._drop(dropped)
            count += len(dropped)
            await trio.lowlevel.checkpoint()
            await self.remove_dropped()
        return count

    def drop_topic(self, topic: str) -> int:
        """Forget the queues of a topic at once; their messages stay in the log until that is deleted. Returns how many.

        Call `remove_dropped` afterwards.
        """
        queues = self.queues.of_topic(topic)
        self._drop(queues)
        return len(queues)

    def _drop(self, queues: Sequence[ConsumeQueue]) -> None:
        if not queues:
            return
        self._dispatch.forget(queues)
        self.queues.drop(queues)
        self._thorough.saved = -1  # the progress point lists queues that are gone

    async def remove_dropped(self) -> None:
        """Delete the files of queues that were dropped; other tasks run in between."""
        for number, _ in enumerate(self.queues.removing()):
            if number % _REMOVED_TOGETHER == _REMOVED_TOGETHER - 1:
                await trio.lowlevel.checkpoint()

    def find_by_key(self, topic: str, key: str, max_count: int, begin: int, end: int) -> FoundByKey:
        """See Lookup."""
        self._dispatch.enter_keys()
        return super().find_by_key(topic, key, max_count, begin, end)

    def statistics(self) -> StoreStatistics:
        self._dispatch.enter_keys()
        index = self.index.statistics()
        return StoreStatistics(
            self.log.begin, self.log.end, self.flushed.value, self.dispatched.value, len(self.log.files.files),
            len(self.queues.queues), self.flushed.statistics().waiting, index.files, index.entries, self._put_count,
            self._failed_put_count, self._put_bytes, self._get_count, self._log_flush.rounds,
            self._disk.usage(self._root).ratio, self.refusal,
        )  # fmt: skip


# What the system has too little of, and the setting that gives more.
_TOO_LITTLE = {
    errno.EMFILE: "this process may not open more files: raise LimitNOFILE or `ulimit -n`",
    errno.ENFILE: "the system may not open more files: raise fs.file-max",
    errno.ENOMEM: "this process may not map more files: raise vm.max_map_count, or give topics fewer queues",
}


def _characters(properties: bytes) -> int:
    """As Java counts them, two for one beyond U+FFFF."""
    return len(properties.decode("utf-8", "replace").encode("utf-16-le")) // 2


def _refusal_of(error: OSError, path: str) -> NotWritable:
    """Why a file could not be made or written, by the right name."""
    place = error.filename or path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{place}: {error.strerror}; free some space. Reads continue")
    reason = _TOO_LITTLE.get(
        error.errno or 0, f"{error.strerror}; look at the permissions and the disk of this directory"
    )
    return SystemRefuses(f"{place}: {reason}. Reads go on")
