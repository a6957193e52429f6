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

import logging
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module

import trio

from rocketlet.common.clock import WallClock
from rocketlet.common.topic import check_topic_name, is_system_topic
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
    SystemRefuses,
)
from rocketlet.store.flush import LogFlush, ThoroughFlush
from rocketlet.store.layout.file_names import ABORT, LOCK
from rocketlet.store.log_slices import LogSlices
from rocketlet.store.lookup import Lookup
from rocketlet.store.message import FoundByKey, StoreStatistics
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.offload import offload, offload_in_steps
from rocketlet.store.reading import GetResult, MatchCode, MatchRecord, MatchUnit, Reading, Span
from rocketlet.store.recovery import Recovery, RecoveryReport
from rocketlet.store.replay import FilterBits, Replay
from rocketlet.store.replica import Replica
from rocketlet.store.retention import Retention
from rocketlet.store.seals import Seals
from rocketlet.store.watermark import Watermark
from rocketlet.store.writing import Writing, refusal_of

_log = logging.getLogger("rocketlet.store.message_store")

_TOGETHER = 512  # queues that are looked at before others may run
_REMOVED_TOGETHER = 64  # queues whose files are deleted in one call of a worker thread


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
        self._on_progress = on_progress or _log.info
        self._root = config.store_path_root_dir
        self._checkpoint = CheckpointFile(disk, self._root)
        self._dispatch = Dispatch(self.queues, self.index, with_index=config.message_index_enable)
        closed = Closed(f"{self._root}: the store is not open")
        self._writing = writing = Writing(self.log, self.queues, self._dispatch, config, clock, closed)
        self.put, self.put_batch = writing.put, writing.put_batch
        self.put_run, self.put_columns = writing.put_run, writing.put_columns
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
        self._removing = trio.Lock()
        self._lock: Lock | None = None
        self.report = RecoveryReport()  # of the opening
        self._get_count = 0

    @property
    def config(self) -> StoreConfig:
        """The settings; those that may change while it runs can be replaced."""
        return self._writing.config

    @config.setter
    def config(self, config: StoreConfig) -> None:
        self._writing.config = config

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
        self._writing.refusal = None
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
            nursery.start_soon(self.remove_dropped)  # those of topics whose deletion the last life did not finish
            task_status.started()

    async def _load_numpy(self) -> None:
        """Import numpy, which takes 60 ms, in a worker thread and not in the first turn that has a use for it. A store
        that has taken no message yet does without its 12 MB."""
        self._dispatch.spares_numpy = "numpy" not in sys.modules
        await self.appended.reach(self.appended.value + 1)
        await offload(self._disk, partial(import_module, "numpy"))
        self._dispatch.spares_numpy = False

    @property
    def may_use_numpy(self) -> bool:
        """Whether it is there already, so that a turn does not wait for its import."""
        return not self._dispatch.spares_numpy

    async def close(self) -> None:
        """Dispatch and flush everything, then mark the store as cleanly closed. Call it after `run` has ended.

        Raises FlushFailed; the directory then stays marked as not cleanly closed, as it does where a full disk left
        messages undispatched. In any case nothing is written afterwards.
        """
        if self._lock is None:
            return
        self._writing.refusal = self._writing.refusal or Closed(f"{self._root}: the store is closed")
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

    def settle(self) -> None:
        """File what was put in this turn, and wake waiting pulls. Call it once a turn, before the next."""
        if self.confirmed is not None:
            # First to the replicas: what is filed here, they have confirmed before.
            self.appended.advance(self.log.end)
        try:
            self._dispatch.settle()
        except OSError as error:
            self._writing.refuse(refusal_of(error, self._root))
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
        self._writing.refusal = Following(f"{self._root}: this store follows its master's log; send to the master")
        replay = Replay(self.queues, self._dispatch, filter_bits)
        return Replica(self.log, replay, settle or self.settle, lambda: not self._dispatch.is_behind)

    def lead(self, replica: Replica) -> int:
        """Take messages again, from the end of the last whole record on; returns how many bytes of a partial record
        were dropped. Raises DiskFull where records of the log could not be filed yet."""
        dropped = replica.drop_rest()
        self.settle()
        if self._dispatch.is_behind:
            raise DiskFull(f"{self._root}: no space left on the disk to file all messages")
        self._writing.refusal = None
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

    def _set_full(self, error: DiskFull | None) -> None:
        """The disk is too full, or (None) no longer is."""
        if error is not None:
            self._writing.refuse(error)
        elif isinstance(self._writing.refusal, DiskFull | SystemRefuses):
            self._writing.refusal = None
            self.settle()  # what could not be filed; may refuse again
            if self._writing.refusal is None:
                _log.warning("%s: what sends were refused for is over; they are taken again", self._root)

    @property
    def refusal(self) -> str:
        """Why messages are refused now; empty while they are taken."""
        return str(self._writing.refusal or "")

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
            if dropped:
                self.queues.drop(dropped)
                self._forget_dropped()
            count += len(dropped)
            await trio.lowlevel.checkpoint()
            await self.remove_dropped()
        return count

    def drop_topic(self, topic: str) -> int:
        """Forget the queues of a topic at once; their messages stay in the log until that is deleted. Returns how many.

        Call `remove_dropped` afterwards.
        """
        count = self.queues.drop_topic(topic)
        if count:
            self._forget_dropped()
        return count

    def _forget_dropped(self) -> None:
        self._dispatch.forget_dropped()
        self._thorough.saved = -1  # the progress point lists queues that are gone

    async def remove_dropped(self) -> None:
        """Delete the files of queues that were dropped; other tasks run in between."""
        async with self._removing:
            while self.queues.dropped.take(_REMOVED_TOGETHER):
                await offload(self._disk, self.queues.dropped.delete)

    def find_by_key(self, topic: str, key: str, max_count: int, begin: int, end: int) -> FoundByKey:
        """See Lookup."""
        self._dispatch.enter_keys()
        return super().find_by_key(topic, key, max_count, begin, end)

    def statistics(self) -> StoreStatistics:
        self._dispatch.enter_keys()
        index, writing = self.index.statistics(), self._writing
        return StoreStatistics(
            self.log.begin, self.log.end, self.flushed.value, self.dispatched.value, len(self.log.files.files),
            len(self.queues.queues), self.flushed.statistics().waiting, index.files, index.entries, writing.count,
            writing.failed_count, writing.bytes, self._get_count, self._log_flush.rounds,
            self._disk.usage(self._root).ratio, self.refusal,
        )  # fmt: skip
