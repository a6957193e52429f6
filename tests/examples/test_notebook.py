"""The notebook's cells, run in order in a separate process, as by a reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "spark" / "orders.ipynb"


@pytest.mark.slow
@pytest.mark.spark
def test_the_notebook_runs_and_gives_its_documented_results(tmp_path: Path) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    program = "\n\n".join("".join(cell["source"]) for cell in cells)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    # 270 orders were paid, one in ten was not; the payment that came an hour late no longer finds an order.
    assert "270 paid orders in Parquet" in done.stdout
    assert "270 messages in the topic Paid; Row(keys=['order-" in done.stdout
    assert Path(done.stdout.partition("drawn: ")[2].strip()).read_bytes().startswith(b"\x89PNG")


def test_the_notebook_is_stored_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        assert not cell.get("outputs"), cell["id"]
