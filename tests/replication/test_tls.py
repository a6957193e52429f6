"""The log's stream over TLS: only between brokers that trust each other."""

from __future__ import annotations

from pathlib import Path

import trio
import trustme
from trio.testing import MockClock

from rocketlet.remoting.config import ClientAuth, PoolConfig, ServerConfig, TlsMode
from rocketlet.replication.stream_codec import report
from tests.support.pair import pair


async def test_only_slaves_with_a_certificate_are_served(autojump_clock: MockClock, tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name, issuer in (("broker", authority), ("stranger", stranger)):
        issued = issuer.issue_cert("broker.example")
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))

    def settings(name: str) -> dict[str, str]:
        return {
            "tls_cert_path": str(tmp_path / f"{name}.pem"),
            "tls_key_path": str(tmp_path / f"{name}.key"),
            "tls_trust_path": str(tmp_path / "ca.pem"),
        }

    server = {"tls_mode": TlsMode.ENFORCING, "tls_client_auth": ClientAuth.REQUIRE}
    client = {"use_tls": True, "tls_auth_server": True, "tls_server_name": "broker.example"}
    async with pair(
        slaves=0,
        client=PoolConfig(**settings("broker"), **client),  # type: ignore[arg-type]
        namesrv=ServerConfig(**settings("broker"), **server),  # type: ignore[arg-type]
        broker_role="SYNC_MASTER",
        **settings("broker"),
        **server,
        **client,
    ) as cluster:
        slave = await cluster.start("slave-1", ha_use_tls=True)
        await trio.sleep(5)
        assert (await cluster.master.send("T", b"secret")).code == 0
        cluster.same_log()
        # Neither a plain one, nor one with a certificate signed by somebody else.
        plain = await cluster.start("slave-2", ha_use_tls=False)
        other = await cluster.start("slave-3", ha_use_tls=True, **settings("stranger"))
        stream = await cluster.network.of_host("10.9.0.1").dial(cluster.master.ha_address)
        await stream.send_all(report(0))
        assert await stream.receive_some() == b""
        await trio.sleep(30)
        assert (await cluster.master.send("T", b"still secret")).code == 0
        assert slave.store.log.end == cluster.master.store.log.end
        assert (plain.store.log.end, other.store.log.end) == (0, 0)
