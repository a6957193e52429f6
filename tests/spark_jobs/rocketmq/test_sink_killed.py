"""A stream from topic to topic whose driver is killed: nothing is lost, and who keeps the keys takes each row once."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from rocketlet import MemoryKeys, MessageQueue, PullConsumer, ReceivedMessage, once
from tests.support.killing import Sending, kill_group, start
from tests.support.programs import name_server, program

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))

COPYING = """\
import signal, sys
from rocketlet.spark_jobs.session import spark_session

namesrv, checkpoint = sys.argv[1:]
spark = spark_session("copying", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
source = spark.readStream.format("rocketmq").option("namesrv", namesrv).option("topics", "From")
rows = source.option("startingOffsets", "earliest").load().select("body", "keys")
writer = rows.writeStream.format("rocketmq").option("namesrv", namesrv).option("topic", "To")
query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="500 milliseconds").start()
signal.signal(signal.SIGTERM, lambda *_: query.stop())
query.awaitTermination()
"""


def batches_done(checkpoint: Path) -> int:
    return max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def messages(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic, queue by queue."""
    found = []
    with PullConsumer("looking", namesrv=namesrv) as consumer:
        for queue in consumer.queues(topic):
            found += of_queue(consumer, queue)
    return found


def of_queue(consumer: PullConsumer, queue: MessageQueue) -> list[ReceivedMessage]:
    at, end, found = consumer.min_offset(queue), consumer.max_offset(queue), []
    while at < end:
        pulled = consumer.pull(queue, at)
        found += pulled.messages
        at = pulled.next_offset
    return found


def test_a_killed_stream_loses_nothing_and_the_keys_remove_what_is_doubled(tmp_path: Path) -> None:
    chance, checkpoint, log = Random(1), tmp_path / "checkpoint", tmp_path / "copying.log"
    words = ["--storePathRootDir", str(tmp_path / "store"), "--listenPort", "0"]
    command = [sys.executable, "-c", COPYING]
    with name_server(tmp_path / "namesrv") as (_, namesrv), ExitStack() as held:
        held.enter_context(program("broker", *words, "-n", namesrv)).line_with("boot success")
        sending = Sending(namesrv, "From")
        while not sending.acknowledged:
            time.sleep(0.05)
        copying = start([*command, namesrv, str(checkpoint)], log)
        for _ in range(ROUNDS):
            wait_for(checkpoint, 2, log)
            time.sleep(chance.random())
            kill_group(copying)
            copying = start([*command, namesrv, str(checkpoint)], log)
        acknowledged = sending.stop()
        wait_for(checkpoint, 1, log)
        deadline = time.monotonic() + 900
        while not set(acknowledged) <= (bodies := {one.body.decode() for one in messages(namesrv, "To")}):
            assert time.monotonic() < deadline, json.dumps(sorted(set(acknowledged) - bodies)[:20])
            time.sleep(1)
        copying.send_signal(signal.SIGTERM)
        copying.wait(600)
        copied = messages(namesrv, "To")

        taken = []

        @once(MemoryKeys(), key=lambda message: message.properties["SPARK_ROW"])
        def listener(message: ReceivedMessage) -> None:
            taken.append(message.body.decode())

        for message in copied:
            listener(message)
        assert len(taken) == len(set(taken))
        assert set(acknowledged) <= set(taken)


def wait_for(checkpoint: Path, count: int, log: Path) -> None:
    """Until so many more batches are done."""
    wanted = batches_done(checkpoint) + count
    deadline = time.monotonic() + 900
    while batches_done(checkpoint) < wanted:
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.1)
