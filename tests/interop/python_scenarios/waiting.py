"""Delayed messages, and retries."""

from __future__ import annotations

import time

from rocketlet import Later, Message, PushConsumer, ReceivedMessage
from rocketlet.client.consuming.consume_results import DEAD_LETTER
from rocketlet.common.topic import dlq_topic, retry_topic
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.consuming import broadcasting
from tests.interop.python_scenarios.lab import Inbox, Lab, between, ok, pause, same, text, until

GROUP = "waiting"


@scenario(GROUP, "delay-levels", 60)
def delay(lab: Lab) -> None:
    """levels 1 to 3 are delivered after their time, topic and tags restored"""
    levels = lab.delay_levels()
    topic = lab.create_topic(lab.topic, 2)
    producer = lab.producer()
    inbox = Inbox()
    lab.collect(lab.group, topic, "D", inbox)
    began = time.time()
    for level in (1, 2, 3):
        ok(producer.send(Message(topic, b"level%d" % level, tags="D", keys=["dk"], delay_level=level)))
    until(45, lambda: f"three messages, have {inbox.texts()}", lambda: inbox.distinct() == 3)
    for level in (1, 2, 3):
        wait = levels[level - 1]
        between(inbox.arrival_of(f"level{level}") - began, wait - 0.1, wait + 3, f"seconds of level {level}")
    for message in inbox.all():
        same(
            (message.topic, message.tags, message.keys, message.reconsume_times),
            (topic, "D", ("dk",), 0),
            "fields of a delayed message",
        )


@scenario(GROUP, "delay-in-order", 30)
def delay_in_order(lab: Lab) -> None:
    """20 messages of one level keep their order and none is doubled"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    for n in range(20):
        ok(producer.send(Message(topic, b"%d" % n, delay_level=1), queue=queue))
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox, orderly=True)
    inbox.await_distinct(20, 15)
    pause(0.5)
    same(inbox.texts(), [str(n) for n in range(20)], "order")


@scenario(GROUP, "retry", 60)
def retry(lab: Lab) -> None:
    """a failed message comes back by the default interval (level 3 first)"""
    wait = lab.delay_levels()[2]
    topic = lab.create_topic(lab.topic, 1)
    tries: list[tuple[float, ReceivedMessage]] = []

    def listener(message: ReceivedMessage) -> None:
        tries.append((time.time(), message))
        if len(tries) < 2:
            raise ValueError("not this time")

    consumer = lab.enter(lab.consumer(lab.group, listener, {topic: "R"}))
    await_retry_queue(lab, consumer)
    sent = ok(lab.producer().send(Message(topic, b"again", tags="R", keys=["rk"])))
    until(45, lambda: f"two tries, have {len(tries)}", lambda: len(tries) >= 2)
    between(tries[1][0] - tries[0][0], wait - 0.1, wait + 4, "seconds between tries")
    again = tries[1][1]
    same(
        (again.message_id, again.topic, again.tags, again.keys, again.reconsume_times),
        (sent.message_id, topic, "R", ("rk",), 1),
        "the same message",
    )
    same(
        (again.properties["ORIGIN_MESSAGE_ID"], again.retry_topic),
        (sent.offset_message_id, topic),
        "where it comes from",
    )


@scenario(GROUP, "retry-chosen-level", 30)
def retry_chosen_level(lab: Lab) -> None:
    """a listener that asks for level 1 sees three tries in seconds"""
    topic = lab.create_topic(lab.topic, 1)
    tries: list[ReceivedMessage] = []

    def listener(message: ReceivedMessage) -> Later | None:
        tries.append(message)
        return Later(delay_level=1) if len(tries) < 3 else None

    consumer = lab.enter(lab.consumer(lab.group, listener, {topic: "*"}))
    await_retry_queue(lab, consumer)
    sent = ok(lab.producer().send(Message(topic, b"again")))
    until(25, lambda: f"three tries, have {len(tries)}", lambda: len(tries) >= 3)
    same([message.reconsume_times for message in tries], [0, 1, 2], "reconsume times")
    same(tries[2].properties["ORIGIN_MESSAGE_ID"], sent.offset_message_id, "origin id stays that of the first delivery")


@scenario(GROUP, "dead-letters", 30)
def dead_letters(lab: Lab) -> None:
    """after max_reconsume_times a message goes to %DLQ%group, readable and whole"""
    topic = lab.create_topic(lab.topic, 1)
    tries: list[ReceivedMessage] = []

    def listener(message: ReceivedMessage) -> Later:
        tries.append(message)
        return Later(delay_level=1)

    consumer = lab.enter(lab.consumer(lab.group, listener, {topic: "*"}, max_reconsume_times=2))
    await_retry_queue(lab, consumer)
    ok(lab.producer().send(Message(topic, b"dead", tags="X", keys=["dead"])))
    dead = await_dead_letter(lab)
    same(len(tries), 3, "tries")
    same((text(dead), dead.tags, dead.keys, dead.retry_topic), ("dead", "X", ("dead",), topic), "the dead letter")
    same(dead.reconsume_times, 3, "reconsume times of the dead letter")


@scenario(GROUP, "no-retry", 30)
def straight_to_dead_letters(lab: Lab) -> None:
    """delay level -1 sends a failed message straight to the dead letters"""
    topic = lab.create_topic(lab.topic, 1)
    ok(lab.producer().send(Message(topic, b"hopeless")))
    tries: list[ReceivedMessage] = []

    def listener(message: ReceivedMessage) -> Later:
        tries.append(message)
        return Later(delay_level=DEAD_LETTER)

    lab.enter(lab.consumer(lab.group, listener, {topic: "*"}))
    same(text(await_dead_letter(lab)), "hopeless", "the dead letter")
    same(len(tries), 1, "tries")


@scenario(GROUP, "orderly-dead-letters", 75)
def orderly_dead_letters(lab: Lab) -> None:
    """an orderly consumer's dead letter frees its queue (a Java broker delays it by level 4)"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    ok(producer.send(Message(topic, b"bad"), queue=queue))
    ok(producer.send(Message(topic, b"good"), queue=queue))
    calls: list[str] = []

    def listener(message: ReceivedMessage) -> Later | None:
        calls.append(text(message))
        return Later() if text(message) == "bad" else None

    lab.enter(lab.consumer(lab.group, listener, {topic: "*"}, orderly=True, max_reconsume_times=1, suspend=0.2))
    until(20, lambda: f"the queue goes on, calls {calls}", lambda: "good" in calls)
    same(calls, ["bad", "bad", "good"], "calls of the listener")
    # Sent to the retry topic with level 3 + 1, which a Java broker also applies to dead letters.
    same(text(await_dead_letter(lab, lab.delay_levels()[3] + 15)), "bad", "the dead letter")


@scenario(GROUP, "broadcast-never-retries", 20)
def broadcast_never_retries(lab: Lab) -> None:
    """a failed broadcast message does not come back"""
    topic = lab.create_topic(lab.topic, 1)
    calls: list[ReceivedMessage] = []

    def listener(message: ReceivedMessage) -> Later:
        calls.append(message)
        return Later(delay_level=1)

    lab.enter(lab.consumer(lab.group, listener, {topic: "*"}, **broadcasting(lab, "only")))
    ok(lab.producer().send(Message(topic, b"once")))
    until(15, "the first call", lambda: len(calls) == 1)
    pause(2.5)
    same(len(calls), 1, "calls")


def await_retry_queue(lab: Lab, consumer: PushConsumer) -> None:
    """The first heartbeat creates the retry topic, after the consumer has asked for routes."""
    lab.await_queues(consumer, retry_topic(lab.group))


def await_dead_letter(lab: Lab, seconds: float = 15) -> ReceivedMessage:
    topic = dlq_topic(lab.group)
    until(25, f"a route of {topic}", lambda: lab.route(topic))
    inbox = Inbox()
    lab.collect(lab.name("undertaker"), topic, "*", inbox)
    inbox.await_distinct(1, seconds)
    dead = inbox.all()[0]
    same(dead.topic, topic, "topic of the dead letter")
    return dead
