"""The cost of a start: the command line's help, `rocketlet up` until it is ready and its memory then, a test's stack.

    python -m benchmarks.startup [--runs 10]

Ready means that a client may connect: the line that says so has been read. Resident is the kernel's VmRSS, and private
what would be free without the process (Private_* of smaps_rollup). Medians, and the worst. On a busy machine only the
CPU time is meaningful.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.support.processes import ROOT, scratch

MIB = 1024


def seconds(function: Callable[[], object]) -> float:
    start_time = time.perf_counter()
    function()
    return time.perf_counter() - start_time


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rocketlet.tools", *arguments]


def shows_help(*arguments: str) -> None:
    subprocess.run(command(*arguments, "--help"), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


class Up:
    """One `rocketlet up` from its start to its end."""

    def __init__(self, *arguments: str) -> None:
        start_time = time.perf_counter()
        with subprocess.Popen(
            command("up", "--port", "0", "--broker-port", "0", "--print-addr", *arguments),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("rocketlet up did not start; its reason is above")
            self.ready = time.perf_counter() - start_time
            self.resident = _kib(process.pid, "status", r"VmRSS:\s+(\d+)")
            self.private = _kib(process.pid, "smaps_rollup", r"Private_\w+:\s+(\d+)")
            start_time = time.perf_counter()
            process.terminate()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
            self.cpu = usage.ru_utime + usage.ru_stime
            self.stopped = time.perf_counter() - start_time


def _kib(pid: int, file: str, pattern: str) -> float:
    """The sum of the matching values, in MiB."""
    return sum(int(number) for number in re.findall(pattern, Path(f"/proc/{pid}/{file}").read_text())) / MIB


def thread_stack_in_this_process() -> None:
    from rocketlet.tools.thread_stack import ThreadStack

    with ThreadStack():
        pass


def show(what: str, values: list[float], unit: str, target: float | None = None) -> None:
    wanted = f"   target {target:g} {unit}" if target else ""
    digits = 1 if unit == "MiB" else 3
    print(f"{what:44} {statistics.median(values):8.{digits}f} {unit}   worst {max(values):.{digits}f}{wanted}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    show("rocketlet --help", [seconds(lambda: shows_help()) for _ in range(runs)], "s", 0.15)
    show("rocketlet up --help", [seconds(lambda: shows_help("up")) for _ in range(runs)], "s", 0.15)
    with scratch() as directory:
        ups = [Up("--dir", str(directory / "data")) for _ in range(runs)]
    show("rocketlet up: ready", [up.ready for up in ups], "s", 0.6)
    show("rocketlet up: CPU, with its stop", [up.cpu for up in ups], "s")
    show("rocketlet up: resident", [up.resident for up in ups], "MiB", 80)
    show("rocketlet up: private", [up.private for up in ups], "MiB")
    show("rocketlet up: stopped again", [up.stopped for up in ups], "s")
    with scratch() as directory:
        ups = [Up("--dir", str(directory / "data"), "--grpc-port", "0") for _ in range(runs)]
    show("rocketlet up --grpc-port: ready", [up.ready for up in ups], "s", 0.8)
    show("rocketlet up --grpc-port: CPU, with its stop", [up.cpu for up in ups], "s")
    show("rocketlet up --grpc-port: resident", [up.resident for up in ups], "MiB", 120)
    show("rocketlet up --memory: ready", [Up("--memory").ready for _ in range(runs)], "s")
    thread_stack_in_this_process()  # the first one imports
    show("the fixture rocketmq, started and stopped", [seconds(thread_stack_in_this_process) for _ in range(runs)], "s")


if __name__ == "__main__":
    main()
