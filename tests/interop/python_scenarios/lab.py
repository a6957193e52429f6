"""The tools of a scenario: its own names, clients that end with it, an administrator, and checks."""

from __future__ import annotations

import random
import socket
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import trio

from rocketlet import (
    ConsumeFrom,
    InvalidUse,
    LitePullConsumer,
    Message,
    NoRoute,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Refused,
    SendFailed,
    SendResult,
    SendStatus,
)
from rocketlet.client.facades.engine_thread import EngineThread, HostedRun
from rocketlet.common.java_properties import as_dict, decode
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import PoolConfig, SerializeType
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.protocol.configuration import (
    CreateTopicHeader,
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigTable,
)
from rocketlet.remoting.protocol.header import Header, from_ext, to_ext
from rocketlet.remoting.protocol.inspection import ConsumeStats, GetConsumeStatsHeader
from rocketlet.remoting.protocol.registration import (
    QueryDataVersionAnswerHeader,
    QueryDataVersionHeader,
    RegisterBrokerAnswerHeader,
    RegisterBrokerBody,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
)
from rocketlet.remoting.protocol.routing import ClusterInfo, GetRouteInfoHeader, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import TcpNetwork
from tests.support.ports import free_port

_ASK = 5.0
_POLL = 0.02
_OURS = "py-"  # the prefix of all names in a scenario


class Skip(Exception):
    """The stack under test does not offer what the scenario needs."""


class RefusedByServer(Exception):
    """An administrator's request was answered with an error code."""

    def __init__(self, code: int, remark: str | None) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code


class Admin:
    """Sends any request to servers, from a plain thread."""

    def __init__(self, header_type: int) -> None:
        self._engine = EngineThread.acquire()
        self._pool = ConnectionPool(TcpNetwork(), PoolConfig(serialize_type=list(SerializeType)[header_type]))
        self._run = HostedRun(self._engine, "administrator")
        self._run.start(self._live)

    async def _live(self, stop: trio.Event, *, task_status: trio.TaskStatus[None]) -> None:
        async with self._pool:
            task_status.started()
            await stop.wait()

    def ask(
        self, address: str, code: RequestCode, header: Header | Mapping[str, str] | None = None, body: bytes = b""
    ) -> Command:
        ext = to_ext(header) if isinstance(header, Header) else dict(header) if header is not None else None
        answer = self._engine.call(self._pool.call, address, Command(int(code), ext=ext, body=body), _ASK)
        if answer.code != 0:
            raise RefusedByServer(answer.code, answer.remark)
        return answer

    def close(self) -> None:
        self._run.stop()
        self._engine.release()


class Inbox:
    """The messages a listener received, in order of arrival; itself a listener."""

    def __init__(self) -> None:
        self._messages: list[ReceivedMessage] = []
        self._arrivals: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, message: ReceivedMessage) -> None:
        with self._lock:
            self._arrivals.setdefault(text(message), time.time())
            self._messages.append(message)

    def all(self) -> list[ReceivedMessage]:
        with self._lock:
            return list(self._messages)

    def texts(self) -> list[str]:
        return [text(message) for message in self.all()]

    def distinct(self, which: Callable[[ReceivedMessage], bool] = lambda message: True) -> int:
        return len({message.message_id for message in self.all() if which(message)})

    def has(self, body: str) -> bool:
        return body in self._arrivals

    def arrival_of(self, body: str) -> float:
        return self._arrivals[body]

    def await_distinct(self, count: int, seconds: float) -> None:
        until(seconds, lambda: f"{count} messages, have {self.distinct()}", lambda: self.distinct() >= count)


class Lab:
    """The tools of one scenario."""

    def __init__(self, namesrv: str, scenario: str, run: str, header_type: int) -> None:
        self.namesrv = namesrv
        self.header_type = header_type
        self._scenario = scenario
        self._run = run
        self._stack = ExitStack()
        self._admin: Admin | None = None

    # ---- names

    def name(self, what: str) -> str:
        return f"{_OURS}{self._scenario}-{what}-{self._run}"

    @property
    def topic(self) -> str:
        return self.name("t")

    @property
    def group(self) -> str:
        return self.name("g")

    @property
    def name_servers(self) -> list[str]:
        return self.namesrv.split(";")

    # ---- clients

    def producer(self, group: str = "", **settings: Any) -> Producer:
        return self.enter(
            Producer(group or self.name("p"), **{"namesrv": self.namesrv, "header_type": self.header_type, **settings})
        )

    def consumer(self, group: str, listener: Any, topics: Mapping[str, Any], **settings: Any) -> PushConsumer:
        """Not started."""
        given = {"consume_from": ConsumeFrom.FIRST_OFFSET, "persist_interval": 1.0, "namesrv": self.namesrv}
        return PushConsumer(group, listener, topics=topics, **{**given, "header_type": self.header_type, **settings})

    def collect(self, group: str, topic: str, selection: Any, inbox: Inbox, **settings: Any) -> PushConsumer:
        return self.enter(self.consumer(group, inbox, {topic: selection}, **settings))

    def lite_pull(self, group: str, **settings: Any) -> LitePullConsumer:
        """Not started."""
        return LitePullConsumer(
            group,
            **{
                "namesrv": self.namesrv,
                "consume_from": ConsumeFrom.FIRST_OFFSET,
                "header_type": self.header_type,
                **settings,
            },
        )

    def puller(self) -> PullConsumer:
        return self.enter(PullConsumer(self.group, namesrv=self.namesrv, header_type=self.header_type))

    def enter(self, client: Any) -> Any:
        """Start a client that ends with the scenario."""
        client.start()
        self._stack.callback(client.shutdown)
        return client

    def on_close(self, closer: Callable[[], object]) -> None:
        self._stack.callback(closer)

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.header_type)
            self._stack.callback(self._admin.close)
        return self._admin

    def close(self) -> None:
        self._stack.close()

    def await_queues(self, consumer: PushConsumer, topic: str) -> None:
        """Wait until the consumer holds queues of the topic on every broker."""
        brokers = len(self.brokers())
        until(
            35,
            f"queues of {topic} on {brokers} brokers",
            lambda: len({queue.broker_name for queue in consumer.queues() if queue.topic == topic}) == brokers,
        )

    # ---- the stack under test

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo.from_json(self.admin.ask(self.name_servers[0], RequestCode.GET_BROKER_CLUSTER_INFO).body)

    def brokers(self) -> list[tuple[str, str]]:
        """Name and address of each master, by name, without ghosts, which concurrent scenarios may have."""
        table = self.cluster_info().brokerAddrTable
        masters = ((name, data.brokerAddrs[0]) for name, data in table.items() if 0 in data.brokerAddrs)
        return sorted((name, address) for name, address in masters if not name.startswith(_OURS))

    @property
    def broker_addresses(self) -> list[str]:
        return [address for _, address in self.brokers()]

    @property
    def cluster(self) -> str:
        return next(name for name in self.cluster_info().clusterAddrTable if not name.startswith(_OURS))

    def route(self, topic: str) -> TopicRouteData:
        answer = self.admin.ask(
            self.name_servers[0], RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic=topic)
        )
        return TopicRouteData.from_json(answer.body)

    def put_topic(self, address: str, topic: str, read: int, write: int, perm: int = 6, sys_flag: int = 0) -> None:
        header = CreateTopicHeader(
            topic=topic, readQueueNums=read, writeQueueNums=write, perm=perm, topicSysFlag=sys_flag
        )
        self.admin.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def create_topic(self, topic: str, queues: int, perm: int = 6) -> str:
        brokers = self.brokers()
        for _, address in brokers:
            self.put_topic(address, topic, queues, queues, perm)
        self.await_route(topic, len(brokers))
        return topic

    def await_route(self, topic: str, brokers: int) -> None:
        until(10, f"route of {topic} with {brokers} brokers", lambda: len(self.route(topic).queueDatas) == brokers)

    def put_group(self, **fields: Any) -> None:
        for address in self.broker_addresses:
            body = SubscriptionGroupConfig(groupName=self.group, **fields).to_json()
            self.admin.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    def broker_config(self, address: str) -> dict[str, str]:
        return as_dict(decode(bytes(self.admin.ask(address, RequestCode.GET_BROKER_CONFIG).body)))

    def delay_levels(self) -> list[float]:
        """Seconds of each level; the first is level 1."""
        units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
        words = self.broker_config(self.broker_addresses[0])["messageDelayLevel"].split()
        return [int(word[:-1]) * units[word[-1]] for word in words]

    def progress(self, group: str, topic: str) -> ConsumeStats:
        """Offsets of a group from all brokers together."""
        stats = ConsumeStats()
        for address in self.broker_addresses:
            answer = self.admin.ask(
                address, RequestCode.GET_CONSUME_STATS, GetConsumeStatsHeader(consumerGroup=group, topic=topic)
            )
            stats.offsetTable.update(ConsumeStats.from_json(answer.body).offsetTable)
        return stats

    def committed(self, group: str, topic: str) -> int:
        return sum(offset.consumerOffset for offset in self.progress(group, topic).offsetTable.values())


class GhostBroker:
    """A broker that only registers, with a name from `Lab.name`: its address accepts connections and never answers."""

    def __init__(self, lab: Lab, cluster: str, name: str, number: int = 0) -> None:
        self.lab = lab
        self.cluster = cluster
        self.name = name
        self.number = number
        self._listening = socket.create_server(("127.0.0.1", free_port()))  # nobody else gets it, once it is dead
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        # Its own connections, by which it is known.
        self._admin = Admin(lab.header_type)
        self._alive = True
        self._version = DataVersion(counter=1, timestamp=int(time.time() * 1000))
        lab.on_close(self.die)

    def _header(self, kind: Any, **more: Any) -> Header:
        header: Header = kind(
            brokerId=self.number, brokerName=self.name, brokerAddr=self.address, clusterName=self.cluster, **more
        )
        return header

    def register(
        self, *topics: TopicConfig, compressed: bool = False, crc: int | None = None
    ) -> RegisterBrokerAnswerHeader:

        self._version = DataVersion(counter=(self._version.counter or 0) + 1, timestamp=self._version.timestamp)
        table = TopicConfigTable(self._version, {topic.topicName: topic for topic in topics})
        body = RegisterBrokerBody([], table)
        data = body.to_compressed() if compressed else body.to_json()
        answers = []
        for server in self.lab.name_servers:
            header = self._header(
                RegisterBrokerHeader,
                haServerAddr=self.address + "9",
                compressed=compressed,
                bodyCrc32=zlib.crc32(data) & 0x7FFFFFFF if crc is None else crc,
            )
            answers.append(self._admin.ask(server, RequestCode.REGISTER_BROKER, header, data))
        return from_ext(RegisterBrokerAnswerHeader, answers[0].ext)

    def changed(self, later: bool) -> bool:
        version = DataVersion(counter=(self._version.counter or 0) + later, timestamp=self._version.timestamp)
        answer = self._admin.ask(
            self.lab.name_servers[0],
            RequestCode.QUERY_DATA_VERSION,
            self._header(QueryDataVersionHeader),
            version.to_json(),
        )
        return from_ext(QueryDataVersionAnswerHeader, answer.ext).changed

    def unregister(self) -> None:
        for server in self.lab.name_servers:
            self._admin.ask(server, RequestCode.UNREGISTER_BROKER, self._header(UnregisterBrokerHeader))

    def stop_listening(self) -> None:
        self._listening.close()

    def die(self) -> None:
        """Die silently: its connections close."""
        if self._alive:
            self._alive = False
            self._listening.close()
            self._admin.close()


# ---- sending


def send(producer: Producer, topic: str, prefix: str, count: int) -> None:
    for n in range(count):
        ok(producer.send(Message(topic, f"{prefix}{n}".encode())))


def ok(result: SendResult) -> SendResult:
    same(result.status, SendStatus.SEND_OK, f"send status of {result}")
    return result


def text(message: ReceivedMessage) -> str:
    return message.body.decode(errors="replace")


# ---- waiting and checking


def pause(seconds: float) -> None:
    """Real time: the servers are other processes."""
    threading.Event().wait(seconds)


def until(seconds: float, what: str | Callable[[], str], condition: Callable[[], object]) -> None:
    """Poll the condition; an error counts as not yet, and the last one is reported at the timeout."""
    end = time.monotonic() + seconds
    last: Exception | None = None
    while time.monotonic() < end:
        try:
            if condition():
                return
            last = None
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told in the end
            last = error
        pause(_POLL)
    told = what if isinstance(what, str) else what()
    raise AssertionError(f"not within {seconds} s: {told}" + (f"; last error {last!r}" if last else ""))


def check(good: object, what: str) -> None:
    if not good:
        raise AssertionError(what)


def same(got: object, want: object, what: str) -> None:
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def between(got: float, low: float, high: float, what: str) -> None:
    if not low <= got <= high:
        raise AssertionError(f"{what}: got {got}, want {low} to {high}")


def refused(code: int, what: str, action: Callable[[], object]) -> None:
    """The action must fail with this code, at a broker or name server."""
    try:
        action()
    except (Refused, SendFailed, RefusedByServer) as error:
        same(error.code, code, f"{what} ({error})")
        return
    raise AssertionError(f"{what} was accepted")


def client_refuses(what: str, action: Callable[[], object]) -> None:
    """The client itself must refuse, before anything is sent."""
    try:
        action()
    except (InvalidUse, NoRoute):
        return
    raise AssertionError(f"{what} was accepted")


def in_threads(work: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=partial(one)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def random_bytes(count: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(count)
