"""Commands and clients connect over TLS if the environment says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketlet.client.config import ProducerConfig, configured
from rocketlet.client.errors import InvalidUse
from rocketlet.common.config_file import ConfigFile
from rocketlet.common.java_properties import parse
from rocketlet.console.__main__ import console
from rocketlet.remoting.config import PoolConfig, ServerConfig, TlsMode
from rocketlet.tools.admin.credentials import pool_of
from rocketlet.tools.dead_letters import dead_letters_of
from rocketlet.tools.local_settings import LocalSettings

ENVIRONMENT = {
    "ROCKETLET_TLS": "true",
    "ROCKETLET_TLS_CA_FILE": "ca.pem",
    "ROCKETLET_TLS_CERT_FILE": "c.pem",
    "ROCKETLET_TLS_KEY_FILE": "c.key",
    "ROCKETLET_TLS_SERVER_NAME": "broker.example",
}


@pytest.mark.parametrize("text", ["true", "1", " YES "])
def test_commands(text: str) -> None:
    pool = pool_of(ENVIRONMENT | {"ROCKETLET_TLS": text})
    assert (pool.use_tls, pool.tls_auth_server, pool.tls_trust_path) == (True, True, "ca.pem")
    assert (pool.tls_cert_path, pool.tls_key_path, pool.tls_server_name) == ("c.pem", "c.key", "broker.example")


@pytest.mark.parametrize("text", ["", "false", "0"])
def test_commands_without(text: str) -> None:
    assert pool_of(ENVIRONMENT | {"ROCKETLET_TLS": text}) == PoolConfig()


def test_without_a_file_nobody_is_verified() -> None:
    assert not pool_of({"ROCKETLET_TLS": "true"}).tls_auth_server


def test_clients() -> None:
    config = configured(ProducerConfig, None, "h:1", {}, ENVIRONMENT)
    assert (config.tls, config.tls_ca_file, config.tls_server_name) == (True, "ca.pem", "broker.example")
    chosen = configured(ProducerConfig, None, "h:1", {"tls": True, "tls_ca_file": "mine.pem"}, ENVIRONMENT)
    assert (chosen.tls_ca_file, chosen.tls_cert_file) == ("mine.pem", "")
    assert not configured(ProducerConfig, None, "h:1", {}, {}).tls


def test_dead_letters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROCKETLET_TLS", "true")
    monkeypatch.setenv("ROCKETLET_TLS_CA_FILE", str(tmp_path / "missing.pem"))

    async def read() -> None:
        async with dead_letters_of("g", "127.0.0.1:9"):
            pass

    with pytest.RaisesGroup(pytest.RaisesExc(InvalidUse, match="certificates or keys cannot be loaded")):
        trio.run(read)


def test_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    given = console.make_context("console", []).params
    assert given["tls"] is True
    assert (given["tls_ca_file"], given["tls_cert_file"], given["tls_key_file"]) == ("ca.pem", "c.pem", "c.key")
    assert given["tls_server_name"] == "broker.example"


def test_name_servers_of_a_stack_serve_tls_as_its_brokers_do() -> None:
    text = "tls.server.mode=disabled\ntls.server.certPath=one.pem\nuseTLS=true\n"
    file = ConfigFile("broker.conf", parse(text))
    settings = LocalSettings(file=file, settings={"tls.server.certPath": "two.pem"})
    server = settings.namesrv(0)[ServerConfig]
    assert (server.tls_mode, server.tls_cert_path) == (TlsMode.DISABLED, "two.pem")
