"""Settings of access control, the same for a broker and a name server.

`aclEnable` is RocketMQ's, for brokers; the others are ours.

Java: common/BrokerConfig.java (aclEnable)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketlet.common.settings import SettingsError, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Access control."""

    acl_enable: bool = setting(
        False, "Requests must be signed by an account of plain_acl.yml or acl/*.yml.", important=True
    )
    acl_strict: bool = setting(
        True,
        "Every request is checked, and no address replaces a signature; false: RocketMQ's rules, with their loopholes.",
        important=True,
    )
    acl_config_dir: str = setting(
        "",
        "Folder of plain_acl.yml, acl/ and tools.yml.",
        path=True,
        default_note="conf of rocketmqHome, else the folder of the file given with -c, else conf",
    )
    rocketmq_home: str = setting(
        "", "Folder of a RocketMQ installation, whose conf has those files.", path=True, env="ROCKETMQ_HOME"
    )
    tls_accounts: tuple[str, ...] = setting(
        (),
        "Accounts of TLS clients by the name in their certificate, as name=account; they need not sign.",
    )
    requests_per_second_by_account: int = setting(
        0,
        "Requests that an account may send in a second, over all its connections; 0: any number.",
        minimum=0,
        updatable=True,
    )

    def __post_init__(self) -> None:
        wrong = [entry for entry in self.tls_accounts if not all(part.strip() for part in entry.rpartition("="))]
        if wrong:
            raise SettingsError(f"tlsAccounts={';'.join(wrong)}: must be name=account, several of them joined by ;")

    @property
    def accounts_by_certificate(self) -> Mapping[str, str]:
        """`tlsAccounts` by the certificate's name."""
        split = [entry.rpartition("=") for entry in self.tls_accounts]
        return {name.strip(): account.strip() for name, _, account in split}

    def folder(self, config_file: str) -> str:
        """The folder of the files. `config_file`: that of -c, or empty."""
        if self.acl_config_dir:
            return self.acl_config_dir
        if self.rocketmq_home:
            return f"{self.rocketmq_home}/conf"
        if not config_file:
            return "conf"
        folder, slash, _ = config_file.rpartition("/")
        return (folder or slash) or "."
