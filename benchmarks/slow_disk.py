"""How long others wait at a broker whose disk is slow and whose store is not in memory.

    python -m benchmarks.slow_disk [--iops 200]

A store is filled, the broker started again in a group of its own whose reads of the disk are limited (cgroup's
`blkio.throttle.read_iops_device` or `io.max`), and the store taken out of the page cache before each step. While one
connection makes the request that has to read, another asks for the end of a queue again and again. The longest of these
answers is how long the loop stood still; `idle` is the same without any request beside it.

Needed: root, for the group.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.frames import batch_frame, frame, send_frame
from benchmarks.support.pipeline import check_answer, connect, exchange, pipelined
from benchmarks.support.processes import broker, name_server, scratch

TOPIC, COLD_TOPIC, SQL_TOPIC, HALF_TOPIC, MANY_TOPIC = "TopicTest", "Cold", "Priced", "Halves", "Many"
QUEUES, GROUPS = 8, 40
APART = 256  # messages of others between two that a step reads, so that each is a read of its own
QUERY, VIEW, SEND_BACK, END_TRANSACTION, SEARCH, MAX_OFFSET = 12, 33, 36, 37, 29, 30
UPDATE_OFFSET, CONSUME_STATS, ALL_CONSUME_STATS, DELETE_EXPIRED, PULL = 15, 208, 317, 329, 11
PREPARED, COMMIT = 4, 8
GROUPS_ROOT = Path("/sys/fs/cgroup")
SETTINGS = {
    "mappedFileSizeCommitLog": 32 << 20,
    "mappedFileSizeConsumeQueue": 20 * 20_000,
    "enablePropertyFilter": "true",
    "fileReservedTime": 0,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One request, and how long others waited meanwhile, in milliseconds."""

    name: str
    took: float
    median: float
    longest: float


@contextmanager
def slow_reads(pid: int, directory: Path, iops: int) -> Iterator[None]:
    """A group in which a process may read the disk of a directory only so often a second."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device) & ~0xF}"
    old = GROUPS_ROOT / "blkio"
    group = (old if old.is_dir() else GROUPS_ROOT) / f"rocketlet-bench-{pid}"
    group.mkdir()
    try:
        if old.is_dir():
            (group / "blkio.throttle.read_iops_device").write_text(f"{number} {iops}")
        else:
            (group / "io.max").write_text(f"{number} riops={iops}")
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def forget(store: Path) -> None:
    """Take all files of a store out of the page cache, but for pages that the broker has mapped and touched."""
    os.sync()
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill(port: int) -> dict[str, int]:
    """Messages that the steps ask for, and enough others for many log files; the log offsets of two."""
    with connect(port) as connection:

        def send(topic: str, queue_id: int, properties: str, *, flag: int = 0) -> int:
            request = send_frame("json", topic, queue_id, b"x" * 4096, properties)
            answer = exchange(connection, request.replace(b'"f":"0"', b'"f":"%d"' % flag))
            check_answer(answer)
            return int(_fields(answer)["msgId"][-16:], 16)

        noise = send_frame("json", TOPIC, 0, b"x" * 1024) * APART
        for number in range(QUEUES * 50):
            send(SQL_TOPIC, 0, f"price\1{number}\2UNIQ_KEY\1K{number}")
            send(COLD_TOPIC, number % QUEUES, f"UNIQ_KEY\1C{number}")
            connection.sendall(noise)
            for _ in range(APART):
                exchange(connection, b"")
        places = {
            "half": send(HALF_TOPIC, 0, "TRAN_MSG\1true\2PGROUP\1halves\2UNIQ_KEY\1half", flag=PREPARED),
            "back": send(COLD_TOPIC, 0, "UNIQ_KEY\1back"),
        }
        for number in range(GROUPS * QUEUES):
            place = {"topic": COLD_TOPIC, "consumerGroup": f"group{number // QUEUES}", "queueId": str(number % QUEUES)}
            check_answer(exchange(connection, frame("json", UPDATE_OFFSET, place | {"commitOffset": str(number % 40)})))
    pipelined(port, batch_frame("json", MANY_TOPIC, 0, [b"x" * 32] * 500), 8, 80)
    return places


def _fields(answer: bytes) -> dict[str, str]:
    size = int.from_bytes(answer[1:4], "big")
    fields: dict[str, str] = json.loads(answer[4 : 4 + size]).get("extFields", {})
    return fields


def requests(places: dict[str, int]) -> dict[str, list[bytes]]:
    """The steps: what reads the disk, by name."""
    pull = {
        "consumerGroup": "cold", "queueId": "0", "queueOffset": "0", "maxMsgNums": "400", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
    }  # fmt: skip
    sql = pull | {"topic": SQL_TOPIC, "subscription": "price > 1000000", "expressionType": "SQL92"}
    tags = pull | {"topic": MANY_TOPIC, "subscription": "NoSuchTag", "expressionType": "TAG"}
    search = {"topic": COLD_TOPIC, "queueId": "3", "timestamp": str(time.time_ns() // 1_000_000 - 5000)}
    end = {
        "producerGroup": "halves", "tranStateTableOffset": "0", "commitLogOffset": str(places["half"]),
        "commitOrRollback": str(COMMIT), "fromTransactionCheck": "false", "msgId": "half",
    }  # fmt: skip
    back = {"offset": str(places["back"]), "group": "group1", "delayLevel": "0", "originTopic": COLD_TOPIC}
    window = {"beginTimestamp": "0", "endTimestamp": str(time.time_ns() // 1_000_000 + 1000)}
    return {
        "SQL92 pull over 400 records": [frame("json", PULL, sql)],
        "pull that no entry of two queue files fits": [frame("json", PULL, tags)],
        "view by id": [frame("json", VIEW, {"offset": str(places["back"])})],
        "query by key": [frame("json", QUERY, {"topic": COLD_TOPIC, "key": "C77", "maxNum": "32", **window})],
        "search by time": [frame("json", SEARCH, search)],
        "send back": [frame("json", SEND_BACK, back)],
        "end of a transaction": [frame("json", END_TRANSACTION, end)],
        f"consume statistics of {GROUPS} groups": [
            frame("json", CONSUME_STATS, {"consumerGroup": f"group{number}", "topic": COLD_TOPIC})
            for number in range(GROUPS)
        ],
        "consume statistics of all": [frame("json", ALL_CONSUME_STATS, {"isOrder": "false"})],
        f"deleting log files, {QUEUES} cold queues": [frame("json", DELETE_EXPIRED, {})],
    }


class Bystander:
    """Asks for the end of a queue again and again, on a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends = threading.Event()
        self.waits: list[float] = []

    def __enter__(self) -> Bystander:
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.1)  # what a request leaves to be done after its answer
        self._ends.set()
        self._thread.join()

    def _ask(self) -> None:
        request = frame("json", MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
        with connect(self._port) as connection:
            while not self._ends.is_set():
                start_time = time.perf_counter()
                exchange(connection, request)
                self.waits.append((time.perf_counter() - start_time) * 1000)
                time.sleep(0.001)


def step(store: Path, port: int, name: str, frames: list[bytes]) -> Step:
    """Make the requests of a step, all at once."""
    forget(store)
    with connect(port) as connection, Bystander(port) as bystander:
        start_time = time.perf_counter()
        if frames:
            connection.sendall(b"".join(frames))
            for _ in frames:
                exchange(connection, b"")
        else:
            time.sleep(2)
        took = (time.perf_counter() - start_time) * 1000
    return Step(name, took, statistics.median(bystander.waits), max(bystander.waits))


def measure(iops: int) -> Iterator[Step]:
    """All steps, each with a cold page cache."""
    with scratch() as directory, name_server(directory) as names:
        with broker(directory, names.port, **SETTINGS) as server:
            places = fill(server.port)
        with broker(directory, names.port, **SETTINGS) as server, slow_reads(server.pid, directory, iops):
            store = directory / "store"
            step(store, server.port, "the first seconds", [])
            yield step(store, server.port, "idle", [])
            for name, frames in requests(places).items():
                yield step(store, server.port, name, frames)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iops", type=int, default=200, help="reads of the disk a second")
    options = parser.parse_args()
    if os.geteuid():
        raise SystemExit("needs root, to limit the reads of a process")
    print(f"{options.iops} reads a second{'took':>37} {'others: median':>16} {'longest':>9}   (ms)")
    for step_ in measure(options.iops):
        print(f"{step_.name:46} {step_.took:10.1f} {step_.median:16.2f} {step_.longest:9.1f}", flush=True)


if __name__ == "__main__":
    main()
