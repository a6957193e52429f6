"""The jobs on a standalone cluster: a master, two workers, executors whose Python has our code only from the zip."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyspark
import pytest

from benchmarks.spark_log import write_log
from rocketlet import Message, Producer
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.ports import free_port
from tests.test_strangers_project import ROOT, environment_without_us, run

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARK = Path(pyspark.__file__).parent
READY_SECONDS = 600
JOB = "from rocketlet.spark_jobs.__main__ import main; main()"
WHERE = """\
from pyspark.sql import SparkSession

def places(_):
    import os
    import rocketlet
    yield os.environ["SPARK_EXECUTOR_DIRS"], rocketlet.__file__

session = SparkSession.builder.getOrCreate()
for place in session.sparkContext.parallelize(range(16), 16).mapPartitions(places).distinct().collect():
    print("PLACE", *place)
"""


@contextmanager
def spark_program(folder: Path, name: str, *words: str, ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """A master or a worker, started until ready; ended by its pid."""
    log = folder / f"{name}.log"
    environment = os.environ | {
        "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / name),
        "PYSPARK_PYTHON": str(folder / "venv" / "bin" / "python"), "SPARK_DAEMON_MEMORY": "192m",
    }  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), *words], env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + READY_SECONDS
        while ready not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)


class Standalone:
    """A running cluster, and the zip that is sent to it."""

    def __init__(self, folder: Path, master: str, package: Path) -> None:
        self._folder = folder
        self._master = master
        self._package = package

    def submit(self, job: str, *words: str) -> str:
        """Run a job. Returns its output."""
        script = self._folder / "job.py"
        script.write_text(job)
        # The driver's path has none of our code either: it runs in the folder with only the zip's package.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
            "SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": str(self._folder / "venv" / "bin" / "python"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip
        command = [
            str(SPARK / "bin" / "spark-submit"), "--master", self._master, "--py-files", str(self._package),
            "--executor-memory", "512m", "--driver-memory", "512m", "--total-executor-cores", "2",
            "--executor-cores", "1", "--conf", "spark.sql.shuffle.partitions=4", "--conf", "spark.ui.enabled=false",
            str(script), *words,
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("standalone")
    environment_without_us(folder)
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    (wheel,) = folder.glob("*.whl")
    package = folder / "rocketlet.zip"
    shutil.copy(wheel, package)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as held:
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        held.enter_context(
            spark_program(
                folder, "master", "org.apache.spark.deploy.master.Master", *words, ready="I have been elected"
            )
        )
        for number in range(2):
            words = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "768m", master]
            name = f"worker-{number}"
            held.enter_context(
                spark_program(
                    folder, name, "org.apache.spark.deploy.worker.Worker", *words, ready="Successfully registered"
                )
            )
        yield Standalone(folder, master, package)


def test_two_workers_build_an_index_from_the_zip_alone(cluster: Standalone, tmp_path: Path) -> None:
    records = write_log(tmp_path / "store", 8 << 20, file_size=4 << 20)
    said = cluster.submit(WHERE + JOB, "index", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"))
    places = [line.split()[1:] for line in said.splitlines() if line.startswith("PLACE")]
    assert len({directory for directory, _ in places}) == 2
    assert all(file.partition("rocketlet.zip")[1] for _, file in places), places
    queues = sorted((tmp_path / "out" / "consumequeue" / "TopicTest").iterdir())
    units = [np.fromfile(file, dtype=">i8,>i4,>i8")["f1"] for queue in queues for file in queue.iterdir()]
    assert len(queues) == 8
    assert sum(int((sizes > 0).sum()) for sizes in units) == records


def test_follow_on_a_standalone_cluster(cluster: Standalone, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    out = tmp_path / "out"
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        with Producer("p", namesrv=stack.namesrv) as producer:
            for number in range(40):
                producer.send(Message("Orders", b"%d" % number))
        source = ["--namesrv", stack.namesrv, "--topics", "Orders", "--option", "startingOffsets=earliest"]
        cluster.submit(JOB, "follow", *source, "--out", str(out), "--once")
    bodies = ds.dataset(out, format="parquet", partitioning="hive").to_table(columns=["body"])["body"].to_pylist()
    assert sorted(int(body) for body in bodies) == list(range(40))
