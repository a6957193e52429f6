"""The commands for a further backup, which docs/howto/backup.md gives: nothing is left out of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rocketlet import Message, Producer
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.docs.snippets import snippets

ROOT = Path(__file__).parents[2]
PAGE = Path("docs/howto/backup.md")
# Without a flush in between, a second write leaves the time of the file as it is.
SELDOM_FLUSHED = {"flushIntervalCommitLog": "60000"}
# The commands read whole files.
SMALL = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": "1000",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


def commands() -> list[str]:
    lines = [line for snippet in snippets(ROOT, PAGE) for line in snippet.text.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ rsync")]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("rsync") is None, reason="no rsync on this machine")
def test_a_message_after_the_last_backup_is_in_the_next_although_size_and_time_of_its_file_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = LocalSettings(directory="data", namesrv_port=0, broker_port=0, settings=SELDOM_FLUSHED | SMALL)
    with ThreadStack(settings) as stack, Producer("p", namesrv=stack.namesrv) as producer:
        for body in (b"the first backup has this", b"and the second this"):
            producer.send(Message("orders", body))
            for command in commands():
                subprocess.run(command.split(), check=True)
    (copied,) = (tmp_path / "backup" / "commitlog").iterdir()
    with copied.open("rb") as log:
        written = log.read()
    assert written.count(b"the first backup has this") == written.count(b"and the second this") == 1
