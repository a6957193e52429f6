"""A broker and name server in one with scripted answers, for behaviour that no real broker shows on demand.

    async with scripted_brokers("a", "b") as script:
        script.next("a", RequestCode.SEND_MESSAGE_V2, Reply(2, remark="busy"))
        script.next("a", RequestCode.SEND_MESSAGE_V2, DROP)      # never answered
        script.next("a", RequestCode.PULL_MESSAGE, CUT)          # the connection breaks

Other requests are answered as by an empty broker: sends are not stored and get the next offset, pulls are parked until
scripted or timed out, groups have the members known from heartbeats. `requests` are all requests in order, as (broker,
code, header fields).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

import trio

from rocketlet.client.talking.session import World
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.host import pack_host
from rocketlet.common.message_id import offset_message_id
from rocketlet.common.message_record import decode_batch
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.handler import AsyncFunction, Handler, PlainFunction, Reply, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.membership import ConsumerListBody, HeartbeatData, LockBatchAnswerBody, LockBatchBody
from rocketlet.remoting.protocol.routing import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.server import Server
from tests.support.virtual_time import START_MS

HOST = "10.1.0.1"
NAMESRV = f"{HOST}:9876"


class Fate:
    """The fate of an unanswered request."""


DROP: Final = Fate()
CUT: Final = Fate()

Answer = Reply | Fate | Callable[[Request], Reply]


@dataclass
class Script:
    """The brokers and their scripted answers."""

    network: MemoryNetwork
    clock: TrioWallClock
    names: list[str]
    queues: int = 2
    requests: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    perm: int = 6
    topics: set[str] | None = None
    silent: dict[str, str] = field(default_factory=dict)
    """More brokers in the name server's answers, by name: nothing answers at their addresses."""
    clients: dict[str, Connection] = field(default_factory=dict)
    """The connection of the client that last sent a heartbeat, by broker: for requests to it."""
    _scripted: dict[tuple[str, int], deque[Answer]] = field(default_factory=lambda: defaultdict(deque))
    _offsets: dict[tuple[str, str, str], int] = field(default_factory=lambda: defaultdict(int))
    _members: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _parked: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    _clients: int = 0

    @property
    def namesrv(self) -> str:
        return NAMESRV

    def world(self) -> World:
        """The seams of one more client."""
        self._clients += 1
        return World(self.network, self.clock, Random(self._clients), f"10.3.0.{self._clients}")

    def address(self, broker: str) -> str:
        return f"{HOST}:{10911 + 10 * self.names.index(broker)}"

    def add_silent(self, count: int) -> None:
        """Add brokers to all routes that swallow whatever is sent to them."""
        for number in range(count):
            self.silent[f"silent-{number}"] = address = f"10.9.{number >> 8}.{number & 255}:10911"
            self.network.isolate(address)

    def next(self, broker: str, code: RequestCode, *answers: Answer) -> None:
        """The next requests of this code at this broker get these answers."""
        self._scripted[broker, int(code)].extend(answers)
        self._parked.unpark_all()

    def count(self, code: RequestCode, broker: str | None = None) -> int:
        """How many requests of a code were made."""
        return sum(asked == code and broker in (None, name) for name, asked, _ in self.requests)

    def headers(self, code: RequestCode) -> list[dict[str, str]]:
        """The header fields of all requests of a code."""
        return [ext for _, asked, ext in self.requests if asked == code]

    def sent(self, broker: str | None = None) -> list[list[bytes]]:
        """The bodies of the messages of each send, in order; those of a batch together."""
        return [
            [bytes(item.body) for item in decode_batch(body)] if ext.get("m") == "true" else [body]
            for (name, code, ext), body in zip(self.requests, self.bodies, strict=True)
            if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE) and broker in (None, name)
        ]

    # ---- serving

    def handlers(self, broker: str) -> dict[int, Handler]:
        usual: dict[int, Callable[[str, Request], Reply]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._send,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._list,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.QUERY_CONSUMER_OFFSET: lambda name, request: Reply(0, {"offset": "0"}),
            RequestCode.GET_MIN_OFFSET: lambda name, request: Reply(0, {"offset": "0"}),
            RequestCode.GET_MAX_OFFSET: lambda name, request: Reply(0, {"offset": "100"}),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda name, request: Reply(0, {"offset": "50"}),
        }
        codes = [
            *usual,
            RequestCode.UNREGISTER_CLIENT,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.UNLOCK_BATCH_MQ,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.END_TRANSACTION,
            RequestCode.CHECK_CLIENT_CONFIG,
            RequestCode.POP_MESSAGE,
        ]
        table = {int(code): Handler(self._handler(broker, usual.get(code))) for code in codes}
        return {**table, int(RequestCode.PULL_MESSAGE): Handler(self._pull(broker), family="pull")}

    def _handler(self, broker: str, usual: Callable[[str, Request], Reply] | None) -> PlainFunction:
        def handle(request: Request) -> Reply | None:
            self.requests.append((broker, request.code, request.ext))
            self.bodies.append(bytes(request.body))
            scripted = self._scripted[broker, request.code]
            if scripted:
                return self._meet(scripted.popleft(), request)
            return usual(broker, request) if usual is not None else Reply()

        return handle

    def _meet(self, answer: Answer, request: Request) -> Reply | None:
        if isinstance(answer, Fate):
            if answer is CUT:
                request.connection.close()
            return None
        return answer if isinstance(answer, Reply) else answer(request)

    def _pull(self, broker: str) -> AsyncFunction:
        async def handle(request: Request) -> Reply | None:
            self.requests.append((broker, request.code, request.ext))
            self.bodies.append(b"")
            scripted = self._scripted[broker, int(RequestCode.PULL_MESSAGE)]
            with trio.move_on_after(int(request.ext["suspendTimeoutMillis"]) / 1000):
                while not scripted:
                    await self._parked.park()
            if scripted:
                return self._meet(scripted.popleft(), request)
            return pull_reply(19, int(request.ext["queueOffset"]))

        return handle

    def _route(self, broker: str, request: Request) -> Reply:
        topic = request.ext["topic"]
        if self.topics is not None and topic not in self.topics:
            return Reply(17, remark=f"No topic route info in name server for the topic: {topic}")
        data = TopicRouteData(
            brokerDatas=list(self._brokers().values()),
            queueDatas=[
                QueueData(brokerName=name, perm=self.perm, readQueueNums=self.queues, writeQueueNums=self.queues)
                for name in self._brokers()
            ],
        )
        return Reply(body=data.to_json())

    def _cluster(self, broker: str, request: Request) -> Reply:
        return Reply(body=ClusterInfo(self._brokers(), {"c": list(self._brokers())}).to_json())

    def _brokers(self) -> dict[str, BrokerData]:
        addresses = {name: self.address(name) for name in self.names} | self.silent
        return {name: BrokerData({0: address}, name, "c") for name, address in addresses.items()}

    def _heartbeat(self, broker: str, request: Request) -> Reply:
        self.clients[broker] = request.connection
        told = HeartbeatData.from_json(request.body)
        for consumer in told.consumerDataSet:
            if told.clientID not in self._members[consumer.groupName]:
                self._members[consumer.groupName].append(told.clientID)
        return Reply()

    def _list(self, broker: str, request: Request) -> Reply:
        return Reply(body=ConsumerListBody(self._members[request.ext["consumerGroup"]]).to_json())

    def _lock(self, broker: str, request: Request) -> Reply:
        return Reply(body=LockBatchAnswerBody(LockBatchBody.from_json(request.body).mqSet).to_json())

    def _send(self, broker: str, request: Request) -> Reply:
        return send_reply(self, broker, request)


def send_reply(script: Script, broker: str, request: Request, code: int = 0) -> Reply:
    """The answer to a stored send."""
    queue = request.ext["e"]
    offset = script._offsets[broker, request.ext["b"], queue]
    count = len(decode_batch(request.body)) if request.ext.get("m") == "true" else 1
    script._offsets[broker, request.ext["b"], queue] += count
    ids = [offset_message_id(pack_host(HOST, 10911), 1000 * (offset + place)) for place in range(count)]
    return Reply(
        code,
        {"msgId": ",".join(ids), "queueId": queue, "queueOffset": str(offset), "MSG_REGION": "r", "TRACE_ON": "true"},
    )


def pull_reply(code: int, next_offset: int, body: bytes = b"", low: int = 0, high: int = 100) -> Reply:
    """The answer to a pull."""
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(low),
        "maxOffset": str(high),
    }
    return Reply(code, ext, body)


@asynccontextmanager
async def scripted_brokers(*names: str, queues: int = 2) -> AsyncIterator[Script]:
    """One name server and these brokers, until the block ends."""
    script = Script(MemoryNetwork(host="10.2.0.1"), TrioWallClock(START_MS), list(names), queues)
    async with trio.open_nursery() as nursery:
        await nursery.start(Server(script.handlers("namesrv"), script.network).serve, HOST, 9876)
        for name in names:
            port = int(script.address(name).rpartition(":")[2])
            await nursery.start(Server(script.handlers(name), script.network).serve, HOST, port)
        yield script
        nursery.cancel_scope.cancel()
