"""RocketMQ's own programs, for the tests marked `interop`: the official client's scenarios, and a Java broker.

They come from the folder that the variable INTEROP names (else ../shared/interop beside this repository), with a JDK 17
and Maven. They are copied and built once per machine, into ${XDG_CACHE_HOME:-~/.cache}/rocketlet-java, under a name
derived from the sources' digest; later and concurrent runs reuse the result. `Missing` says what a machine lacks.

    programs = JavaPrograms.prepare()                            # Missing: skip with its text
    outcomes = programs.scenarios("127.0.0.1:9876", "routes")    # name → Outcome
    with programs.broker(tmp_path, "127.0.0.1:9876") as broker: ...
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_broker_port, free_port

REPOSITORY = Path(__file__).parents[2]

# Groups of scenarios of about equal length. They mostly wait, so they run at once, each in its own JVM. The last ones
# register brokers that do not exist, which the others would count.
SHARES = [["dialects"], ["admin"], ["consuming", "pulling"], ["waiting", "agreeing"]]
ALONE = ["sending", "routes"]
# Scenarios that send and consume, and wait for no push consumer's queues: on a busy machine the client's rebalance
# thread can miss the wake-up at its start, and then it sleeps for the 20 s that others have.
WITHOUT_PUSH = ["send-to-queue", "lite-pull-assign"]

# Settings of a broker, ours or Java's, with short waits for the scenarios.
QUICK_BROKER = {
    "transactionCheckInterval": 2000,
    "transactionTimeOut": 1000,
    "traceTopicEnable": "true",
    "messageDelayLevel": "1s 2s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 11s 12s 13s 14s 15s 16s",
}

# Maven without its jars at hand downloads 60 MB; a scenario group runs for up to three minutes.
BUILD_TIMEOUT_S = 600
RUN_TIMEOUT_S = 900
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120


class Missing(Exception):
    """This machine cannot run the programs; the text names what it lacks."""


# By default a send that has waited for 200 ms is refused, as many do on a loaded machine.
PATIENT: dict[str, object] = {"waitTimeMillsInSendQueue": 10_000}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a scenario ended: PASS, FAIL or SKIP, and why."""

    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class JavaPrograms:
    """The built programs."""

    jar: Path
    stack: Path

    @classmethod
    def prepare(cls) -> JavaPrograms:
        """Build what is not built yet. Raises Missing."""
        source = Path(os.environ.get("INTEROP") or REPOSITORY.parent / "shared" / "interop")
        if not (source / "java" / "pom.xml").exists():
            raise Missing(f"no interop programs in {source}; set INTEROP to their folder")
        for program in ("java", "mvn"):
            if shutil.which(program) is None:
                raise Missing(f"no {program} on the PATH; install a JDK 17 and Maven 3.6 or later")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketlet-java"
        cache.mkdir(parents=True, exist_ok=True)
        with _only_one(cache / "build.lock"):
            built = cache / f"interop-{_digest(source)}"
            if not built.exists():
                _build(source, built)
            if not any((cache / "lib").glob("rocketmq-broker-*.jar")):
                _run([str(built / "stack" / "stack"), "setup"])
        return cls(built / "java" / "target" / "interop.jar", built / "stack" / "stack")

    def grpc_jar(self) -> Path:
        """The scenarios of RocketMQ 5's client, built when they are first asked for. Raises Missing."""
        built = self.jar.parents[2]
        folder = built / "grpc" / "java"
        if not (folder / "pom.xml").exists():
            raise Missing("no programs of RocketMQ 5's clients among the interop programs")
        jar = folder / "target" / "grpc-interop.jar"
        with _only_one(built.parent / "build.lock"):
            if not jar.exists():
                _run(["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "package"])
        return jar

    def scenarios(self, namesrv: str, *names: str, binary: bool = False, slow: int = 1) -> dict[str, Outcome]:
        """Run scenarios or groups of them by the official client."""
        options = ["--namesrv", namesrv, "--slow", str(slow), *(["--binary"] if binary else [])]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            ended = subprocess.run(
                ["java", "-jar", str(self.jar), *options, "--json", str(report), *names],
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
            sys.stdout.write(ended.stdout + ended.stderr)
            if ended.returncode not in (0, 1):
                raise AssertionError(
                    f"the interop program ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"
                )
            told = json.loads(report.read_text())
        return {one["name"]: Outcome(one["verdict"], one["why"]) for one in told["scenarios"]}

    def all_scenarios(self, namesrv: str, *, binary: bool = False, slow: int = 1) -> dict[str, Outcome]:
        """All scenarios, each once."""
        outcomes: dict[str, Outcome] = {}
        with ThreadPoolExecutor(len(SHARES)) as pool:
            runs = [pool.submit(self.scenarios, namesrv, *share, binary=binary, slow=slow) for share in SHARES]
            for run in runs:
                outcomes |= run.result()
        return outcomes | self.scenarios(namesrv, *ALONE, binary=binary, slow=slow)

    @contextmanager
    def name_server(self, folder: Path) -> Iterator[str]:
        """A Java name server, killed at the end; its address."""
        port = free_port()
        _launch([str(self.stack), "namesrv", str(folder), str(port)], folder, "namesrv", port)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            _kill(folder / "namesrv.pid")

    @contextmanager
    def broker(self, folder: Path, namesrv: str, **settings: object) -> Iterator[JavaBroker]:
        """A Java broker, killed at the end (a clean stop takes seconds). `settings` are lines of its configuration."""
        lines = {key: str(value) for key, value in (PATIENT | settings).items()}
        broker = JavaBroker(self.stack, folder, namesrv, free_broker_port(), lines)
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()


@dataclass(slots=True)
class JavaBroker:
    """One broker; its store survives a stop and a kill."""

    stack: Path
    folder: Path
    namesrv: str
    port: int
    settings: dict[str, str]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it serves (which comes after its first registration)."""
        words = [f"{key}={value}" for key, value in self.settings.items()]
        command = [str(self.stack), "broker", str(self.folder), self.namesrv, str(self.port), *words]
        _launch(command, self.folder, "broker", self.port)

    def kill(self) -> None:
        """Kill it. Returns when it is gone; it may be gone already."""
        _kill(self.folder / "broker.pid")

    def stop(self) -> None:
        """Stop it cleanly; it unregisters. It may be gone already."""
        _run([str(self.stack), "stop", str(self.folder)])


def _kill(pid_file: Path) -> None:
    """Returns when the process is gone, and the file with it."""
    try:
        process = os.pidfd_open(int(pid_file.read_text()))
    except (FileNotFoundError, ProcessLookupError):
        return
    with open(process, "rb", buffering=0):
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [], STOP_TIMEOUT_S)
    pid_file.unlink()


def _digest(folder: Path) -> str:
    """A digest of all sources, so that changed ones are rebuilt."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "target" not in path.parts:
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(source: Path, built: Path) -> None:
    """Build in a temporary folder that is renamed at the end, so that an interrupted build leaves nothing."""
    work = built.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work, ignore=shutil.ignore_patterns("target"))
    for path in [work, *work.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)  # the source may be readable only, and the copy is built in
    _run(["mvn", "-q", "-B", "-f", str(work / "java" / "pom.xml"), "package"])
    work.rename(built)


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    import fcntl  # not on Windows, which has no scripts for Java's programs either

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _launch(command: list[str], folder: Path, name: str, port: int) -> None:
    """Start a server by the script. Returns when it serves."""
    try:
        _run(command)
    except AssertionError:
        # The script takes a process for one that ended if it looks before that has become Java.
        pid_file, out = folder / f"{name}.pid", folder / f"{name}.out"
        deadline = time.monotonic() + START_TIMEOUT_S
        while (
            time.monotonic() < deadline and pid_file.exists() and Path("/proc", pid_file.read_text().strip()).exists()
        ):
            if "boot success" in out.read_text() and _listens(port):
                return
            time.sleep(0.1)
        raise


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _run(command: list[str]) -> str:
    # The script knows its servers by their command line, of which ps shows 80 characters without a terminal.
    wide = {**os.environ, "COLUMNS": "100000"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False, env=wide)
    if ended.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout
