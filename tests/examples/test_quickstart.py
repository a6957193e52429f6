"""`make quickstart` as run by a newcomer, without the installation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.process
def test_from_a_clone_to_a_consumed_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "examples/quickstart/run.py"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    sent = re.findall(r"^sent +(Hello \d) .*SEND_OK$", done.stdout, re.M)
    consumed = re.findall(r"^consumed +(Hello \d) ", done.stdout, re.M)
    assert sent == [f"Hello {number}" for number in range(1, 6)]
    assert sorted(consumed) == sent
    assert done.stdout.index("sent ") < done.stdout.index("consumed ")
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
