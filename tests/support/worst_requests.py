"""How long the largest legal requests hold the loop of a broker or a name server in memory, in CPU time.

    python -m tests.support.worst_requests                  # all of them, three minutes
    python -m tests.support.worst_requests wide offsets     # those of some states

Each state is a server filled up to a limit that it has: 65,535 queues, 100,000 topics, a million offsets. Then come the
requests that have most to do there, and what the server does by itself afterwards: saving tables, telling members.
Printed is the longest step of a task that each of them made, the shortest of three tries. docs/performance.md has the
table.

Java: none
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

import trio
from trio.testing import MockClock

from rocketlet.common.config_file import Loaded
from rocketlet.common.logging_setup import LogConfig, set_up
from rocketlet.common.message_record import BatchItem, encode_batch
from rocketlet.common.subscription import SQL92, TAG
from rocketlet.namesrv.config import NamesrvConfig, with_config_store_path
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.command import V4_9_4, Command, HeaderType
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.frame_codec import FrameDecoder, encode
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig, TopicConfig, TopicConfigTable
from rocketlet.remoting.protocol.header import to_ext
from rocketlet.remoting.protocol.membership import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    ProducerData,
    SubscriptionData,
)
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.protocol.registration import RegisterBrokerBody, RegisterBrokerHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import ByteStream
from rocketlet.store.message_store import MessageStore
from tests.support.holds import Holds
from tests.support.hostile_runs import Figures, HandlerWatch
from tests.support.memory_broker import RunningBroker, memory_broker

TRIES = 3
CALLER = "the caller itself"


@dataclass
class Peer:
    """Sends frames and reads answers without looking into them, so that its own work is small."""

    stream: ByteStream

    async def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> int:
        """The code of the answer."""
        await self.stream.send_all(encode(Command(int(code), ext=ext, body=body, version=V4_9_4)))
        head = b""
        while len(head) < 4:
            head += await self.stream.receive_some()
        beginning, remaining = head, int.from_bytes(head[:4], "big") + 4 - len(head)
        while remaining > 0:
            data = await self.stream.receive_some()
            beginning = (beginning + data)[:200] if len(beginning) < 200 else beginning
            remaining -= len(data)
        at = beginning.find(b'"code":')
        return int(beginning[at + 7 :].split(b",")[0].strip(b"}")) if at >= 0 else -1

    async def ask_at_once(self, frames: list[bytes]) -> int:
        """Send these in one piece. How many were answered."""
        await self.stream.send_all(b"".join(frames))
        decoder, answered = FrameDecoder(), 0
        while answered < len(frames):
            answered += len(decoder.feed(await self.stream.receive_some()))
        return answered

    async def send_oneway(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> None:
        """One-way."""
        await self.stream.send_all(encode(Command(int(code), ext=ext, body=body, flag=2, version=V4_9_4)))


class WorstSteps:
    """Takes the figures of one state after the other."""

    def __init__(self, out: TextIO) -> None:
        self.figures = Figures()
        self.holds: Holds = self.figures.holds
        self.watch = HandlerWatch(self.figures)
        self._out = out
        self.address = ""
        self.server: NameServer | None = None

    async def measure(
        self,
        what: str,
        work: Callable[[], Awaitable[object]],
        before: Callable[[], Awaitable[object]] | None = None,
        *,
        wait: float = 0.3,
        tries: int = TRIES,
    ) -> None:
        """Print the longest step while this work is done, and for some seconds of virtual time after it."""
        shortest, summary = float("inf"), ""
        result: object = None
        for _ in range(tries):
            if before is not None:
                await before()
                await trio.sleep(1)
            gc.collect()
            await trio.lowlevel.checkpoint()
            self.holds.longest.clear()
            with self.holds.attribute_task(CALLER):
                result = await work()
            await trio.sleep(wait)
            steps = {kind: duration for kind, duration in self.holds.longest.items() if kind != CALLER}
            longest = sorted(steps.items(), key=lambda item: -item[1])[:3]
            if longest and longest[0][1] < shortest:
                shortest = longest[0][1]
                summary = ", ".join(
                    f"{kind.rpartition('rocketlet.')[2]} {duration * 1000:.1f}" for kind, duration in longest
                )
        self._out.write(f"{shortest * 1000:7.1f} ms  {what}: {result!r}  ({summary})\n")
        self._out.flush()

    async def request(self, what: str, peer: Peer, code: RequestCode, ext: dict[str, str] | None = None,
                    body: bytes = b"", **how: Any) -> None:  # fmt: skip
        """The same of one request."""
        await self.measure(f"{int(code)} {what}", lambda: peer.ask(code, ext, body), **how)


@asynccontextmanager
async def broker_of(worst: WorstSteps, **settings: object) -> AsyncIterator[tuple[RunningBroker, Peer]]:
    async with memory_broker(faults=worst.watch, **settings) as running:
        yield running, Peer(await running.network.dial(running.address))


WIDE, FILLED = 65_535, 5_000


def _topic(name: str, queues: int) -> dict[str, str]:
    return {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip


async def wide(worst: WorstSteps) -> None:
    """A topic of 65,535 queues with a message each, and a group with an offset in each."""
    async with broker_of(worst, mapped_file_size_consume_queue=200, mapped_file_size_commit_log=1 << 24) as (
        running,
        peer,
    ):
        await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, _topic("Wide", WIDE))
        from rocketlet.store.message import Put

        for queue_id in range(FILLED):
            running.broker.store.put(Put("Wide", queue_id, b"x", b"", born_host=bytes(8), store_host=bytes(8)))
            running.broker.tables.offsets.commit("CG", "Wide", queue_id, 1)
        running.broker.store.settle()
        running.broker.tables.groups.find("CG")
        await trio.sleep(100)
        beat = HeartbeatData("c", [], [ConsumerData("CG", subscriptionDataSet=[SubscriptionData("Wide", "*")])])
        consumer = Peer(await running.network.dial(running.address))
        await consumer.ask(RequestCode.HEART_BEAT, None, beat.to_json())
        group = {"group": "CG", "topic": "Wide"}
        await worst.request("65,535 queues", peer, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Wide"})
        await worst.request("65,535 queues", peer, RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG"})
        await worst.request("65,535 queues", peer, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
        await worst.request("65,535 queues", peer, RequestCode.QUERY_CONSUME_TIME_SPAN, group)
        reset = {**group, "timestamp": "0", "isForce": "true"}
        await worst.request("65,535 queues", peer, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        clone = {"srcGroup": "CG", "destGroup": "DG", "topic": "Wide", "offline": "true"}
        await worst.request("65,535 queues", peer, RequestCode.CLONE_GROUP_OFFSET, clone, wait=10)
        await worst.request("65,535 queues", peer, RequestCode.QUERY_CORRECTION_OFFSET,
                          {"filterGroups": "", "compareGroup": "CG", "topic": "Wide"})  # fmt: skip
        await worst.request("", peer, RequestCode.GET_ALL_CONSUMER_OFFSET)
        mode = {"topic": "Wide", "consumerGroup": "CG", "clientId": "c", "strategyName": "AVG",
                "messageModel": "CLUSTERING"}  # fmt: skip
        await worst.request("65,535 queues", peer, RequestCode.QUERY_ASSIGNMENT, None, json.dumps(mode).encode())
        await worst.request("", peer, RequestCode.UPDATE_AND_CREATE_TOPIC, _topic("Wide", WIDE))
        await worst.request("10,000 queues", peer, RequestCode.SHOW_IN_FLIGHT)
        await worst.request("", peer, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        _make_queues(running.broker.store, "Wide")
        await worst.request("65,535 queues", peer, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Wide"}, tries=1)


def _make_queues(store: MessageStore, topic: str) -> None:
    """The others of 65,535, as they are after a start: to give each of them a message takes minutes."""
    for queue_id in range(WIDE):
        queue = store.queues.find_or_make(topic, queue_id)
        if not queue.is_dirty:
            queue.is_dirty = True
            store.queues.dirty.append(queue)


async def unused(worst: WorstSteps) -> None:
    """65,535 queues of a topic that is not in the table any more."""
    async with broker_of(worst, mapped_file_size_consume_queue=200, mapped_file_size_commit_log=1 << 24) as (
        running,
        peer,
    ):
        from rocketlet.store.message import Put

        for queue_id in range(FILLED):
            running.broker.store.put(Put("Gone", queue_id, b"x", b"", born_host=bytes(8), store_host=bytes(8)))
        running.broker.store.settle()
        await trio.sleep(100)

        async def make_dirty() -> None:
            _make_queues(running.broker.store, "Gone")
            running.broker.store.put(Put("Gone", 0, b"x", b"", born_host=bytes(8), store_host=bytes(8)))
            running.broker.store.settle()

        await worst.measure("flushes of 65,535 queues", lambda: trio.sleep(70), make_dirty)
        peer = Peer(await running.network.dial(running.address))  # the first was idle for too long
        await worst.request("65,535 queues", peer, RequestCode.CLEAN_UNUSED_TOPIC, tries=1)


TOPICS = 99_000
COMMON = "Topic-of-some-length-0-0"


async def topics(worst: WorstSteps) -> None:
    """99,000 topics, of 100,000 that there may be."""
    async with broker_of(worst) as (running, peer):
        table = running.broker.tables.topics
        for number in range(TOPICS):
            table.create(f"Topic-of-some-length-{number}", 4, reason="for a test")
        await trio.sleep(10)
        await worst.request("", peer, RequestCode.GET_ALL_TOPIC_CONFIG)
        await worst.request("", peer, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        await worst.request("and saved", peer, RequestCode.UPDATE_AND_CREATE_TOPIC, _topic("One", 4), wait=10)
        await worst.request("and saved", peer, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "One"}, wait=10)
        await worst.request("", peer, RequestCode.CLEAN_UNUSED_TOPIC)
        await worst.request("", peer, RequestCode.UPDATE_BROKER_CONFIG, None, b"brokerPermission=6\n")
        await worst.measure("an answer of a name server", lambda: _in_a_task(lambda: table.follow_order(["One"])))


async def registration(worst: WorstSteps) -> None:
    """80,000 of them at a name server: more do not fit a frame."""
    for compressed in (False, True):
        network = MemoryNetwork()
        async with name_server(worst, network) as _:
            address = worst.address
            async with memory_broker(
                network=network, namesrv_addr=(address,), compressed_register=compressed
            ) as running:
                for number in range(80_000):
                    running.broker.tables.topics.create(f"Topic-of-some-length-{number}", 4, reason="for a test")
                await trio.sleep(100)
                again = running.broker.registration.register_now
                await worst.measure(f"a broker registers 80,000 topics, compressed: {compressed}", again, wait=10)
                peer = Peer(await network.dial(address))
                assert await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Topic-of-some-length-79999"}) == 0


async def groups(worst: WorstSteps) -> None:
    """99,000 subscription groups, of 100,000 that there may be."""
    async with broker_of(worst) as (running, peer):
        for number in range(99_000):
            running.broker.tables.groups.find(f"Group-of-some-length-{number}")
        await trio.sleep(10)
        body = SubscriptionGroupConfig(groupName="CG").to_json()
        await worst.request("", peer, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        await worst.request("and saved", peer, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body, wait=10)
        await worst.request("and saved", peer, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "CG"}, wait=10)
        await worst.request("", peer, RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})


async def offsets(worst: WorstSteps) -> None:
    """A million consumer offsets in 10,000 groups and 10 topics."""
    async with broker_of(worst) as (running, peer):
        for group in range(10_000):
            for topic in range(10):
                for queue_id in range(10):
                    running.broker.tables.offsets.commit(f"Group-{group}", f"Topic-{topic}", queue_id, 1)
        for topic in range(10):
            running.broker.tables.topics.create(f"Topic-{topic}", 10, reason="for a test")
        await trio.sleep(30)
        await worst.request("", peer, RequestCode.GET_ALL_CONSUMER_OFFSET)
        commit = {"consumerGroup": "Group-1", "topic": "Topic-1", "queueId": "1", "commitOffset": "2"}
        await worst.request("and saved", peer, RequestCode.UPDATE_CONSUMER_OFFSET, commit, wait=10)
        await worst.request("", peer, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Topic-1"})
        await worst.request("", peer, RequestCode.QUERY_CORRECTION_OFFSET,
                          {"filterGroups": "", "compareGroup": "Group-1", "topic": "Topic-1"})  # fmt: skip
        remove = {"groupName": "Group-2", "removeOffset": "true"}
        await worst.request("", peer, RequestCode.DELETE_SUBSCRIPTIONGROUP, remove, wait=10)
        await worst.request("", peer, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Topic-3"}, wait=10, tries=1)
        seen = json.dumps({"run": "", "holdMillis": 0}).encode()
        await worst.request("", peer, RequestCode.FOLLOW_TABLES, None, seen)


async def large_group(worst: WorstSteps) -> None:
    """4,000 members of a group of consumers, and of one of producers."""
    async with broker_of(worst, max_connections_by_address=50_000) as (running, peer), trio.open_nursery() as nursery:

        async def join(number: int) -> Peer:
            stream = await running.network.dial(running.address)
            member = Peer(stream)
            consumers = [ConsumerData("CG", subscriptionDataSet=[SubscriptionData("T", "*")])]
            beat = HeartbeatData(f"10.0.0.1@{number}", [ProducerData("PG")], consumers)
            nursery.start_soon(_swallow, stream)
            await member.send_oneway(RequestCode.HEART_BEAT, None, beat.to_json())
            return member

        members = []
        for number in range(MEMBERS):
            members.append(await join(number))
            if number % 100 == 0:
                await trio.sleep(0.001)
        await trio.sleep(1)
        group = {"consumerGroup": "CG"}
        await worst.request("4,000 members", peer, RequestCode.GET_CONSUMER_LIST_BY_GROUP, group)
        await worst.request("4,000 members", peer, RequestCode.GET_CONSUMER_CONNECTION_LIST, group)
        await worst.request("4,000 members", peer, RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "PG"})
        await worst.request("4,000 members", peer, RequestCode.GET_ALL_PRODUCER_INFO)
        await worst.measure("34 of one more, 4,000 members", lambda: join(MEMBERS), wait=2)
        await worst.measure("a member goes, 4,000 members", lambda: members.pop().stream.aclose(), wait=2)
        leave = {"clientID": "10.0.0.1@0", "consumerGroup": "CG", "producerGroup": "PG"}
        await worst.measure("35 of a member, 4,000 members",
                       lambda: members.pop().send_oneway(RequestCode.UNREGISTER_CLIENT, leave), wait=2)  # fmt: skip
        mode = {"topic": "T", "consumerGroup": "CG", "clientId": "c", "strategyName": "AVG",
                "messageModel": "CLUSTERING"}  # fmt: skip
        running.broker.tables.topics.create("T", 16, reason="for a test")
        await worst.request("4,000 members", peer, RequestCode.QUERY_ASSIGNMENT, None, json.dumps(mode).encode())
        status = {"group": "CG", "topic": "T", "clientAddr": ""}
        await worst.request("4,000 members", peer, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
        await worst.measure("the scan for silent ones", lambda: trio.sleep(10))
        nursery.cancel_scope.cancel()


MEMBERS = 4_000


async def many_groups(worst: WorstSteps) -> None:
    """100 connections of 500 groups each, all in the same."""
    async with broker_of(worst) as (running, peer), trio.open_nursery() as nursery:

        def beat(number: int, version: int = 0) -> bytes:
            consumers = [
                ConsumerData(f"Group-{group}", subscriptionDataSet=[SubscriptionData("T", "*", subVersion=version)])
                for group in range(500)
            ]
            producers = [ProducerData(f"PG-{group}") for group in range(1000)]
            return HeartbeatData(f"10.0.0.1@{number}", producers, consumers).to_json()

        async def join(number: int) -> Peer:
            stream = await running.network.dial(running.address)
            nursery.start_soon(_swallow, stream)
            await Peer(stream).send_oneway(RequestCode.HEART_BEAT, None, beat(number))
            return Peer(stream)

        members = []
        for number in range(100):
            members.append(await join(number))
            await trio.sleep(0.01)
        await trio.sleep(20)
        beats = members[0]
        await worst.measure("34 once more, 500 groups of 100",
                       lambda: beats.send_oneway(RequestCode.HEART_BEAT, None, beat(0, 5)))  # fmt: skip
        await worst.measure("34 of one more, 500 groups of 100", lambda: join(100), wait=2)
        await worst.measure("a member goes, 500 groups of 100", lambda: members.pop().stream.aclose(), wait=2)
        await worst.request("100,000 producers", peer, RequestCode.GET_ALL_PRODUCER_INFO)
        await worst.measure("the scan for silent ones", lambda: trio.sleep(10))
        nursery.cancel_scope.cancel()


async def filters(worst: WorstSteps) -> None:
    """9,900 SQL92 filters on as many topics."""
    async with broker_of(worst) as (running, peer):
        for begin in range(0, 9900, 450):
            stream = await running.network.dial(running.address)
            consumers = [
                ConsumerData(f"Group-{number}", subscriptionDataSet=[
                    SubscriptionData(f"T-{number}", f"a = {number}", subVersion=1, expressionType="SQL92")
                ]) for number in range(begin, begin + 450)
            ]  # fmt: skip
            await Peer(stream).ask(RequestCode.HEART_BEAT, None, HeartbeatData(f"c-{begin}", [], consumers).to_json())
        await trio.sleep(20)
        consumers = [ConsumerData(f"Other-{number}") for number in range(500)]
        body = HeartbeatData("other", [], consumers).to_json()
        await worst.request("500 groups, 9,900 filters of others", peer, RequestCode.HEART_BEAT, None, body, wait=3)

        async def come() -> None:
            nonlocal last
            last = Peer(await running.network.dial(running.address))
            await last.ask(RequestCode.HEART_BEAT, None, HeartbeatData("last", [], consumers).to_json())

        last = peer
        await worst.measure("a client of 500 groups goes", lambda: last.stream.aclose(), come, wait=11)
        bind = ConsumerData("X", subscriptionDataSet=[
            SubscriptionData("T-1", "a = 1", subVersion=1, expressionType="SQL92")])  # fmt: skip
        await worst.measure("a filter more, and saved", lambda: peer.ask(
            RequestCode.HEART_BEAT, None, HeartbeatData("x", [], [bind]).to_json()), wait=22)  # fmt: skip


async def pops(worst: WorstSteps) -> None:
    """A topic of 1,000 queues with three messages each, and groups that want none of them."""
    async with broker_of(worst) as (_, peer):
        await peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, _topic("T", 1000))
        properties = "".join(f"a{n}\x01{n}\x02" for n in range(100))
        for number in range(3000):
            head = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": str(number % 1000), "f": "0", "g": "1", "h": "0",
                    "i": properties, "j": "0", "k": "false", "m": "false"}  # fmt: skip
            await peer.ask(RequestCode.SEND_MESSAGE_V2, head, b"x")
        terms = " OR ".join(f"a{n % 100}={n + 1000}" for n in range(1200))
        for what, kind, text in (("1,200 terms", SQL92, terms), ("a term", SQL92, "a1 = 2"), ("tags", TAG, "x")):
            for again in ("first", "then"):
                pop = {"consumerGroup": what.replace(" ", "-").replace(",", ""), "topic": "T", "queueId": "-1",
                       "maxMsgNums": "32", "invisibleTime": "60000", "pollTime": "0", "bornTime": "1", "initMode": "0",
                       "expType": kind, "exp": text, "order": "false"}  # fmt: skip
                await worst.request(f"{what}, {again}", peer, RequestCode.POP_MESSAGE, pop, tries=1)
        for group in range(2):
            subscriptions = [
                SubscriptionData(f"T-{n}", f"a{n} = 1 OR " * 600 + "b = 2", subVersion=1, expressionType=SQL92)
                for n in range(120)
            ]
            beat = HeartbeatData("c", [], [ConsumerData(f"G{group}", subscriptionDataSet=subscriptions)]).to_json()
            await worst.request("a megabyte of SQL92", peer, RequestCode.HEART_BEAT, None, beat, tries=1)


async def locks(worst: WorstSteps) -> None:
    """100,000 locks."""
    async with broker_of(worst) as (running, peer):
        for group in range(10):
            body = LockBatchBody("c", f"G{group}", [WireQueue("broker-a", n, "T") for n in range(10_000)]).to_json()
            await peer.ask(RequestCode.LOCK_BATCH_MQ, None, body)
        assert running.broker.parts.locks.statistics().locks == 100_000, running.broker.parts.locks
        await worst.request("10,000 queues", peer, RequestCode.LOCK_BATCH_MQ, None, body)
        seen = json.dumps({"run": "", "holdMillis": 0}).encode()
        await worst.request("100,000 locks", peer, RequestCode.FOLLOW_TABLES, None, seen)
        await worst.measure("the look at 100,000 locks", lambda: trio.sleep(11))
        await worst.request("10,000 queues", peer, RequestCode.UNLOCK_BATCH_MQ, None, body, tries=1)


async def flows(worst: WorstSteps) -> None:
    """Statistics of 80,000 flows: 8 groups that pull from 10,000 queues."""
    async with broker_of(worst) as (running, peer):
        for group in range(8):
            for queue_id in range(10_000):
                running.broker.statistics.pull_flow(f"G{group}", "T", queue_id).add(1, 1)
        await trio.sleep(20)
        await worst.measure("samples of 80,000 flows", lambda: trio.sleep(11))
        key = {"statsName": "GROUP_GET_NUMS", "statsKey": "T@G1"}
        await worst.request("10,000 flows", peer, RequestCode.VIEW_BROKER_STATS_DATA, key)
        await worst.request("", peer, RequestCode.GET_BROKER_RUNTIME_INFO)
        await worst.request("", peer, RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G2"}, tries=1)


async def bodies(worst: WorstSteps) -> None:
    """Requests that are large themselves."""
    big = {
        "mapped_file_size_commit_log": 1 << 26,
        "max_message_size": 4 << 20,
        "mapped_file_size_consume_queue": 1 << 20,
        "max_hash_slot_num": 1 << 16,
        "max_index_num": 1 << 20,
    }
    async with broker_of(worst, **big) as (running, peer):
        head = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "", "j": "0",
                "k": "false", "m": "false"}  # fmt: skip
        await peer.ask(RequestCode.SEND_MESSAGE_V2, head, b"x")
        await worst.request("4 MiB", peer, RequestCode.SEND_MESSAGE_V2, head, bytes(4 << 20))
        for size in (1, 16):
            words = {**head, "g": "1700000000000", "i": "KEYS\x01" + "k " * size}
            sends = [
                encode(Command(310, opaque=1000 + n, ext=words, header_type=HeaderType.ROCKETMQ)) for n in range(1000)
            ]
            await worst.measure(f"1,000 alike sends of {size} keys", partial(peer.ask_at_once, sends))
        batch = {**head, "m": "true"}
        alike = encode_batch(BatchItem(0, b"", b"") for _ in range(16_384))
        await worst.request("16,384 empty messages", peer, RequestCode.SEND_BATCH_MESSAGE, batch, alike)
        mixed = encode_batch(BatchItem(0, b"x" * (n % 3), b"") for n in range(16_384))
        await worst.request("16,384 messages, unlike", peer, RequestCode.SEND_BATCH_MESSAGE, batch, mixed)
        keys = encode_batch(BatchItem(0, b"x" * (n % 3), b"KEYS\x01k%d l%d" % (n, n)) for n in range(16_384))
        await worst.request("16,384 messages of two keys", peer, RequestCode.SEND_BATCH_MESSAGE, batch, keys)
        keys = encode_batch(BatchItem(0, b"x" * (n % 3), b"KEYS\x01" + b"k " * 100) for n in range(650))
        await worst.request("650 messages of 100 keys", peer, RequestCode.SEND_BATCH_MESSAGE, batch, keys)
        many = {**head, "i": "KEYS\x01" + "k " * 16_000 + "\x02"}
        await worst.request("16,000 keys", peer, RequestCode.SEND_MESSAGE_V2, many, b"x")
        properties = {**head, "i": "".join(f"a{n}\x01b\x02" for n in range(4_000))}
        await worst.request("4,000 properties", peer, RequestCode.SEND_MESSAGE_V2, properties, b"x")
        pull = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": str(1 << 30),
                "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
                "subVersion": "0"}  # fmt: skip
        await worst.request("all", peer, RequestCode.PULL_MESSAGE, pull)
        await worst.request("what no message has", peer, RequestCode.PULL_MESSAGE, {**pull, "subscription": "TagA"})
        tags = " || ".join(f"Tag{n}" for n in range(1800))
        await worst.request("1,800 tags", peer, RequestCode.PULL_MESSAGE, {**pull, "subscription": tags})
        sql_text = " OR ".join(f"a{n} = {n}" for n in range(1100))
        await worst.request("SQL92 of 1,100 terms", peer, RequestCode.PULL_MESSAGE,
                          {**pull, "subscription": sql_text, "expressionType": "SQL92"})  # fmt: skip
        entries = {"topic": "T", "queueId": "0", "index": "0", "count": "100000"}
        await worst.request("10,000 entries", peer, RequestCode.QUERY_CONSUME_QUEUE, entries)
        query = {"topic": "T", "key": "k", "maxNum": "100000", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        await worst.request("a key that all have", peer, RequestCode.QUERY_MESSAGE, query)
        await worst.request("", peer, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                          {"topic": "T", "queueId": "0", "timestamp": str(1 << 60)})  # fmt: skip
        ack = {"brokerName": "broker-a", "acks": [
            {"c": "CG", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": n, "it": 60000,
             "b": "gA" * 20} for n in range(9_000)]}  # fmt: skip
        await worst.request("9,000 acks", peer, RequestCode.BATCH_ACK_MESSAGE, None, json.dumps(ack).encode())
        nothing = b'{"brokerName":"broker-a","acks":[%b]}' % b",".join([b"{}"] * 10_000)
        await worst.request("10,000 acks of nothing", peer, RequestCode.BATCH_ACK_MESSAGE, None, nothing)
        consumers = [ConsumerData(f"G{n}", subscriptionDataSet=[SubscriptionData(f"T{n}", "*")]) for n in range(500)]
        beat = HeartbeatData("c", [], consumers).to_json()
        await worst.request("500 new groups", peer, RequestCode.HEART_BEAT, None, beat, wait=3)
        peer = Peer(await running.network.dial(running.address))
        one_group = [ConsumerData("Gx", subscriptionDataSet=[SubscriptionData(f"T{n}", "*") for n in range(8000)])]
        await worst.request("8,000 subscriptions", peer, RequestCode.HEART_BEAT, None,
                          HeartbeatData("c2", [], one_group).to_json(), wait=3)  # fmt: skip
        tag_set = [f"t{n}" for n in range(50_000)]
        one_group = [ConsumerData("Gy", subscriptionDataSet=[SubscriptionData("T", "*", tag_set, list(range(50_000)))])]
        await worst.request("50,000 tags", peer, RequestCode.HEART_BEAT, None,
                          HeartbeatData("c3", [], one_group).to_json(), wait=3)  # fmt: skip
        config = b"\n".join(b"x%d=1" % n for n in range(8000))
        await worst.request("8,000 settings", peer, RequestCode.UPDATE_BROKER_CONFIG, None, config)
        await worst.request("", peer, RequestCode.GET_BROKER_CONFIG)
        deep = b'{"clientID":' + b"[" * 5000 + b"]" * 5000 + b"}"
        await worst.request("deep", peer, RequestCode.HEART_BEAT, None, deep)
        odd = b"{'clientID':'c','consumerDataSet':[" + b"{'groupName':'g'}," * 3_900 + b"]}"
        await worst.request("odd JSON", peer, RequestCode.HEART_BEAT, None, odd)
        junk = b"{'a':'" + b"\\ud800" * 170_000 + b"'}"
        await worst.request("odd JSON, one long text", peer, RequestCode.HEART_BEAT, None, junk)
        attributes = ",".join(f"+a{n}=b" for n in range(5_000))
        await worst.request("5,000 attributes", peer, RequestCode.UPDATE_AND_CREATE_TOPIC,
                          {**_topic("A", 4), "attributes": attributes})  # fmt: skip


# -- a name server


@asynccontextmanager
async def name_server(worst: WorstSteps, network: MemoryNetwork) -> AsyncIterator[Peer]:
    loaded = Loaded((NamesrvConfig(kv_config_path="kv.json"), *_server_configs()), {})
    server = NameServer(with_config_store_path(loaded), network, files=MemoryFiles({}), faults=worst.watch)
    async with trio.open_nursery() as nursery:
        worst.address = await nursery.start(server.run)
        worst.server = server
        yield Peer(await network.dial(worst.address))
        nursery.cancel_scope.cancel()


def _server_configs() -> tuple[Any, ...]:
    from rocketlet.access.config import AccessConfig
    from rocketlet.metrics.config import MetricsConfig

    return ServerConfig(), MetricsConfig(), AccessConfig()


def _registration(
    number: int, count: int, *, compressed: bool = False, own: bool = False
) -> tuple[dict[str, str], bytes]:
    names = [f"Topic-of-some-length-{number if own else 0}-{n}" for n in range(count)]
    body = RegisterBrokerBody(
        [], TopicConfigTable(topicConfigTable={name: TopicConfig(topicName=name) for name in names})
    )
    header = RegisterBrokerHeader(0, f"broker-{number}", f"10.0.0.{number}:10911", "C", compressed=compressed)
    return to_ext(header), body.to_compressed() if compressed else body.to_json()


def _registration_of(topics: Iterable[bytes]) -> bytes:
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}}}' % b",".join(topics)


async def routes(worst: WorstSteps) -> None:
    """990,000 entries of topics in a name server, of 100,000 topics on each of 9 brokers."""
    network = MemoryNetwork()
    async with name_server(worst, network) as peer:
        for number in range(9):
            stream = Peer(await network.dial(worst.address))
            header, body = _registration(number, 100_000, compressed=True)
            await stream.ask(RequestCode.REGISTER_BROKER, header, body)
        header, body = _registration(0, 1_200)
        await worst.request("1,200 topics", peer, RequestCode.REGISTER_BROKER, header, body)
        header, body = _registration(0, 1_500, compressed=True)
        await worst.request("1,500 topics, compressed", peer, RequestCode.REGISTER_BROKER, header, body)
        header, body = _registration(0, 80_000)
        await worst.request("80,000 topics", peer, RequestCode.REGISTER_BROKER, header, body)
        empty = _registration_of(b'"%d":{}' % number for number in range(199_000))
        await worst.request("199,000 empty topics", peer, RequestCode.REGISTER_BROKER, header, empty)
        empty = _registration_of(b'"%d":{},"attributes":{}' % number for number in range(199_000))
        await worst.request("398,000 empty objects", peer, RequestCode.REGISTER_BROKER, header, empty)
        late = body[:-2] + b"x}}"
        await worst.request("80,000 topics and an error", peer, RequestCode.REGISTER_BROKER, header, late)
        header, body = _registration(0, 100_000, compressed=True)
        await worst.request("100,000 topics, compressed", peer, RequestCode.REGISTER_BROKER, header, body)
        await worst.request("", peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        await worst.request("", peer, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"})
        await worst.request("", peer, RequestCode.GET_UNIT_TOPIC_LIST)
        await worst.request("", peer, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
        await worst.request("", peer, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        await worst.request("", peer, RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-1"})
        await worst.request("", peer, RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-1"})
        leave = {"brokerId": "0", "brokerName": "broker-2", "brokerAddr": "10.0.0.2:10911", "clusterName": "C"}
        header, body = _registration(2, 100_000, compressed=True)
        await worst.request("100,000 topics", peer, RequestCode.UNREGISTER_BROKER, leave,
                          before=lambda: peer.ask(RequestCode.REGISTER_BROKER, header, body))  # fmt: skip
        gone: list[Peer] = []

        async def come() -> None:
            gone.append(Peer(await network.dial(worst.address)))
            await gone[-1].ask(RequestCode.REGISTER_BROKER, header, body)

        await worst.measure("a broker goes, 100,000 topics", lambda: gone.pop().stream.aclose(), come)
        moved = {**header, "clusterName": "D"}
        await worst.request("another cluster", peer, RequestCode.REGISTER_BROKER, moved, body)


async def brokers(worst: WorstSteps) -> None:
    """9,900 brokers at a name server, all with the same 20 topics."""
    network = MemoryNetwork()
    async with name_server(worst, network) as peer:
        for number in range(9_900):
            if number % 99 == 0:
                peer = Peer(await network.dial(worst.address))
            header, body = _registration(number, 20)
            await peer.ask(RequestCode.REGISTER_BROKER, header, body)
        await worst.request("", peer, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "D"})
        await worst.request("", peer, RequestCode.GET_UNIT_TOPIC_LIST)
        await worst.request("9,900 brokers", peer, RequestCode.GET_BROKER_CLUSTER_INFO)
        others = (_registration(9_900, count) for count in range(21, 28))  # so that no route is in the cache

        async def change() -> None:
            await peer.ask(RequestCode.REGISTER_BROKER, *next(others))

        await worst.request("9,900 brokers", peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": COMMON}, before=change)
        await worst.request("", peer, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        await worst.measure("the scan", lambda: trio.sleep(11))
        await worst.measure("all brokers of a connection go", lambda: peer.stream.aclose(), tries=1)


async def kv(worst: WorstSteps) -> None:
    """8 MB of KV configuration, and then as many namespaces as there may be."""
    network = MemoryNetwork()
    async with name_server(worst, network) as peer:
        assert worst.server is not None
        worst.server._kv._tables = {
            "ORDER_TOPIC_CONFIG": {f"Topic-{n}": "broker-a:8;broker-b:8" for n in range(190_000)}
        }
        put = {"namespace": "n", "key": "k", "value": "v"}
        await worst.request("8 MB", peer, RequestCode.PUT_KV_CONFIG, put)
        await worst.request("8 MB", peer, RequestCode.DELETE_KV_CONFIG, put, tries=1)
        await worst.request("8 MB", peer, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
        header, body = _registration(1, 1)
        await worst.request("8 MB of order configuration", peer, RequestCode.REGISTER_BROKER, header, body)
        await worst.measure("printing it", lambda: trio.sleep(700), tries=1)
        worst.server._kv._tables = {str(number): {} for number in range(199_000)}
        peer = Peer(await network.dial(worst.address))  # the first was idle for too long
        await worst.request("199,000 namespaces", peer, RequestCode.PUT_KV_CONFIG, put)
        await worst.measure("printing 199,000 namespaces", lambda: trio.sleep(700), tries=1)


async def _in_a_task(work: Callable[[], object]) -> None:
    async def task() -> None:
        work()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(task)
    return


async def _swallow(stream: ByteStream) -> None:
    try:
        while await stream.receive_some():
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


STATES = {
    state.__name__: state
    for state in (wide, unused, topics, registration, groups, offsets, large_group, many_groups, filters, pops, locks,
                flows, bodies, routes, brokers, kv)
}  # fmt: skip


def main() -> None:
    set_up(LogConfig(), open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    for name in sys.argv[1:] or STATES:
        sys.stdout.write(f"{name}: {(STATES[name].__doc__ or '').strip()}\n")
        worst = WorstSteps(sys.stdout)
        with worst.holds:
            trio.run(STATES[name], worst, clock=MockClock(autojump_threshold=0), instruments=[worst.holds])
        gc.collect()


if __name__ == "__main__":
    main()
