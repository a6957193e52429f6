"""`follow` as a user runs it: a process that is killed repeatedly, with a broker that is killed too."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rocketlet import Message, Producer, PullConsumer
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.killed_streams import RUNS, KilledStream, broker_for, master_for, victims
from tests.support.killing import REPOSITORY, Sending
from tests.support.programs import name_server

pytestmark = [pytest.mark.spark, pytest.mark.slow]

log = logging.getLogger(__name__)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "rocketlet.spark_jobs", *words]


def ran(*words: str) -> str:
    done = subprocess.run(command(*words), cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(out: Path, *columns: str) -> Any:
    import pyarrow.dataset as ds  # and pandas with it: half a second, which every run of tests would wait for

    return ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=list(columns))


def rows_of(out: Path) -> list[str]:
    return sorted(body.decode() for body in read(out, "body")["body"].to_pylist())


def places_of(out: Path) -> list[tuple[int, int]]:
    """Queue and offset of each row, of one topic of one broker."""
    table = read(out, "queue_id", "queue_offset")
    return list(zip(table["queue_id"].to_pylist(), table["queue_offset"].to_pylist(), strict=True))


def test_topics_become_files_and_the_status_shows_the_lag(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        source = ["--namesrv", stack.namesrv, "--topics", "Orders", "--conf", "spark.sql.shuffle.partitions=2"]
        with Producer("p", namesrv=stack.namesrv) as producer:
            for number in range(30):
                producer.send(Message("Orders", b"%03d" % number))
            ran("follow", *source, "--out", out, "--once", "--option", "group=files")
            assert rows_of(tmp_path / "out") == [f"{number:03d}" for number in range(30)]
            assert "Orders: 0 messages are not written yet" in ran("status", "--out", out)
            for number in range(30, 37):
                producer.send(Message("Orders", b"%03d" % number))
            assert json.loads(ran("status", "--out", out, "--json"))["lag"] == {"Orders": 7}


def test_an_unknown_topic_ends_it_before_spark_starts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        with Producer("writers", namesrv=stack.namesrv) as producer:
            producer.create_topic("Orders", 1)
        words = ("follow", "--namesrv", stack.namesrv, "--topics", "Orders,Odrers", "--out", str(out))
        for _ in range(2):
            done = subprocess.run(command(*words), cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
            assert done.returncode == 1
            (line,) = done.stderr.splitlines()
            assert line.startswith("error: no broker serves Odrers, say the name servers")
            (out / "_follow").mkdir(parents=True, exist_ok=True)
            status = {"format": "rocketmq", "offsets": {"Orders": {"broker-a:0": 0}}}
            (out / "_follow" / "status.json").write_text(json.dumps(status))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["follow", "--out", "x"], "one of --namesrv and --store"),
        (["follow", "--out", "x", "--namesrv", "a:1", "--topics", "A", "--option", "tag=b"], "did you mean tags?"),
        (["follow", "--out", "x", "--namesrv", "a:1", "--topics", "A", "--option", "b"], "is not like name=value"),
        (["status", "--out", "nowhere"], "has not finished a batch yet"),
    ],
)
def test_impossible_requests_are_refused_before_spark_starts(words: list[str], said: str) -> None:
    done = subprocess.run(command(*words), cwd=REPOSITORY, capture_output=True, text=True, timeout=900)
    assert done.returncode == 2
    assert said in done.stderr


def batches_done(out: Path) -> int:
    try:
        return int(json.loads((out / "_follow" / "status.json").read_text())["batch"])
    except FileNotFoundError:
        return -1


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.usefixtures("spark_home")
def test_kills_lose_and_duplicate_nothing(tmp_path: Path, run: str) -> None:
    out = tmp_path / "out"
    with name_server(tmp_path / "namesrv") as (_, namesrv), ExitStack() as held:
        broker = broker_for(run, tmp_path, namesrv, held)
        sending = held.enter_context(Sending(namesrv, "Ledger"))
        source = ["--namesrv", namesrv, "--topics-pattern", "Ledger", "--out", str(out)]
        follow = command(
            "follow", *source, "--every", "1 second", "--master", master_for(run),
            "--conf", "spark.sql.shuffle.partitions=2",
        )  # fmt: skip
        with KilledStream(follow, tmp_path / "follow.log", lambda: batches_done(out), broker, run) as following:
            for victim in victims(run):
                following.kill(victim)
            following.wait_for_batches(1)
            acknowledged = sending.stop()
            assert following.stop() == 0, following.output[-4000:]
            assert "StackOverflowError" not in following.output
        ran("follow", *source, "--once")
        with PullConsumer("looking", namesrv=namesrv) as consumer:
            messages = {
                (queue.queue_id, offset)
                for queue in consumer.queues("Ledger")
                for offset in range(consumer.max_offset(queue))
            }
    # A message whose acknowledgement was lost with a broker is sent again: the topic then has it twice, and so do we.
    places = places_of(out)
    assert len(places) == len(set(places))
    assert set(places) == messages
    assert not set(acknowledged) - set(rows_of(out))
    log.info("%s: %d rows, %d messages, %d acknowledged", run, len(places), len(messages), len(acknowledged))
