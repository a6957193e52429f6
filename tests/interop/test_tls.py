"""The official client speaks TLS with our name server, on a port that accepts nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.support.java_programs import WITHOUT_PUSH, JavaPrograms
from tests.support.programs import broker, name_server

pytestmark = pytest.mark.interop


def test_the_official_client_over_tls(java: JavaPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dtls.enable=true")  # the client's own switch
    issued = trustme.CA().issue_cert("127.0.0.1")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificate,
        "tls.server.keyPath": key,
    }
    with name_server(tmp_path, **settings) as (_, address):
        for binary in (False, True):
            (outcome,) = java.scenarios(address, "kv-config", binary=binary).values()
            assert outcome.verdict == "PASS"


def test_a_client_with_tls_enable_finds_tls_on_default_servers(
    java: JavaPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with RocketMQ's own: there is no certificate, so the servers create one."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dtls.enable=true")
    with (
        name_server(tmp_path) as (names, namesrv),
        broker(tmp_path, namesrvAddr=namesrv) as (program, _),
    ):
        outcomes = java.scenarios(namesrv, *WITHOUT_PUSH)
        assert [outcome for outcome in outcomes.values() if outcome.verdict != "PASS"] == []
        for one in (names, program):
            one.line_with("TLS is served with a certificate made by ourselves")
