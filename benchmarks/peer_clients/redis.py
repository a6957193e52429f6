"""Redis streams by redis-py with hiredis: append-only file, written every second; consumer groups."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from redis import Redis

from benchmarks.peer_clients.load import BATCH, BODY, Latencies, Load, Stopwatch, main, moments, stamped

READ = 256
GROUP = "group"
ENTRY: Any = {b"b": BODY}


def connected(address: str) -> Redis:
    host, _, port = address.rpartition(":")
    return Redis(host=host, port=int(port))


def _key() -> str:
    return f"s{time.time_ns()}"


def sync(address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    client, key = connected(address), _key()
    for _number in range(200):
        client.xadd(key, ENTRY)
    watch.began()
    for _number in range(count):
        client.xadd(key, ENTRY)
    watch.ended()
    client.delete(key)


def pipelined(in_flight: int, address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    client, key = connected(address), _key()
    _fill(client, key, 2000, in_flight)
    watch.began()
    _fill(client, key, count, in_flight)
    watch.ended()
    client.delete(key)


def _fill(client: Redis, key: str, count: int, in_flight: int, *, atomic: bool = False) -> None:
    """That many commands at a time, as a transaction if they are to be stored atomically."""
    for _ in range(count // in_flight):
        with client.pipeline(transaction=atomic) as pipeline:
            for _number in range(in_flight):
                pipeline.xadd(key, ENTRY)
            pipeline.execute()


def atomic(address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    client, key = connected(address), _key()
    _fill(client, key, 2000, BATCH, atomic=True)
    watch.began()
    _fill(client, key, count, BATCH, atomic=True)
    watch.ended()
    client.delete(key)


def consumed(each: bool, address: str, count: int, watch: Stopwatch, _: Latencies) -> None:
    """With an acknowledgement for each message, those of one read in one pipeline; or with one for all of a read."""
    client, key = connected(address), _key()
    count = count // READ * READ
    _fill(client, key, count, READ)
    client.xgroup_create(key, GROUP, id="0")
    seen = size = 0
    watch.began()
    while seen < count:
        ((_, entries),) = client.xreadgroup(GROUP, "one", {key: ">"}, count=READ)
        size += sum(len(fields[b"b"]) for _, fields in entries)
        if each:
            with client.pipeline(transaction=False) as pipeline:
                for entry, _fields in entries:
                    pipeline.xack(key, GROUP, entry)
                pipeline.execute()
        else:
            client.xack(key, GROUP, *[entry for entry, _fields in entries])
        seen += len(entries)
    watch.ended()
    client.delete(key)


def latency(address: str, count: int, watch: Stopwatch, latencies: Latencies) -> None:
    client, key = connected(address), _key()
    client.xgroup_create(key, GROUP, id="0", mkstream=True)

    def listen() -> None:
        reader = connected(address)
        while len(latencies.seconds) < count:
            for _, entries in reader.xreadgroup(GROUP, "one", {key: ">"}, count=READ, block=1000) or ():
                for entry, fields in entries:
                    latencies.arrived(fields[b"b"])
                    reader.xack(key, GROUP, entry)

    listener = threading.Thread(target=listen)
    listener.start()
    watch.began()
    for due in moments(count):
        time.sleep(max(0.0, due - time.perf_counter()))
        client.xadd(key, {b"b": stamped()})
    listener.join()
    watch.ended()
    client.delete(key)


ALL: dict[str, Load] = {
    "sync": sync,
    "pipelined 256": partial(pipelined, 256),
    "pipelined 1024": partial(pipelined, 1024),
    "atomic 64": atomic,
    "each": partial(consumed, True),
    "batches": partial(consumed, False),
    "latency": latency,
}

if __name__ == "__main__":
    main(ALL)
