"""A killed stream from topic to topic: nothing is lost, and by remembering keys each row is taken once."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketlet import MemoryKeys, MessageQueue, PullConsumer, ReceivedMessage, once
from tests.support.killed_streams import RUNS, KilledStream, broker_for, master_for, victims
from tests.support.killing import Sending
from tests.support.programs import name_server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
log = logging.getLogger(__name__)

COPYING = """\
import signal, sys
from rocketlet.spark_jobs.session import spark_session

namesrv, checkpoint, master = sys.argv[1:]
spark = spark_session("copying", master=master, settings={"spark.sql.shuffle.partitions": "2"})
source = spark.readStream.format("rocketmq").option("namesrv", namesrv).option("topics", "From")
rows = source.option("startingOffsets", "earliest").load().select("body", "keys")
writer = rows.writeStream.format("rocketmq").option("namesrv", namesrv).option("topic", "To")
query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="500 milliseconds").start()
signal.signal(signal.SIGTERM, lambda *_: query.stop())
query.awaitTermination()
"""


def batches_done(checkpoint: Path) -> int:
    return max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def row_key(message: ReceivedMessage) -> str:
    return message.properties["SPARK_ROW"]


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


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.usefixtures("spark_home")
def test_a_killed_stream_loses_nothing_and_keys_remove_duplicates(tmp_path: Path, run: str) -> None:
    checkpoint = tmp_path / "checkpoint"
    with name_server(tmp_path / "namesrv") as (_, namesrv), ExitStack() as held:
        broker = broker_for(run, tmp_path, namesrv, held)
        sending = held.enter_context(Sending(namesrv, "From"))
        while not sending.acknowledged:
            time.sleep(0.05)
        command = [sys.executable, "-c", COPYING, namesrv, str(checkpoint), master_for(run)]
        log_file = tmp_path / "copying.log"
        with KilledStream(command, log_file, lambda: batches_done(checkpoint), broker, run) as copying:
            for victim in victims(run):
                copying.kill(victim)
            copying.wait_for_batches(1)
            acknowledged = sending.stop()
            sent = messages(namesrv, "From")
            deadline = time.monotonic() + 900
            copied: list[ReceivedMessage] = []
            while len(set(map(row_key, copied))) < len(sent):
                assert time.monotonic() < deadline, f"{len(copied)} copies of {len(sent)}\n{copying.output[-4000:]}"
                time.sleep(1)
                copied = messages(namesrv, "To")
            copying.stop()

    taken = []

    @once(MemoryKeys(), key=row_key)
    def listener(message: ReceivedMessage) -> None:
        taken.append(message.body.decode())

    for message in copied:
        listener(message)
    # A message whose acknowledgement was lost with a broker is sent again, and is then in both topics twice.
    assert sorted(taken) == sorted(message.body.decode() for message in sent)
    assert set(acknowledged) <= set(taken)
    log.info("%s: %d messages, %d copies, %d taken once", run, len(sent), len(copied), len(taken))
