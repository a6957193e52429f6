"""The messages of one range of a queue, pulled while the ones before them are made into columns.

A broker gives so many messages a pull, 32 unless told otherwise, so the offsets at which the next pulls will have to go
on can be guessed, and several are under way at once. A guess that was wrong is thrown away.

Messages of a range that retention has deleted, or a broker lost, are a loss of data: an error, or a warning where the
user said `failOnDataLoss=false`. A queue that ends before the range does is asked again for a while, for a broker that
has just failed over may still be catching up.

Java: client/impl/consumer/DefaultMQPullConsumerImpl.java
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import numpy as np
import pyarrow.compute as pc

from rocketlet.common.errors import RocketletError
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.spark_jobs.message_columns import MessageBatch
from rocketlet.spark_jobs.rocketmq.broker_reader import BrokerReader, Pulled
from rocketlet.spark_jobs.rocketmq.queue_offsets import OffsetRange
from rocketlet.spark_jobs.segment_rows import heads_at
from rocketlet.store.layout.log_scan import chain

log = logging.getLogger("rocketlet.spark_jobs.rocketmq")

_BATCH_BYTES = 4 << 20
_LOOK_AGAIN = 0.5
_AT_ONCE = 4


class DataLost(RocketletError):
    """Messages of a range no longer exist."""


def batches(
    reader: BrokerReader,
    group: str,
    subscription: Subscription,
    offset_range: OffsetRange,
    *,
    fail_on_data_loss: bool,
    inflate: bool,
    retry_seconds: float,
) -> Iterator[MessageBatch]:
    """The messages of a range in their order. Raises DataLost, ClientError."""
    position, buffer = offset_range.begin, bytearray()
    pulls = Pulls(lambda offset: reader.pull_soon(group, subscription, offset_range.queue, offset), offset_range.end)
    give_up = time.monotonic() + retry_seconds
    try:
        while position < offset_range.end:
            pulled = pulls.at(position)
            next_offset = _progress(pulled, offset_range, position, fail_on_data_loss, time.monotonic() > give_up)
            if next_offset == position:
                time.sleep(_LOOK_AGAIN)
            else:
                give_up = time.monotonic() + retry_seconds
            pulls.guess(position, next_offset)
            position = next_offset
            buffer += pulled.records
            if len(buffer) >= _BATCH_BYTES:
                yield from _batch(buffer, subscription, offset_range, inflate)
                buffer = bytearray()
        yield from _batch(buffer, subscription, offset_range, inflate)
    finally:
        pulls.forget()


class Pulls:
    """Pulls of one queue that are under way, the first of them at an offset that is wanted next."""

    def __init__(self, ask: Callable[[int], Future[Pulled]], end: int) -> None:
        self._ask = ask
        self._end = end
        self._requested: deque[tuple[int, Future[Pulled]]] = deque()
        self._step = 0

    def at(self, offset: int) -> Pulled:
        """The answer at an offset, which is waited for."""
        if not self._requested or self._requested[0][0] != offset:
            self.forget()
            self._requested.append((offset, self._ask(offset)))
        return self._requested.popleft()[1].result()

    def guess(self, at: int, after: int) -> None:
        """The answer at one offset led to another: ask there, and where its like would lead if it came twice."""
        step, self._step = self._step, after - at
        if self._requested and self._requested[0][0] != after:
            self.forget()
        following = self._requested[-1][0] + self._step if self._requested else after
        ahead = _AT_ONCE if step == self._step > 0 else 1
        while following < self._end and len(self._requested) < ahead:
            self._requested.append((following, self._ask(following)))
            if self._step == 0:
                return
            following += self._step

    def forget(self) -> None:
        """What is under way is not wanted."""
        for _, future in self._requested:
            future.cancel()
        self._requested.clear()


def _progress(pulled: Pulled, offset_range: OffsetRange, offset: int, fail_on_data_loss: bool, is_late: bool) -> int:
    """The offset to continue at; `offset` itself where asking again may help."""
    queue = offset_range.queue
    if pulled.min_offset > offset:
        first = min(pulled.min_offset, offset_range.end)
        _lost(f"{queue}: the messages from offset {offset} to {first} were deleted by the broker", fail_on_data_loss)
        return max(first, pulled.next_offset if pulled.records else first)
    if pulled.code == ResponseCode.SUCCESS or pulled.next_offset > offset:
        return (
            max(pulled.next_offset, offset + 1)
            if pulled.records
            else min(max(pulled.next_offset, offset), offset_range.end)
        )
    if not is_late:
        return offset
    _lost(
        f"{queue}: the messages from offset {offset} to {offset_range.end} are gone:"
        f" the queue ends at {pulled.max_offset}",
        fail_on_data_loss,
    )
    return offset_range.end


def _lost(text: str, fails: bool) -> None:
    if fails:
        raise DataLost(f"{text}; set option failOnDataLoss to false to continue without them")
    log.warning("%s", text)


def _batch(
    records: bytearray, subscription: Subscription, offset_range: OffsetRange, inflate: bool
) -> Iterator[MessageBatch]:
    """The records as a batch, without those after the range and those whose tag merely has the same hash."""
    if not records:
        return
    places, end = chain(memoryview(records), 0, len(records))
    if end != len(records):
        raise RocketletError(
            f"{offset_range.queue}: the broker's answer holds {len(records) - end} bytes that are no record"
        )
    batch = MessageBatch(records, heads_at(records, places), inflate=inflate)
    offsets = batch.heads.queue_offset
    passed = (offsets >= offset_range.begin) & (offsets < offset_range.end)
    if subscription.tags:
        tags = pc.is_in(batch.properties.column(b"TAGS"), pc.cast(sorted(subscription.tags), "binary"))
        passed &= pc.fill_null(tags, False).to_numpy(zero_copy_only=False)
    if not passed.all():
        batch = batch.where(np.flatnonzero(passed))
    if len(batch):
        yield batch
