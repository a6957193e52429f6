"""`rocketlet up` as a process: its output, its clients, what survives it, and its cost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketlet.client import ConsumeFrom, LitePullConsumer, Message, Producer

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent.parent
FREE_PORTS = ("--port", "0", "--broker-port", "0")


@contextmanager
def up(*arguments: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A running `rocketlet up` with unread output; stopped at the end unless it has ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketlet.tools", "up", *arguments],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=300)


def children_of(pid: int) -> list[int]:
    """Each thread has a list of its own."""
    return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().rstrip()
    assert line or process.stderr is None, process.stderr.read()
    return line


def greeting(process: subprocess.Popen[str], until: str) -> str:
    """The greeting for people, up to the line with these words."""
    lines = [first_line(process)]
    while until not in lines[-1]:
        lines.append(first_line(process))
    return "\n".join(lines)


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The output of `--json`."""
    found: dict[str, Any] = json.loads(first_line(process))
    return found


def bodies(namesrv: str, topic: str, count: int) -> list[bytes]:
    with LitePullConsumer(
        "up-readers", topics={topic: "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        found = []
        for message in consumer:
            found.append(message.body)
            if len(found) == count:
                break
    return sorted(found)


def test_the_greeting_for_people(tmp_path: Path) -> None:
    with up(*FREE_PORTS, directory=tmp_path) as process:
        said = greeting(process, "--listen")
        process.send_signal(signal.SIGINT)
        last, errors = process.communicate(timeout=300)
    assert (process.returncode, last, errors) == (0, "SIGINT: stopping\n", "")
    assert said.startswith("Rocketlet is ready.\n")
    assert "clients are told broker-a at 127.0.0.1:" in said
    assert re.search(r"metrics +http://127\.0\.0\.1:\d+/metrics", said)
    assert f"data          {tmp_path}/rocketlet-data" in said
    assert f"Ctrl-C, or kill {process.pid}" in said
    assert "It listens on this host only; --listen 0.0.0.0" in said


def brokers_of(producer: Producer, topic: str) -> set[str]:
    """The brokers that take the sends to a new topic."""
    return {producer.send(Message(topic, b"%d" % number)).queue.broker_name for number in range(16)}


def test_brokers_in_processes_of_their_own_serve_one_cluster_and_end_together(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--brokers", "2", "--processes", "--json", directory=tmp_path) as process:
        told = ready(process)
        assert set(told["brokers"]) == {"broker-a", "broker-b"}
        # On a busy machine the second one may register only after the first topics were made.
        with Producer("up", namesrv=told["namesrv"]) as producer:
            assert any(brokers_of(producer, f"up-{attempt}") == {"broker-a", "broker-b"} for attempt in range(100))
        if Path("/proc/self/task").exists():
            assert len(children_of(process.pid)) == 2
        process.terminate()
        _, said = process.communicate(timeout=300)
        assert (process.returncode, said) == (0, "")
        for address in told["brokers"].values():
            host, _, port = address.rpartition(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=60)


def test_a_dying_broker_process_ends_all_and_is_named(tmp_path: Path) -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("no /proc on this machine to find the broker's process in")
    with up(*FREE_PORTS, "--brokers", "2", "--processes", "--json", directory=tmp_path) as process:
        ready(process)
        first = children_of(process.pid)[0]
        os.kill(first, signal.SIGKILL)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 1
        assert f"process {first}, has ended with -9" in said


def test_all_metrics_are_on_one_page(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--memory", "--brokers", "2", "--json", directory=tmp_path) as process:
        told = ready(process)
        with Producer("up", namesrv=told["namesrv"]) as producer:
            producer.send(Message("up", b"1"))
        with urllib.request.urlopen(told["metrics"], timeout=300) as answer:
            families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
        with urllib.request.urlopen(told["metrics"].replace("/metrics", "/readyz"), timeout=300) as answer:
            assert answer.read() == b"ok\n"
    assert {one.labels["broker"] for one in families["rocketlet_broker_role"].samples} == {"broker-a", "broker-b"}
    assert [one.value for one in families["rocketlet_namesrv_brokers"].samples] == [2]
    assert sum(one.value for one in families["rocketmq_messages_in"].samples if one.labels["topic"] == "up") == 1


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (of Prometheus) is not on this machine")
def test_promtool_accepts_our_metric_names(tmp_path: Path) -> None:
    with (
        up(*FREE_PORTS, "--memory", "--json", directory=tmp_path) as process,
        urllib.request.urlopen(ready(process)["metrics"], timeout=300) as answer,
    ):
        text = answer.read()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode in (0, 3)  # 3: it reads the page, and dislikes some names
    # The exporter's names are given.
    complaints = [line for line in checked.stderr.decode().splitlines() if "rocketmq_" not in line.partition(" ")[0]]
    assert complaints == []


def test_metrics_can_be_disabled(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--memory", "--metrics-port", "-1", "--json", directory=tmp_path) as process:
        assert ready(process)["metrics"] == ""


def test_a_test_suite_in_any_language_gets_only_the_address(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--memory", "--print-addr", directory=tmp_path) as process:
        namesrv = first_line(process)
        with Producer("up", namesrv=namesrv) as producer:
            producer.send(Message("up", b"1"))
        process.terminate()
        said, errors = process.communicate(timeout=300)
    assert (process.returncode, said, errors) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_after_kill_9_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--json", directory=tmp_path) as process:
        producer = Producer("up", namesrv=ready(process)["namesrv"])
        producer.start()
        for number in range(20):
            producer.send(Message("up", b"%02d" % number))
        process.kill()
        process.wait(300)
        producer.shutdown()
    with up(*FREE_PORTS, directory=tmp_path) as process:
        # The first line depends on whether the last queue entry was written before the kill.
        assert "recovered     broker-a: " in greeting(process, "--listen")
    with up(*FREE_PORTS, "--json", directory=tmp_path) as process:
        told = ready(process)
        assert told["directory"] == str(tmp_path / "rocketlet-data")
        assert bodies(told["namesrv"], "up", 20) == [b"%02d" % number for number in range(20)]


@pytest.mark.parametrize(
    ("arguments", "host"),
    [
        (["--listen", "127.0.0.2"], "127.0.0.2"),
        (["--listen", "0.0.0.0"], "127.0.0.1"),
        (["--listen", "0.0.0.0"], "127.0.0.2"),
        (["--listen", "0.0.0.0", "--advertise", "localhost"], "127.0.0.1"),
        (["--listen", "0.0.0.0", "--advertise", "127.0.0.3"], "127.0.0.2"),
    ],
)
def test_clients_reach_it_by_the_address_they_get(tmp_path: Path, arguments: list[str], host: str) -> None:
    with up(*FREE_PORTS, "--memory", "--json", *arguments, directory=tmp_path) as process:
        told = ready(process)
        namesrv = f"{host}:{told['namesrv'].rpartition(':')[2]}"
        with Producer("up", namesrv=namesrv) as producer:
            assert producer.send(Message("up", b"hi")).status.name == "SEND_OK"
        assert bodies(namesrv, "up", 1) == [b"hi"]
        if "--advertise" in arguments:
            assert told["brokers"]["broker-a"].startswith(f"{arguments[-1]}:")


def test_an_open_stack_says_how_to_reach_it_from_elsewhere(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--memory", "--listen", "0.0.0.0", "--advertise", "10.1.2.3", directory=tmp_path) as process:
        said = greeting(process, "stop")
    assert "clients are told broker-a at 10.1.2.3:" in said
    assert "from elsewhere NAMESRV_ADDR=10.1.2.3:" in said


def test_an_address_in_use_is_one_line_with_advice(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--memory", "--print-addr", directory=tmp_path) as process:
        port = first_line(process).rpartition(":")[2]
        with up("--port", port, "--broker-port", "0", "--memory", directory=tmp_path) as second:
            said, errors = second.communicate(timeout=300)
    assert (second.returncode, said) == (1, "")
    assert errors.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}" in errors
    assert "choose with --port and --broker-port" in errors


def test_a_directory_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    with up(*FREE_PORTS, "--print-addr", directory=tmp_path) as process:
        first_line(process)
        with up(*FREE_PORTS, directory=tmp_path) as second:
            said, errors = second.communicate(timeout=300)
    assert (second.returncode, said) == (1, "")
    assert "another process has this store open" in errors


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_start_takes_little_memory(tmp_path: Path) -> None:
    """benchmarks/startup.py measures the time it takes."""
    with up(*FREE_PORTS, "--print-addr", directory=tmp_path) as process:
        first_line(process)
        most = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert most is not None
    assert int(most[1]) < 80 * 1024


@pytest.mark.parametrize(
    ("arguments", "without"),
    [
        (["rocketlet.tools", "--help"], ["trio", "msgspec", "numpy", "json", "asyncio"]),
        (["rocketlet.tools", "up", "--help"], ["trio", "msgspec", "numpy"]),
        (["rocketlet.tools.admin", "--help"], ["trio", "msgspec", "numpy"]),
        (["rocketlet.tools.admin", "topicList", "--help"], ["numpy", "pyspark"]),
    ],
)
def test_help_imports_next_to_nothing(arguments: list[str], without: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert not imported & set(without)


def test_a_start_imports_nothing_heavy(tmp_path: Path) -> None:
    program = "import sys, rocketlet.tools.up, rocketlet.tools.thread_stack; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"numpy", "pyspark", "asyncio", "pytest", "cProfile"}


def test_the_console_starts_and_ends_with_the_stack(tmp_path: Path) -> None:
    pytest.importorskip("hypercorn", reason="the extra console is not installed")
    with up(*FREE_PORTS, "--metrics-port", "-1", "--console", directory=tmp_path) as process:
        said = greeting(process, "  console ")
        found = re.search(r"http://\S+", said.splitlines()[-1])
        assert found is not None, said
        with urllib.request.urlopen(found[0] + "/cluster", timeout=300) as answer:
            assert b"broker-a" in answer.read()
        process.terminate()
        assert process.wait(300) == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(found[0], timeout=60)
