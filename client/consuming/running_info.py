"""The parts of a consumer's running info, which administrators ask for (307): settings, rates, queues, stacks.

Java: client/impl/consumer/MQConsumerInner.java#consumerRunningInfo, client/stat/ConsumerStatsManager.java
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, fields

import trio

from rocketlet.client.config import ConsumerConfig, PushConfig
from rocketlet.client.consuming.process_queue import ProcessQueue
from rocketlet.common.clock import WallClock, monotonic_ms
from rocketlet.remoting.command import VERSION, version_name
from rocketlet.remoting.protocol.inspection import ConsumeStatus, ProcessQueueInfo

_NOT_REPORTED = frozenset({"secret_key", "access_key", "security_token", "allocation"})
_WINDOW_MS = 60_000
_BUCKET_MS = 10_000


def settings_info(config: ConsumerConfig) -> dict[str, str]:
    """The settings under our names, and those that RocketMQ's tools look for under theirs."""
    push = config if isinstance(config, PushConfig) else None
    return {
        **{field.name: str(getattr(config, field.name)) for field in fields(config) if field.name not in _NOT_REPORTED},
        "PROP_CLIENT_VERSION": version_name(VERSION),
        "PROP_CONSUMEORDERLY": "true" if push is not None and push.orderly else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(push.threads if push is not None else 0),
    }


def queue_info(process_queue: ProcessQueue, clock: WallClock) -> ProcessQueueInfo:
    """A held queue. Requires: what has been consumed is applied."""
    first, last = process_queue.open_range
    offset_ms = clock() - trio.current_time() * 1000  # from the engine's clock, which never jumps, to wall-clock time
    return ProcessQueueInfo(
        cachedMsgCount=process_queue.count,
        cachedMsgMaxOffset=last,
        cachedMsgMinOffset=first,
        cachedMsgSizeInMiB=process_queue.bytes >> 20,
        commitOffset=process_queue.committable(),
        droped=process_queue.dropped,
        lastConsumeTimestamp=round(process_queue.last_consume + offset_ms),
        lastLockTimestamp=round(process_queue.last_lock + offset_ms) if process_queue.last_lock else 0,
        lastPullTimestamp=round(process_queue.last_pull + offset_ms),
        locked=process_queue.locked,
    )


def stacks() -> str:
    """What each thread of this process is doing, as a Java client's jstack shows it."""
    names: dict[int | None, str] = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"{names.get(ident, '?')} TID: {ident}\n")
        parts.extend(traceback.format_stack(frame))
        parts.append("\n")
    return "".join(parts)


@dataclass(slots=True)
class _Bucket:
    begin: int
    pulled: int = 0
    consumed: int = 0
    failed: int = 0
    consume_ms: float = 0.0


class ConsumerStatistics:
    """Rates by topic over the last minute, in six buckets of 10 s."""

    def __init__(self) -> None:
        self._buckets: defaultdict[str, deque[_Bucket]] = defaultdict(deque)
        self._failed: Counter[str] = Counter()

    def pulled(self, topic: str, count: int) -> None:
        """A pull found messages."""
        self._bucket(topic).pulled += count

    def consumed(self, topic: str, count: int, failed: int, elapsed_ms: float) -> None:
        """A listener came back."""
        bucket = self._bucket(topic)
        bucket.consumed += count
        bucket.failed += failed
        bucket.consume_ms += elapsed_ms
        self._failed[topic] += failed

    def _bucket(self, topic: str) -> _Bucket:
        now, buckets = monotonic_ms(), self._buckets[topic]
        if not buckets or now - buckets[-1].begin >= _BUCKET_MS:
            buckets.append(_Bucket(now))
        while buckets[0].begin < now - _WINDOW_MS:
            buckets.popleft()
        return buckets[-1]

    def of(self, topic: str) -> ConsumeStatus:
        """The last minute of a topic. Rates are per second, times averages in milliseconds; pulls are not timed."""
        self._bucket(topic)  # forgets what is older
        buckets, seconds = self._buckets[topic], _WINDOW_MS / 1000
        consumed = sum(bucket.consumed for bucket in buckets)
        failed = sum(bucket.failed for bucket in buckets)
        return ConsumeStatus(
            pullTPS=sum(bucket.pulled for bucket in buckets) / seconds,
            consumeOKTPS=consumed / seconds,
            consumeFailedTPS=failed / seconds,
            consumeRT=sum(bucket.consume_ms for bucket in buckets) / max(1, consumed + failed),
            consumeFailedMsgs=self._failed[topic],
        )
