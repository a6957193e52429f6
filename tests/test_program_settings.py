"""The settings of the two servers as users see them: files, defaults, `-p`, and the page about them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlet.common import java_properties
from rocketlet.common.command_line import read
from rocketlet.common.config_file import load, read_file
from rocketlet.common.settings import Setting, settings_of
from rocketlet.tools import settings_table
from rocketlet.tools.settings_table import PROGRAMS

ROOT = Path(__file__).parent.parent
FILES = {
    "namesrv.conf": "mqnamesrv",
    "broker.conf": "mqbroker",
    "broker-sync-flush.conf": "mqbroker",
    "broker-small.conf": "mqbroker",
}
MODULES = {"mqnamesrv": "namesrv", "mqbroker": "broker"}

# Defaults that differ from RocketMQ's, and why.
OTHER_DEFAULTS = {
    "enablePropertyFilter": "SQL92 filters are on",
    "waitTimeMillsInSendQueue": "here a stop of the process counts, and a client gives up on the answer (broker.md)",
    "haListenPort": "it is listenPort + 1, which 10912 is for the default alone",
    # Machine-dependent, and so left out of the recorded lists.
    "rocketmqHome": "",
    "kvConfigPath": "",
    "configStorePath": "",
    "storePathRootDir": "",
}


def settings(program: str) -> dict[str, Setting]:
    return {one.key: one for config_type in PROGRAMS[program] for one in settings_of(config_type)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_default_is_rocketmqs_or_has_a_reason(vectors: Path, program: str) -> None:
    listing = "namesrv-defaults" if program == "mqnamesrv" else "broker-defaults"
    recorded = java_properties.as_dict((vectors / f"config/{listing}.properties").read_text())
    ours = {key: one.format(one.default) for key, one in settings(program).items() if key in recorded}
    different = {key: (value, recorded[key]) for key, value in ours.items() if value != recorded[key]}
    assert {key: pair for key, pair in different.items() if key not in OTHER_DEFAULTS} == {}


@pytest.mark.parametrize(("listing", "program"), [("namesrv-defaults", "mqnamesrv"), ("broker-defaults", "mqbroker")])
def test_javas_printed_settings_are_a_file_we_read(vectors: Path, listing: str, program: str) -> None:
    loaded = load(*PROGRAMS[program], file=read_file(vectors / f"config/{listing}.properties"))
    assert all("is not served" in warning for warning in loaded.warnings)


@pytest.mark.parametrize(("name", "program"), FILES.items())
def test_the_files_in_conf_are_valid(name: str, program: str) -> None:
    loaded = load(*PROGRAMS[program], file=read_file(ROOT / "conf" / name), environment={"HOME": "/home/me"})
    assert loaded.warnings == ()


def test_every_file_in_conf_is_tested() -> None:
    assert {path.name for path in (ROOT / "conf").glob("*.conf")} == set(FILES)


@pytest.mark.parametrize("program", PROGRAMS)
def test_flags_and_keys_do_not_collide(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read(program, "A server.", PROGRAMS[program], arguments=["-p"], environment={})
    assert caught.value.code == 0
    assert set(java_properties.as_dict(capsys.readouterr().out)) == set(settings(program))


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"rocketlet.{module}", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/home/me", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.process
@pytest.mark.parametrize(("program", "module"), MODULES.items())
def test_the_program_prints_every_setting_with_its_origin(program: str, module: str) -> None:
    done = run(module, "-p", "--listen-port", "4000", ROCKETLET_LOG_LEVEL="ERROR")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(java_properties.as_dict(done.stdout)) == set(settings(program))
    lines = done.stdout.splitlines()
    for number, line in enumerate(lines):
        if line and not line.startswith("#"):
            assert lines[number - 1].startswith("# ["), line
    assert lines[lines.index("listenPort=4000") - 1].startswith("# [flag --listen-port] ")
    assert lines[lines.index("logLevel=ERROR") - 1].startswith("# [environment ROCKETLET_LOG_LEVEL] ")


@pytest.mark.process
@pytest.mark.parametrize(("program", "module"), MODULES.items())
def test_the_program_refuses_a_misspelt_key(program: str, module: str, tmp_path: Path) -> None:
    path = tmp_path / "my.conf"
    path.write_text("listnPort=9876\n")
    done = run(module, "-c", str(path))
    assert done.returncode == 2
    assert done.stderr == f"{program}: {path} line 1: unknown setting listnPort; did you mean listenPort?\n"


def test_the_page_of_settings_is_up_to_date() -> None:
    assert settings_table.PAGE.read_text("utf-8") == settings_table.page(), "run: make docs"
