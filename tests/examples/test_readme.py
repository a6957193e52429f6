"""The programs in README.md run unchanged, except for the port of the name server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.quickstart.run import server

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    """The address of a name server that knows one broker."""
    store = str(tmp_path / "store")
    with (
        server("namesrv", "--listen-port", "0", "--kv-config-path", str(tmp_path / "kvConfig.json")) as address,
        server("broker", "-n", address, "--listen-port", "0", "--store-path-root-dir", store),
    ):
        yield address


@pytest.mark.process
def test_ten_lines_send_and_consume(namesrv: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    programs = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    producer, consumer = (program.replace("127.0.0.1:9876", namesrv) for program in programs[:2])
    assert namesrv in producer
    assert namesrv in consumer
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    sent = subprocess.run(
        [sys.executable, "-c", producer], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    assert "SEND_OK" in sent.stdout
    with subprocess.Popen(
        [sys.executable, "-c", consumer], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert line.endswith(" Hello, world\n")
