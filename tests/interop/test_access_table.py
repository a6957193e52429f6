"""RocketMQ's own validator decides every request of every caller as the decision table says."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from rocketlet.remoting.command import Command
from rocketlet.remoting.request_codes import request_name
from tests.access.decision_table import ACCOUNTS, BROKER, SAME, Places, cases
from tests.support.java_programs import JavaPrograms

pytestmark = pytest.mark.interop

JUDGE = Path(__file__).parent / "JudgeRequests.java"


def judged(java: JavaPrograms, home: Path, text: str, commands: list[Command], peer: str) -> list[str]:
    """Why RocketMQ refuses each request; empty if it does not."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(text)
    lines = [
        json.dumps({"code": one.code, "ext": one.ext or {}, "body": base64.b64encode(one.body).decode(), "peer": peer})
        for one in commands
    ]
    done = subprocess.run(
        ["java", f"-Drocketmq.home.dir={home}", f"-Drocketmq.client.logRoot={home}", "-cp", str(java.jar), str(JUDGE)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return [line.removeprefix("VERDICT ") for line in done.stdout.splitlines() if line.startswith("VERDICT")]


def test_the_java_column_is_what_java_does(java: JavaPrograms, tmp_path: Path) -> None:
    known = [case for case in cases(Places()) if BROKER[case.code][1] != SAME]
    verdicts = judged(java, tmp_path, ACCOUNTS, [case.command for case in known], "10.0.0.7:40000")
    assert len(verdicts) == len(known)
    wrong = [
        f"{request_name(case.code)} of {case.caller}: {verdict or 'is let in'}"
        for case, verdict in zip(known, verdicts, strict=True)
        if (verdict == "") != case.by_java
    ]
    assert not wrong, "\n".join(wrong)
