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
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.memory_folder import account, accounts

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
        make_topics(running)
        yield running


@pytest.mark.parametrize("language", COMMANDS)
def test_every_message_type_is_sent_received_and_acknowledged(language: str, request: pytest.FixtureRequest) -> None:
    needed, command = found(language)
    stack: ThreadStack = request.getfixturevalue("stack")
    for name in ("go", "node", "cpp", "csharp", "rust"):
        arguments = ["updateSubGroup", "-n", stack.namesrv, "-c", "DefaultCluster", "-g", f"{name}-Fifo", "-o", "true"]
        assert CliRunner().invoke(mqadmin, arguments).exit_code == 0
    run(needed, command, stack, *language.split()[1:])


def test_the_csharp_client_signs_local_time(tmp_path: Path) -> None:
    needed, command = found("csharp plain")
    admin = {"ACCESS_KEY": "operator", "SECRET_KEY": "battery-staple"}
    (tmp_path / "plain_acl.yml").write_text(
        accounts(
            account("billing-1", topics=tuple(f"{topic}=PUB|SUB" for topic in TOPICS), group="SUB"),
            account(admin["ACCESS_KEY"], secret=admin["SECRET_KEY"], admin=True),
        )
    )
    (tmp_path / "tools.yml").write_text(f"accessKey: {admin['ACCESS_KEY']}\nsecretKey: {admin['SECRET_KEY']}\n")
    signed = {"aclEnable": "true", "aclConfigDir": str(tmp_path)}
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0, settings=SETTINGS | signed)) as stack:
        make_topics(stack, {f"ROCKETLET_{name}": value for name, value in admin.items()})
        credentials = {"ROCKETMQ_ACCESS_KEY": "billing-1", "ROCKETMQ_SECRET_KEY": "correct-horse"}
        run(needed, command, stack, "plain", TZ="Asia/Shanghai", **credentials)


def found(language: str) -> tuple[Path, list[str]]:
    needed, command = COMMANDS[language]
    if not needed.exists():
        pytest.skip(f"missing: {needed} (CLIENTS5, see {PROGRAMS.name}/README.md)")
    return needed, command


def make_topics(stack: ThreadStack, environment: dict[str, str] | None = None) -> None:
    for topic, kind in TOPICS.items():
        arguments = ["updateTopic", "-n", stack.namesrv, "-c", "DefaultCluster", "-t", topic]
        done = CliRunner().invoke(mqadmin, [*arguments, "-a", f"+message.type={kind}"], env=environment)
        assert done.exit_code == 0, done.output


def run(needed: Path, command: list[str], stack: ThreadStack, *arguments: str, **environment: str) -> None:
    ended = subprocess.run(
        [*(word.format(built=needed) for word in command), stack.endpoints, *arguments],
        env={**os.environ, "NODE_PATH": str(BUILT / "node" / "node_modules"), **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    verdicts = [line for line in ended.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    assert [line for line in verdicts if not line.startswith("PASS")] == [], ended.stdout + ended.stderr
    assert len(verdicts) >= 4, ended.stdout + ended.stderr
