"""`follow` as a user runs it: a process that is killed again and again, beside a broker that is killed too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pyspark
import pytest

from rocketlet import Message, Producer, PullConsumer
from rocketlet.tools.local import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.java_programs import JavaBroker, JavaPrograms, Missing
from tests.support.killing import REPOSITORY, Sending, kill_group, start
from tests.support.ports import free_broker_port
from tests.support.programs import name_server, program

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "rocketlet.spark_jobs", *words]


def ran(*words: str) -> str:
    done = subprocess.run(command(*words), cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(out: Path) -> list[str]:
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=["body"])
    return sorted(body.decode() for body in table["body"].to_pylist())


def places_of(out: Path) -> list[tuple[int, int]]:
    """Queue and offset of each row, of one topic of one broker."""
    table = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=["queue_id", "queue_offset"])
    return list(zip(table["queue_id"].to_pylist(), table["queue_offset"].to_pylist(), strict=True))


def test_topics_become_files_and_the_status_tells_the_lag(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        source = ["--namesrv", stack.namesrv, "--topics", "Orders", "--conf", "spark.sql.shuffle.partitions=2"]
        with Producer("p", namesrv=stack.namesrv) as producer:
            for number in range(30):
                producer.send(Message("Orders", b"%03d" % number))
            ran("follow", *source, "--out", out, "--once", "--option", "group=files")
            assert rows_of(tmp_path / "out") == [f"{number:03d}" for number in range(30)]
            for number in range(30, 37):
                producer.send(Message("Orders", b"%03d" % number))
            assert json.loads(ran("status", "--out", out, "--json"))["lag"] == {"Orders": 7}
            ran("follow", *source, "--out", out, "--once")
            assert rows_of(tmp_path / "out") == [f"{number:03d}" for number in range(37)]
            assert "Orders: 0 messages are not written yet" in ran("status", "--out", out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["follow", "--out", "x"], "one of --namesrv and --store"),
        (["follow", "--out", "x", "--namesrv", "a:1", "--topics", "A", "--option", "tag=b"], "did you mean tags?"),
        (["follow", "--out", "x", "--namesrv", "a:1", "--topics", "A", "--option", "b"], "is not like name=value"),
        (["status", "--out", "nowhere"], "has not finished a batch yet"),
    ],
)
def test_what_cannot_be_done_is_said_before_spark_starts(words: list[str], said: str) -> None:
    done = subprocess.run(command(*words), cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 2
    assert said in done.stderr


def kill_one(process: subprocess.Popen[bytes], chance: Random, what: bytes) -> None:
    """One of the processes that Spark's tasks run in, if there is one just now."""
    workers = []
    for entry in Path("/proc").iterdir():
        try:
            ours = entry.name.isdigit() and os.getsid(int(entry.name)) == process.pid
            if ours and what in (entry / "cmdline").read_bytes():
                workers.append(int(entry.name))
        except OSError:
            pass  # it has ended meanwhile
    if workers:
        os.kill(chance.choice(workers), signal.SIGKILL)


def wait_for_batches(out: Path, folder: Path, count: int) -> None:
    """Until the status tells of so many batches more than now."""

    def batch() -> int:
        try:
            return int(json.loads((out / "_follow" / "status.json").read_text())["batch"])
        except FileNotFoundError:
            return -1

    wanted = batch() + count
    deadline = time.monotonic() + 900
    while batch() < wanted:
        assert time.monotonic() < deadline, (folder / "follow.log").read_text()[-4000:]
        time.sleep(0.1)


class OurBroker:
    """A broker as a process, that can be killed and comes back where it was."""

    def __init__(self, folder: Path, namesrv: str, held: ExitStack) -> None:
        settings = {
            "storePathRootDir": folder / "store",
            "flushDiskType": "SYNC_FLUSH",
            "listenPort": free_broker_port(),
        }
        words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        self._words = [*words, "-n", namesrv]
        self._held = held
        self.start()

    def start(self) -> None:
        self._running = self._held.enter_context(program("broker", *self._words))
        self._running.line_with("boot success")

    def kill(self) -> None:
        self._running.process.kill()


def java_broker(folder: Path, namesrv: str, held: ExitStack) -> JavaBroker:
    try:
        programs = JavaPrograms.prepare()
    except Missing as missing:
        pytest.skip(str(missing))
    return held.enter_context(programs.broker(folder / "java", namesrv, flushDiskType="SYNC_FLUSH"))


# Those that take long are killed where more rounds are asked for, too.
SLOW = pytest.mark.skipif(ROUNDS <= 2, reason="KILL_ROUNDS=3 or more kills these too")
VICTIMS = ["driver", "worker", "broker", pytest.param("executor", marks=SLOW)]


@pytest.mark.parametrize("victims", [*VICTIMS, pytest.param("java broker", marks=[SLOW, pytest.mark.interop])])
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path, victims: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, out = Random(victims), tmp_path / "out"
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))  # executors are started from there
    with name_server(tmp_path / "namesrv") as (_, namesrv), ExitStack() as held:
        broker = (java_broker if victims == "java broker" else OurBroker)(tmp_path, namesrv, held)
        sending = Sending(namesrv, "Ledger")
        master = "local-cluster[2,1,1024]" if victims == "executor" else "local[2,4]"
        follow = command(
            "follow", "--namesrv", namesrv, "--topics-pattern", "Ledger", "--out", str(out), "--every", "1 second",
            "--master", master, "--conf", "spark.sql.shuffle.partitions=2",
        )  # fmt: skip
        following = start(follow, tmp_path / "follow.log")
        for _ in range(ROUNDS):
            wait_for_batches(out, tmp_path, 2)
            time.sleep(chance.random() * 1.5)
            if victims.endswith("broker"):
                broker.kill()
                broker.start()
            elif victims == "worker":
                kill_one(following, chance, b"pyspark.daemon")
            elif victims == "executor":
                kill_one(following, chance, b"CoarseGrainedExecutorBackend")
            else:
                kill_group(following)
            if victims == "driver" or following.poll() is not None:
                following = start(follow, tmp_path / "follow.log")
        wait_for_batches(out, tmp_path, 1)  # after a restart it must be listening to signals
        acknowledged = sending.stop()
        following.send_signal(signal.SIGTERM)
        assert following.wait(600) == 0, (tmp_path / "follow.log").read_text()[-4000:]
        assert "StackOverflowError" not in (tmp_path / "follow.log").read_text()
        ran("follow", "--namesrv", namesrv, "--topics-pattern", "Ledger", "--out", str(out), "--once")
        with PullConsumer("looking", namesrv=namesrv) as consumer:
            messages = {
                (queue.queue_id, offset)
                for queue in consumer.queues("Ledger")
                for offset in range(consumer.max_offset(queue))
            }
    # A message whose acknowledgement was lost with a broker is sent again: then the topic has it twice, and so have we.
    places = places_of(out)
    assert len(places) == len(set(places))
    assert set(places) == messages
    assert not set(acknowledged) - set(rows_of(out))
