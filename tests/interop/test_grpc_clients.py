"""The official clients of RocketMQ 5 against our endpoint: all scenarios, Python's in plain text, Java's over TLS.

They mostly wait, so both programs run at once; failed scenarios run once more alone, because a busy machine is slow.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.java_programs import REPOSITORY, RUN_TIMEOUT_S, JavaPrograms, Missing

pytestmark = pytest.mark.interop

# As required by the programs, for Java's stack too.
SETTINGS = {
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "2000",
    "recallMessageEnable": "true",
}


@pytest.fixture(scope="module")
def stack() -> Iterator[ThreadStack]:
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0, settings=SETTINGS)) as running:
        yield running


def failures(command: list[str], stack: ThreadStack, *names: str) -> list[str]:
    """The failures, each with its reason."""
    where = ["--endpoints", stack.endpoints, "--namesrv", stack.namesrv, "--jobs", "12"]
    ended = subprocess.run(
        [*command, *where, *names], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    passed = re.search(r"(\d+) of (\d+) passed", ended.stdout)
    assert passed, ended.stdout + ended.stderr
    assert names or int(passed[2]) > 30
    return [line.removeprefix("FAIL ") for line in ended.stdout.splitlines() if line.startswith("FAIL")]


def failures_also_alone(command: list[str], stack: ThreadStack) -> list[str]:
    first = failures(command, stack)
    return failures([*command], stack, *(line.split(" ")[0] for line in first)) if first else []


def test_the_python_client_and_the_java_client_pass(stack: ThreadStack, java: JavaPrograms) -> None:
    commands = []
    scenarios = Path(os.environ.get("INTEROP") or REPOSITORY.parent / "shared" / "interop") / "grpc/python/scenarios.py"
    if find_spec("rocketmq") is not None and scenarios.exists():
        commands.append([sys.executable, str(scenarios)])
    try:
        commands.append(["java", "-jar", str(java.grpc_jar()), "--tls"])
    except Missing as missing:
        if not commands:
            pytest.skip(str(missing))
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(failures_also_alone, command, stack) for command in commands]
        assert [run.result() for run in runs] == [[]] * len(commands)
