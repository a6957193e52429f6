"""How index, verify and follow grow with the log: CPU and memory at several sizes, each job a process of its own.

    python -m benchmarks.spark_growth [--gib 1 4 16] [--jobs index verify follow] [--directory /tmp/growth] [--keep]

`index` builds queues and index inside the store, which `verify` compares with the log then, and `follow` writes the
messages into Parquet. With `--keep` the store stays, and a later run takes it instead of writing one.

CPU is that of the driver, the JVM and the Python workers together, less what a job on an empty store takes to start.
Memory is the highest sum of what these processes had to themselves (pages of files and shared ones are left out).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.spark_log import write_log
from benchmarks.support.cpu import resident_bytes
from benchmarks.support.family_cpu import family, family_cpu

GIB = 1 << 30
LOOK_SECONDS = 0.5


def commands(root: Path, out: Path, heap: str) -> dict[str, list[str]]:
    store = ["--store", str(root), "--master", "local[2]", "--conf", f"spark.driver.memory={heap}"]
    return {
        "index": ["index", *store, "--out", str(root), "--replace"],
        "verify": ["verify", *store],
        "follow": ["follow", *store, "--out", str(out), "--from", "earliest", "--once"],
    }


def cost(words: list[str]) -> dict[str, float]:
    """Runs one job; seconds of CPU and by the clock, and MB at the most."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketlet.spark_jobs", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    cpu = driver = workers = 0.0
    while process.poll() is None:
        cpu = max(cpu, family_cpu(process.pid))
        mine = {pid: _resident(pid) for pid in family(process.pid)}
        python = sum(size for pid, size in mine.items() if pid != process.pid and "python" in _program(pid))
        workers, driver = max(workers, python), max(driver, sum(mine.values()) - python)
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            pass
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read().decode()[-2000:]
    return {"s": time.perf_counter() - began, "cpu_s": cpu, "driver_mb": driver / 1e6, "workers_mb": workers / 1e6}


def _resident(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except OSError:
        return 0  # ended meanwhile


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("/tmp/rocketlet-spark-growth"))
    parser.add_argument("--gib", type=float, nargs="+", default=[1, 4, 16])
    parser.add_argument("--jobs", nargs="+", default=["index", "verify", "follow"])
    parser.add_argument("--heap", default="1g", help="of the JVM, which is driver and executors at once")
    parser.add_argument("--keep", action="store_true", help="leave the stores there")
    chosen = parser.parse_args()
    start: dict[str, float] = {}
    for gib in [0.001, *chosen.gib]:
        root, out = chosen.directory / f"store-{gib:g}", chosen.directory / "out"
        if not root.exists():
            write_log(root, int(gib * GIB), file_size=1 << 30 if gib >= 1 else 1 << 20)
            (root / "abort").touch()  # open, as a stream finds it
        for job in chosen.jobs:
            found = cost(commands(root, out, chosen.heap)[job])
            shutil.rmtree(out, ignore_errors=True)
            if gib < 1:
                start[job] = found["cpu_s"]
            else:
                found["cpu_s_per_gib"] = (found["cpu_s"] - start[job]) / gib
            rounded = {name: round(value, 1) for name, value in found.items()}
            print(json.dumps({"job": job, "gib": gib, **rounded}), flush=True)
        if not chosen.keep:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
