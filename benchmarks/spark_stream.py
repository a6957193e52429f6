"""Streams into Spark beside batch reads of the same, and pulling by Spark's tasks beside our lite pull consumer.

    python -m benchmarks.spark_stream [--mib 2048] [--broker-mib 512] [--rounds 3]

In turns, in one run: a batch read of topic, store time and tags of a log of 1 KiB messages; a stream that has all of it
as its backlog; and, of a running broker, its messages pulled by Spark and by a lite pull consumer. Nothing is written.
CPU is that of the JVM, its Python workers and this process together; that of the broker is not among it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark_log import write_log
from benchmarks.support.family_cpu import Cost, cost_of
from benchmarks.support.processes import Server, scratch, stack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIB = 1 << 20
SCHEMA = "topic string, store_time timestamp, tags string"
QUEUES = 4


def best(runs: list[Cost]) -> Cost:
    """The fastest by the clock, with the median of the CPU, which does not depend on what else the machine does."""
    return Cost(min(run.wall for run in runs), statistics.median(run.cpu for run in runs))


def batch(session: SparkSession, root: Path) -> None:
    frame = session.read.format("commitlog").schema(SCHEMA).load(str(root))
    frame.write.format("noop").mode("overwrite").save()


def stream(session: SparkSession, frame: DataFrame, checkpoint: Path) -> int:
    """All that is there when it begins; how many rows that was."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def streamed(session: SparkSession, frame: DataFrame, checkpoint: Path, rows: int) -> Cost:
    """What the stream costs, which must have so many rows."""
    counted: list[int] = []
    cost = cost_of(lambda: counted.append(stream(session, frame, checkpoint)))
    assert counted == [rows], (counted, rows)
    return cost


def fill(namesrv: str, topic: str, mib: int) -> int:
    """Messages of 1 KiB in a topic; how many."""
    from rocketlet import Message, Producer

    count, body = mib * 1024, os.urandom(1024)
    with Producer("fill", namesrv=namesrv) as producer:
        producer.create_topic(topic, QUEUES)
        for _ in range(count // 100):
            producer.send_batch([Message(topic, body, tags="T") for _ in range(100)])
    return count // 100 * 100


def lite_pull(namesrv: str, topic: str, count: int) -> Cost:
    """Our consumer, until it has them all."""
    from rocketlet import LitePullConsumer
    from rocketlet.client import ConsumeFrom

    start_time, cpu = time.perf_counter(), time.process_time()
    group = f"lite-{time.monotonic_ns()}"
    with LitePullConsumer(group, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        consumer.subscribe(topic)
        count_pulled = 0
        while count_pulled < count:
            count_pulled += len(consumer.poll(timeout=10.0))
    return Cost(time.perf_counter() - start_time, time.process_time() - cpu)


def compare_log(session: SparkSession, folder: Path, mib: int, rounds: int, say: Callable[..., None]) -> None:
    root, checkpoint = folder / "store", folder / "checkpoint"
    records = write_log(root, mib * MIB)
    runs: dict[str, list[Cost]] = {"batch": [], "stream": []}
    for _ in range(rounds):
        runs["batch"].append(cost_of(lambda: batch(session, root)))
        source = session.readStream.format("commitlog").schema(SCHEMA).option("starting", "earliest")
        runs["stream"].append(streamed(session, source.load(str(root)), checkpoint, records))
    for name, costs in runs.items():
        cost, size = best(costs), mib * MIB / 1e6
        say(f"log, {name}", mb_s=size / cost.wall, mb_per_core_s=size / cost.cpu, wall_s=cost.wall, cpu_s=cost.cpu)
    pairs = zip(runs["batch"], runs["stream"], strict=True)
    ratios = [(b.wall / s.wall, b.cpu / s.cpu) for b, s in pairs]
    say(
        "stream / batch read", rate=statistics.median(rate for rate, _ in ratios),
        cpu_rate=statistics.median(rate for _, rate in ratios),
    )  # fmt: skip
    shutil.rmtree(root)


def compare_broker(
    session: SparkSession, folder: Path, names: Server, mib: int, rounds: int, say: Callable[..., None]
) -> None:
    namesrv, topic = f"127.0.0.1:{names.port}", "Backlog"
    count = fill(namesrv, topic, mib)
    one_task: list[float] = []
    lite: list[float] = []
    for _ in range(rounds):
        source = session.readStream.format("rocketmq").option("namesrv", namesrv).option("topics", topic)
        frame = source.option("startingOffsets", "earliest").option("maxRecordsPerPartition", 1 << 40).load()
        cost = streamed(session, frame, folder / "checkpoint", count)
        one_task.append(count / cost.wall / int(session.sparkContext.defaultParallelism))
        lite.append(count / lite_pull(namesrv, topic, count).wall)
    say("pulled by Spark, a task", messages_s=statistics.median(one_task))
    say("pulled by lite pull", messages_s=statistics.median(lite))
    ratios = [ours / theirs for ours, theirs in zip(one_task, lite, strict=True)]
    say("a task / lite pull", rate=statistics.median(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=2048, help="of the log; 0: without it")
    parser.add_argument("--broker-mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[1]", help="one task at a time, so that rates are those of a core")
    options = parser.parse_args()
    from rocketlet.spark_jobs.session import spark_session

    def say(what: str, **figures: Any) -> None:
        print(json.dumps({"what": what} | {name: round(value, 2) for name, value in figures.items()}), flush=True)

    session = spark_session("streams", master=options.master)
    try:
        if options.mib:
            with scratch() as folder:
                compare_log(session, folder, options.mib, options.rounds, say)
        if options.broker_mib:
            with scratch() as folder, stack() as (names, _):
                compare_broker(session, folder, names, options.broker_mib, options.rounds, say)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
