"""The tour of examples/spark, run as by a user: it ends with a broker serving what Spark rebuilt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.spark
@pytest.mark.slow
def test_the_tour(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/spark/explore_store.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "3000 records" in done.stdout
    assert "NOT GOOD" not in done.stdout
    assert "order-1234: Orders, queue" in done.stdout
    assert done.stdout.rstrip().endswith("3000 of 3000 orders in all")
    assert (tmp_path / "store.png").read_bytes().startswith(b"\x89PNG")
