"""Commands and clients connect over TLS if the environment says so."""

from __future__ import annotations

import pytest

from rocketlet.client.config import ProducerConfig, configured
from rocketlet.remoting.config import PoolConfig
from rocketlet.tools.admin.credentials import pool_of

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
