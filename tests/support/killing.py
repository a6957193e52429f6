"""Processes that are killed repeatedly, and messages whose acknowledgements are counted meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

from rocketlet import Message, Producer

REPOSITORY = Path(__file__).parents[2]


class Sending:
    """Sends numbered messages until stopped, and records which of them were acknowledged."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(namesrv, topic))
        self._thread.start()

    def _run(self, namesrv: str, topic: str) -> None:
        with Producer("ledger", namesrv=namesrv) as producer:
            number = 0
            while not self._stop.wait(0.005):
                try:
                    producer.send(Message(topic, b"%08d" % number))
                    self.acknowledged.append(f"{number:08d}")
                except Exception:  # noqa: BLE001 - the broker was killed; what was not acknowledged is not counted
                    time.sleep(0.2)
                number += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join()
        return self.acknowledged


def start(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start in its own process group, so that its children are killed too."""
    with log.open("ab") as file:
        return subprocess.Popen(words, cwd=REPOSITORY, stdout=file, stderr=file, start_new_session=True)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """`kill -9` of the process and its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(120)
