"""Brokers: 103 register, 104 unregister, 322 ask whether their data version is known.

103  Body by the sender's version: from 37 (V3_0_11) on RegisterBrokerBody, plain or compressed, below a bare topic
     table. A wrong CRC or an unreadable body is answered with 1 and changes nothing. The answer carries the order
     configuration, and for a slave the addresses of its master. A large one is read in pieces, between which other
     requests are served, and then applied in pieces, one registration after the other. What the same broker sends
     meanwhile cannot overtake it: another registration gets in line, and 104 waits.
104  Always 0, even if there is nothing to remove.
322  `changed`, and the version that is stored for the address.

Not served: 904 and the other codes of 5.x's controller mode (3).

Java: namesrv/processor/DefaultRequestProcessor.java (registerBroker…, unregisterBroker, queryBrokerTopicConfig)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import trio
from msgspec import UNSET

from rocketlet.namesrv.advertised import second_address
from rocketlet.namesrv.kv_config import KvConfig
from rocketlet.namesrv.route_table import OlderEpoch, RouteTable, TableFull
from rocketlet.namesrv.route_values import DataVersion, Master, QueueData, Registration
from rocketlet.remoting.command import V3_0_11
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.handler import DEFERRED, Deferred, Handler, HandlerTable, Later, Refused, Reply, Request
from rocketlet.remoting.protocol import configuration
from rocketlet.remoting.protocol.configuration import LONGEST_ENTRY, TopicConfigTable
from rocketlet.remoting.protocol.kv import ORDER_TOPIC_CONFIG, KVTable
from rocketlet.remoting.protocol.registration import (
    QueryDataVersionAnswerHeader,
    QueryDataVersionHeader,
    RegisterBrokerAnswerHeader,
    RegisterBrokerBody,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
    body_crc32,
    in_pieces,
    is_large,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.namesrv.registration")

# Bodies of large registrations that are being read, or wait for it. To read one takes up to ten times its size.
MAX_WAITING = 256 << 20

_MOST_IN_LINE = 8  # registrations of a connection

REGISTERING = "registering"  # a connection's attribute: the brokers whose registrations are in line, in their order


class RegistrationHandlers:
    """`now` is the clock of leases, in milliseconds."""

    def __init__(self, table: RouteTable, kv: KvConfig, now: Callable[[], int]) -> None:
        self._table = table
        self._kv = kv
        self._now = now
        self._waiting = 0  # bytes
        self._reading = trio.Lock()
        # The order configuration as JSON: each registration is answered with it, and 8 MiB take 5 to 15 ms to write.
        self._order = b""
        self._order_of = -1

    def table(self) -> HandlerTable:
        return {
            RequestCode.REGISTER_BROKER: Handler(self.register, RegisterBrokerHeader, longest_body=None),
            RequestCode.UNREGISTER_BROKER: Handler(self.unregister, UnregisterBrokerHeader),
            RequestCode.QUERY_DATA_VERSION: Handler(
                self.query_data_version, QueryDataVersionHeader, longest_body=LONGEST_ENTRY
            ),
        }

    def register(self, request: Request) -> Reply | Deferred:
        """103."""
        header: RegisterBrokerHeader = request.header
        _check(header, request.body)
        connection, size = request.connection, len(request.body)
        in_line: list[str] = connection.attributes.setdefault(REGISTERING, [])
        is_long = is_large(request.body, compressed=header.compressed and request.version >= V3_0_11)
        if is_long or header.brokerAddr in in_line:
            if len(in_line) >= _MOST_IN_LINE:
                raise Refused(
                    ResponseCode.SYSTEM_BUSY, f"{len(in_line)} registrations before this one are not read yet"
                )
            if self._waiting + size > MAX_WAITING:
                raise Refused(
                    ResponseCode.SYSTEM_BUSY,
                    f"registrations of {self._waiting} bytes are being read; at most {MAX_WAITING} are taken at once",
                )
            in_line.append(header.brokerAddr)
            self._waiting += size
            read = self._read_in_pieces if is_long else self._read_at_once
            connection.start_task(self._register_in_turn, request, bytes(request.body), read)
            return DEFERRED
        return self._register_at_once(request)

    async def _register_in_turn(
        self, request: Request, body: bytes, read: Callable[[Request, bytes], Awaitable[Reply]]
    ) -> None:
        try:
            async with self._reading:
                request.reply(await read(request, body))
        except (Refused, BodyError) as error:
            code = error.code if isinstance(error, Refused) else ResponseCode.SYSTEM_ERROR
            request.reply(Reply(code, remark=error.remark if isinstance(error, Refused) else str(error)))
        finally:
            self._waiting -= len(body)
            request.connection.attributes[REGISTERING].remove(request.header.brokerAddr)

    async def _read_at_once(self, request: Request, body: bytes) -> Reply:
        request.body = body
        return self._register_at_once(request)

    def _register_at_once(self, request: Request) -> Reply:
        """Raises Refused, BodyError."""
        filters, table = _topics_and_filters(request.header, request)
        return self._answer(self._apply(request.header, _registration(request.header, request, filters, table)))

    async def _read_in_pieces(self, request: Request, body: bytes) -> Reply:
        """Raises Refused, BodyError."""
        header: RegisterBrokerHeader = request.header
        bare = request.version < V3_0_11
        parts: deque[dict[str, QueueData]] = deque()
        last = RegisterBrokerBody()
        for last in in_pieces(body, compressed=header.compressed, bare=bare):
            parts.append(_topics(last.topicConfigSerializeWrapper, header.brokerName))
            await trio.lowlevel.checkpoint()
        # Only now that all of it is read and found good, so that what is refused changes nothing.
        registration = _registration(
            header, request, None if bare else tuple(last.filterServerList), last.topicConfigSerializeWrapper
        )
        new = 0
        for topics in parts:
            with _refusing():
                new += self._table.check(replace(registration, topics=topics), besides=new)
            await trio.lowlevel.checkpoint()
        master = self._apply(header, replace(registration, topics=parts.popleft()))
        while parts:
            await trio.lowlevel.checkpoint()
            if not self._table.is_held(header.brokerAddr, request.connection):
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"another connection has registered {header.brokerAddr}, or its name and id, before all topics of"
                    " this registration were applied",
                )
            master = self._apply(header, replace(registration, topics=parts.popleft()))
        return self._answer(master)

    def _apply(self, header: RegisterBrokerHeader, registration: Registration) -> Master | None:
        """Raises Refused."""
        is_new = header.brokerAddr not in self._table
        with _refusing():
            master = self._table.register(registration, self._now())
        if is_new:
            log.info("broker %s registered: %s", header.brokerAddr, _described(header))
        return master

    def _answer(self, master: Master | None) -> Reply:
        if self._order_of != self._kv.changes:
            order = self._kv.namespace(ORDER_TOPIC_CONFIG)
            self._order = b"" if order is None else KVTable({**order}).to_json()
            self._order_of = self._kv.changes
        return Reply(
            header=RegisterBrokerAnswerHeader(master.ha_address, master.address)
            if master
            else RegisterBrokerAnswerHeader(),
            body=self._order,
        )

    def unregister(self, request: Request) -> Reply:
        """104."""
        header: UnregisterBrokerHeader = request.header
        if header.brokerAddr in request.connection.attributes.get(REGISTERING, ()):
            raise Later(self._reading_ends)
        if self._table.unregister(header.brokerAddr, header.brokerName, header.brokerId):
            log.info("broker %s unregistered: %s", header.brokerAddr, _described(header))
        return Reply()

    async def _reading_ends(self) -> None:
        async with self._reading:
            pass

    def query_data_version(self, request: Request) -> Reply:
        """322."""
        header: QueryDataVersionHeader = request.header
        queried = configuration.DataVersion.from_json(request.body) if request.body else configuration.DataVersion()
        changed, known = self._table.known_version(
            header.brokerAddr, _version(queried), request.connection, self._now()
        )
        return Reply(
            header=QueryDataVersionAnswerHeader(changed),
            body=b"" if known is None else _wire_version(known).to_json(),
        )


@contextmanager
def _refusing() -> Iterator[None]:
    """What the table does not take is refused."""
    try:
        yield
    except OlderEpoch as error:
        log.warning("refused: %s", error)
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    except TableFull as error:
        log.error("%s", error)
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _check(header: RegisterBrokerHeader, body: bytes | memoryview) -> None:
    """Java would accept a nameless broker, and list it as null."""
    for name, value in (("brokerName", header.brokerName), ("brokerAddr", header.brokerAddr)):
        if not value:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"a registration without {name}")
    if not header.clusterName or header.brokerId < 0:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{header.brokerAddr} registers for cluster {header.clusterName!r} with brokerId {header.brokerId};"
            " set brokerClusterName, and a brokerId of 0 or above",
        )
    if header.bodyCrc32 and body_crc32(body) != header.bodyCrc32:
        log.warning("broker %s: crc32 of its registration does not match", header.brokerAddr)
        raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match", RegisterBrokerAnswerHeader())


def _topics_and_filters(
    header: RegisterBrokerHeader, request: Request
) -> tuple[tuple[str, ...] | None, TopicConfigTable]:
    """The filter servers and topics of a registration; None keeps those of the last one."""
    if request.version < V3_0_11:
        return None, TopicConfigTable.from_json(request.body) if request.body else TopicConfigTable()
    if not request.body:
        return (), TopicConfigTable()
    read = RegisterBrokerBody.from_compressed if header.compressed else RegisterBrokerBody.from_json
    body = read(request.body)
    return tuple(body.filterServerList), body.topicConfigSerializeWrapper


def _registration(
    header: RegisterBrokerHeader, request: Request, filters: tuple[str, ...] | None, table: TopicConfigTable
) -> Registration:
    connection = request.connection
    return Registration(
        cluster=header.clusterName,
        broker_name=header.brokerName,
        broker_id=header.brokerId,
        address=header.brokerAddr,
        ha_address=header.haServerAddr,
        connection=connection,
        version=_version(table.dataVersion),
        topics=_topics(table, header.brokerName),
        filter_servers=filters,
        loopback_address=second_address(header.loopbackAddr, connection.local, connection.peer),
        epoch=header.masterEpoch or 0,
    )


def _topics(table: TopicConfigTable, broker_name: str) -> dict[str, QueueData]:
    return {
        topic.topicName: QueueData(
            broker_name, topic.readQueueNums, topic.writeQueueNums, topic.perm, topic.topicSysFlag
        )
        for topic in table.topicConfigTable.values()
        if topic.topicName
    }


def _version(version: configuration.DataVersion) -> DataVersion:
    return DataVersion(version.timestamp, version.counter, version.stateVersion or 0)


def _wire_version(version: DataVersion) -> configuration.DataVersion:
    return configuration.DataVersion(version.counter, version.timestamp, version.state_version or UNSET)


def _described(header: RegisterBrokerHeader | UnregisterBrokerHeader) -> str:
    return f"{header.brokerName} (id {header.brokerId}) of cluster {header.clusterName}"
