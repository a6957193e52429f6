"""41 LOCK_BATCH_MQ, 42 UNLOCK_BATCH_MQ: a client takes queues of its group for consuming in order, or gives them back.

The answer to 41 lists what the client holds now of what it asked for, perhaps nothing. 42 gives back only what the
client itself holds and is always a success.

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
    """The lock table, as clients ask for it."""

    def __init__(self, locks: QueueLocks[WireQueue], now: Callable[[], int], changed: Callable[[], None]) -> None:
        """`changed` is called when a queue may have got or lost a holder."""
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
