"""The units of conf/systemd are valid, and the programs accept their flags."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
MODULES = {"mqnamesrv": "rocketlet.namesrv", "mqbroker": "rocketlet.broker"}


def command(unit: Path) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(), re.M)
    return shlex.split(line)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
@pytest.mark.process
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for other in UNITS:  # one names the other
        (tmp_path / other.name).write_text(other.read_text().replace(command(other)[0], str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "rocketlet" in line]
    assert (done.returncode, ours) == (0, [])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_the_service_may_write_every_file_that_it_is_given(unit: Path) -> None:
    """Settings, too: a change while it runs is refused where their file cannot be written."""
    (state,) = re.findall(r"^StateDirectory=(.+)$", unit.read_text(), re.M)
    paths = [word.rpartition("=")[2] for word in command(unit)[1:] if "/" in word]
    assert len(paths) == 2
    assert [path for path in paths if not path.startswith(f"%S/{state}/")] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
@pytest.mark.process
def test_the_program_takes_its_flags(unit: Path, tmp_path: Path) -> None:
    program, *words = (word.replace("%S", str(tmp_path)).replace("%i", "small") for word in command(unit))
    name = Path(program).name
    assert name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    settings = Path(words[words.index("-c") + 1])
    settings.parent.mkdir()
    shutil.copy(ROOT / "conf" / settings.name, settings)
    done = subprocess.run(
        [sys.executable, "-m", MODULES[name], "-p", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    state = f"{tmp_path}/{unit.stem.replace('@', '-small')}/"
    assert state in done.stdout
