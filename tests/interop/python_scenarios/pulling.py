"""Consumers that pull."""

from __future__ import annotations

import threading
import time
from queue import Queue

from rocketlet import LitePullConsumer, Message, MessageQueue, PullResult, PullStatus
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.lab import Lab, between, check, ok, pause, same, send, text, until

GROUP = "pulling"


def poll(consumer: LitePullConsumer, count: int, seconds: float) -> list[str]:
    got: list[str] = []
    end = time.monotonic() + seconds
    while len(got) < count and time.monotonic() < end:
        got += [text(message) for message in consumer.poll(0.2)]
    return got


@scenario(GROUP, "lite-pull-subscribe", 30)
def subscribe(lab: Lab) -> None:
    """lite pull with a tag; a second consumer of the group goes on after a commit"""
    topic = lab.create_topic(lab.topic, 4)
    producer = lab.producer()
    for n in range(50):
        ok(producer.send(Message(topic, b"%d" % n, tags="A" if n % 2 == 0 else "B")))
    consumer = lab.lite_pull(lab.group, topics={topic: "A"})
    lab.enter(consumer)
    ends: dict[MessageQueue, int] = {}
    got: set[str] = set()

    def all_of_a() -> bool:
        for message in consumer.poll(0.2):
            got.add(text(message))
            ends[message.queue] = max(ends.get(message.queue, 0), message.queue_offset + 1)
        return len(got) == 25

    until(15, lambda: f"25 messages with tag A, have {got}", all_of_a)
    check(all(int(body) % 2 == 0 for body in got), f"only tag A: {got}")
    consumer.commit()
    consumer.shutdown()
    table = lab.progress(lab.group, topic).offsetTable
    check(all(table[queue].consumerOffset >= end for queue, end in ends.items()), f"committed {ends}")
    ok(producer.send(Message(topic, b"after", tags="A")))
    following = lab.enter(lab.lite_pull(lab.group, topics={topic: "A"}))
    same(poll(following, 2, 2), ["after"], "what the next consumer gets")


@scenario(GROUP, "lite-pull-share", 40)
def share(lab: Lab) -> None:
    """two lite pull consumers of a group share the queues"""
    topic = lab.create_topic(lab.topic, 4)
    pair = [lab.enter(lab.lite_pull(lab.group, topics={topic: "*"})) for _ in range(2)]
    half = 2 * len(lab.brokers())
    until(
        15,
        lambda: f"half of the queues each, have {[len(one.assignment()) for one in pair]}",
        lambda: [len(one.assignment()) for one in pair] == [half, half],
    )
    send(lab.producer(), topic, "m", 4 * half)
    for one in pair:
        same(len(poll(one, 2 * half, 15)), 2 * half, "messages of one consumer")


@scenario(GROUP, "lite-pull-assign", 30)
def assign(lab: Lab) -> None:
    """assign, seek, pause, resume, offset of a time, commit and committed"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    for n in range(20):
        ok(producer.send(Message(topic, b"%d" % n), queue=queue))
    pause(1.1)
    before = int(time.time() * 1000)
    ok(producer.send(Message(topic, b"20"), queue=queue))
    consumer = lab.enter(lab.lite_pull(lab.group, auto_commit=False))
    same(len(consumer.queues(topic)), len(lab.brokers()), "queues of the topic")
    consumer.assign([queue])
    everything = [str(n) for n in range(21)]
    same(poll(consumer, 21, 15), everything, "all, in order")
    consumer.seek_to_begin(queue)
    same(poll(consumer, 21, 15), everything, "all again after seek to the beginning")
    consumer.seek(queue, 15)
    same(poll(consumer, 6, 10), everything[15:], "after seek to 15")
    consumer.seek(queue, consumer.offset_at(queue, before - 50))
    same(poll(consumer, 1, 10), ["20"], "after seek to a time")
    consumer.pause([queue])
    ok(producer.send(Message(topic, b"21"), queue=queue))
    # A pull already parked still delivers, but none follows.
    held = poll(consumer, 1, 1)
    ok(producer.send(Message(topic, b"22"), queue=queue))
    same(poll(consumer, 1, 1), [], "while paused")
    consumer.resume([queue])
    same(held + poll(consumer, 2 - len(held), 10), ["21", "22"], "before the pause took hold, and after resume")
    consumer.seek_to_end(queue)
    ok(producer.send(Message(topic, b"23"), queue=queue))
    same(poll(consumer, 1, 10), ["23"], "after seek to the end")
    consumer.commit({queue: 7})
    same(consumer.committed(queue), 7, "committed offset")
    following = lab.lite_pull(lab.group)
    following.assign([queue])
    lab.enter(following)
    same(poll(following, 15, 10)[0], "7", "a new consumer of the group starts at the committed offset")


def expect(result: PullResult, status: PullStatus, following: int, what: str) -> PullResult:
    same((result.status, result.next_offset), (status, following), what)
    return result


@scenario(GROUP, "pull-results", 30)
def results(lab: Lab) -> None:
    """found, no new, no match and illegal offsets of single pulls"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    consumer = lab.puller()
    expect(consumer.pull(queue, 0), PullStatus.NO_NEW_MESSAGE, 0, "empty queue")
    expect(consumer.pull(queue, 5), PullStatus.OFFSET_ILLEGAL, 0, "beyond an empty queue")
    for n in range(10):
        ok(producer.send(Message(topic, b"%d" % n, tags="A" if n < 5 else "B"), queue=queue))
    until(5, "max offset 10", lambda: producer.max_offset(queue) == 10)
    found = expect(consumer.pull(queue, 0), PullStatus.FOUND, 10, "from the beginning")
    same((len(found.messages), found.min_offset, found.max_offset), (10, 0, 10), "number, min and max")
    some = expect(consumer.pull(queue, 3, 4), PullStatus.FOUND, 7, "four from 3")
    same([text(message) for message in some.messages], ["3", "4", "5", "6"], "four from 3")
    tagged = expect(consumer.pull(queue, 0, 4, "B"), PullStatus.FOUND, 9, "four with tag B")
    same([text(message) for message in tagged.messages], ["5", "6", "7", "8"], "four with tag B")
    expect(consumer.pull(queue, 0, 32, "ZZ"), PullStatus.NO_MATCHED_MESSAGE, 10, "a tag that nobody sent")
    expect(consumer.pull(queue, 10), PullStatus.NO_NEW_MESSAGE, 10, "at the end")
    expect(consumer.pull(queue, 99), PullStatus.OFFSET_ILLEGAL, 10, "beyond the end")


@scenario(GROUP, "pull-blocks", 20)
def blocks(lab: Lab) -> None:
    """a pull that may block waits for the next message"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    consumer = lab.puller()
    got: Queue[PullResult] = Queue()
    began = time.monotonic()
    thread = threading.Thread(target=lambda: got.put(consumer.pull(queue, 0, hold=20.0)), daemon=True)
    thread.start()
    pause(1.5)
    check(got.empty(), "the pull is held")
    ok(producer.send(Message(topic, b"wake"), queue=queue))
    expect(got.get(timeout=10), PullStatus.FOUND, 1, "woken")
    between(time.monotonic() - began, 1.4, 3.0, "seconds of the pull")


@scenario(GROUP, "pull-offsets", 20)
def offsets(lab: Lab) -> None:
    """committed offsets of a pull consumer: missing, stored, moved back"""
    topic = lab.create_topic(lab.topic, 1)
    send(lab.producer(), topic, "m", 5 * len(lab.brokers()))
    consumer = lab.puller()
    queue = consumer.queues(topic)[0]
    same(consumer.offset(queue), 0, "offset of a new group on a young queue")
    for offset in (4, 2):
        consumer.note_offset(queue, offset)
        consumer.commit()
        same(consumer.offset(queue), offset, "stored offset")


@scenario(GROUP, "offset-by-time", 20)
def offset_by_time(lab: Lab) -> None:
    """offset of a time; earliest time; min and max offset"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    queue = producer.publish_queues(topic)[0]
    same((producer.min_offset(queue), producer.max_offset(queue)), (0, 0), "min and max of an empty queue")
    times = []
    for n in range(5):
        times.append(int(time.time() * 1000))
        ok(producer.send(Message(topic, b"%d" % n), queue=queue))
        pause(0.4)
    # Closer to message 3 than to message 2, so that nearest and first-not-earlier agree.
    same(producer.offset_at(queue, times[3] - 100), 3, "offset of a time just before message 3")
    same(producer.offset_at(queue, 0), 0, "offset of a time before all")
    between(producer.offset_at(queue, int(time.time() * 1000) + 100_000), 4, 5, "offset of a time after all")
    until(5, "min 0 and max 5", lambda: producer.min_offset(queue) == 0 and producer.max_offset(queue) == 5)
    between(producer.earliest_store_time(queue), times[0] - 1000, times[1], "earliest store time")
    consumer = lab.puller()
    found = consumer.pull(queue, consumer.offset_at(queue, times[2] - 100)).messages
    same([text(message) for message in found], ["2", "3", "4"], "messages since a time")
