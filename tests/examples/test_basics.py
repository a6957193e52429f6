"""The examples of everyday use, each run as a user would, against one stack."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.local import LocalSettings
from tools.thread_stack import ThreadStack

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        yield stack.namesrv


def said(namesrv: str, *command: str) -> list[str]:
    """What a program prints, line by line, when it ends well."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": str(ROOT), "NAMESRV_ADDR": namesrv},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_asyncio(namesrv: str) -> None:
    assert said(namesrv, "examples/async/with_asyncio.py") == [
        "sent      100 messages",
        "consumed  100 messages, their sum is 4950",
    ]


def test_trio(namesrv: str) -> None:
    lines = said(namesrv, "examples/async/with_trio.py")
    assert sorted(lines) == [f"consumed  number {number}" for number in range(3)]


def test_ordered(namesrv: str) -> None:
    assert said(namesrv, "examples/basics/ordered.py") == [
        f"consumed  order-{number}: created, paid, packed, shipped" for number in (1, 2, 3)
    ]


def test_batch(namesrv: str) -> None:
    lines = said(namesrv, "examples/basics/batch.py")
    assert len(lines) > 1
    assert sum(int(line.split()[1]) for line in lines) == 1000


def test_tags(namesrv: str) -> None:
    assert said(namesrv, "examples/basics/tags.py") == [
        "consumed  sports: 1:0",
        "consumed  weather: rain",
        "consumed  weather: more rain",
        "consumed  sports: 2:0",
    ]


def test_broadcast(namesrv: str) -> None:
    assert sorted(said(namesrv, "examples/basics/broadcast.py")) == [
        "consumed  drop user 7 by cache-1",
        "consumed  drop user 7 by cache-2",
    ]


def test_pull(namesrv: str) -> None:
    *queues, everything = said(namesrv, "examples/basics/pull.py")
    assert len(queues) == 4
    assert everything == f"read      {list(range(10))}"


def test_iterate(namesrv: str) -> None:
    words = ["consumed  one", "consumed  two", "consumed  three"]
    assert said(namesrv, "examples/basics/iterate.py") == [*words, "back to the begin", *words]


def test_the_web_service(namesrv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flask", reason="flask is not installed; the dev extra has it")
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "web"))
    import app  # type: ignore[import-not-found]

    client = app.app.test_client()
    taken = client.post("/orders", json={"item": "anvil"})
    assert taken.status_code == 202
    order = client.get(f"/orders/{taken.json['id']}")
    assert (order.status_code, order.json["item"]) == (200, "anvil")
    assert client.get("/orders/none").status_code == 404
    app.producer().shutdown()


def test_the_tests_of_an_application(namesrv: str) -> None:
    lines = said(namesrv, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/testing")
    assert "3 passed" in lines[-1]
