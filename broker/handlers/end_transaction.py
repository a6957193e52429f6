"""37 END_TRANSACTION, 323 RESUME_CHECK_HALF_MESSAGE: ending a transaction, and resuming its checks.

37 names the half message by its offset in the log and in the half queue, and the producer group; a mismatch is 1. The
state "unknown" (0) is never answered. On a slave: 11. The first end wins; a later or different one gets the answer that
the transaction is over (1). Java producers send it one-way and never learn. 323 restarts the checks of a message that
was given up; a committed one is refused (1).

Java: broker/processor/EndTransactionProcessor.java, AdminBrokerProcessor.java (resumeCheckHalfMessage)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketlet.broker.durability import Durability
from rocketlet.broker.half_messages import EndRefused, HalfMessages
from rocketlet.broker.identity import Identity
from rocketlet.broker.statistics import Statistics
from rocketlet.common.message_id import InvalidMessageId, parse_offset_message_id
from rocketlet.remoting.access import Found, publish
from rocketlet.remoting.handler import Answer, Deferred, Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.transactions import (
    COMMIT,
    ROLLBACK,
    EndTransactionHeader,
    ResumeCheckHalfMessageHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.errors import StoreError

if TYPE_CHECKING:
    from rocketlet.store.message import Appended

log = logging.getLogger("rocketlet.broker.handlers.end_transaction")


class EndTransaction:
    """Ends transactions at their producers' request."""

    def __init__(
        self, identity: Identity, halves: HalfMessages, durability: Durability, statistics: Statistics
    ) -> None:
        self._identity = identity
        self._halves = halves
        self._durability = durability
        self._statistics = statistics

    def table(self) -> HandlerTable:
        return {
            # The request has no topic; the half message does.
            RequestCode.END_TRANSACTION: Handler(
                self.end, EndTransactionHeader, "transaction", access=publish(Found(self._topic_of))
            ),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: Handler(self.resume, ResumeCheckHalfMessageHeader),
        }

    def _topic_of(self, header: EndTransactionHeader) -> list[str]:
        topic = self._halves.topic_at(header.commitLogOffset)
        return [] if topic is None else [topic]

    def end(self, request: Request) -> Answer | Deferred:
        header: EndTransactionHeader = request.header
        if self._identity.slave:
            raise Refused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave ends no transactions; ask its master")
        if header.commitOrRollback not in (COMMIT, ROLLBACK):
            log.info("producer group %s does not know yet: %s", header.producerGroup, header.msgId)
            return None
        if request.remark:
            log.warning("producer group %s ends %s after: %s", header.producerGroup, header.msgId, request.remark)
        try:
            appended = self._end(header)
        except EndRefused as refused:
            log.warning("transaction %s of group %s is not ended: %s", header.msgId, header.producerGroup, refused)
            raise Refused(ResponseCode.SYSTEM_ERROR, str(refused)) from None
        except StoreError as error:
            log.error("transaction %s of group %s cannot be ended now: %s", header.msgId, header.producerGroup, error)
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return self._durability.answer(request, appended.end, Reply(), ResponseCode.FLUSH_DISK_TIMEOUT)

    def _end(self, header: EndTransactionHeader) -> Appended:
        is_commit = header.commitOrRollback == COMMIT
        end = self._halves.commit if is_commit else self._halves.roll_back
        appended = end(header.commitLogOffset, header.tranStateTableOffset, header.producerGroup)
        self._statistics.committed += is_commit
        self._statistics.rolled_back += not is_commit
        return appended

    def resume(self, request: Request) -> Answer | Deferred:
        header: ResumeCheckHalfMessageHeader = request.header
        try:
            _, _, log_offset = parse_offset_message_id(header.msgId)
            appended = self._halves.resume(log_offset)
        except (InvalidMessageId, EndRefused, StoreError) as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed. {error}"
            ) from None
        if appended is None:
            return Reply()
        return self._durability.answer(request, appended.end, Reply(), ResponseCode.FLUSH_DISK_TIMEOUT)
