"""Shared by the tests that kill a stream's driver, executors and broker while it runs.

By default one run kills each of them once. `KILL_ROUNDS=20` makes a run for each, which kills it that many times.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Protocol, Self

import pytest

from tests.support.java_programs import JavaPrograms, Missing
from tests.support.killing import kill_group, start
from tests.support.ports import free_broker_port
from tests.support.programs import program

ROUNDS = int(os.environ.get("KILL_ROUNDS", "0"))
DRIVER, WORKER, EXECUTOR, BROKER, JAVA_BROKER = "driver", "python worker", "executor", "broker", "java broker"
VICTIMS = [DRIVER, WORKER, EXECUTOR, BROKER, pytest.param(JAVA_BROKER, marks=pytest.mark.interop)]
RUNS = VICTIMS if ROUNDS else ["each in turn"]
_WAIT_SECONDS = 900


def victims(run: str) -> Iterator[str]:
    """What is killed, one after another."""
    yield from [run] * ROUNDS if ROUNDS else [WORKER, BROKER, DRIVER]


class Broker(Protocol):
    def start(self) -> object: ...

    def kill(self) -> object: ...


class OurBroker:
    """A broker as a process, that can be killed and comes back where it was."""

    def __init__(self, folder: Path, namesrv: str, stack: ExitStack) -> None:
        settings = {
            "storePathRootDir": folder / "store",
            "flushDiskType": "SYNC_FLUSH",
            "listenPort": free_broker_port(),
        }
        arguments = [argument for key, value in settings.items() for argument in (f"--{key}", str(value))]
        self._arguments = [*arguments, "-n", namesrv]
        self._stack = stack
        self.start()

    def start(self) -> None:
        self._running = self._stack.enter_context(program("broker", *self._arguments))
        self._running.line_with("boot success")

    def kill(self) -> None:
        self._running.kill()


def broker_for(run: str, folder: Path, namesrv: str, stack: ExitStack) -> Broker:
    """Ours, unless it is the Java broker's turn."""
    if run != JAVA_BROKER:
        return OurBroker(folder, namesrv, stack)
    try:
        programs = JavaPrograms.prepare()
    except Missing as error:
        pytest.skip(str(error))
    return stack.enter_context(programs.broker(folder / "java", namesrv, flushDiskType="SYNC_FLUSH"))


def master_for(run: str) -> str:
    """Where Spark runs: with executors of their own only where they are killed. A task may fail four times."""
    return "local-cluster[2,1,1024]" if run == EXECUTOR else "local[2,4]"


class KilledStream:
    """A process with a stream, which is restarted when it was killed or has given up."""

    def __init__(self, command: list[str], log: Path, batches: Callable[[], int], broker: Broker, seed: str) -> None:
        self._command = command
        self._log = log
        self._batches = batches
        self._broker = broker
        self._rng = Random(seed)
        self._process = start(command, log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            kill_group(self._process)

    def kill(self, victim: str) -> None:
        """After two more batches, at any moment of the next."""
        self.wait_for_batches(2)
        time.sleep(self._rng.random() * 1.5)
        if victim in (BROKER, JAVA_BROKER):
            self._broker.kill()
            self._broker.start()
        elif victim == WORKER:
            self._kill_one(b"pyspark.daemon")
        elif victim == EXECUTOR:
            self._kill_one(b"CoarseGrainedExecutorBackend")
        else:
            kill_group(self._process)

    def wait_for_batches(self, count: int) -> None:
        """Wait until that many more batches are done."""
        target = self._batches() + count
        deadline = time.monotonic() + _WAIT_SECONDS
        while self._batches() < target:
            if self._process.poll() is not None:
                self._process = start(self._command, self._log)
            assert time.monotonic() < deadline, self.output[-4000:]
            time.sleep(0.1)

    def stop(self) -> int:
        """As a supervisor does; the exit code. REQUIRES a batch since its start: then it listens to signals."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(600)

    @property
    def output(self) -> str:
        return self._log.read_text()

    def _kill_one(self, pattern: bytes) -> None:
        """One of the processes that tasks run in."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not (running := self._running(pattern)):
            assert time.monotonic() < deadline, self.output[-4000:]
            time.sleep(0.01)
        os.kill(self._rng.choice(running), signal.SIGKILL)

    def _running(self, pattern: bytes) -> list[int]:
        pids = []
        for entry in Path("/proc").iterdir():
            try:
                is_ours = entry.name.isdigit() and os.getsid(int(entry.name)) == self._process.pid
                if is_ours and pattern in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                pass  # it has ended meanwhile
        return pids
