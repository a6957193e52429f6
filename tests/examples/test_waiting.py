"""The examples of messages that wait, come back or must agree, each run as a user would, against one stack."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_stack import local_stack

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A stack that is in more of a hurry than one in earnest."""
    settings = {"transaction_time_out": 500, "transaction_check_interval": 500, "message_delay_level": "1s 2s 1s 1s"}
    with local_stack(**settings) as address:
        yield address


def said(namesrv: str, example: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, f"examples/waiting/{example}.py"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": str(ROOT), "NAMESRV_ADDR": namesrv},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_delayed(namesrv: str) -> None:
    *sent, first, second = said(namesrv, "delayed")
    assert len(sent) == 2
    assert first.startswith("consumed  a message of level 1 after ")
    assert second.startswith("consumed  a message of level 2 after ")
    assert 1.0 <= float(first.split()[-2]) < float(second.split()[-2])


def test_dead_letters(namesrv: str) -> None:
    *tries, dead = said(namesrv, "dead_letters")
    assert sorted(tries) == [
        "listener  got 'good', retry 0",
        "listener  got 'poison', retry 0",
        "listener  got 'poison', retry 1",
        "listener  got 'poison', retry 2",
    ]
    assert dead == "dead      'poison' of topic Retries, after 3 tries"


def test_transaction(namesrv: str) -> None:
    lines = said(namesrv, "transaction")
    assert lines[:3] == ["sent      alice: COMMIT", "sent      mallory: ROLLBACK", "sent      bob: UNKNOWN"]
    assert "checker   is asked about bob" in lines
    assert [line for line in lines if line.startswith("consumed")] == ["consumed  alice", "consumed  bob"]


def test_request_reply(namesrv: str) -> None:
    assert said(namesrv, "request_reply") == [
        "asked     apple, answer 3",
        "asked     pear, answer 4",
        "asked     melon, no answer",
    ]


def test_sql_filter(namesrv: str) -> None:
    *consumed, reason, shown, pointer = said(namesrv, "sql_filter")
    assert sorted(consumed) == ["consumed  anvil for 250", "consumed  safe for 700"]
    assert "unequal is written <>" in reason
    assert shown.strip().startswith("price != 250")
    assert pointer.index("^") == shown.index("!=")
