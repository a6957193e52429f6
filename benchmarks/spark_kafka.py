"""Kafka's connector for Spark beside ours: the same messages streamed from a Kafka broker and from ours, in turns.

    python -m benchmarks.spark_kafka --broker-jars DIR --connector-jars DIR [--mib 512] [--rounds 3]

The folders hold `kafka_2.13` with `slf4j-simple`, by which it tells that it has started, and
`spark-sql-kafka-0-10_2.13` (of this PySpark's version), with what they depend on, from Maven Central. Each broker has
four queues of 1 KiB messages; a stream has all of them as its backlog, one task at a time, and its rows (topic, queue,
offset, time, key, body) go nowhere. CPU is that of the JVM, its Python workers and this process together; that of the
broker is told beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.spark_stream import QUEUES, fill, streamed
from benchmarks.support.family_cpu import Cost, family_cpu
from benchmarks.support.processes import Server, free_port, running, scratch, stack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "Backlog"
OUR_COLUMNS = "topic string, queue_id int, queue_offset long, store_time timestamp, unique_key string, body binary"
THEIR_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


@contextmanager
def kafka(jars: Path) -> Iterator[Server]:
    """A Kafka broker that is its own controller."""
    port, controller = free_port(), free_port()
    with scratch() as folder:
        settings = folder / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={folder}/logs\nnum.partitions={QUEUES}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            "offsets.topic.replication.factor=1\n"
        )
        java = ["java", "-Xmx1g", "-cp", f"{jars}/*"]
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings)]
        subprocess.run(format_, check=True, capture_output=True)
        with running([*java, "kafka.Kafka", str(settings)], port, folder, "kafka", b"Kafka Server started") as server:
            yield server


def copy_to_kafka(session: SparkSession, namesrv: str, address: str) -> None:
    """What is in our topic goes to theirs, queue by queue."""
    ours = session.read.format("rocketmq").option("namesrv", namesrv).option("topics", TOPIC).load()
    rows = ours.selectExpr("queue_id as partition", "unique_key as key", "body as value")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", TOPIC)
    writer.save()


def frames(session: SparkSession, namesrv: str, address: str) -> dict[str, DataFrame]:
    ours = session.readStream.format("rocketmq").schema(OUR_COLUMNS).option("namesrv", namesrv)
    theirs = session.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", TOPIC)
    return {
        "ours": ours.option("topics", TOPIC).option("startingOffsets", "earliest").load(),
        "Kafka's": theirs.option("startingOffsets", "earliest").load().select(*THEIR_COLUMNS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker-jars", type=Path, required=True)
    parser.add_argument("--connector-jars", type=Path, required=True)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[1]", help="one task at a time, so that rates are those of a core")
    options = parser.parse_args()
    from rocketlet.spark_jobs.session import spark_session

    jars = ",".join(str(path) for path in options.connector_jars.glob("*.jar"))
    session = spark_session("beside Kafka", master=options.master, settings={"spark.jars": jars})
    runs: dict[str, list[tuple[Cost, float]]] = {}
    with scratch() as folder, stack() as (names, broker), kafka(options.broker_jars) as their_broker:
        namesrv, address = f"127.0.0.1:{names.port}", f"127.0.0.1:{their_broker.port}"
        count = fill(namesrv, TOPIC, options.mib)
        copy_to_kafka(session, namesrv, address)
        brokers = {"ours": broker.pid, "Kafka's": their_broker.pid}
        for _ in range(options.rounds):
            for name, frame in frames(session, namesrv, address).items():
                servers = {pid: family_cpu(pid) for pid in [names.pid, *brokers.values()]}
                cost = streamed(session, frame, folder / "checkpoint", count)
                spent = {pid: family_cpu(pid) - before for pid, before in servers.items()}
                cost.cpu -= sum(spent.values())  # they are our children too
                runs.setdefault(name, []).append((cost, spent[brokers[name]]))
    session.stop()
    for name, costs in runs.items():
        wall = statistics.median(cost.wall for cost, _ in costs)
        cpu = statistics.median(cost.cpu for cost, _ in costs)
        served = statistics.median(broker_cpu for _, broker_cpu in costs)
        figures = {
            "messages": count, "messages_s": round(count / wall), "wall_s": round(wall, 2), "cpu_s": round(cpu, 2),
            "messages_per_cpu_s": round(count / cpu), "broker_cpu_s": round(served, 2), "cores": os.cpu_count(),
        }  # fmt: skip
        print(json.dumps({"connector": name} | figures), flush=True)


if __name__ == "__main__":
    main()
