"""TLS on the plain port: modes, client certificates, and certificates replaced while the server runs."""

from __future__ import annotations

import ssl
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.common.settings import SettingsError
from rocketlet.remoting import tls
from rocketlet.remoting.certificates import Authority, own_context
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import ClientAuth, PoolConfig, ServerConfig, TlsMode
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import ConnectFailed, RemotingError
from rocketlet.remoting.handler import Handler, Reply, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.server import Server
from rocketlet.remoting.transport import Network, TcpNetwork
from tests.support.raw_client import RawClient

ECHO = {1: Handler(lambda request: Reply(body=request.body))}


@dataclass
class Files:
    """An authority and its certificates, as PEM files."""

    authority: trustme.CA
    folder: Path

    @property
    def trust(self) -> str:
        path = self.folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(path))
        return str(path)

    def issue(self, name: str, host: str) -> tuple[str, str]:
        """(Re)place the certificate and key files of this name."""
        issued = self.authority.issue_cert(host)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return str(certificate), str(key)

    def server(self, **more: object) -> ServerConfig:
        certificate, key = self.issue("server", "broker.example")
        return ServerConfig(tls_cert_path=certificate, tls_key_path=key, server_drain_seconds=0.0, **more)  # type: ignore[arg-type]

    def client(self, **more: object) -> PoolConfig:
        return PoolConfig(use_tls=True, tls_auth_server=True, tls_trust_path=self.trust, **more)  # type: ignore[arg-type]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(trustme.CA(), tmp_path)


@pytest.fixture(params=["memory", "tcp"])
def network(request: pytest.FixtureRequest) -> Network:
    return MemoryNetwork() if request.param == "memory" else TcpNetwork()


async def start(nursery: trio.Nursery, network: Network, config: ServerConfig) -> str:
    address: str = await nursery.start(Server(ECHO, network, config).serve, "127.0.0.1", 0)
    return address


async def echoed(network: Network, address: str, config: PoolConfig) -> bytes:
    async with ConnectionPool(network, config) as pool:
        return (await pool.call(address, Command(1, body=b"x" * 100_000), 5)).body


async def test_tls_and_plain_share_a_port(nursery: trio.Nursery, network: Network, files: Files) -> None:
    address = await start(nursery, network, files.server())
    for config in (PoolConfig(), PoolConfig(use_tls=True), files.client()):
        assert await echoed(network, address, config) == b"x" * 100_000


async def test_many_concurrent_calls_inside_tls(nursery: trio.Nursery, network: Network, files: Files) -> None:
    address = await start(nursery, network, files.server())
    async with ConnectionPool(network, files.client()) as pool:
        bodies: list[bytes] = []

        async def call(number: int) -> None:
            bodies.append((await pool.call(address, Command(1, body=b"%d" % number * 3000), 10)).body)

        async with trio.open_nursery() as inner:
            for number in range(50):
                inner.start_soon(call, number)
    assert sorted(bodies) == sorted(b"%d" % number * 3000 for number in range(50))


@pytest.mark.parametrize("mode", TlsMode)
async def test_modes(nursery: trio.Nursery, files: Files, mode: TlsMode, caplog: pytest.LogCaptureFixture) -> None:
    network = MemoryNetwork()
    address = await start(nursery, network, files.server(tls_mode=mode))
    for config, served in ((PoolConfig(), mode != TlsMode.ENFORCING), (files.client(), mode != TlsMode.DISABLED)):
        if served:
            assert await echoed(network, address, config) == b"x" * 100_000
        else:
            with pytest.raises(RemotingError):
                await echoed(network, address, config)
            assert "tls.server.mode" in caplog.text


async def test_without_a_certificate_there_is_no_tls(
    nursery: trio.Nursery, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    address = await start(nursery, network, ServerConfig(server_drain_seconds=0.0, tls_test_mode=False))
    with pytest.raises(ConnectFailed, match="refuses TLS"):
        await echoed(network, address, files.client())
    assert "wants TLS" in caplog.text


def test_a_generated_certificate_names_this_host() -> None:
    believes_anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    believes_anything.check_hostname, believes_anything.verify_mode = False, ssl.CERT_NONE
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = believes_anything.wrap_bio(back, there)
    server = own_context().wrap_bio(there, back, server_side=True)
    for side in (client, server):
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
    client.do_handshake()
    given = client.getpeercert(binary_form=True)
    assert given is not None
    names = x509.load_der_x509_certificate(given).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert {"127.0.0.1", "::1"} <= {str(address) for address in names.get_values_for_type(x509.IPAddress)}


async def test_an_untrusted_server_is_refused(nursery: trio.Nursery, files: Files, tmp_path: Path) -> None:
    network = MemoryNetwork()
    address = await start(nursery, network, files.server())
    other = Files(trustme.CA(), tmp_path / "other")
    other.folder.mkdir()
    with pytest.raises(ConnectFailed, match=r"refuses TLS.*certificate verify failed"):
        await echoed(network, address, other.client())
    with pytest.raises(ConnectFailed, match="refuses TLS"):
        await echoed(network, address, files.client(tls_server_name="somebody.else"))
    assert await echoed(network, address, files.client(tls_server_name="broker.example"))


async def test_clients_must_show_a_certificate(nursery: trio.Nursery, network: Network, files: Files) -> None:
    config = files.server(tls_trust_path=files.trust, tls_client_auth=ClientAuth.REQUIRE)
    address = await start(nursery, network, config)
    certificate, key = files.issue("client", "client.example")
    assert await echoed(network, address, files.client(tls_cert_path=certificate, tls_key_path=key))
    with pytest.raises(RemotingError):
        await echoed(network, address, files.client())


async def test_a_certificate_replaced_on_disk_is_served_without_restart(
    nursery: trio.Nursery, network: Network, files: Files
) -> None:
    address = await start(nursery, network, files.server())
    async with ConnectionPool(network, files.client(tls_server_name="broker.example")) as old:
        assert (await old.call(address, Command(1), 5)).code == 0
        files.issue("server", "new.example")
        assert await echoed(network, address, files.client(tls_server_name="new.example"))
        with pytest.raises(ConnectFailed):
            await echoed(network, address, files.client(tls_server_name="broker.example"))
        assert (await old.call(address, Command(1), 5)).code == 0  # keeps its original certificate


async def test_an_unreadable_replacement_keeps_the_old_certificate(
    nursery: trio.Nursery, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    address = await start(nursery, network, files.server())
    key = files.folder / "server.key"
    for broken in (b"half a k", files.authority.issue_cert("x").private_key_pem.bytes()):
        key.write_bytes(broken)
        assert await echoed(network, address, files.client(tls_server_name="broker.example"))
        assert "the old ones stay" in caplog.text
    key.unlink()
    assert await echoed(network, address, files.client(tls_server_name="broker.example"))
    files.issue("server", "new.example")
    assert await echoed(network, address, files.client(tls_server_name="new.example"))


async def test_a_client_reloads_its_files_too(nursery: trio.Nursery, files: Files, tmp_path: Path) -> None:
    network = MemoryNetwork()
    first = await start(nursery, network, files.server())
    other = Files(trustme.CA(), tmp_path / "other")
    other.folder.mkdir()
    second = await start(nursery, network, other.server())
    async with ConnectionPool(network, files.client()) as pool:
        assert (await pool.call(first, Command(1), 5)).code == 0
        with pytest.raises(ConnectFailed):
            await pool.call(second, Command(1), 5)
        other.authority.cert_pem.write_to_path(files.trust)
        assert (await pool.call(second, Command(1), 5)).code == 0


async def test_a_key_with_a_password(nursery: trio.Nursery, files: Files) -> None:
    config = files.server(tls_key_password="secret")
    plain = serialization.load_pem_private_key(Path(config.tls_key_path).read_bytes(), None)
    Path(config.tls_key_path).write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    network = MemoryNetwork()
    assert await echoed(network, await start(nursery, network, config), files.client())
    with pytest.raises(SettingsError, match="cannot be loaded"):
        Server(ECHO, network, replace(config, tls_key_password="wrong"))


async def test_a_handshake_that_never_ends_is_given_up(
    nursery: trio.Nursery, files: Files, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    network = MemoryNetwork()
    client = RawClient(await network.dial(await start(nursery, network, files.server())))
    await client.send(b"\x16\x03\x01")
    await client.until_closed()
    assert trio.current_time() == pytest.approx(tls.HANDSHAKE_SECONDS)
    await wait_all_tasks_blocked()
    assert "no TLS handshake within" in caplog.text


async def test_garbage_after_a_hello_ends_its_own_connection(nursery: trio.Nursery, files: Files) -> None:
    network = MemoryNetwork()
    address = await start(nursery, network, files.server())
    client = RawClient(await network.dial(address))
    await client.send(b"\x16" + bytes(2000))
    await client.until_closed()
    assert await echoed(network, address, files.client())


def test_missing_files_are_reported_at_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be loaded"):
        Server(ECHO, MemoryNetwork(), ServerConfig(tls_cert_path=str(tmp_path / "none.pem")))
    with pytest.raises(SettingsError, match="cannot be loaded"):
        ConnectionPool(MemoryNetwork(), PoolConfig(use_tls=True, tls_trust_path=str(tmp_path / "none.pem")))


def test_tls_1_2_stays_for_java_8(files: Files) -> None:
    contexts = tls.server_contexts(files.server())
    assert contexts is not None
    assert contexts.current().minimum_version <= ssl.TLSVersion.TLSv1_2
    assert tls.server_contexts(ServerConfig()) is None
    assert tls.client_contexts(PoolConfig()) is None


async def test_a_server_without_a_certificate_creates_one_for_the_first_tls_client(nursery: trio.Nursery) -> None:
    server = Server(ECHO, TcpNetwork(), ServerConfig(server_drain_seconds=0.0))
    address = await nursery.start(server.serve, "127.0.0.1", 0)
    async with ConnectionPool(TcpNetwork(), PoolConfig(use_tls=True)) as pool:
        assert (await pool.call(address, Command(1, body=b"hush"), 10.0)).body == b"hush"
    async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
        assert (await pool.call(address, Command(1, body=b"plain"), 10.0)).body == b"plain"


async def test_if_no_certificate_can_be_created_the_log_says_what_to_do(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "rocketlet.remoting.certificates", None)
    server = Server(ECHO, TcpNetwork(), ServerConfig(server_drain_seconds=0.0))
    address = await nursery.start(server.serve, "127.0.0.1", 0)
    async with ConnectionPool(TcpNetwork(), PoolConfig(use_tls=True)) as pool:
        with pytest.raises(ConnectFailed):
            await pool.call(address, Command(1), 10.0)
    assert "set tls.server.certPath" in caplog.text


async def test_the_server_knows_the_names_in_a_verified_certificate(files: Files, nursery: trio.Nursery) -> None:
    names: list[tuple[str, ...]] = []

    def handle(request: Request) -> Reply:
        names.append(request.connection.certified_names)
        return Reply()

    asks = files.server(tls_trust_path=files.trust, tls_client_auth=ClientAuth.OPTIONAL)
    address = await nursery.start(Server({1: Handler(handle)}, TcpNetwork(), asks).serve, "127.0.0.1", 0)
    certificate, key = files.issue("client", "orders.example")
    for config in (files.client(tls_cert_path=certificate, tls_key_path=key), files.client()):
        async with ConnectionPool(TcpNetwork(), config) as pool:
            await pool.call(address, Command(1), 10.0)
    assert "orders.example" in names[0]
    assert names[1] == ()


def test_our_own_authority_signs_for_servers_and_clients(tmp_path: Path) -> None:
    authority = Authority("CA", 30, datetime(2026, 1, 31, tzinfo=UTC))
    server = authority.issue("broker.example", ["broker.example", "10.0.0.5", "::1"], server=True)
    (tmp_path / "server.pem").write_bytes(server.certificate + server.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(str(tmp_path / "server.pem"))
    loaded = x509.load_pem_x509_certificate(server.certificate)
    loaded.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    hosts = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in hosts] == ["broker.example", "10.0.0.5", "::1"]
    assert b"PRIVATE KEY" in authority.key
