"""A tour of the Spark jobs over a store: python examples/spark/explore_store.py [STORE]

Without a STORE it creates one: a name server and a broker as `make quickstart` starts them, 3,000 orders, a consumer
that reads a third of them. Then everything happens offline, on the files: SQL over the log, what happens when queues
are lost, the key index, an export and a plot. It ends with a broker that serves what Spark has rebuilt.

Needs Spark: pip install -e '.[spark,plot]' (Java 17 or newer, or the extra spark-java).
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOPIC, GROUP = "Orders", "billing"


@contextmanager
def server(module: str, *arguments: str) -> Iterator[str]:
    """Run a server and yield its address."""
    command = [sys.executable, "-m", f"rocketlet.{module}", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            address = re.search(r"(?:listening on|clients are told) (\S+:\d+)", line)
            if address:
                yield address[1]
                return
        sys.exit(f"{module} did not start")
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def broker_on(store: Path) -> Iterator[str]:
    """A broker on a store and a name server; yields the name server's address."""
    with (
        server("namesrv", "--listen-port", "0", "--kv-config-path", f"{store}/kvConfig.json") as namesrv,
        server("broker", "-n", namesrv, "--listen-port", "0", "--store-path-root-dir", str(store)),
    ):
        yield namesrv


def produce(namesrv: str) -> None:
    from rocketlet import Message, Producer

    chance = random.Random(7)
    with Producer("shop", namesrv=namesrv) as producer:
        for number in range(3000):
            order = {"id": number, "customer": f"c{number % 40}", "price": round(chance.lognormvariate(3, 1), 2)}
            tags = chance.choice(["paid", "paid", "open"])
            producer.send(Message(TOPIC, json.dumps(order).encode(), tags=tags, keys=[f"order-{number}"]))


def consume(namesrv: str, most: int) -> list[int]:
    """Read on from the group's offset. Returns the ids of the orders."""
    from rocketlet import ConsumeFrom, LitePullConsumer, PullConfig

    read: list[int] = []
    config = PullConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    with LitePullConsumer(GROUP, topics={TOPIC: "*"}, namesrv=namesrv, config=config) as consumer:
        while len(read) < most and (messages := consumer.poll(3.0)):
            read += [json.loads(message.body)["id"] for message in messages]
    return read


def main() -> None:
    try:
        from rocketlet.spark_jobs.session import spark_session
    except ImportError as error:
        sys.exit(f"{error}: pip install -e '.[spark,plot]'")
    with tempfile.TemporaryDirectory(prefix="rocketlet-spark-") as directory:
        work = Path(directory)
        store = Path(sys.argv[1]) if len(sys.argv) > 1 else work / "store"
        read: list[int] = []
        if len(sys.argv) == 1:
            print("A broker takes 3,000 orders, and a consumer reads the first thousand or so ...")
            store.mkdir()
            with broker_on(store) as namesrv:
                produce(namesrv)
                read = consume(namesrv, 1000)
            print(f"... {len(read)} read. Both are stopped again; from here on there are only files.")
        spark = spark_session("example")

        print("\n1. The log as a table. Spark reads only the columns and segments that a query needs.")
        spark.read.format("commitlog").load(str(store)).createOrReplaceTempView("messages")
        spark.sql("SELECT topic, tags, count(*) AS messages, sum(size) AS bytes FROM messages GROUP BY ALL").show()
        spark.sql(
            f"""
            SELECT body.customer, count(*) AS orders, round(sum(body.price), 2) AS paid
            FROM (SELECT from_json(CAST(body AS string), 'customer string, price double') AS body
                  FROM messages WHERE topic = '{TOPIC}' AND tags = 'paid')
            GROUP BY ALL ORDER BY paid DESC LIMIT 3
            """
        ).show()

        print("2. Damage is a table too; here it is empty, as it should be.")
        spark.read.format("commitlog").option("table", "damage").load(str(store)).show()

        from rocketlet.spark_jobs.export import Selection, export
        from rocketlet.spark_jobs.index_segments import Rules
        from rocketlet.spark_jobs.index_writer import rebuild_index
        from rocketlet.spark_jobs.lookup import find, write_lookup
        from rocketlet.spark_jobs.stats import stats
        from rocketlet.spark_jobs.verify_segments import verify

        print("3. Verify: every record, queue entry and key.")
        print("\n".join(verify(spark, str(store), Rules()).lines()[-3:]))

        print("\n4. The queues and the index are lost, and rebuilt from the log.")
        repaired = work / "repaired"
        shutil.copytree(store, repaired, ignore=shutil.ignore_patterns("consumequeue", "index"))
        print("\n".join(rebuild_index(spark, str(repaired), str(repaired), Rules()).lines()))
        print("good" if verify(spark, str(repaired), Rules()).is_good else "NOT GOOD")

        print("\n5. A table of keys finds messages without any broker.")
        write_lookup(spark, str(store), str(work / "lookup"), buckets=8)
        for hit in find(str(work / "lookup"), "order-1234"):
            print(f"order-1234: {hit.topic}, queue {hit.queue_id}, offset {hit.queue_offset}, log {hit.log_offset}")

        print("\n6. Orders as Parquet with typed columns, by day; and a picture of the store.")
        count = export(spark, str(store), str(work / "parquet"), Selection([TOPIC]), body="json")
        spark.read.parquet(str(work / "parquet")).selectExpr("count(*)", "sum(json.price)").show()
        print(f"{count} exported")
        found = stats(spark, str(store))
        print("\n".join(found.lines()))
        try:
            from rocketlet.spark_jobs.plot import plot

            plot(found, "store.png")
            print("drawn: store.png")
        except ImportError:
            print("(no matplotlib, no picture)")
        spark.stop()

        if read:
            print("\n7. A broker on the repaired store: the consumer goes on from its committed offsets.")
            with broker_on(repaired) as namesrv:
                rest = consume(namesrv, 3000)
            print(f"{len(rest)} more read, {len(set(read) | set(rest))} of 3000 orders in all")


if __name__ == "__main__":
    main()
