"""The signing official client and its mqadmin, against our broker and name server, and against a Java broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rocketlet.access.account_files import read_accounts
from tests.support.java_admin import JavaAdmin
from tests.support.java_programs import JavaPrograms
from tests.support.memory_folder import account, accounts
from tests.support.programs import REPOSITORY, Program, broker, name_server

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CLIENT = Path(__file__).parent / "SignedClient.java"
SECRET = "correct-horse"
SHORT = " ".join(["1s"] * 18)  # delay levels, for retries
TOPIC, GROUP = "signed", "signed-group"
ADMIN, GOOD, PUBLISHER = "operator", "worker-1", "publisher"
OUTCOMES = {
    "send": "OK",
    "send batch": "OK",
    "send in transaction": "OK",
    "publisher sends": "OK",
    "publisher sends elsewhere": "REFUSED 1",
    "wrong secret": "REFUSED 1",
    "unsigned": "REFUSED 1",
    "consume": "OK",
    "consume orderly": "OK",
    "lite pull": "OK",
    "publisher consumes": "nothing",
}


def plain_acl() -> str:
    groups = tuple(f"{GROUP}{suffix}=SUB" for suffix in ("", "-orderly", "-lite"))
    return "# of the test\n" + accounts(
        account(ADMIN, admin=True),
        account(GOOD, topics=(f"{TOPIC}=PUB|SUB",), groups=groups),
        account(PUBLISHER, topics=(f"{TOPIC}=PUB",)),
    )


@pytest.fixture
def signed(java: JavaPrograms, tmp_path: Path) -> JavaPrograms:
    """The Java programs with their own ROCKETMQ_HOME: accounts for a broker, and credentials for mqadmin."""
    home = tmp_path / "rocketmq-home"
    shutil.copytree(java.stack.parent, home, ignore=shutil.ignore_patterns("target"))
    (home / "conf" / "plain_acl.yml").write_text(plain_acl())
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ADMIN}\nsecretKey: {SECRET}\n")
    return replace(java, stack=home / "stack")


def conf_of(folder: Path) -> Path:
    """A folder of access control for our servers."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(plain_acl())
    (conf / "tools.yml").write_text(f"accessKey: {ADMIN}\nsecretKey: {SECRET}\n")
    return conf


@contextmanager
def ours(folder: Path, **settings: object) -> Iterator[tuple[str, str, Program]]:
    """The addresses of our name server and broker, both with access control."""
    more = {"aclEnable": "true", "aclConfigDir": conf_of(folder)}
    with (
        name_server(folder, **more) as (_, namesrv),
        broker(folder, namesrvAddr=namesrv, **more, **settings) as (program, address),
    ):
        yield namesrv, address, program


def outcomes(java: JavaPrograms, namesrv: str, folder: Path) -> dict[str, str]:
    """The official client's results, by step."""
    users = [f"{GOOD}:{SECRET}", f"{PUBLISHER}:{SECRET}", f"{GOOD}:another-secret"]
    done = subprocess.run(
        ["java", "-cp", str(java.jar), str(CLIENT), namesrv, TOPIC, GROUP, *users],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=folder,  # where the client writes its log
    )
    steps = [line.removeprefix("STEP ").split(": ", 1) for line in done.stdout.splitlines() if line.startswith("STEP")]
    assert steps, done.stdout + done.stderr
    return dict(steps)  # type: ignore[arg-type]


def mqadmin(*arguments: str, namesrv: str) -> str:
    """Our mqadmin, signing with keys from its environment."""
    done = subprocess.run(
        [sys.executable, "-m", "rocketlet.tools.admin", *arguments, "-n", namesrv],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ROCKETLET_ACCESS_KEY": ADMIN, "ROCKETLET_SECRET_KEY": SECRET},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def differences(found: dict[str, str]) -> list[str]:
    return [f"{step}: {found.get(step)}" for step, want in OUTCOMES.items() if not found.get(step, "").startswith(want)]


def test_the_official_client_against_ours_and_its_mqadmin(signed: JavaPrograms, tmp_path: Path) -> None:
    with (
        ours(tmp_path / "ours", messageDelayLevel=SHORT) as (namesrv, address, program),
        JavaAdmin(signed, tmp_path) as mqadmin_of_java,
    ):
        mqadmin_of_java("updateTopic", "-n", namesrv, "-b", address, "-t", TOPIC, "-r", "4", "-w", "4")
        found = outcomes(signed, namesrv, tmp_path)
        assert differences(found) == []
        assert "it needs signed-elsewhere=PUB in its topicPerms" in found["publisher sends elsewhere"]

        said = mqadmin_of_java(
            *("updateAclConfig", "-n", namesrv, "-b", address, "-a", "newcomer", "-s", "battery-staple"),
            *("-t", "signed=PUB,other=SUB", "-i", "DENY", "-u", "SUB", "-w", "127.0.0.1", "-m", "false"),
        )
        assert "success" in said
        path = tmp_path / "ours" / "conf" / "plain_acl.yml"
        text = path.read_text()
        assert text.startswith("# of the test\n")
        made = {one.access_key: one for one in read_accounts("plain_acl.yml", text.encode()).accounts}["newcomer"]
        assert made.permissions == {"signed": 4, "other": 8}
        assert (made.secret_key, made.addresses.text, made.admin) == ("battery-staple", "127.0.0.1", False)
        assert str(path) in mqadmin_of_java("clusterAclConfigVersion", "-n", namesrv, "-b", address)
        said = mqadmin_of_java("updateGlobalWhiteAddr", "-n", namesrv, "-b", address, "-g", "10.1.*.*,10.2.0.7")
        assert "success" in said, said
        said = mqadmin_of_java("deleteAclConfig", "-n", namesrv, "-b", address, "-a", "newcomer")
        assert "success" in said, said
        after = read_accounts("plain_acl.yml", path.read_bytes())
        assert [one.access_key for one in after.accounts] == [ADMIN, GOOD, PUBLISHER]
        assert [one.text for one in after.everywhere] == ["10.1.*.*", "10.2.0.7"]
        program.stop()
        audit = [line for line in program.output if "rocketlet.audit" in line]
        assert any('"who": "operator"' in line and "newcomer" in line for line in audit)
        assert SECRET not in "\n".join(program.output)
        assert "battery-staple" not in "\n".join(program.output)


def test_the_official_client_against_a_java_broker(signed: JavaPrograms, tmp_path: Path) -> None:
    with (
        name_server(tmp_path / "ns") as (_, namesrv),
        signed.broker(tmp_path / "java", namesrv, aclEnable="true", messageDelayLevel=SHORT) as one,
    ):
        mqadmin("updateTopic", "-b", one.address, "-t", TOPIC, "-r", "4", "-w", "4", namesrv=namesrv)
        assert differences(outcomes(signed, namesrv, tmp_path)) == []
        file = signed.stack.parent / "conf" / "plain_acl.yml"
        change = ("-a", "newcomer", "-s", "battery-staple", "-t", "signed=PUB", "-i", "DENY", "-u", "SUB", "-w", "")
        mqadmin("updateAclConfig", "-b", one.address, *change, namesrv=namesrv)
        (made,) = (found for found in read_accounts("f", file.read_bytes()).accounts if found.access_key == "newcomer")
        assert (made.secret_key, made.permissions, made.default_group) == ("battery-staple", {"signed": 4}, 8)
        versions = mqadmin("clusterAclConfigVersion", "-b", one.address, "--json", namesrv=namesrv)
        assert json.loads(versions)["counter"] >= 1
        mqadmin("updateGlobalWhiteAddr", "-b", one.address, "-g", "10.1.2.*", namesrv=namesrv)
        mqadmin("deleteAclConfig", "-b", one.address, "-a", "newcomer", namesrv=namesrv)
        after = read_accounts("f", file.read_bytes())
        assert "newcomer" not in [found.access_key for found in after.accounts]
        assert [found.text for found in after.everywhere] == ["10.1.2.*"]
