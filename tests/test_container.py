"""The container file and the compose file, tested without an engine: they are valid, and their steps run.

The image's own steps (a wheel with everything, an installation from nothing else, the command, the health check) run in
a clean virtual environment; what only an engine does (users, volumes, the network) is only checked in the text.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.ports import free_port

ROOT = Path(__file__).parent.parent
CONTAINERFILE = ROOT / "container" / "Containerfile"
COMPOSE = ROOT / "container" / "compose.yaml"


def instructions() -> list[tuple[str, str]]:
    """Instruction and argument, lines joined, comments gone."""
    text = "\n".join(line for line in CONTAINERFILE.read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in lines) if word]


def last(word: str) -> str:
    return [rest for name, rest in instructions() if name == word][-1]


def command(text: str) -> list[str]:
    """The exec form; the shell form would hide signals from the server."""
    found: list[str] = json.loads(text)
    return found


def test_the_image_is_plain_small_and_not_run_as_root() -> None:
    froms = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert froms == ["python:3.12-slim"] * 2
    words = [word for word, _ in instructions()]
    assert "ADD" not in words
    assert last("USER") == "rocketlet"
    assert "--no-cache-dir" in last("RUN")
    final = words[len(words) - words[::-1].index("FROM") :]
    assert "COPY" not in final, "wheels are mounted, so that no layer holds them"
    assert final.index("USER") < final.index("CMD")
    assert last("VOLUME") == last("WORKDIR") == "/var/lib/rocketlet"
    assert set(last("EXPOSE").split()) == {"9876", "10911", "10909"}


def test_it_runs_commands_that_the_package_installs() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert command(last("CMD"))[0] in scripts
    health = last("HEALTHCHECK")
    assert command(health[health.index("CMD") + 3 :])[0] in scripts


def test_the_build_context_holds_only_what_the_wheel_needs() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    hook = wheel["hooks"]["custom"]
    packages = {*wheel["packages"], *hook["parts"]}
    needed = {"pyproject.toml", hook["path"], project["project"]["readme"], *project["project"]["license-files"]}
    assert kept == packages | needed
    assert all((ROOT / name).exists() for name in kept)


def test_the_compose_file_is_valid() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the compose file; mkdocs brings it along")
    compose = yaml.safe_load(COMPOSE.read_text())
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(compose["services"]) == {"namesrv", "broker"}
    for name, service in compose["services"].items():
        assert service["image"] == "rocketlet"
        assert service["command"][0] in scripts
        assert service["healthcheck"]["test"][1] in scripts
        assert service["volumes"] == [f"{name}:/var/lib/rocketlet"]
        assert name in compose["volumes"]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    build = compose["services"]["namesrv"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == CONTAINERFILE.resolve()


@pytest.mark.process
@pytest.mark.parametrize("service", ["namesrv", "broker"])
def test_the_servers_of_the_compose_file_take_their_flags(service: str) -> None:
    (part,) = re.findall(rf"^  {service}:\n(.*?)^(?:  \w|\w)", COMPOSE.read_text(), re.M | re.S)[:1]
    flags = [
        flag.replace("${ROCKETLET_ADVERTISE:-127.0.0.1}", "127.0.0.1") for flag in re.findall(r"- (--\S+=\S+)", part)
    ]
    done = subprocess.run(
        [sys.executable, "-m", f"rocketlet.{service}", "-p", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "bindAddress=0.0.0.0" in done.stdout
    assert "/var/lib/rocketlet/" in done.stdout


@pytest.mark.slow
def test_the_steps_run_in_a_clean_environment(tmp_path: Path) -> None:
    wheels, venv, home = tmp_path / "wheels", tmp_path / "venv", tmp_path / "home"
    home.mkdir()
    build, install = (rest for word, rest in instructions() if word == "RUN")
    words = build.replace("/wheels", str(wheels)).split()
    subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, capture_output=True, timeout=900)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    install = install[install.index("pip install") : install.index("&&")].replace("/wheels", str(wheels))
    program = [venv / "bin" / "python", "-m", *install.split()]
    environment = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(home), "PYTHONUNBUFFERED": "1"}
    subprocess.run(program, env=environment, check=True, capture_output=True, timeout=900)
    size = sum(path.stat().st_size for path in (venv / "lib").rglob("*") if path.is_file() and "pip" not in path.parts)
    assert size < 150 << 20
    free = str(free_port())
    up = [word.replace("/var/lib/rocketlet", str(home)) for word in command(last("CMD"))]
    with subprocess.Popen(
        [*up, "--port", "0", "--broker-port", free, "--print-addr"],
        env=environment | {"ROCKETLET_ADVERTISE": "127.0.0.1"},
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            namesrv = server.stdout.readline().strip()
            health = last("HEALTHCHECK")
            check = health[health.index("CMD") + 3 :].replace("127.0.0.1:9876", namesrv).replace("10911", free)
            for line in (command(check), ["rocketlet", "send", "T", "hi", "-n", namesrv]):
                done = subprocess.run(line, env=environment, cwd=home, capture_output=True, text=True, timeout=300)
                assert done.returncode == 0, done.stderr
        finally:
            server.terminate()
    assert server.returncode == 0
    assert [path.name for path in home.iterdir()] == ["broker-a"]


def test_no_registry_is_named() -> None:
    for path in (CONTAINERFILE, COMPOSE):
        assert not re.search(r"(docker|ghcr|quay|gcr)\.io", path.read_text())


def test_the_failover_compose_file_is_valid() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the compose file; mkdocs brings it along")
    from rocketlet.broker.config import BrokerConfig
    from rocketlet.common.config_file import load
    from rocketlet.failover.config import FailoverConfig
    from rocketlet.store.config import StoreConfig

    services = yaml.safe_load((ROOT / "container" / "failover.yaml").read_text())["services"]
    replicas = set()
    for name in ("broker-1", "broker-2", "broker-3"):
        loaded = load(BrokerConfig, StoreConfig, FailoverConfig, environment=services[name]["environment"])
        config, broker = loaded[FailoverConfig], loaded[BrokerConfig]
        assert config.failover_enable
        assert {endpoint.partition("://")[2].partition(":")[0] for endpoint in config.etcd_endpoints} <= set(services)
        assert (broker.broker_name, broker.broker_ip1, broker.namesrv_addr) == ("broker-a", name, ("namesrv:9876",))
        replicas.add(config.replica_id)
    assert replicas == {1, 2, 3}
    for name in ("etcd-1", "etcd-2", "etcd-3"):
        assert f"{name}=http://{name}:2380" in services[name]["environment"]["ETCD_INITIAL_CLUSTER"]
