"""Open transactions: where their half messages are, and which producers to check with.

A client ends a transaction by its id only, so the place of the half message is remembered from its send, or from the
broker's check. If it was forgotten (our restart, another endpoint), the broker checks again, so nothing hangs. Brokers
check with producer groups; a producer's group is the topic it sends to, and this process is a member of the groups of
all its transaction producers.

Java: proxy/service/transaction/AbstractTransactionService.java, ClusterTransactionService.java
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from rocketlet.client.errors import ClientError
from rocketlet.common import message_properties as props
from rocketlet.common.message_id import InvalidMessageId, parse_offset_message_id
from rocketlet.common.message_record import RecordError, decode
from rocketlet.common.topic_attributes import MIXED, TRANSACTION
from rocketlet.proxy.call import Refusal
from rocketlet.proxy.service.brokers import Brokers
from rocketlet.proxy.service.clients import Clients
from rocketlet.proxy.service.incoming import incoming
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.handler import Handler, HandlerTable, Request
from rocketlet.remoting.protocol.membership import HeartbeatData, ProducerData, UnregisterClientHeader
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader
from rocketlet.remoting.protocol.transactions import (
    COMMIT,
    ROLLBACK,
    CheckTransactionStateHeader,
    EndTransactionHeader,
)
from rocketlet.remoting.request_codes import RequestCode

log = logging.getLogger("rocketlet.proxy.transactions")

MAX_OPEN = 100_000
"""Transactions remembered; the oldest go first, and the broker asks about them."""
HEARTBEAT_SECONDS = 30.0
SETTLED_SECONDS = 10.0
"""So long after its first producer a topic is told to brokers: nobody is asked about what has just begun. Java's
endpoint takes up to 20 s."""
_LOOK_EVERY = 2.0
_MAX_GROUPS = 1000  # of one heartbeat; a broker has a limit too
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
        self.brokers: Brokers | None = None  # whose pool reports events to us
        self._clients = clients
        self._client_id = client_id
        self._open: dict[tuple[str, str], _Half] = {}
        self._since: dict[str, float] = {}  # topic -> when it first had a producer here
        self._announced: dict[str, tuple[frozenset[str], float]] = {}  # broker's address -> the last heartbeat

    def __len__(self) -> int:
        return len(self._open)

    def table(self) -> HandlerTable:
        """The requests that brokers send to us."""
        return {
            int(RequestCode.CHECK_TRANSACTION_STATE): Handler(
                self._on_check, CheckTransactionStateHeader, "client", longest_body=None
            )
        }

    # ---- sent and ended

    def begun(self, topic: str, broker: str, message_id: str, header: SendMessageAnswerHeader) -> str:
        """A half message was stored. Returns the transaction id."""
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
        while len(self._open) > MAX_OPEN:
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
            return  # unknown: the broker will check again
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

    # ---- checks

    def _on_check(self, request: Request) -> None:
        """A broker checks a transaction: forward the check to a producer of its topic."""
        header: CheckTransactionStateHeader = request.header
        try:
            record = decode(bytes(request.body))
        except RecordError as error:
            log.warning("%s checks a transaction with an invalid message: %s", request.connection.peer, error)
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
        log.info("no producer of topic %s is connected to be asked about transaction %s", record.topic, transaction_id)

    def _broker_at(self, connection: Connection) -> str:
        assert self.brokers is not None
        return next((name for name, address in self.brokers.masters.items() if address == connection.peer), "")

    # ---- heartbeats to brokers

    async def run(self) -> None:
        """Send brokers heartbeats with the topics of our producers, until cancelled."""
        while True:
            groups = self._groups_by_broker()
            for address in list(self._announced):
                await self._unregister(address, self._announced[address][0] - groups.get(address, frozenset()))
            for address, topics in groups.items():
                announced, when = self._announced.get(address, (frozenset(), 0.0))
                if topics - announced or trio.current_time() - when > HEARTBEAT_SECONDS:
                    await self._heartbeat(address, topics)
            await trio.sleep(_LOOK_EVERY)

    def _groups_by_broker(self) -> dict[str, frozenset[str]]:
        """The topics that have had transaction producers here for a while, by broker address."""
        assert self.brokers is not None
        now = trio.current_time()
        active = self._clients.topics() | {topic for topic, _ in self._open}
        self._since = {topic: self._since.get(topic, now) for topic in active}
        groups: dict[str, set[str]] = {}
        for topic, since in self._since.items():
            entry = self.brokers.known_topic(topic)
            if entry is not None and entry.type in (TRANSACTION, MIXED) and now - since >= SETTLED_SECONDS:
                for address in entry.masters.values():
                    groups.setdefault(address, set()).add(topic)
        return {address: frozenset(sorted(topics)[:_MAX_GROUPS]) for address, topics in groups.items()}

    async def _heartbeat(self, address: str, topics: frozenset[str]) -> None:
        assert self.brokers is not None
        groups = [ProducerData(groupName=topic) for topic in topics]
        body = HeartbeatData(clientID=self._client_id, producerDataSet=groups).to_json()
        try:
            await self.brokers.ask(address, RequestCode.HEART_BEAT, None, body)
        except ClientError as error:
            log.warning("%s does not know our producers of transactions: %s", address, error)
        else:
            self._announced[address] = topics, trio.current_time()

    async def _unregister(self, address: str, topics: frozenset[str]) -> None:
        """A broker closes the connection of a silent producer, and all other producers share that connection."""
        assert self.brokers is not None
        for topic in topics:
            header = UnregisterClientHeader(clientID=self._client_id, producerGroup=topic)
            try:
                await self.brokers.ask(address, RequestCode.UNREGISTER_CLIENT, header)
            except ClientError as error:
                log.info("could not unregister from %s for topic %s: %s", address, topic, error)
        announced = self._announced.get(address)
        if topics and announced is not None:
            remaining = announced[0] - topics
            if remaining:
                self._announced[address] = remaining, announced[1]
            else:
                del self._announced[address]

    def connected(self, connection: Connection) -> None:
        """See ConnectionEvents: a restarted broker knows no clients."""
        self._announced.pop(connection.peer, None)
