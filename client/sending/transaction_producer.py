"""Transactional sends: a half message, a local transaction, and its outcome reported to the broker.

    1. the message is stored where no consumer sees it ("half")
    2. your executor runs the local transaction: COMMIT, ROLLBACK or UNKNOWN
    3. the broker delivers the message, or drops it; upon UNKNOWN, or when it heard nothing, it asks later
    4. your checker answers, in whatever client of the producer group is alive then

So either both happen, message and local transaction, or neither, even if this process dies in between. What is asked
for a check is a new copy of the half message, with the same unique id; that id is the transaction's.

Java: client/producer/TransactionMQProducer.java, client/impl/producer/DefaultMQProducerImpl.java
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeAlias

import msgspec
import trio

from rocketlet.client.compression import CannotInflate
from rocketlet.client.config import ProducerConfig
from rocketlet.client.errors import RAISED_BY_USERS, ClientError, InvalidMessage, shown
from rocketlet.client.hooks import EndTransactionContext, EndTransactionHook, SendHook, call_hooks
from rocketlet.client.sending.producer import ProducerEngine
from rocketlet.client.sending.send import Send
from rocketlet.client.sending.send_result import SendResult, TransactionState
from rocketlet.client.talking.session import World
from rocketlet.client.validators import check_types
from rocketlet.common import message_flags as flags
from rocketlet.common import message_properties as names
from rocketlet.common.message import Message, MessageQueue, ReceivedMessage
from rocketlet.common.message_id import InvalidMessageId, parse_offset_message_id
from rocketlet.common.message_record import RecordError
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.handler import Handler, Request
from rocketlet.remoting.protocol.header import to_ext
from rocketlet.remoting.protocol.transactions import CheckTransactionStateHeader, EndTransactionHeader
from rocketlet.remoting.rates import Rates
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.client.transaction_producer")

# Of checks that have begun or wait for their turn. What is dropped the broker asks again, a minute later by default.
MOST_CHECKS = 2000  # RocketMQ's checkRequestHoldMax
MOST_CHECKED = 64 << 20  # bytes of their messages
_LINES_A_SECOND = 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """The argument of a local executor: the message, the transaction's id, and the argument of the send."""

    message: Message
    transaction_id: str
    argument: Any


Executor: TypeAlias = Callable[[Transaction], TransactionState | None]
Checker: TypeAlias = Callable[[ReceivedMessage], TransactionState | None]
AsyncExecutor: TypeAlias = Callable[[Transaction], Awaitable[TransactionState | None]]
AsyncChecker: TypeAlias = Callable[[ReceivedMessage], Awaitable[TransactionState | None]]


def checked_state(state: TransactionState | None) -> TransactionState | None:
    """The outcome that an executor or a checker returned. Raises TypeError for anything else."""
    if not isinstance(state, (TransactionState, NoneType)):
        raise TypeError(f"it returned {shown(state)}, which is no TransactionState")
    return state


class TransactionEngine(ProducerEngine):
    """A producer whose group is asked about its transactions. `check` runs the user's checker where user code may
    run."""

    def __init__(
        self, group: str, config: ProducerConfig, world: World, check: AsyncChecker, hooks: Sequence[SendHook] = ()
    ) -> None:
        super().__init__(group, config, world, hooks)
        self._check = check
        self.may_check = trio.Event()
        """Checks wait until it is set: a broker may ask while the producer starts, and a checker may use it."""
        self.session.known_everywhere = True
        self._checks = 0
        self._checked = 0  # bytes
        self._lines = Rates()
        self.session.handlers[int(RequestCode.CHECK_TRANSACTION_STATE)] = Handler(
            self._on_check, CheckTransactionStateHeader, "client", longest_body=None
        )

    def prepare_half(self, message: Message, queue: MessageQueue | None, timeout: float | None) -> Send:
        """The half message. In the caller's thread."""
        check_types(message)
        if message.delay_level or message.deliver_at is not None:
            raise InvalidMessage("a transactional message cannot be delayed", topic=message.topic)
        extra = {names.TRAN_MSG: "true", names.PGROUP: self.group}
        return self.prepare(message, queue, timeout=timeout, extra=extra, sys_flag=flags.PREPARED)

    async def end(
        self, message: Message, result: SendResult, state: TransactionState, failure: BaseException | None
    ) -> SendResult:
        """Tell the broker the outcome. It is told once; if that is lost, it asks."""
        remark = None if failure is None else f"executeLocalTransactionBranch exception: {shown(failure)}"
        ended = msgspec.structs.replace(result, state=state, transaction_id=result.message_id)
        try:
            commit_log_offset = parse_offset_message_id(result.offset_message_id)[2]
        except InvalidMessageId as error:
            log.warning("the broker cannot be told of %s of %s, it will ask: %s", state.name, result.message_id, error)
            return ended
        header = EndTransactionHeader(
            commitLogOffset=commit_log_offset,
            commitOrRollback=state.value,
            tranStateTableOffset=result.queue_offset,
            producerGroup=self.group,
            fromTransactionCheck=False,
            msgId=result.message_id,
            transactionId=result.message_id,
            bname=result.queue.broker_name,
        )
        address = self.session.routes.master(result.queue.broker_name)
        try:
            if address is not None:
                await self.session.brokers.end_transaction(address, header, remark)
        except ClientError as error:
            log.warning("the broker was not told of %s of %s, it will ask: %s", state.name, result.message_id, error)
        self._call_hooks(message, header, result.region_id, state)
        return ended

    # ---- asked by the broker

    def _on_check(self, request: Request) -> None:
        if self.is_stopping:
            return  # as long as checks came in, their tasks would keep the pipeline from ending
        if self._checks >= MOST_CHECKS or (self._checks and self._checked + len(request.body) > MOST_CHECKED):
            self._drop(request, f"{self._checks} checks of {self._checked} bytes wait for the checker")
            return
        try:
            message = self.session.reader.single(bytes(request.body), request.header.bname or "")
        except (RecordError, CannotInflate) as error:
            self._drop(request, f"its message is unreadable: {error}")
            return
        request.body = b""
        self.pipeline.start_task(self._check_and_answer, request, message, len(message.body))
        self._checks += 1
        self._checked += len(message.body)

    def _drop(self, request: Request, reason: str) -> None:
        if self._lines.take("", _LINES_A_SECOND, trio.current_time()):
            log.warning("a check asked for by %s is dropped: %s", request.connection.peer, reason)

    async def _check_and_answer(self, request: Request, message: ReceivedMessage, size: int) -> None:
        try:
            await self._answer(request, request.header, message)
        finally:
            self._checks -= 1
            self._checked -= size

    async def _answer(self, request: Request, header: CheckTransactionStateHeader, message: ReceivedMessage) -> None:
        state, remark = TransactionState.UNKNOWN, None
        # Before the checker, which may write anything into the message.
        message_id = message.message_id
        unique_id = message.properties.get(names.UNIQ_KEY) or header.msgId or ""
        region_id = message.properties.get(names.MSG_REGION)
        await self.may_check.wait()
        try:
            state = checked_state(await self._check(message)) or TransactionState.UNKNOWN
        except RAISED_BY_USERS as error:
            log.exception("the checker raised on message %s; its transaction stays unknown", message_id)
            remark = f"checkLocalTransactionState Exception: {shown(error)}"
        answer = EndTransactionHeader(
            commitLogOffset=header.commitLogOffset,
            commitOrRollback=state.value,
            tranStateTableOffset=header.tranStateTableOffset,
            producerGroup=self.group,
            fromTransactionCheck=True,
            msgId=unique_id,
            transactionId=header.transactionId,
            bname=header.bname,
        )
        try:
            request.connection.send_oneway(Command(int(RequestCode.END_TRANSACTION), remark=remark, ext=to_ext(answer)))
        except RemotingError as error:
            log.warning("the broker was not told of %s of %s, it will ask: %s", state.name, message_id, error)
        self._call_hooks(message, answer, region_id, state)

    def _call_hooks(
        self,
        message: Message | ReceivedMessage,
        header: EndTransactionHeader,
        region_id: str | None,
        state: TransactionState,
    ) -> None:
        message_id, broker_name = header.msgId or "", header.bname or ""
        context = EndTransactionContext(
            self.group, message, message_id, broker_name, region_id, state, header.fromTransactionCheck
        )
        hooks = [hook.after_end_transaction for hook in self.hooks if isinstance(hook, EndTransactionHook)]
        call_hooks(hooks, context, "transaction", message_id)
