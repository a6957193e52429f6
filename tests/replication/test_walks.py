"""The walk-throughs of docs/operations.md with real processes and their commands."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rocketlet.client import Message, Producer
from tests.support.programs import REPOSITORY, Program, broker, name_server

pytestmark = [pytest.mark.process, pytest.mark.slow]

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "maxMessageSize": 65536}
WAIT_SECONDS = 300.0


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def status(namesrv: str, address: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        run("rocketlet.tools.admin", "haStatus", "-b", address, "-n", namesrv, "--json")
    )
    return found


@contextmanager
def member(folder: Path, namesrv: str, number: int) -> Iterator[tuple[Program, str]]:
    role = "SYNC_MASTER" if number == 0 else "SLAVE"
    folder.mkdir(exist_ok=True)
    with broker(folder, namesrvAddr=namesrv, brokerRole=role, brokerId=number, **SMALL) as running:
        yield running


def send(namesrv: str, bodies: list[bytes]) -> None:
    """Retry until each is acknowledged with SEND_OK."""
    deadline = time.monotonic() + WAIT_SECONDS
    with Producer("walker", namesrv=namesrv) as producer:
        for body in bodies:
            while producer.send(Message("Walk", body)).status.name != "SEND_OK":
                assert time.monotonic() < deadline, "no slave confirms"
                time.sleep(0.2)


def follows(namesrv: str, address: str, missing: int = 0) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while "#BytesMissing              0" not in (
        said := run("rocketlet.tools.admin", "haStatus", "-b", address, "-n", namesrv)
    ):
        assert time.monotonic() < deadline, said
        time.sleep(0.3)


def same(one: Path, other: Path) -> None:
    logs = [
        b"".join(path.read_bytes() for path in sorted((folder / "store/commitlog").iterdir()))
        for folder in (one, other)
    ]
    assert logs[0].rstrip(b"\0") == logs[1].rstrip(b"\0")


def test_a_planned_switch_a_lost_master_and_an_emptied_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with name_server(tmp_path) as (_, namesrv), ExitStack() as held:
        master, at = held.enter_context(member(first, namesrv, 0))
        _, slave_at = held.enter_context(member(second, namesrv, 1))
        send(namesrv, [b"%d" % number for number in range(20)])
        follows(namesrv, slave_at)

        said = run("rocketlet.tools.admin", "promoteSlave", "-b", slave_at, "-n", namesrv)
        assert f"{slave_at} is the master now" in said
        send(namesrv, [b"switched %d" % number for number in range(20)])
        follows(namesrv, at)
        assert status(namesrv, slave_at)["inSyncSlaveNums"] == 1

        run("rocketlet.tools.admin", "promoteSlave", "-b", at, "-n", namesrv)
        send(namesrv, [b"and back"])
        follows(namesrv, slave_at)
        same(first, second)

        master.kill()
        said = run("rocketlet.tools.admin", "promoteSlave", "-b", slave_at, "-n", namesrv, "--force")
        assert "0 bytes of the old master's log may be missing" in said
        with Producer("walker", namesrv=namesrv) as producer:
            assert producer.send(Message("Walk", b"alone")).status.name == "SLAVE_NOT_AVAILABLE"

        # The old master had, or may have had, more than the new one when it was lost: it returns as an empty slave.
        said = run("rocketlet.tools", "store", "reseed", str(first / "store"), "--yes")
        assert "set-aside" in said
        (first / "store/rocketlet/role.json").unlink(missing_ok=True)
        _, again = held.enter_context(member(first, namesrv, 1))
        follows(namesrv, again)
        send(namesrv, [b"two again"])
        same(first, second)
