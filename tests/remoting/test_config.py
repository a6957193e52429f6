"""Settings of connections: RocketMQ's keys and defaults, and combinations that cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from rocketlet.common.settings import SettingsError, settings_of, to_properties, with_updates
from rocketlet.remoting.command import HeaderType
from rocketlet.remoting.config import (
    UNSENT_HIGH,
    UNSENT_LOW,
    ClientAuth,
    PoolConfig,
    SerializeType,
    ServerConfig,
    TlsMode,
)


def test_keys_and_defaults_are_rocketmqs() -> None:
    server, pool = to_properties(ServerConfig()), to_properties(PoolConfig())
    assert server["serverOnewaySemaphoreValue"] == "256"
    assert server["serverAsyncSemaphoreValue"] == "64"
    assert server["serverChannelMaxIdleTimeSeconds"] == "120"
    assert server["serverSocketBacklog"] == "1024"
    assert server["tls.server.mode"] == "permissive"
    assert server["com.rocketmq.remoting.frameMaxLength"] == "16777216"
    assert pool["clientOnewaySemaphoreValue"] == pool["clientAsyncSemaphoreValue"] == "65535"
    assert pool["connectTimeoutMillis"] == "3000"
    assert pool["rocketmq.serialize.type"] == "JSON"
    assert pool["useTLS"] == "false"


def test_the_write_buffer_marks() -> None:
    assert (ServerConfig().unsent_high, ServerConfig().unsent_low) == (UNSENT_HIGH, UNSENT_LOW)
    small = ServerConfig(write_buffer_high_water_mark=1000)
    assert (small.unsent_high, small.unsent_low) == (1000, 1000)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"write_buffer_high_water_mark": 10, "write_buffer_low_water_mark": 20}, "writeBufferLowWaterMark"),
        ({"tls_mode": TlsMode.ENFORCING}, "needs tls.server.certPath"),
        ({"tls_client_auth": ClientAuth.REQUIRE}, "needs tls.server.trustCertPath"),
    ],
)
def test_impossible_settings_are_reported_at_start(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        ServerConfig(**settings)


def test_paths_and_secrets_never_change_at_run_time() -> None:
    for config in (ServerConfig, PoolConfig):
        named = {one.key: one for one in settings_of(config)}
        assert all(one.path for key, one in named.items() if key.endswith("Path"))
        assert all(one.secret for key, one in named.items() if key.endswith("Password"))
        assert not any(one.updatable for one in named.values())
    assert to_properties(ServerConfig(tls_key_password="x"))["tls.server.keyPassword"] == "******"
    with pytest.raises(SettingsError, match="read at start only"):
        with_updates(ServerConfig(), {"tls.server.certPath": "/etc/passwd"})


def test_serialize_types() -> None:
    assert [one.header_type for one in SerializeType] == [HeaderType.JSON, HeaderType.ROCKETMQ, HeaderType.MSGPACK]
