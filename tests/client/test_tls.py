"""Producers and consumers over TLS, on a memory network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from rocketlet.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    InvalidUse,
    Message,
    NoRoute,
    ReceivedMessage,
)
from rocketlet.remoting.config import ClientAuth
from tests.support.memory_cluster import HOST, memory_cluster


async def test_a_client_trusts_the_configured_authority(autojump_clock: trio.testing.MockClock, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    issued = authority.issue_cert(HOST)
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "stranger.pem")
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    servers = {"tls_cert_path": str(certificate), "tls_key_path": str(key)}
    async with memory_cluster(tls=servers) as cluster:
        trusting: dict[str, Any] = {"namesrv": cluster.namesrv, "tls": True, "tls_ca_file": str(tmp_path / "ca.pem")}
        async with AsyncProducer("p", world=cluster.world(), tls_server_name=HOST, **trusting) as producer:
            await producer.send(Message("T", b"secret"))
            await trio.sleep(1)
            async with AsyncPushConsumer(
                "g",
                listener,
                topics={"T": "*"},
                world=cluster.world(),
                consume_from=ConsumeFrom.FIRST_OFFSET,
                **trusting,
            ):
                await trio.sleep(5)
        for settings in ({"tls_ca_file": str(tmp_path / "stranger.pem")}, {"tls_server_name": "another.host"}):
            async with AsyncProducer("p", world=cluster.world(), **{**trusting, **settings}) as producer:
                with pytest.raises(NoRoute, match=r"(?i)certificate|TLS"):
                    await producer.send(Message("T", b"x"))
    assert got == [b"secret"]


@pytest.mark.parametrize("setting", ["tls_ca_file", "tls_cert_file"])
async def test_a_file_that_cannot_be_read_is_named(setting: str) -> None:
    settings: dict[str, Any] = {"tls": True, setting: "no/such.pem"}
    async with memory_cluster() as cluster:
        producer = AsyncProducer("p", namesrv=cluster.namesrv, world=cluster.world(), **settings)
        with pytest.raises(InvalidUse, match=r"No such file.*no/such\.pem; correct tls_ca_file"):
            await producer.__aenter__()


async def test_a_server_that_requires_a_certificate_gets_one(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    authority = trustme.CA()
    for name, issued in (("server", authority.issue_cert(HOST)), ("client", authority.issue_cert("a@client"))):
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stack = {"tls_cert_path": str(tmp_path / "server.pem"), "tls_key_path": str(tmp_path / "server.key")}
    asking = {**stack, "tls_client_auth": ClientAuth.REQUIRE, "tls_trust_path": str(tmp_path / "ca.pem")}
    async with memory_cluster(tls=asking) as cluster:
        known = {"tls_cert_file": str(tmp_path / "client.pem"), "tls_key_file": str(tmp_path / "client.key")}
        at: dict[str, Any] = {"namesrv": cluster.namesrv, "tls": True}
        async with AsyncProducer("p", world=cluster.world(), **at, **known) as producer:
            await producer.send(Message("T", b"x"))
        async with AsyncProducer("p", world=cluster.world(), **at) as producer:
            with pytest.raises(NoRoute):
                await producer.send(Message("T", b"x"))
