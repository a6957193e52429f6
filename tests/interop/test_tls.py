"""The official client speaks TLS with our name server, on a port that takes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.support.java_programs import JavaPrograms
from tests.support.programs import name_server

pytestmark = pytest.mark.interop


def test_the_official_client_by_tls(java: JavaPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
