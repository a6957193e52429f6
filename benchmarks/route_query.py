"""A name server's speed: N route queries in flight on one connection, in either header type.

    python -m benchmarks.route_query [--port P] [--header json|binary] [--in-flight 64] [--count 100000] [--java]

Without --port it starts its own name server and registers a broker with 100 topics of 8 queues there; with --java
a Java name server gets the same and is measured in turns with it. Every client asks every 30 s for every topic it uses.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.support.cpu import listening_pid
from benchmarks.support.frames import frame
from benchmarks.support.pipeline import Measured, check_answer, connect, exchange, pipelined
from benchmarks.support.processes import Server, free_port, java_stack, name_server, scratch

REGISTER_BROKER = 103
GET_ROUTEINFO_BY_TOPIC = 105
TOPICS = 100
QUEUES = 8


def measure(port: int, header: str, in_flight: int, count: int) -> Measured:
    """One run against whatever listens on the port and knows Topic7."""
    return pipelined(port, frame(header, GET_ROUTEINFO_BY_TOPIC, {"topic": "Topic7"}), in_flight, count)


@contextmanager
def registered_broker(port: int) -> Iterator[None]:
    """A broker that only registers; its connection is its lease."""
    topics = {
        f"Topic{i}": {
            "order": False,
            "perm": 6,
            "readQueueNums": QUEUES,
            "topicFilterType": "SINGLE_TAG",
            "topicName": f"Topic{i}",
            "topicSysFlag": 0,
            "writeQueueNums": QUEUES,
        }
        for i in range(TOPICS)
    }
    table = {"dataVersion": {"counter": 1, "timestamp": 1700000000000}, "topicConfigTable": topics}
    ext = {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    }
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": table}).encode()
    with connect(port) as connection:
        check_answer(exchange(connection, frame("json", REGISTER_BROKER, ext, body)))
        yield


@contextmanager
def java_name_server() -> Iterator[Server | None]:
    """RocketMQ's, or None if its script or its jars are missing."""
    script = java_stack()
    if script is None:
        yield None
        return
    port = free_port()
    with scratch() as directory:
        subprocess.run([script, "namesrv", directory, str(port)], check=True, stdout=subprocess.DEVNULL)
        try:
            yield Server(port, listening_pid(port) or 0, directory)
        finally:
            subprocess.run([script, "stop", directory], check=True, stdout=subprocess.DEVNULL)


def report(name: str, runs: list[Measured]) -> None:
    """One line: medians of some runs."""
    rate = statistics.median(run.rate for run in runs)
    cpu = statistics.median(run.cpu_micros for run in runs)
    print(f"{name:<24} {rate:>10,.0f} routes/s {cpu:6.1f} µs of CPU each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, help="a running name server that knows Topic7")
    parser.add_argument("--header", choices=("json", "binary"), action="append", help="default: both")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--java", action="store_true", help="in turns with a Java name server")
    options = parser.parse_args()
    headers = options.header or ["json", "binary"]
    with ExitStack() as resources:
        servers: list[tuple[str, int]] = []
        if options.port:
            servers.append(("", options.port))
        else:
            ours = resources.enter_context(name_server(resources.enter_context(scratch())))
            servers.append(("ours", ours.port))
            java = resources.enter_context(java_name_server()) if options.java else None
            if java is not None:
                servers.append(("java", java.port))
            for _, port in servers:
                resources.enter_context(registered_broker(port))
        runs: dict[str, list[Measured]] = {}
        for round_ in range(options.rounds + 1):
            for name, port in servers:
                for header in headers:
                    measured = measure(port, header, options.in_flight, options.count)
                    if round_:  # the first warms both up, the JVM's compiler above all
                        runs.setdefault(f"{name} {header}".strip(), []).append(measured)
        for name, measurements in runs.items():
            report(name, measurements)


if __name__ == "__main__":
    main()
