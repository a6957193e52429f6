"""Access control in real processes: a file edited by hand while clients send, and no secret in any output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocketlet import Message, Producer
from rocketlet.client.errors import SendFailed
from tests.support.memory_folder import account, accounts
from tests.support.programs import REPOSITORY, broker, name_server

pytestmark = pytest.mark.process

SECRET = "correct-horse"
RELOAD_SECONDS = 5.0


def rules(*topics: str) -> str:
    return accounts(account("operator", admin=True), account("webshop", topics=tuple(f"{one}=PUB" for one in topics)))


def test_a_file_edited_by_hand_takes_effect_within_five_seconds_under_load(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    file = conf / "plain_acl.yml"
    file.write_text(rules("orders"))
    (conf / "tools.yml").write_text(f"accessKey: operator\nsecretKey: {SECRET}\n")
    guarded = {"aclEnable": "true", "aclConfigDir": conf}
    with (
        name_server(tmp_path, **guarded) as (names, namesrv),
        broker(tmp_path, namesrvAddr=namesrv, **guarded) as (program, _),
        Producer("PG", namesrv=namesrv, access_key="webshop", secret_key=SECRET) as producer,
    ):
        producer.send(Message("orders", b"first"))
        with pytest.raises(SendFailed, match="needs prices=PUB in its topicPerms"):
            producer.send(Message("prices", b"no"), timeout=5)
        file.write_text(rules("orders", "prices")[:-40])  # half of the file, and then a damaged one
        file.write_text(rules("orders", "prices").replace("topicPerms:", "topicPerms"))
        program.line_with("the accounts stay as they were")
        sent = 0
        file.write_text(rules("orders", "prices"))
        began = time.monotonic()
        while True:
            producer.send(Message("orders", b"on and on"))
            sent += 1
            try:
                producer.send(Message("prices", b"now"), timeout=5)
                break
            except SendFailed:
                assert time.monotonic() - began < RELOAD_SECONDS + 30, "a loaded machine may take its time, not so much"
        assert sent > 1
        for one in (program, names):
            one.stop()
            assert SECRET not in "\n".join(one.output)


def test_settings_hide_secrets_and_mqadmin_signs_with_keys_from_its_environment(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "plain_acl.yml").write_text(rules("orders"))
    (conf / "tools.yml").write_text(f"accessKey: operator\nsecretKey: {SECRET}\n")
    printed = subprocess.run(
        [sys.executable, "-m", "rocketlet.broker", "-p", "--aclEnable", "--aclConfigDir", str(conf)],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "aclEnable=true" in printed.stdout
    assert SECRET not in printed.stdout + printed.stderr
    guarded = {"aclEnable": "true", "aclConfigDir": conf}
    with (
        name_server(tmp_path) as (_, namesrv),
        broker(tmp_path, namesrvAddr=namesrv, **guarded) as (_, address),
    ):

        def mqadmin(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "rocketlet.tools.admin", *arguments, "-n", namesrv, "-b", address],
                cwd=REPOSITORY, capture_output=True, text=True, check=False, env={**os.environ, **environment},
            )  # fmt: skip

        unsigned = mqadmin("getBrokerConfig")
        assert unsigned.returncode == 1
        assert "is not signed" in unsigned.stderr
        account_of = {"ROCKETLET_ACCESS_KEY": "operator", "ROCKETLET_SECRET_KEY": SECRET}
        made = mqadmin("updateAclConfig", "-a", "newcomer", "-t", "orders=SUB", **account_of,
                       ROCKETLET_NEW_SECRET_KEY="battery-staple")  # fmt: skip
        assert made.returncode == 0, made.stderr
        assert "newcomer" in (conf / "plain_acl.yml").read_text()
        home = tmp_path / "home"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "tools.yml").write_text(f"accessKey: operator\nsecretKey: {SECRET}\n")
        versions = mqadmin("clusterAclConfigVersion", ROCKETMQ_HOME=str(home))
        assert "plain_acl.yml" in versions.stdout, versions.stderr
        assert SECRET not in versions.stdout + made.stdout + made.stderr
