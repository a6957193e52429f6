"""Real processes to measure: our name server and broker, the yardstick, a Java stack. Each in the caller's process
group.

Linux gives each session its own scheduling group, and a broker in another group than its clients appears too slow; so
nothing here starts a session. Only processes started here are ended, by pid.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.cpu import listening_pid
from tests.support import ports

ROOT = Path(__file__).resolve().parent.parent.parent
YARDSTICK = Path(os.environ.get("YARDSTICK", ROOT.parent / "shared" / "limit"))
INTEROP = Path(os.environ.get("INTEROP", ROOT.parent / "shared" / "interop"))
READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its address and its process."""

    port: int
    pid: int
    directory: Path


def free_port() -> int:
    """A free port, with those beside it for VIP clients, slaves and replicas free as well."""
    return ports.free_port(-2, 1, 2)


def wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path, says: bytes) -> None:
    """Return when the port answers and the process has printed so; raise with its output if it ended instead."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            if says in log.read_bytes():
                return
    raise RuntimeError(f"{process.args!r} does not serve on {port} after {READY_SECONDS:.0f} s")


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary directory, on the disk chosen by ROCKETLET_BENCH_DIR."""
    directory = Path(tempfile.mkdtemp(prefix="rocketlet-bench-", dir=os.environ.get("ROCKETLET_BENCH_DIR")))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running(arguments: list[str], port: int, directory: Path, name: str, says: bytes = b"") -> Iterator[Server]:
    """Run a server until the block ends; its output goes to a file beside its data. `says`: its line once it is
    ready."""
    log = directory / f"{name}.out"
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            wait_until_ready(port, process, log, says)
            yield Server(port, process.pid, directory)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def name_server(directory: Path) -> Iterator[Server]:
    """Our name server."""
    port = free_port()
    settings = directory / "namesrv.conf"
    settings.write_text(f"listenPort={port}\nkvConfigPath={directory}/kvConfig.json\n")
    with running(
        [sys.executable, "-m", "rocketlet.namesrv", "-c", str(settings)], port, directory, "namesrv"
    ) as server:
        yield server


@contextmanager
def broker(directory: Path, name_server_port: int, **settings: object) -> Iterator[Server]:
    """Our broker with a store below `directory`; `settings` are RocketMQ's keys."""
    port = free_port()
    lines: dict[str, object] = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": f"127.0.0.1:{name_server_port}",
        "storePathRootDir": directory / "store",
    }
    lines.update(settings)
    path = directory / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    with running(
        [sys.executable, "-m", "rocketlet.broker", "-c", str(path)], port, directory, "broker", b"is ready"
    ) as server:
        yield server


@contextmanager
def stack(**settings: object) -> Iterator[tuple[Server, Server]]:
    """Our name server and broker in a scratch directory."""
    with (
        scratch() as directory,
        name_server(directory) as names,
        broker(directory, names.port, **settings) as server,
    ):
        yield names, server


@contextmanager
def yardstick() -> Iterator[Server | None]:
    """The yardstick, or None if it is not beside the project (YARDSTICK names its directory)."""
    program = YARDSTICK / "limit_server.py"
    if not program.exists():
        yield None
        return
    port = free_port()
    with (
        scratch() as directory,
        running([sys.executable, str(program), str(port), str(directory)], port, directory, "yardstick") as server,
    ):
        yield server


def java_stack() -> Path | None:
    """The script that starts a Java name server and broker, if Java, Maven and the script are present."""
    script = INTEROP / "stack" / "stack"
    return script if script.exists() and shutil.which("java") and shutil.which("mvn") else None


@contextmanager
def java5_stack() -> Iterator[Server]:
    """The broker of a RocketMQ 5.3.3 stack; `stack5 setup` has to have fetched its jars."""
    script = INTEROP / "stack5" / "stack5"
    if not script.exists():
        raise SystemExit(f"missing: {script}")
    names, port, grpc = free_port(), free_port(), free_port()
    ports = ["--namesrv-port", str(names), "--broker-port", str(port), "--grpc-port", str(grpc)]
    with scratch() as directory:
        command = [sys.executable, str(script), "run", *ports, "--dir", str(directory)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            if not process.stdout.readline().startswith("ready"):
                raise RuntimeError("RocketMQ 5.3.3 did not start; its reason is above")
            pid = listening_pid(port)
            assert pid is not None
            yield Server(port, pid, directory)
        finally:
            process.terminate()
            process.wait(90)
