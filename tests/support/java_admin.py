"""RocketMQ's mqadmin as one process for many commands: to start a JVM for each takes longer than the commands."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Self

from tests.support.java_programs import JavaPrograms

RUNNER = Path(__file__).parents[1] / "interop" / "RunAdmin.java"
CLOSE_SECONDS = 60


class JavaAdmin:
    """See the module. `folder` gets what commands and client leave behind; `seconds` is for commands without an end.

    It has the accounts of the Java programs' folder, as mqadmin has, if there are any.
    """

    def __init__(self, java: JavaPrograms, folder: Path, seconds: int = 300) -> None:
        options = [f"-Dseconds={seconds}", f"-Drocketmq.client.logRoot={folder}", f"-Duser.home={folder}"]
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", *options, "-cp", str(java.jar), str(RUNNER)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,  # where consumerStatus leaves files
            env={**os.environ, "ROCKETMQ_HOME": str(java.stack.parent)},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=CLOSE_SECONDS)

    def __call__(self, *words: str) -> str:
        """What a command prints."""
        return self.both(*words)[0]

    def both(self, *words: str) -> tuple[str, str]:
        """What a command prints on stdout and stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        output = json.loads(self._process.stdout.readline())
        return output["out"], output["err"]
