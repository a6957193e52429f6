"""Flushing: the log for sends that wait for it, everything for the checkpoint.

One task flushes the log. Waiting sends say how far (`reach`), and while one fdatasync runs the next ones gather: group
commit, without a timer. A group costs 115 µs here, so gathered sends are nearly free. In ASYNC_FLUSH no send waits, and
the task flushes every `flushIntervalCommitLog`.

A second task flushes queues every second and, every `flushConsumeQueueThoroughInterval` or `recoverStepBytes` of log,
everything, and then writes checkpoint and progress point, which bounds what a recovery has to read.

A failed flush is final: see `FlushFailed`. All waiting sends fail, and the task ends, and with it the process.

Java: store/CommitLog.java (GroupCommitService, FlushRealTimeService), store/DefaultMessageStore.java
(FlushConsumeQueueService)
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from rocketlet.store.checkpoint import CheckpointFile, Progress, checksum, write_progress
from rocketlet.store.commit_log import CommitLog
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue_table import ConsumeQueueTable, QueueFlush
from rocketlet.store.disk import PAGE, Disk
from rocketlet.store.dispatch import Dispatch
from rocketlet.store.errors import FlushFailed, FlushTimeout
from rocketlet.store.flush_marks import FlushMarks
from rocketlet.store.message_index import MessageIndex
from rocketlet.store.offload import offload
from rocketlet.store.watermark import Watermark

_log = logging.getLogger("rocketlet.store.flush")

_GATHERED_TOGETHER = 512  # dirty queues that are looked at before others may run


class LogFlush:
    """The flushing of the log. `flushed` is how far it is on disk."""

    def __init__(self, disk: Disk, log: CommitLog, appended: Watermark, config: Callable[[], StoreConfig]) -> None:
        self._disk = disk
        self._log = log
        self._appended = appended
        self._config = config
        self._marks = FlushMarks(disk, config().store_path_root_dir, log.files)
        self._turn = trio.Lock()
        self._requested = 0
        self._wake = trio.Event()
        self.flushed = Watermark()
        self.rounds = 0

    def request(self, end: int) -> None:
        """Make sure that the log is flushed up to there, soon."""
        if end > self._requested:
            self._requested = end
            self._wake.set()

    async def reach(self, end: int, timeout_ms: float | None = None) -> None:
        """Wait until the log is on disk up to `end`. Raises FlushTimeout or FlushFailed."""
        self.request(end)
        if timeout_ms is None:
            await self.flushed.reach(end)
            return
        with trio.move_on_after(timeout_ms / 1000):
            await self.flushed.reach(end)
            return
        raise self.is_late(timeout_ms)

    def is_late(self, timeout_ms: float) -> FlushTimeout:
        """The error for a send that has waited this long."""
        return FlushTimeout(
            f"{self._log.files.directory}: the disk did not confirm within {timeout_ms:g} ms (syncFlushTimeout);"
            " the message is written and may still become durable"
        )

    async def run(self) -> None:
        last_thorough = trio.current_time()
        while True:
            # No timer runs while nothing is dirty, so that an idle broker sleeps, and tests in virtual time are quick.
            await self._appended.reach(self.flushed.value + 1)
            config = self._config()
            if self._requested <= self.flushed.value:
                self._wake = trio.Event()
                with trio.move_on_after(config.flush_interval_commit_log / 1000):
                    await self._wake.wait()
            thorough = trio.current_time() - last_thorough >= config.flush_commit_log_thorough_interval / 1000
            if thorough:
                last_thorough = trio.current_time()
            if (
                thorough
                or config.is_sync_flush
                or self._requested > self.flushed.value
                or self._has_enough_pages(config)
            ):
                await self.flush_once()

    def _has_enough_pages(self, config: StoreConfig) -> bool:
        begin, end = self.flushed.value, self._log.end
        return end // PAGE - begin // PAGE >= config.flush_commit_log_least_pages

    async def flush_once(self) -> None:
        """Flush all that is appended by now. Raises FlushFailed."""
        # One at a time: of two flushes of a file at once, the kernel tells only one that a page could not be written.
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        try:
            await self._flush_appended()
        finally:
            self._turn.release()

    async def _flush_appended(self) -> None:
        begin, end = self.flushed.value, self._log.end
        if end <= begin:
            return
        flush, note = self._log.flush_to(begin, end), self._marks.note_of(end)
        self.rounds += 1

        def flush_and_note() -> None:
            flush()
            if self.flushed.failure is None:
                note()

        try:
            await offload(self._disk, flush_and_note)
        except OSError as error:
            raise self.fail(error) from error
        if self.flushed.failure is None:
            self.flushed.advance(end)

    def fail(self, error: OSError) -> FlushFailed:
        """Fail all that wait because the disk refused a flush; returns the error to raise."""
        failure = FlushFailed(
            f"{error.filename or self._log.files.directory}: flush failed: {error.strerror}; nothing after log offset"
            f" {self.flushed.value} is known to be on disk; check the disk, then restart"
        )
        self.flushed.fail(failure)
        return failure


class ThoroughFlush:
    """The flushing of queues and index, and the two files that say how far everything is durable."""

    def __init__(
        self,
        disk: Disk,
        log: CommitLog,
        log_flush: LogFlush,
        queues: ConsumeQueueTable,
        index: MessageIndex,
        dispatch: Dispatch,
        checkpoint: CheckpointFile,
        config: Callable[[], StoreConfig],
    ) -> None:
        self._disk = disk
        self._log = log
        self._log_flush = log_flush
        self._queues = queues
        self._index = index
        self._dispatch = dispatch
        self._checkpoint = checkpoint
        self._config = config
        self.saved = 0  # log offset of the last progress point

    async def run(self) -> None:
        last = trio.current_time()
        while True:
            await self._dispatch.dispatched.reach(self.saved + 1)
            config = self._config()
            await trio.sleep(config.flush_interval_consume_queue / 1000)
            now = trio.current_time()
            due = now - last >= config.flush_consume_queue_thorough_interval / 1000
            if due or self._dispatch.dispatched.value - self.saved >= config.recover_step_bytes:
                last = now
                await self.save()
            else:
                self._dispatch.enter_keys()
                queues = await self._gathered(config.flush_consume_queue_least_pages)
                await self._flush(queues.run)
                queues.done()

    async def save(self) -> None:
        """Flush everything dispatched by now, then record that in checkpoint and progress. Raises FlushFailed."""
        self._dispatch.enter_keys()
        last = self._dispatch.last
        end = self._dispatch.dispatched.value
        is_filed = last is not None and last.log_offset + last.size == end and not self._dispatch.has_keys
        if last is None or end == self.saved or not is_filed:
            return  # nothing new, or a full disk stopped the dispatch half-way
        record = self._log.read(last.log_offset, last.size)
        assert record is not None
        newest = self._index.files[-1] if self._index.files else None
        progress = Progress(
            end, last.log_offset, last.size, checksum(record),
            newest.file.begin if newest else 0,
            newest.table.next_entry if newest else 0,
            newest.table.end_log_offset if newest else 0,
        )  # fmt: skip
        ends = [(queue, queue.end) for queue in self._queues if queue.end]  # the rest, `write` does in a thread
        index_timestamp = self._index.full_timestamp()
        await self._log_flush.reach(end)
        queues = await self._gathered(0)
        await self._flush(queues.run, self._index.flush_of_dirty())
        queues.done()
        times = self._checkpoint.times
        times.log_timestamp = times.queue_timestamp = last.store_timestamp
        times.index_timestamp = index_timestamp
        root = self._config().store_path_root_dir

        def write() -> None:
            progress.queues.update((f"{queue.topic}/{queue.queue_id}", queue_end) for queue, queue_end in ends)
            write_progress(self._disk, root, progress)

        try:
            await offload(self._disk, self._checkpoint.write)
            await offload(self._disk, write)
        except OSError as error:
            # These two only shorten a recovery, and a full disk must not end a broker that can still serve reads.
            _log.warning("%s: cannot write checkpoint or progress: %s", root, error.strerror)
        else:
            self.saved = end

    async def _gathered(self, least_pages: int) -> QueueFlush:
        flush = self._queues.flush_of_dirty(least_pages)
        for number, _ in enumerate(flush.gather()):
            if number % _GATHERED_TOGETHER == _GATHERED_TOGETHER - 1:
                await trio.lowlevel.checkpoint()
        return flush

    async def _flush(self, *steps: Callable[[], None]) -> None:
        def flush() -> None:
            for step in steps:
                step()

        try:
            await offload(self._disk, flush)
        except OSError as error:
            raise self._log_flush.fail(error) from error
