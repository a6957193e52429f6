"""Our own client through the official client's scenarios, against a Java name server and brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.python_scenarios.catalogue import all_scenarios
from tests.support.java_programs import REPOSITORY, JavaPrograms

pytestmark = pytest.mark.interop

GROUPS = list(dict.fromkeys(one.group for one in all_scenarios()))
QUICK = {"transactionCheckInterval": 2000, "transactionTimeOut": 1000, "traceTopicEnable": "true"}


@pytest.fixture(scope="module")
def java_stack(java: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server and two brokers of RocketMQ; its address."""
    folder = tmp_path_factory.mktemp("java")
    with (
        java.name_server(folder / "namesrv") as address,
        java.broker(folder / "a", address, brokerName="broker-a", **QUICK),
        java.broker(folder / "b", address, brokerName="broker-b", **QUICK),
    ):
        yield address


@pytest.mark.parametrize("group", GROUPS)
def test_our_client_is_at_home_on_a_java_stack(java_stack: str, group: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = [sys.executable, "-m", "tests.interop.python_scenarios", "--namesrv", java_stack, "--json", str(report)]
    ended = subprocess.run([*program, group], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert report.exists(), ended.stderr
    outcomes = json.loads(report.read_text())["scenarios"]
    assert {one["name"]: one["why"] for one in outcomes if one["verdict"] != "PASS"} == {}
    assert len(outcomes) == sum(one.group == group for one in all_scenarios())


def test_every_scenario_of_the_official_client_has_its_twin(java: JavaPrograms) -> None:
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
