"""The command line settings of the console.

Java: rocketmq-dashboard's config/RMQConfigure.java
"""

from __future__ import annotations

from dataclasses import dataclass, field

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """See `rocketlet console --help`."""

    namesrv: str
    host: str = "127.0.0.1"
    port: int = 8088
    names: tuple[str, ...] = ()
    """Names by which browsers may ask for it, beside the address that it listens on."""
    token: str = field(default="", repr=False)
    """What one logs in with; on loopback nobody has to unless it is set."""
    viewer_token: str = field(default="", repr=False)
    """The same, for those who may look only."""
    read_only: bool = False
    audit_file: str = ""
    language: str = ""
    """Of who has chosen none: en, zh, or the browser's."""
    accounts: str = ""
    """The folder of plain_acl.yml, where accounts are to be shown."""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: bool = False
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_server_name: str = ""
    sample_seconds: float = 60.0

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def needs_login(self) -> bool:
        return bool(self.token or self.viewer_token)
