"""Official RocketMQ 5 clients of other languages against our endpoint: Go, C++ and C# over TLS, their default; Node,
Rust and again C++ and C# in plain text.

CLIENTS5 names a directory with the programs built as described in `clients5/README.md`; missing ones are skipped by
name.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketlet.tools.admin.__main__ import mqadmin
from rocketlet.tools.local import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack

pytestmark = pytest.mark.interop

PROGRAMS = Path(__file__).parent / "clients5"
BUILT = Path(os.environ.get("CLIENTS5", "/nowhere"))
SETTINGS = {"transactionCheckInterval": "3000", "transactionTimeOut": "2000", "recallMessageEnable": "true"}
TOPICS = {"Normal": "NORMAL", "Fifo": "FIFO", "Delay": "DELAY", "Transaction": "TRANSACTION", "Push": "NORMAL"}
COMMANDS = {
    "go": (BUILT / "go" / "clients5", ["{built}"]),
    "node": (BUILT / "node" / "node_modules" / "rocketmq-client-nodejs", ["node", str(PROGRAMS / "node" / "main.js")]),
    "cpp": (BUILT / "cpp" / "clients5", ["{built}"]),
    "cpp plain": (BUILT / "cpp" / "clients5", ["{built}"]),
    "csharp": (BUILT / "csharp" / "clients5", ["{built}"]),
    "csharp plain": (BUILT / "csharp" / "clients5", ["{built}"]),
    "rust": (BUILT / "rust" / "target" / "debug" / "clients5", ["{built}"]),
}


@pytest.fixture
def stack() -> Iterator[ThreadStack]:
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0, settings=SETTINGS)) as running:
        for topic, kind in TOPICS.items():
            arguments = ["updateTopic", "-n", running.namesrv, "-c", "DefaultCluster", "-t", topic]
            done = CliRunner().invoke(mqadmin, [*arguments, "-a", f"+message.type={kind}"])
            assert done.exit_code == 0, done.output
        yield running


@pytest.mark.parametrize("language", COMMANDS)
def test_every_message_type_is_sent_received_and_acknowledged(language: str, request: pytest.FixtureRequest) -> None:
    needed, command = COMMANDS[language]
    if not needed.exists():
        pytest.skip(f"missing: {needed} (CLIENTS5, see {PROGRAMS.name}/README.md)")
    stack: ThreadStack = request.getfixturevalue("stack")
    for name in ("go", "node", "cpp", "csharp", "rust"):
        arguments = ["updateSubGroup", "-n", stack.namesrv, "-c", "DefaultCluster", "-g", f"{name}-Fifo", "-o", "true"]
        assert CliRunner().invoke(mqadmin, arguments).exit_code == 0
    ended = subprocess.run(
        [*(word.format(built=needed) for word in command), stack.endpoints, *language.split()[1:]],
        env={**os.environ, "NODE_PATH": str(BUILT / "node" / "node_modules")},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    verdicts = [line for line in ended.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    assert [line for line in verdicts if not line.startswith("PASS")] == [], ended.stdout + ended.stderr
    assert len(verdicts) >= 4, ended.stdout + ended.stderr
