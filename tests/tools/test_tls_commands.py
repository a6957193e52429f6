"""`rocketlet tls make-certs`: servers with what it writes and prints serve its clients and refuse all others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketlet import Message, NoRoute, Producer
from rocketlet.access.config import AccessConfig
from rocketlet.broker.configs import BROKER_CONFIGS
from rocketlet.common.config_file import load, read_file
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.remoting.config import ServerConfig
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from rocketlet.tools.tls_commands import make_certs

HOST = "broker.example"


@dataclass(frozen=True)
class Made:
    """What the command wrote, and what it printed, as files of settings."""

    certificates: Path
    namesrv_conf: Path
    broker_conf: Path


def made(folder: Path) -> Made:
    words = [str(folder / "certs"), "--host", HOST]
    done = CliRunner().invoke(make_certs, words, catch_exceptions=False, standalone_mode=False)
    _, servers, broker, _ = done.stdout.split("\n\n")
    namesrv_conf, broker_conf = folder / "namesrv.conf", folder / "broker.conf"
    namesrv_conf.write_text(servers)
    broker_conf.write_text(f"{servers}\n{broker}")
    return Made(folder / "certs", namesrv_conf, broker_conf)


def test_each_server_knows_all_that_is_for_its_file(tmp_path: Path) -> None:
    files = made(tmp_path)
    for_namesrv = load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, file=read_file(files.namesrv_conf))
    assert for_namesrv.warnings == load(*BROKER_CONFIGS, file=read_file(files.broker_conf)).warnings == ()


def test_others_cannot_read_the_keys(tmp_path: Path) -> None:
    keys = list(made(tmp_path).certificates.glob("*.key"))
    assert [path.stat().st_mode & 0o77 for path in keys] == [0, 0, 0]


def test_its_clients_are_served_and_no_others(tmp_path: Path) -> None:
    files = made(tmp_path)
    authority, others = str(files.certificates / "ca.pem"), made(tmp_path / "others").certificates
    settings = LocalSettings(namesrv_port=0, broker_port=0, file=read_file(files.broker_conf))
    with ThreadStack(settings) as stack:
        with Producer("p", namesrv=stack.namesrv, tls=True, tls_ca_file=authority, tls_server_name=HOST) as producer:
            assert producer.send(Message("secret", b"hush")).status.name == "SEND_OK"
        with (
            Producer("p", namesrv=stack.namesrv) as plain,
            pytest.raises(NoRoute, match=r"no name server answered: the connection to .* was lost: .*takes only TLS"),
        ):
            plain.send(Message("secret", b"hush"))
        for trusted, name in ((others / "ca.pem", HOST), (authority, "other.example")):
            with (
                Producer(
                    "p", namesrv=stack.namesrv, tls=True, tls_ca_file=str(trusted), tls_server_name=name
                ) as deceived,
                pytest.raises(NoRoute, match="CERTIFICATE_VERIFY_FAILED"),
            ):
                deceived.send(Message("secret", b"hush"))
