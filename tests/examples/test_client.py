"""The examples of the client, each run as a user would, against one stack."""

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
    with local_stack(max_message_size=4 << 20, mapped_file_size_commit_log=64 << 20) as address:
        yield address


def said(namesrv: str, example: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, f"examples/client/{example}.py"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": str(ROOT), "NAMESRV_ADDR": namesrv},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_many_in_flight(namesrv: str) -> None:
    told = " ".join(said(namesrv, "many_in_flight"))
    assert "2000 single sends stored" in told
    assert "20000 messages stored in" in told
    assert "the callback knows too: SEND_OK" in told


def test_in_order(namesrv: str) -> None:
    assert said(namesrv, "in_order") == [f"order-{n}: created, paid, packed, shipped" for n in range(5)]


def test_once_per_key(namesrv: str) -> None:
    assert said(namesrv, "once_per_key") == ["charged: payment-1, payment-2, payment-3"]


@pytest.mark.parametrize("example", ["with_trio", "with_asyncio"])
def test_event_loops(namesrv: str, example: str) -> None:
    assert said(namesrv, example) == [f"consumed {list(range(10))}"]
