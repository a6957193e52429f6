"""41 LOCK_BATCH_MQ, 42 UNLOCK_BATCH_MQ: a client locks queues of its group for consuming in order, or unlocks them.

The answer to 41 lists the requested queues that the client now holds, perhaps none. 42 unlocks only queues that the
client itself holds, and always succeeds.

Java: broker/processor/AdminBrokerProcessor.java (lockBatchMQ, unlockBatchMQ)
"""

from __future__ import annotations

from collections.abc import Callable

from rocketlet.broker.queue_locks import LONGEST_NAME, QueueLocks
from rocketlet.remoting.access import subscribe
from rocketlet.remoting.handler import Handler, HandlerTable, Reply, Request
from rocketlet.remoting.protocol.membership import LockBatchAnswerBody, LockBatchBody
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode


class LockQueues:
    """The lock table's requests."""

    def __init__(self, locks: QueueLocks[WireQueue], now: Callable[[], int], changed: Callable[[], None]) -> None:
        """`changed` is called when a queue may have gained or lost a holder."""
        self._locks = locks
        self._now = now
        self._changed = changed

    def table(self) -> HandlerTable:
        return {
            RequestCode.LOCK_BATCH_MQ: Handler(self.lock, access=subscribe(topic=_topics, group=_group)),
            RequestCode.UNLOCK_BATCH_MQ: Handler(self.unlock, access=subscribe(topic=_topics, group=_group)),
        }

    def lock(self, request: Request) -> Reply:
        body = LockBatchBody.from_json(request.body)
        queues = [
            queue for queue in body.mqSet if len(queue.topic) <= LONGEST_NAME and len(queue.brokerName) <= LONGEST_NAME
        ]
        granted = self._locks.lock(body.consumerGroup, body.clientId, queues, self._now())
        self._changed()
        return Reply(body=LockBatchAnswerBody(granted).to_json())

    def unlock(self, request: Request) -> Reply:
        body = LockBatchBody.from_json(request.body)
        self._locks.unlock(body.consumerGroup, body.clientId, body.mqSet)
        self._changed()
        return Reply()


def _topics(body: bytes | memoryview) -> list[str]:
    return sorted({queue.topic for queue in LockBatchBody.from_json(body).mqSet})


def _group(body: bytes | memoryview) -> list[str]:
    return [LockBatchBody.from_json(body).consumerGroup]
