"""Push consumers."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rocketlet import ConsumeFrom, Later, Message, MessageModel, MessageQueue, PushConsumer, ReceivedMessage, Sql
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.lab import (
    Inbox,
    Lab,
    between,
    check,
    ok,
    pause,
    refused,
    same,
    send,
    text,
    until,
)

GROUP = "consuming"
BAD_SUBSCRIPTION = 23


@scenario(GROUP, "tag-filter", 30)
def tags(lab: Lab) -> None:
    """tags select, and what merely has the same hash does not come"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    for n in range(90):
        ok(producer.send(Message(topic, b"%d" % n, tags="ABC"[n % 3])))
    # "Aa" and "BB" have the same hash, and the broker compares only that.
    ok(producer.send(Message(topic, b"twin", tags="Aa")))
    inbox, twins = Inbox(), Inbox()
    lab.collect(lab.group, topic, "A || C", inbox)
    lab.collect(lab.name("twin"), topic, "BB||B", twins)
    inbox.await_distinct(60, 20)
    twins.await_distinct(30, 20)
    pause(0.5)
    check(inbox.distinct() == 60 and all(message.tags != "B" for message in inbox.all()), "exactly A and C")
    check(twins.distinct() == 30 and not twins.has("twin"), "exactly B, not the hash twin")


@scenario(GROUP, "sql-filter", 30)
def sql(lab: Lab) -> None:
    """an SQL92 condition selects by properties and tags"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    for n in range(40):
        properties = {"a": str(n)} | ({"s": "x'y"} if n % 4 == 0 else {})
        ok(producer.send(Message(topic, b"%d" % n, tags="E" if n % 2 == 0 else "O", properties=properties)))
    condition = "(a between 5 and 20 AND TAGS = 'E') OR (s IS NOT NULL AND a >= 36) OR a IN ('39')"
    inbox = Inbox()
    lab.collect(lab.group, topic, Sql(condition), inbox)
    want = {str(n) for n in range(40) if (5 <= n <= 20 and n % 2 == 0) or (n % 4 == 0 and n >= 36) or n == 39}
    until(20, lambda: f"{want}, have {inbox.texts()}", lambda: want <= set(inbox.texts()))
    pause(0.5)
    same(set(inbox.texts()), want, "selected")


@scenario(GROUP, "sql-refused", 30)
def sql_refused(lab: Lab) -> None:
    """a consumer with bad SQL does not start"""
    topic = lab.create_topic(lab.topic, 1)
    consumer = lab.consumer(lab.group, Inbox(), {topic: Sql("a > AND b")})
    refused(BAD_SUBSCRIPTION, "a consumer with bad SQL", consumer.start)


@scenario(GROUP, "orderly", 60)
def orderly(lab: Lab) -> None:
    """two orderly consumers share a topic, and each key keeps its order"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    by_key: dict[str, list[int]] = defaultdict(list)
    took_part: set[int] = set()
    lock = threading.Lock()

    def listener(number: int) -> Any:
        def listen(message: ReceivedMessage) -> None:
            key, count = text(message).split(":")
            with lock:
                took_part.add(number)
                # A queue that moves may repeat its last few messages.
                if int(count) not in by_key[key]:
                    by_key[key].append(int(count))

        return listen

    pair = [lab.enter(lab.consumer(lab.group, listener(n), {topic: "*"}, orderly=True)) for n in range(2)]
    await_partition(pair, topic, 4 * len(lab.brokers()))
    for n in range(200):
        ok(
            producer.send(
                Message(topic, b"%d:%d" % (n % 10, n)),
                selector=lambda queues, message, key: queues[key % len(queues)],
                argument=n % 10,
            )
        )
    until(20, lambda: f"200 messages, have {by_key}", lambda: sum(map(len, by_key.values())) == 200)
    for key, seen in by_key.items():
        same(seen, sorted(seen), f"order of key {key}")
    same(len(took_part), 2, "consumers that took part")


@scenario(GROUP, "orderly-suspend", 30)
def orderly_suspend(lab: Lab) -> None:
    """a suspended queue waits a second and repeats before it goes on"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    for n in range(5):
        ok(producer.send(Message(topic, b"%d" % n), queue=queue))
    calls: list[tuple[str, float]] = []

    def listener(message: ReceivedMessage) -> Later | None:
        calls.append((text(message), time.time()))
        return Later() if len(calls) == 1 else None

    lab.enter(lab.consumer(lab.group, listener, {topic: "*"}, orderly=True))
    until(20, lambda: f"six calls, have {calls}", lambda: len(calls) >= 6)
    same([body for body, _ in calls[:6]], ["0", "0", "1", "2", "3", "4"], "calls of the listener")
    between(calls[1][1] - calls[0][1], 0.9, 3.0, "seconds of suspension")


@scenario(GROUP, "broadcast", 30)
def broadcast(lab: Lab) -> None:
    """each of two broadcasting consumers gets everything"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    inboxes = [Inbox(), Inbox()]
    for n, inbox in enumerate(inboxes):
        lab.collect(lab.group, topic, "*", inbox, **broadcasting(lab, str(n)))
    send(producer, topic, "m", 40)
    for inbox in inboxes:
        inbox.await_distinct(40, 20)


def broadcasting(lab: Lab, instance: str) -> dict[str, Any]:
    folder = tempfile.TemporaryDirectory()
    lab.on_close(folder.cleanup)
    return {"model": MessageModel.BROADCASTING, "instance_name": instance, "offset_directory": folder.name}


@scenario(GROUP, "rebalance", 40)
def rebalance(lab: Lab) -> None:
    """three consumers come and go; each queue always ends with exactly one owner, on notice"""
    topic = lab.create_topic(lab.topic, 9)
    queues = 9 * len(lab.brokers())
    producer = lab.producer()
    members: list[PushConsumer] = []
    inboxes: list[Inbox] = []
    for _ in range(3):
        inboxes.append(Inbox())
        members.append(lab.collect(lab.group, topic, "*", inboxes[-1]))
        await_partition(members, topic, queues)
    send(producer, topic, "first", 3 * queues)
    until(
        15,
        lambda: f"all of {3 * queues}, have {[inbox.distinct() for inbox in inboxes]}",
        lambda: sum(inbox.distinct() for inbox in inboxes) >= 3 * queues,
    )
    for inbox in inboxes:
        same(inbox.distinct(), queues, "each consumer's share of an even spread")
    members.pop(2).shutdown()
    await_partition(members, topic, queues)
    members.pop(0).shutdown()
    await_partition(members, topic, queues)
    send(producer, topic, "last", queues)
    until(
        15,
        "the remaining consumer gets everything",
        lambda: inboxes[1].distinct(lambda message: text(message).startswith("last")) == queues,
    )


def await_partition(members: Sequence[PushConsumer], topic: str, queues: int) -> None:
    """Wait until they own disjoint shares of all queues that differ by at most one; by notification, so within 15 s."""

    def shared() -> bool:
        shares = [own_queues(member, topic) for member in members]
        low, high = queues // len(members), -(-queues // len(members))
        return all(low <= len(share) <= high for share in shares) and len(set().union(*shares)) == queues == sum(
            map(len, shares)
        )

    until(
        15,
        lambda: f"{queues} queues, now {[len(own_queues(member, topic)) for member in members]}",
        shared,
    )


def own_queues(member: PushConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in member.queues() if queue.topic == topic}


@scenario(GROUP, "offsets-continue", 30)
def offsets_continue(lab: Lab) -> None:
    """a restarted group goes on where it stopped"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    send(producer, topic, "a", 30)
    first = Inbox()
    consumer = lab.collect(lab.group, topic, "*", first)
    first.await_distinct(30, 20)
    consumer.shutdown()
    same(lab.committed(lab.group, topic), 30, "committed by the shutdown")
    send(producer, topic, "b", 30)
    second = Inbox()
    lab.collect(lab.group, topic, "*", second)
    second.await_distinct(30, 20)
    pause(0.5)
    check(all(body.startswith("b") for body in second.texts()), f"only new messages: {second.texts()}")


@scenario(GROUP, "consume-from", 40)
def consume_from(lab: Lab) -> None:
    """where a new consumer starts: first, last, timestamp"""
    topic = lab.create_topic(lab.topic, 2)
    producer = lab.producer()
    send(producer, topic, "old", 10)
    pause(2)
    since = int(time.time() * 1000)
    pause(0.3)
    send(producer, topic, "new", 10)

    def starting(where: ConsumeFrom) -> Inbox:
        inbox = Inbox()
        # Broadcasting consumers keep their offsets themselves, so a new one always starts like this.
        settings = broadcasting(lab, where.name) | {"consume_from": where, "consume_timestamp": since}
        lab.collect(lab.name(where.name), topic, "*", inbox, **settings)
        return inbox

    first, last, since_then = map(starting, (ConsumeFrom.FIRST_OFFSET, ConsumeFrom.LAST_OFFSET, ConsumeFrom.TIMESTAMP))
    first.await_distinct(20, 15)
    since_then.await_distinct(10, 15)
    pause(0.5)
    send(producer, topic, "later", 10)
    last.await_distinct(10, 15)
    first.await_distinct(30, 15)
    since_then.await_distinct(20, 15)
    check(not any(body.startswith("old") for body in since_then.texts()), f"from a time: {since_then.texts()}")
    check(all(body.startswith("later") for body in last.texts()), f"from the last offset: {last.texts()}")


@scenario(GROUP, "new-group-young-topic", 20)
def young_topic(lab: Lab) -> None:
    """a new group on a young topic starts at 0 even from last offset"""
    topic = lab.create_topic(lab.topic, 2)
    send(lab.producer(), topic, "old", 10)
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox, consume_from=ConsumeFrom.LAST_OFFSET)
    inbox.await_distinct(10, 15)


@scenario(GROUP, "long-poll", 20)
def long_poll(lab: Lab) -> None:
    """a message that arrives during a held pull is delivered at once"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    ok(producer.send(Message(topic, b"warm")))
    inbox.await_distinct(1, 15)
    for n in range(5):
        pause(0.3)
        began = time.time()
        body = f"m{n}"
        ok(producer.send(Message(topic, body.encode())))
        until(5, body, lambda body=body: inbox.has(body))
        between(inbox.arrival_of(body) - began, 0, 0.9, "seconds from send to listener")


@scenario(GROUP, "subscription-changes", 30)
def subscription_changes(lab: Lab) -> None:
    """subscribe and unsubscribe while running; suspend and resume"""
    topic = lab.create_topic(lab.topic, 2)
    second = lab.create_topic(f"{topic}-2", 2)
    producer = lab.producer()
    inbox = Inbox()
    consumer = lab.collect(lab.group, topic, "*", inbox)
    send(producer, topic, "one", 5)
    inbox.await_distinct(5, 15)
    consumer.subscribe(second, "*")
    lab.await_queues(consumer, second)
    send(producer, second, "two", 5)
    inbox.await_distinct(10, 15)
    consumer.unsubscribe(second)
    consumer.suspend()
    # Pulls already parked still deliver, one for each queue.
    queues = producer.publish_queues(topic)
    for queue in queues:
        ok(producer.send(Message(topic, f"held {queue}".encode()), queue=queue))
    inbox.await_distinct(10 + len(queues), 15)
    send(producer, topic, "three", 5)
    pause(0.5)
    same(inbox.distinct(lambda message: text(message).startswith("three")), 0, "messages while suspended")
    consumer.resume()
    until(
        15,
        lambda: f"five more, have {inbox.texts()}",
        lambda: inbox.distinct(lambda message: text(message).startswith("three")) == 5,
    )
