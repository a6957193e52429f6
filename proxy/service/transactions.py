"""Transactions that are under way: where their half messages are, and whom to ask about them.

A client ends a transaction by its id alone, so the place of the half message is remembered from its send, or from the
broker's question about it. What was forgotten (a restart of ours, another endpoint) the broker asks about, so nothing
hangs. Brokers ask producer groups; a producer's group is the topic that it sends to, and this process is a member of
the groups of all its producers.

Java: proxy/service/transaction/AbstractTransactionService.java, ClusterTransactionService.java
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from rocketlet.common import message_properties as props
from rocketlet.common.message_id import InvalidMessageId, parse_offset_message_id
from rocketlet.common.message_record import RecordError, decode
from rocketlet.proxy.call import Refusal
from rocketlet.proxy.service.brokers import Brokers
from rocketlet.proxy.service.clients import Clients
from rocketlet.proxy.service.incoming import incoming
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.handler import Handler, HandlerTable, Request
from rocketlet.remoting.protocol.membership import HeartbeatData, ProducerData
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader
from rocketlet.remoting.protocol.transactions import (
    COMMIT,
    ROLLBACK,
    CheckTransactionStateHeader,
    EndTransactionHeader,
)
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.proxy.transactions")

MOST_OPEN = 100_000
"""Transactions remembered; the oldest go first, and the broker asks about them."""
HEARTBEAT_SECONDS = 30.0
_MOST_GROUPS = 1000  # of one heartbeat; a broker has a limit too
_RESOLUTIONS = {m.COMMIT: COMMIT, m.ROLLBACK: ROLLBACK}


@dataclass(frozen=True, slots=True)
class _Half:
    broker: str
    log_offset: int
    queue_offset: int
    unique_key: str


class Transactions(ConnectionEvents):
    """See the module."""

    def __init__(self, clients: Clients, client_id: str) -> None:
        self.brokers: Brokers | None = None  # which has us among the events of its pool
        self._clients = clients
        self._client_id = client_id
        self._open: dict[tuple[str, str], _Half] = {}
        self._known_at: dict[str, set[str]] = {}  # broker's address -> topics that we are a producer of
        self._soon = trio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def table(self) -> HandlerTable:
        """What brokers ask of us."""
        return {
            int(RequestCode.CHECK_TRANSACTION_STATE): Handler(
                self._asked, CheckTransactionStateHeader, "client", longest_body=None
            )
        }

    # ---- sent and ended

    def begun(self, topic: str, broker: str, message_id: str, header: SendMessageAnswerHeader) -> str:
        """A half message was stored; the id of its transaction."""
        try:
            log_offset = parse_offset_message_id(header.msgId)[2]
        except InvalidMessageId as error:
            log.warning("transaction %s cannot be ended but by a question of %s: %s", message_id, broker, error)
            return message_id
        transaction_id = header.transactionId or message_id
        self._remember(topic, transaction_id, _Half(broker, log_offset, header.queueOffset, message_id))
        return transaction_id

    def _remember(self, topic: str, transaction_id: str, half: _Half) -> None:
        self._open.pop((topic, transaction_id), None)
        self._open[topic, transaction_id] = half
        while len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    async def end(self, request: m.EndTransactionRequest) -> None:
        """Commit or roll back. Raises Refusal."""
        assert self.brokers is not None
        key = request.topic.name, request.transaction_id
        half = self._open.get(key)
        if not request.transaction_id or half is None:
            raise Refusal(
                Code.INVALID_TRANSACTION_ID,
                f"transaction {request.transaction_id[:80]!r} of topic {request.topic.name} is not known here; if its"
                " message was sent, the broker will ask about it",
            )
        resolution = _RESOLUTIONS.get(request.resolution)
        if resolution is None:
            return  # unknown: the broker asks again
        header = EndTransactionHeader(
            commitLogOffset=half.log_offset,
            commitOrRollback=resolution,
            tranStateTableOffset=half.queue_offset,
            producerGroup=request.topic.name,
            fromTransactionCheck=request.source == m.SOURCE_SERVER_CHECK,
            msgId=half.unique_key,
            transactionId=request.transaction_id,
            bname=half.broker,
        )
        await self.brokers.demand(self.brokers.master(half.broker), RequestCode.END_TRANSACTION, header)
        self._open.pop(key, None)

    # ---- asked

    def _asked(self, request: Request) -> None:
        """A broker asks about a transaction: so does a producer of its topic get asked."""
        header: CheckTransactionStateHeader = request.header
        try:
            record = decode(bytes(request.body))
        except RecordError as error:
            log.warning("%s asks about a transaction with what is no message: %s", request.connection.peer, error)
            return
        properties = props.decode_bytes(record.properties)
        transaction_id = header.transactionId or properties.get(props.UNIQ_KEY) or header.msgId or ""
        broker = header.bname or self._broker_at(request.connection)
        self._remember(
            record.topic,
            transaction_id,
            _Half(
                broker,
                header.commitLogOffset,
                header.tranStateTableOffset,
                properties.get(props.UNIQ_KEY) or header.msgId or "",
            ),
        )
        for client in self._clients.producers(record.topic):
            if not client.telemetry.is_over and not client.is_leaving:
                command = m.RecoverOrphanedTransactionCommand(
                    message=incoming(record, properties, record.topic, None), transaction_id=transaction_id
                )
                client.telemetry.send(
                    m.TelemetryCommand(
                        status=m.Status(code=Code.OK, message="OK"), recover_orphaned_transaction_command=command
                    )
                )
                return
        log.info("no producer of topic %s is here to be asked about transaction %s", record.topic, transaction_id)

    def _broker_at(self, connection: Connection) -> str:
        assert self.brokers is not None
        return next((name for name, at in self.brokers.masters.items() if at == connection.peer), "")

    # ---- known to brokers

    async def introduce(self, topic: str, address: str) -> None:
        """Make sure that the broker knows whom to ask, before it has a transaction of this topic."""
        if topic not in self._known_at.get(address, ()):
            await self._heartbeat(address, {topic} | set(list(self._known_at.get(address, ()))[: _MOST_GROUPS - 1]))

    async def run(self) -> None:
        """Tell brokers again and again of what topics there are producers, until cancelled."""
        while True:
            for address in list(self._known_at):
                topics = self._known_at[address] & self._clients.topics()
                if not topics:
                    del self._known_at[address]
                    continue
                try:
                    await self._heartbeat(address, set(list(topics)[:_MOST_GROUPS]))
                except Refusal as error:
                    log.warning("%s does not know our producers of transactions: %s", address, error)
            with trio.move_on_after(HEARTBEAT_SECONDS):
                await self._soon.wait()
            self._soon = trio.Event()

    async def _heartbeat(self, address: str, topics: set[str]) -> None:
        assert self.brokers is not None
        body = HeartbeatData(
            clientID=self._client_id, producerDataSet=[ProducerData(groupName=topic) for topic in sorted(topics)]
        ).to_json()
        await self.brokers.demand(address, RequestCode.HEART_BEAT, None, body)
        self._known_at[address] = topics

    def connected(self, connection: Connection) -> None:
        """See ConnectionEvents: a broker that restarted knows nobody."""
        if connection.peer in self._known_at:
            self._soon.set()
