"""How fast Spark rebuilds queues and index, compared with our own store's recovery of the same log, and how it scales.

    python -m benchmarks.spark_index --directory /tmp/bench --gib 1 2 4

For each size: a log of 1 KiB messages with three keys each is written; then, in turns, Spark rebuilds queues and index
from it (in a session that runs already, and the time of a cold start beside), and a store without queues and index is
opened, which makes it recover them. Both results are compared byte for byte. The log is in the page cache both times.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time
from functools import partial
from typing import Any

from benchmarks.spark_log import write_log
from benchmarks.support.family_cpu import Cost, cost_of

GIB = 1 << 30


def recover(root: pathlib.Path) -> None:
    """Open a store and close it again: missing parts are rebuilt."""
    import trio

    from rocketlet.store.config import StoreConfig
    from rocketlet.store.message_store import MessageStore
    from rocketlet.store.real_disk import RealDisk

    async def run() -> None:
        config = StoreConfig(store_path_root_dir=str(root), store_path_commit_log=str(root / "commitlog"))
        store = MessageStore(RealDisk(), config, lambda: int(time.time() * 1000))
        begin, cpu = time.perf_counter(), time.process_time()
        await store.open()
        print(time.perf_counter() - begin, time.process_time() - cpu)
        await store.close()

    trio.run(run)


def recovery_cost(root: pathlib.Path) -> Cost:
    for name in ("consumequeue", "index", "rocketlet", "checkpoint", "abort", "lock"):
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.spark_index", "--recover", str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    wall, cpu = map(float, done.stdout.split()[-2:])
    return Cost(wall, cpu)


def same_files(first: pathlib.Path, second: pathlib.Path) -> bool:
    def contents(root: pathlib.Path) -> dict[str, pathlib.Path]:
        return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}

    left, right = contents(first), contents(second)
    if left.keys() != right.keys():
        return False
    command = ["cmp", "--silent"]
    return all(
        subprocess.run([*command, str(left[name]), str(right[name])], check=False).returncode == 0 for name in left
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("/tmp/rocketlet-spark-bench"))
    parser.add_argument("--gib", type=float, nargs="+", default=[1.0])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--recover", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.recover is not None:
        recover(options.recover)
        return
    from rocketlet.spark_jobs.index_segments import Rules
    from rocketlet.spark_jobs.index_writer import rebuild_index
    from rocketlet.spark_jobs.session import spark_session

    begin = time.perf_counter()
    session = spark_session("benchmark", master=options.master)
    started = time.perf_counter() - begin
    for gib in options.gib:
        root, out = options.directory / "store", options.directory / "out"
        shutil.rmtree(options.directory, ignore_errors=True)
        records = write_log(root, int(gib * GIB))
        results: dict[str, list[Cost]] = {"spark": [], "recovery": []}
        for _ in range(options.repeat):
            shutil.rmtree(out, ignore_errors=True)
            results["spark"].append(cost_of(partial(rebuild_index, session, str(root), str(out), Rules())))
            results["recovery"].append(recovery_cost(root))
        equal = same_files(root / "consumequeue", out / "consumequeue") and same_files(root / "index", out / "index")
        line: dict[str, Any] = {"gib": gib, "records": records, "session_s": round(started, 1), "equal": equal}
        for name, costs in results.items():
            best = min(cost.wall for cost in costs)
            line[name] = {
                "first_s": round(costs[0].wall, 1), "best_s": round(best, 1), "mb_s": round(gib * GIB / best / 1e6),
                "rows_s": round(records / best), "cpu_s": round(min(cost.cpu for cost in costs), 1),
            }  # fmt: skip
        print(json.dumps(line))
    session.stop()
    shutil.rmtree(options.directory, ignore_errors=True)


if __name__ == "__main__":
    main()
