"""Our own client through the official client's scenarios, against a Java name server and brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.python_scenarios.catalogue import all_scenarios
from tests.support.java_programs import QUICK_BROKER, REPOSITORY, JavaPrograms

pytestmark = pytest.mark.interop

GROUPS = list(dict.fromkeys(one.group for one in all_scenarios()))
PATIENCE = 4  # times as long a limit as alone on a quiet machine


@pytest.fixture(scope="module")
def java_stack(java: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server and two brokers of RocketMQ; its address."""
    folder = tmp_path_factory.mktemp("java")
    with (
        java.name_server(folder / "namesrv") as address,
        java.broker(folder / "a", address, brokerName="broker-a", **QUICK_BROKER),
        java.broker(folder / "b", address, brokerName="broker-b", **QUICK_BROKER),
    ):
        yield address


def run_group(namesrv: str, group: str, folder: Path) -> dict[str, str]:
    """The failures, with reasons. As with the official client, they are run once more, alone: a busy machine is
    slow."""
    first = outcomes_of(namesrv, folder, group)
    assert len(first) == sum(one.group == group for one in all_scenarios())
    failed = [one["name"] for one in first if one["verdict"] != "PASS"]
    again = outcomes_of(namesrv, folder, *failed) if failed else []
    return {one["name"]: one["why"] for one in again if one["verdict"] != "PASS"}


def outcomes_of(namesrv: str, folder: Path, *names: str) -> list[dict[str, str]]:
    report = folder / f"{names[0]}.json"
    program = [sys.executable, "-m", "tests.interop.python_scenarios", "--namesrv", namesrv, "--json", str(report)]
    ended = subprocess.run(
        [*program, "--slow", str(PATIENCE), *names], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert report.exists(), ended.stderr
    found: list[dict[str, str]] = json.loads(report.read_text())["scenarios"]
    return found


@pytest.fixture(scope="module")
def runs(java_stack: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[dict[str, str]]]]:
    """All groups run at once; they mostly wait."""
    with ThreadPoolExecutor(len(GROUPS)) as pool:
        yield {group: pool.submit(run_group, java_stack, group, tmp_path_factory.mktemp(group)) for group in GROUPS}


@pytest.mark.parametrize("group", GROUPS)
def test_our_client_works_on_a_java_stack(runs: dict[str, Future[dict[str, str]]], group: str) -> None:
    assert runs[group].result() == {}


def test_every_scenario_of_the_official_client_has_a_twin(java: JavaPrograms) -> None:
    listed = subprocess.run(["java", "-jar", str(java.jar), "--list"], capture_output=True, text=True, check=True)
    theirs = [tuple(line.split()[:2]) for line in listed.stdout.splitlines()]
    assert sorted(theirs) == sorted((one.group, one.name) for one in all_scenarios())


def test_the_quickstart_works_on_a_java_stack(java_stack: str) -> None:
    environment = {**os.environ, "NAMESRV_ADDR": java_stack, "PYTHONPATH": str(REPOSITORY)}
    said = [
        subprocess.run(
            [sys.executable, f"examples/quickstart/{program}.py"],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.splitlines()
        for program in ("producer", "consumer")
    ]
    sent, consumed = ({line.partition("Hello")[2].split()[0] for line in lines} for lines in said)
    assert sent == consumed == set("12345")
