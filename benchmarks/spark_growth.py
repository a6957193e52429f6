"""How index, verify and follow grow with the log: CPU and memory at several sizes, each job a process of its own.

    python -m benchmarks.spark_growth [--gib 1 4 16] [--jobs index verify follow] [--rounds 2] [--directory /tmp/growth]

`index` builds queues and index inside the store, which `verify` compares with the log then, and `follow` writes the
messages into Parquet. With `--keep` the stores stay, and a later run takes them instead of writing them.

CPU is that of the driver, the JVM and the Python workers together. What a further GiB costs follows from two sizes, so
that the start of Spark is not in it. Memory is the highest that these processes had to themselves (pages of files and
shared ones are left out).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.spark_log import write_log
from benchmarks.support.cpu import cpu_seconds, resident_bytes
from benchmarks.support.family_cpu import family, family_cpu

GIB = 1 << 30
LOOK_SECONDS = 0.5

Figures = dict[str, float]


def commands(root: Path, out: Path, settings: list[str]) -> dict[str, list[str]]:
    store = ["--store", str(root), "--master", "local[2]"]
    for setting in settings:
        store += ["--conf", setting]
    return {
        "index": ["index", *store, "--out", str(root), "--replace"],
        "verify": ["verify", *store],
        "follow": ["follow", *store, "--out", str(out), "--from", "earliest", "--once"],
    }


def cost(words: list[str]) -> dict[str, float]:
    """Runs one job; seconds of CPU and by the clock, and MB at the most."""
    start_time = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketlet.spark_jobs", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    cpu = jvm_cpu = jvm = workers = 0.0
    while process.poll() is None:
        cpu = max(cpu, family_cpu(process.pid))
        resident = {"java": 0, "python": 0}
        for pid in family(process.pid) - {process.pid}:
            try:
                kind = "java" if "java" in os.readlink(f"/proc/{pid}/exe") else "python"
                resident[kind] += resident_bytes(pid)
                if kind == "java":
                    jvm_cpu = max(jvm_cpu, cpu_seconds(pid))
            except OSError:
                pass  # ended meanwhile
        jvm, workers = max(jvm, resident["java"]), max(workers, resident["python"])
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            pass
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read().decode()[-2000:]
    return {
        "s": time.perf_counter() - start_time, "cpu_s": cpu, "jvm_cpu_s": jvm_cpu, "jvm_mb": jvm / 1e6,
        "workers_mb": workers / 1e6,
    }  # fmt: skip


def further(smaller: tuple[float, Figures], larger: tuple[float, Figures]) -> Figures:
    """What each further GiB costs from one size to the other."""
    (small_gib, small_cost), (large_gib, large_cost) = smaller, larger
    return {
        f"{name}_per_gib": (large_cost[name] - small_cost[name]) / (large_gib - small_gib)
        for name in ("s", "cpu_s", "jvm_cpu_s")
    }


def say(job: str, figures: Figures, **which: object) -> None:
    rounded = {name: round(value, 2 if "per_gib" in name else 1) for name, value in figures.items()}
    print(json.dumps({"job": job, **which, **rounded}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("/tmp/rocketlet-spark-growth"))
    parser.add_argument("--gib", type=float, nargs="+", default=[1, 4, 16])
    parser.add_argument("--jobs", nargs="+", default=["index", "verify", "follow"])
    parser.add_argument("--rounds", type=int, default=1, help="of which the medians count")
    parser.add_argument("--conf", action="append", default=[], help="for Spark, such as spark.driver.memory=2g")
    parser.add_argument("--keep", action="store_true", help="leave the stores there")
    options = parser.parse_args()
    costs: dict[str, list[tuple[float, Figures]]] = {job: [] for job in options.jobs}
    for gib in sorted(options.gib):
        root, out = options.directory / f"store-{gib:g}", options.directory / "out"
        if not root.exists():
            write_log(root, int(gib * GIB), file_size=1 << 30 if gib >= 1 else 1 << 20)
            (root / "abort").touch()  # open, as a stream finds it
        for job in options.jobs:
            runs = []
            for _ in range(options.rounds):
                runs.append(cost(commands(root, out, options.conf)[job]))
                shutil.rmtree(out, ignore_errors=True)
            figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
            costs[job].append((gib, figures))
            say(job, figures, gib=gib)
        if not options.keep:
            shutil.rmtree(root)
    for job, sizes in costs.items():
        for smaller, larger in pairwise(sizes):
            say(job, further(smaller, larger), gib=[smaller[0], larger[0]])


if __name__ == "__main__":
    main()
