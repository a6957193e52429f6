"""Producers."""

from __future__ import annotations

import time
from queue import Queue
from typing import Any

from rocketlet import InvalidMessage, Message, MessageQueue, PendingSend, Producer, SendResult
from rocketlet.client.errors import ClientError
from rocketlet.client.sending.queue_selection import by_hash
from rocketlet.remoting.protocol.configuration import TopicConfig
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.lab import (
    GhostBroker,
    Inbox,
    Lab,
    between,
    check,
    client_refuses,
    in_threads,
    ok,
    random_bytes,
    refused,
    same,
    text,
    until,
)

GROUP = "sending"
ILLEGAL_MESSAGE, NO_TOPIC, ERROR = 13, 17, 1


@scenario(GROUP, "send-sync", 30)
def sync(lab: Lab) -> None:
    """100 messages arrive with all their fields, ids and offsets"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    sent: dict[str, SendResult] = {}
    for n in range(100):
        message = Message(
            topic,
            f"hello {n} 你好".encode(),
            tags=f"Tag{n % 3}",
            keys=[f"key{n}", "all"],
            flag=n,
            properties={"n": str(n), "text": "a=b c 你好"},
        )
        result = ok(producer.send(message))
        same(result.queue.topic, topic, "topic of the result")
        same(result.region_id, "DefaultRegion", "region of the result")
        same(len(result.offset_message_id), 32, f"offset id {result.offset_message_id}")
        sent[result.message_id] = result
    same(len(sent), 100, "unique ids")
    same(len({result.queue for result in sent.values()}), 4 * len(lab.brokers()), "queues used in turn")
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(100, 20)
    for message in inbox.all():
        n = int(message.properties["n"])
        result = sent[message.message_id]
        same(text(message), f"hello {n} 你好", "body")
        same(
            (message.tags, message.keys, message.flag, message.properties["text"]),
            (f"Tag{n % 3}", (f"key{n}", "all"), n, "a=b c 你好"),
            f"fields of {n}",
        )
        same((message.queue_offset, message.queue), (result.queue_offset, result.queue), f"place of {n}")
        same(
            (message.reconsume_times, message.offset_message_id), (0, result.offset_message_id), f"tries and id of {n}"
        )
        check(abs(message.store_timestamp - message.born_timestamp) < 5000, f"times of {n}")
        check(message.born_host and message.store_host, f"hosts of {n}")


@scenario(GROUP, "send-async", 30)
def asynchronous(lab: Lab) -> None:
    """200 asynchronous sends are all acknowledged and arrive"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    done: Queue[PendingSend] = Queue()
    for n in range(200):
        producer.send_soon(Message(topic, b"a%d" % n), done.put)
    for _ in range(200):
        ok(done.get(timeout=20).result())
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(200, 20)


@scenario(GROUP, "send-oneway", 30)
def oneway(lab: Lab) -> None:
    """one-way sends arrive"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    for n in range(100):
        producer.send_oneway(Message(topic, b"o%d" % n))
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(100, 20)


@scenario(GROUP, "send-to-queue", 20)
def to_queue(lab: Lab) -> None:
    """sends to a chosen queue, by selector and by key: offsets count up by one"""
    topic = lab.create_topic(lab.topic, 6)
    producer = lab.producer()
    queues = producer.publish_queues(topic)
    same(len(queues), 6 * len(lab.brokers()), "publish queues")
    for queue in queues:
        for n in range(5):
            result = ok(producer.send(Message(topic, b"x"), queue=queue))
            same((result.queue, result.queue_offset), (queue, n), f"place of a send to {queue}")
    for n in range(12):
        result = ok(
            producer.send(
                Message(topic, b"y"), selector=lambda some, message, argument: some[argument % len(some)], argument=3
            )
        )
        same(result.queue_offset, 5 + n, "offset of a send by selector")
    hashed = {ok(producer.send(Message(topic, b"z"), selector=by_hash, argument="order-7")).queue for _ in range(5)} | {
        ok(producer.send(Message(topic, b"z", sharding_key="order-7"))).queue for _ in range(5)
    }
    same(len(hashed), 1, "queues of one key")
    for queue in queues:
        same(producer.min_offset(queue), 0, f"min offset of {queue}")
        until(5, f"max offset of {queue}", lambda queue=queue: producer.max_offset(queue) >= 5)


@scenario(GROUP, "send-batch", 30)
def batch(lab: Lab) -> None:
    """a batch of 150 takes consecutive offsets in one queue"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    messages = [
        Message(topic, b"b%d" % n, tags=f"T{n % 2}", keys=[f"bk{n}"], flag=n, properties={"n": str(n)})
        for n in range(150)
    ]
    result = ok(producer.send_batch(messages))
    same(len(result.message_id.split(",")), 150, "ids in the result")
    same(len(result.offset_message_id.split(",")), 150, "offset ids in the result")
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(150, 20)
    same({message.message_id for message in inbox.all()}, set(result.message_id.split(",")), "unique ids")
    for message in inbox.all():
        n = int(message.properties["n"])
        same(
            (text(message), message.tags, message.keys, message.flag, message.queue, message.queue_offset),
            (f"b{n}", f"T{n % 2}", (f"bk{n}",), n, result.queue, result.queue_offset + n),
            f"member {n}",
        )
    two = [Message(topic, b"x"), Message(f"{topic}-other", b"y")]
    client_refuses("a batch over two topics", lambda: producer.send_batch(two))


@scenario(GROUP, "auto-create-topic", 30)
def auto_create(lab: Lab) -> None:
    """a send creates its topic from TBW102, with the asked number of queues"""
    producer = lab.producer()
    topic = lab.topic
    ok(producer.send(Message(topic, b"x")))
    until(10, "the new topic's route", lambda: lab.route(topic).queueDatas)
    queues = lab.route(topic).queueDatas[0]
    same((queues.readQueueNums, queues.writeQueueNums, queues.perm), (4, 4, 6), "queues and permission")
    asks = lab.producer(lab.name("p2"), default_topic_queues=2)
    second = f"{topic}-2"
    ok(asks.send(Message(second, b"x")))
    until(10, "the second topic's route", lambda: lab.route(second).queueDatas[0].readQueueNums == 2)
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(1, 20)


@scenario(GROUP, "large-and-compressed", 30)
def large(lab: Lab) -> None:
    """3 MB random and 1.2 MB compressible bodies arrive whole"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    bodies = {"random": random_bytes(3_000_000, 1), "repetitive": b"abc" * 400_000, "over4k": b"a" * 4097}
    for tag, body in bodies.items():
        ok(producer.send(Message(topic, body, tags=tag), timeout=10))
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(3, 20)
    for message in inbox.all():
        assert message.tags is not None
        check(message.body == bodies[message.tags], f"body {message.tags}")
        if message.tags == "repetitive":
            check(message.store_size < len(message.body) / 10, f"stored compressed: {message.store_size}")


@scenario(GROUP, "compression-types", 30)
def compression_types(lab: Lab) -> None:
    """bodies compressed by LZ4, ZSTD and zlib are read, as far as the packages are installed"""
    topic = lab.create_topic(lab.topic, 1)
    body = b"abc" * 10_000
    packed = _packed(body)
    _, address = lab.brokers()[0]
    for tag, (flag, data) in packed.items():
        header = SendMessageHeaderV2(
            queueId=0,
            topic=topic,
            producerGroup=lab.name("p"),
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            sysFlag=flag,
            bornTimestamp=int(time.time() * 1000),
            properties=f"TAGS\x01{tag}\x02UNIQ_KEY\x01{tag}",
        )
        lab.admin.ask(address, RequestCode.SEND_MESSAGE_V2, header, data)
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(len(packed), 20)
    for message in inbox.all():
        check(message.body == body and message.store_size < 5000, f"body compressed by {message.tags}")


def _packed(body: bytes) -> dict[str, tuple[int, bytes]]:
    import zlib

    packed = {"ZLIB": (0x301, zlib.compress(body)), "LEGACY": (0x1, zlib.compress(body))}
    try:
        import lz4.frame

        packed["LZ4"] = 0x101, lz4.frame.compress(body)
    except ImportError:
        pass  # an optional package
    try:
        import zstandard

        packed["ZSTD"] = 0x201, zstandard.ZstdCompressor().compress(body)
    except ImportError:
        pass
    return packed


@scenario(GROUP, "too-large", 20)
def too_large(lab: Lab) -> None:
    """over 4 MiB: refused by client, and by broker with code 13"""
    topic = lab.create_topic(lab.topic, 1)
    body = random_bytes(4 * 1024 * 1024 + 1, 2)
    producer = lab.producer()
    client_refuses("over 4 MiB at the client", lambda: producer.send(Message(topic, body)))
    bold = lab.producer(lab.name("bold"), max_message_size=8 << 20)
    refused(ILLEGAL_MESSAGE, "over 4 MiB at the broker", lambda: bold.send(Message(topic, body), timeout=10))
    long = Message(topic, b"x", properties={"p": "v" * 33_000})
    client_refuses("properties over 32767 bytes", lambda: bold.send(long))
    ok(bold.send(Message(topic, b"the connection still works")))


@scenario(GROUP, "refused-sends", 20)
def refused_sends(lab: Lab) -> None:
    """validators of client and broker: names, system topics, queue ids, unknown topics"""
    producer = lab.producer()
    for what, message in {
        "a blank topic": Message("", b"x"),
        "a topic with a bad character": Message("a b", b"x"),
        "a topic of 128 characters": Message("t" * 128, b"x"),
        "a system topic": Message("SCHEDULE_TOPIC_XXXX", b"x"),
        "an empty body": Message(lab.topic, b""),
    }.items():
        client_refuses(what, lambda message=message: producer.send(message))

    topic = lab.create_topic(lab.topic, 2)
    name, address = lab.brokers()[0]
    beyond = MessageQueue(topic, name, 2)
    refused(ERROR, "queue 2 of 2", lambda: producer.send(Message(topic, b"x"), queue=beyond))

    strict = lab.producer(lab.name("strict"), default_topic=f"no-such-template-{lab.name('')}")
    ok(strict.send(Message(topic, b"x")))
    unknown = f"{topic}-unknown"
    client_refuses("a topic that nobody may create", lambda: strict.send(Message(unknown, b"x")))
    header = SendMessageHeaderV2(
        queueId=0,
        topic=unknown,
        producerGroup=lab.name("p"),
        defaultTopic="no-such-template",
        defaultTopicQueueNums=4,
        bornTimestamp=int(time.time() * 1000),
    )
    refused(
        NO_TOPIC,
        "a send to an unknown topic whose template does not exist",
        lambda: lab.admin.ask(address, RequestCode.SEND_MESSAGE_V2, header, b"x"),
    )
    for address in lab.broker_addresses:
        refused(ERROR, "creating a topic with a bad name", lambda at=address: lab.put_topic(at, "a b", 1, 1))
        refused(ERROR, "creating a system topic", lambda at=address: lab.put_topic(at, "SCHEDULE_TOPIC_XXXX", 1, 1))


@scenario(GROUP, "send-timeout", 20)
def timeout(lab: Lab) -> None:
    """a send to a broker that never answers ends in time"""
    ghost = GhostBroker(lab, lab.name("cluster"), lab.name("b"))
    ghost.register(TopicConfig(topicName=lab.topic, readQueueNums=1, writeQueueNums=1))
    producer = lab.producer()
    for send in (lambda m: producer.send(m, timeout=1.0), lambda m: producer.send_soon(m, timeout=1.0).result()):
        began = time.monotonic()
        try:
            send(Message(lab.topic, b"x"))
        except ClientError as error:
            between(time.monotonic() - began, 0.9, 3.0, f"seconds until {error}")
        else:
            raise AssertionError("a ghost acknowledged")


@scenario(GROUP, "send-retries", 30)
def retries(lab: Lab) -> None:
    """a send that fails at one broker succeeds at another"""
    topic = lab.create_topic(lab.topic, 1)
    ghost = GhostBroker(lab, lab.cluster, lab.name("b"))
    ghost.register(TopicConfig(topicName=topic, readQueueNums=4, writeQueueNums=4))
    ghost.stop_listening()
    lab.await_route(topic, len(lab.brokers()) + 1)
    producer = lab.producer()
    for n in range(20):
        result = ok(producer.send(Message(topic, b"r%d" % n), timeout=3.0))
        check(result.queue.broker_name != ghost.name, "acknowledged by a live broker")
    pending = [producer.send_soon(Message(topic, b"s%d" % n)) for n in range(20)]
    for one in pending:
        check(ok(one.result()).queue.broker_name != ghost.name, "acknowledged by a live broker")
    # The consumer asks any broker of the route for the members; ours asks the next one if that is dead.
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    inbox.await_distinct(40, 15)
    ghost.unregister()


@scenario(GROUP, "many-in-flight", 60)
def many_in_flight(lab: Lab) -> None:
    """32 threads send 6400 messages over one connection: each gets its own offset"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    results: Queue[SendResult | ClientError] = Queue()

    def work() -> None:
        for _ in range(200):
            results.put(_patiently(producer, Message(topic, b"x" * 1024)))

    in_threads([work] * 32)
    got: list[Any] = [results.get() for _ in range(6400)]
    bad = [one for one in got if not isinstance(one, SendResult)]
    check(not bad, f"{len(bad)} sends failed, first {bad[:1]}")
    places = {(one.queue, one.queue_offset) for one in got}
    same((len(places), len({one.offset_message_id for one in got})), (6400, 6400), "distinct places and ids")
    until(
        10,
        "max offsets that sum up to 6400",
        lambda: sum(producer.max_offset(queue) for queue in producer.publish_queues(topic)) == 6400,
    )


def _patiently(producer: Producer, message: Message) -> SendResult | ClientError:
    """A broker may refuse a request that waited too long in its queue, with code 2; retrying is up to the user."""
    error: ClientError | None = None
    for _ in range(5):
        try:
            return ok(producer.send(message))
        except InvalidMessage:
            raise
        except ClientError as failure:
            error = failure
    assert error is not None
    return error
