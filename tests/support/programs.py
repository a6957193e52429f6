"""Our own commands as real processes, for tests that need one: started, read, stopped or killed by pid."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

REPOSITORY = Path(__file__).parents[2]

# Only a hanging program takes that long. A loaded machine starts Python slowly.
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0


class Program:
    """A running `python -m rocketlet.MODULE`. Its output on both streams is one sequence of lines."""

    def __init__(self, module: str, arguments: Sequence[str] = (), environment: dict[str, str] | None = None) -> None:
        self.module = module
        self.output: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"rocketlet.{module}", *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line_with(self, text: str, timeout: float = READY_TIMEOUT_S) -> str:
        """The next line that holds the text. AssertionError with all output, if it ends or is silent."""
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"{self.module} did not say {text!r} but:\n" + "\n".join(self.output))
            self.output.append(line)
            if text in line:
                return line

    def ended(self, timeout: float = STOP_TIMEOUT_S) -> int:
        """Wait for its end. Returns the exit code; `output` has all output."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        while (line := self._lines.get(timeout=timeout)) is not None:
            self.output.append(line)
        return code

    def stop(self) -> int:
        """As a supervisor does."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def program(module: str, *arguments: str) -> Iterator[Program]:
    """Killed at the end, if it still runs."""
    running = Program(module, arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()
        assert running.process.stdout is not None
        running._reader.join(STOP_TIMEOUT_S)
        running.process.stdout.close()


@contextmanager
def name_server(folder: Path, **settings: object) -> Iterator[tuple[Program, str]]:
    """Our name server and its address. `settings` by RocketMQ's keys."""
    all_settings: dict[str, object] = {
        "listenPort": 0,
        "kvConfigPath": folder / "kvConfig.json",
        "configStorePath": folder / "namesrv.properties",
        **settings,
    }
    with program(
        "namesrv", *(word for key, value in all_settings.items() for word in (f"--{key}", str(value)))
    ) as running:
        line = running.line_with("boot success")
        yield running, line.partition("listening on ")[2].partition(",")[0]


@contextmanager
def broker(folder: Path, **settings: object) -> Iterator[tuple[Program, str]]:
    """Our broker and its address for clients. `settings` by RocketMQ's keys."""
    all_settings: dict[str, object] = {
        "brokerName": "broker-a",
        "listenPort": 0,
        "storePathRootDir": folder / "store",
        **settings,
    }
    with program(
        "broker", *(word for key, value in all_settings.items() for word in (f"--{key}", str(value)))
    ) as running:
        line = running.line_with("boot success")
        yield running, line.partition("clients are told ")[2].partition(";")[0].partition(",")[0]
