"""A connection to name servers and brokers for Spark's own threads: routes, offsets, and records as they were stored.

It is a client's session, run by trio in a thread of its own between `__enter__` and `__exit__`. It joins no group and
sends no heartbeats: Spark assigns the queues. Records are not decoded here; columns are made from them.

Every question is repeated for `retry_seconds`, with fresh routes, while brokers cannot be reached or refuse for a
moment: a broker that restarts or fails over holds a stream up, and does not end it.

Java: client/impl/consumer/PullAPIWrapper.java
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import trio

from rocketlet.client.config import ClientConfig
from rocketlet.client.errors import ClientError, NoRoute, Refused
from rocketlet.client.talking.session import Session, World
from rocketlet.common.message import MessageQueue
from rocketlet.common.subscription import Subscription
from rocketlet.remoting.protocol import pulling
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.spark_jobs.rocketmq")

Result = TypeVar("Result")

# What a broker is asked for at once; it sends 32 (Java's default) or as many as it thinks fit.
_MAX_PER_PULL = 1024
_PULL_TIMEOUT = 15.0
_LONGEST_PAUSE = 2.0
_SHORT_TIMEOUT = 2.0
# Refusals that may be temporary: SYSTEM_ERROR, SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, and what brokers say of topics
# whose tables they have not loaded yet, TOPIC_NOT_EXIST.
_PASSING = frozenset({1, 2, 14, 17})


@dataclass(frozen=True, slots=True)
class Pulled:
    """One answer: where to go on, the bounds of the queue, and the records, one after the other."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes | memoryview


class BrokerReader:
    """To be used in a `with` block; its methods may be called by any thread but trio's own."""

    def __init__(self, config: ClientConfig, retry_seconds: float = 60.0) -> None:
        self._session = Session(config, World())
        self._retry_seconds = retry_seconds
        self._thread = threading.Thread(target=self._run, name="rocketlet-spark-reader", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    # ---- life

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._token.run_sync_soon(self._stop.set)
        except trio.RunFinishedError:
            pass  # it has failed; its calls have raised that already
        self._thread.join()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the start
            self._failure = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with self._session.opened() as nursery:
            self._nursery = nursery
            self._ready.set()
            await self._stop.wait()

    def _start_soon(
        self, function: Callable[..., Awaitable[Result]], *arguments: Any, timeout: float | None = None
    ) -> Future[Result]:
        """Start a request; its answer is a future."""
        future: Future[Result] = Future()
        timeout = self._retry_seconds if timeout is None else timeout

        async def ask() -> None:
            if not future.set_running_or_notify_cancel():
                return  # nobody wants the answer any more
            try:
                future.set_result(await self._retry_until(timeout, function, *arguments))
            except BaseException as error:
                future.set_exception(ClientError("the reader was closed") if _is_cancelled(error) else error)
                if not isinstance(error, Exception):
                    raise

        self._token.run_sync_soon(self._nursery.start_soon, ask)
        return future

    async def _retry_until(self, timeout: float, function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
        deadline = trio.current_time() + timeout
        pause = 0.1
        while True:
            try:
                return await function(*arguments)
            except ClientError as error:
                if trio.current_time() + pause > deadline or not _may_pass(error):
                    raise
                log.warning("asked again in %.1f s: %s", pause, error)
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            for topic in self._session.routes.topics():
                try:
                    await self._session.refresh(topic)
                except ClientError as error:
                    log.warning("the route of %s was not refreshed: %s", topic, error)

    # ---- requests

    def topics(self) -> list[str]:
        """All topics that the name servers know, the system's own among them."""
        return self._start_soon(self._topics).result()

    async def _topics(self) -> list[str]:
        return sorted(await self._session.namesrv.topics())

    def unknown(self, topics: Iterable[str]) -> list[str]:
        """Those of these topics that no broker serves, by the first answer of a name server. Raises NoRoute where none
        answers."""
        return [topic for topic in topics if self._start_soon(self._session.namesrv.route, topic).result() is None]

    def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """The queues that can be read, as the name servers know them now. Raises NoRoute for a topic without any."""
        return [queue for topic in topics for queue in self._start_soon(self._queues, topic).result()]

    async def _queues(self, topic: str) -> list[MessageQueue]:
        await self._session.refresh(topic)
        return list((await self._session.route(topic)).readable)

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The oldest offset of each queue."""
        return self._of_each(self._min_offset, queues)

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The offset that the next message of each queue gets."""
        return self._of_each(self._max_offset, queues)

    def max_offsets_known(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The same for a stream that continues without the queues of a broker that is away."""
        futures = {queue: self._start_soon(self._max_offset, queue, timeout=_SHORT_TIMEOUT) for queue in queues}
        offsets = {}
        for queue, future in futures.items():
            try:
                offsets[queue] = future.result()
            except ClientError as error:
                log.warning("%s stays where it is: %s", queue, error)
        return offsets

    def offsets_at(self, queues: Iterable[MessageQueue], time: int) -> dict[MessageQueue, int]:
        """The offset of the first message of each queue that was stored at this time, in milliseconds, or later."""
        return self._of_each(self._offset_at, queues, time)

    def _of_each(
        self, function: Callable[..., Awaitable[int]], queues: Iterable[MessageQueue], *arguments: Any
    ) -> dict[MessageQueue, int]:
        futures = {queue: self._start_soon(function, queue, *arguments) for queue in queues}
        return {queue: future.result() for queue, future in futures.items()}

    async def _min_offset(self, queue: MessageQueue) -> int:
        return await self._session.brokers.min_offset(await self._session.reader_of(queue), queue)

    async def _max_offset(self, queue: MessageQueue) -> int:
        return await self._session.brokers.max_offset(await self._session.reader_of(queue), queue)

    async def _offset_at(self, queue: MessageQueue, time: int) -> int:
        offset = await self._session.brokers.offset_at(await self._session.reader_of(queue), queue, time)
        # Brokers answer with the message nearest in time, which may be the one before. Its own time tells.
        pulled = await self._pull("SPARK_READER", Subscription(queue.topic, "*"), queue, offset, 1)
        if pulled.records and _store_time(pulled.records) < time:
            return offset + 1
        return offset

    def commit(self, group: str, offsets: dict[MessageQueue, int]) -> None:
        """Store the progress of a group, so that its lag can be seen."""
        for future in [self._start_soon(self._commit, group, queue, offset) for queue, offset in offsets.items()]:
            future.result()

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        await self._session.brokers.commit(await self._session.reader_of(queue), group, queue, offset, wait=True)

    def pull_soon(self, group: str, subscription: Subscription, queue: MessageQueue, offset: int) -> Future[Pulled]:
        """Start a pull of messages from an offset on, as many as the broker sends at once."""
        return self._start_soon(self._pull, group, subscription, queue, offset, _MAX_PER_PULL)

    async def _pull(
        self, group: str, subscription: Subscription, queue: MessageQueue, offset: int, at_most: int
    ) -> Pulled:
        await self._session.route(queue.topic)
        place = self._session.routes.address(queue.broker_name)
        if place is None:
            raise NoRoute("the queue's broker is in no route", topic=queue.topic, broker=queue.broker_name)
        header = pulling.PullMessageHeader(
            queueId=queue.queue_id,
            queueOffset=offset,
            maxMsgNums=at_most,
            topic=queue.topic,
            consumerGroup=group,
            sysFlag=pulling.SUBSCRIPTION,
            subscription=subscription.expression,
            subVersion=subscription.version,
            expressionType=subscription.expression_type,
            bname=queue.broker_name,
        )
        code, answer, body = await self._session.brokers.pull(place[0], header, _PULL_TIMEOUT)
        records = body if code == ResponseCode.SUCCESS else b""
        return Pulled(code, answer.nextBeginOffset, answer.minOffset, answer.maxOffset, records)


def _store_time(record: bytes | memoryview) -> int:
    from rocketlet.spark_jobs.segment_rows import heads_at

    return int(heads_at(memoryview(record), [0]).store_timestamp[0])


def _may_pass(error: ClientError) -> bool:
    return not isinstance(error, Refused) or error.code in _PASSING


def _is_cancelled(error: BaseException) -> bool:
    return isinstance(error, trio.Cancelled)
