"""The wheel does not conflict with a project whose own packages have the names of our folders.

It is built and installed without the package index: dependencies are shared with the environment of this run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.support.recorded_stores import STORES, unpack

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
FOLDERS = ["common", "remoting", "store", "namesrv", "broker", "client", "spark_jobs", "tools"]
SECONDS = 600  # hung; Spark alone takes two minutes where others keep both cores busy


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and nothing else of ours."""
    folder = tmp_path_factory.mktemp("installed")
    packages = environment_without_us(folder)
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    (wheel,) = folder.glob("*.whl")
    install(folder, str(wheel))
    assert (packages / "rocketlet" / "common").is_dir()
    return folder / "venv" / "bin"


def environment_without_us(folder: Path) -> Path:
    """A new environment below the folder, with the packages of this one. Returns its own site-packages."""
    missing = [name for name in ("build", "hatchling", "pip") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in this environment; the dev extra has all but pip, which venv brings")
    run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], folder)
    (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    shared = [path for path in sys.path if path.endswith("-packages")]
    # Lines of .pth files found there are not read, so an editable installation of this repository is not seen.
    (packages / "shared.pth").write_text("".join(f"{path}\n" for path in shared))
    return packages


def install(folder: Path, *what: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python"), "install", "--no-index"]
    run([*pip, "--no-deps", "--no-build-isolation", "--ignore-installed", *what], folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Eight packages of a stranger."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWNER = 'the stranger, {name}'\n")
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    """The project comes first on the import path of every program started from it."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    return {**kept, "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder)}


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def python(installed: Path, folder: Path, program: str) -> str:
    return run([str(installed / "python"), "-c", textwrap.dedent(program)], folder)


@contextmanager
def server(command: list[str], folder: Path) -> Iterator[IO[str]]:
    """Its output; it is stopped at the end, and must then exit cleanly."""
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)
    assert process.returncode == 0


@pytest.fixture
def namesrv(installed: Path, project: Path) -> Iterator[str]:
    """The address that `rocketlet up` prints."""
    up = [str(installed / "rocketlet"), "up", "--memory", "--port", "0", "--broker-port", "0", "--print-addr"]
    with server(up, project) as said:
        yield said.readline().strip()


def test_an_editable_installation_copies_nothing(tmp_path: Path) -> None:
    """A copy would be imported in place of the repository, and go stale."""
    packages = environment_without_us(tmp_path)
    install(tmp_path, "--editable", str(ROOT))
    assert not list(packages.rglob("*.py"))


def test_both_projects_find_their_own_packages(installed: Path, project: Path) -> None:
    program = f"""
        import importlib

        for name in {FOLDERS}:
            assert importlib.import_module(name).OWNER == f"the stranger, {{name}}"
            ours = importlib.import_module(f"rocketlet.{{name}}")
            assert not hasattr(ours, "OWNER"), name
            assert "venv" in ours.__file__, ours.__file__

        from rocketlet import Message, Producer
        from rocketlet.common.message import Message as Defined
        assert Message is Defined
        print(Producer.__module__)
    """
    assert python(installed, project, program).startswith("rocketlet.client.")


def test_the_general_name_gives_the_same_classes(installed: Path, tmp_path: Path) -> None:
    program = """
        import client, rocketlet
        from client import Message, Producer

        assert Producer is rocketlet.Producer
        assert [name for name in client.__all__ if getattr(client, name) is not getattr(rocketlet, name)] == []
        try:
            import client.errors
        except ModuleNotFoundError:
            print("no class exists twice")
    """
    assert python(installed, tmp_path, program) == "no class exists twice\n"


def test_pytest_runs_with_the_fixture(installed: Path, project: Path) -> None:
    (project / "test_orders.py").write_text(
        textwrap.dedent("""
        import tools
        from rocketlet import Message, Producer

        def test_sends(rocketmq):
            with Producer("g", namesrv=rocketmq.namesrv) as producer:
                assert producer.send(Message("T", tools.OWNER.encode())).status.name == "SEND_OK"
        """)
    )
    said = run([str(installed / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"], project)
    assert "1 passed" in said


def test_up_serves_command_line_and_clients(installed: Path, project: Path, namesrv: str) -> None:
    program = f"""
        import client, rocketlet
        with rocketlet.Producer("g", namesrv="{namesrv}") as producer:
            print(producer.send(rocketlet.Message("T", client.OWNER.encode())).status.name)
    """
    assert python(installed, project, program) == "SEND_OK\n"
    told = run([str(installed / "rocketlet"), "tail", "T", "--from-start", "--no-follow", "-n", namesrv], project)
    assert "the stranger, client" in told


def test_servers_of_rocketmqs_names_and_mqadmin(installed: Path, project: Path) -> None:
    files = ["--kvConfigPath", f"{project}/kv.json", "--configStorePath", f"{project}/namesrv.properties"]
    with server([str(installed / "mqnamesrv"), "--listenPort", "0", *files], project) as said:
        address = read_until(said, r"listening on ([^,\s]+)")
        broker = [str(installed / "mqbroker"), "-n", address, "--listenPort", "0", "--brokerName", "broker-a"]
        with server([*broker, "--storePathRootDir", f"{project}/data"], project) as said_too:
            read_until(said_too, "boot success()")
            assert "broker-a" in run([str(installed / "mqadmin"), "clusterList", "-n", address], project)


def read_until(said: IO[str], pattern: str) -> str:
    lines = []
    for line in said:
        lines.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("".join(lines))


@pytest.mark.spark
def test_a_spark_job(installed: Path, project: Path) -> None:
    """Its workers are separate processes, which import us too."""
    pytest.importorskip("pyspark", reason="no PySpark; the spark extra has it")
    store = unpack("clean", project / "data")
    program = f"""
        from rocketlet.spark_jobs.session import spark_session

        def owners(rows):
            import client, common
            return [client.OWNER, common.OWNER]

        spark = spark_session("stranger", master="local[1]")
        print(spark.read.format("commitlog").load("{store}").count())
        print(spark.sparkContext.parallelize([0], 1).mapPartitions(owners).collect())
    """
    records = json.loads((STORES / "clean" / "expected.json").read_text())["records"]
    count, owners = python(installed, project, program).splitlines()[-2:]
    assert int(count) == len(records)
    assert owners == "['the stranger, client', 'the stranger, common']"


def test_a_strict_type_checker_sees_our_types(installed: Path, tmp_path: Path) -> None:
    """A misspelt name too: strict checking would report an unused ignore."""
    pytest.importorskip("mypy", reason="no mypy; the dev extra has it")
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import client
        from rocketlet import Message, Producer, ReceivedMessage, SendResult

        def send(producer: Producer) -> SendResult:
            return producer.send(Message("T", b"hi"))

        def text(message: ReceivedMessage) -> str:
            return message.body.decode()

        with Producer("g", namesrv="127.0.0.1:9876") as producer:
            reveal_type(producer.send(Message("T", b"hi")))
            reveal_type(client.Producer)

        from rocketlet import Produzer  # type: ignore[attr-defined]
        """)
    )
    checker = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed / "python")]
    said = run([*checker, "--no-incremental", "program.py"], tmp_path)
    assert 'Revealed type is "rocketlet.client.' in said
    assert "send_result.SendResult" in said
    assert re.search(r'Revealed type is "def \(group: .*Producer"', said), said
    assert "Success" in said
