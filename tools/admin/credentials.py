"""The account that our commands sign as: ROCKETLET_ACCESS_KEY and ROCKETLET_SECRET_KEY, else RocketMQ's tools.yml; and
whether they use TLS: ROCKETLET_TLS=true, with ROCKETLET_TLS_CA_FILE and the like, as for all our clients.

`tools.yml` is in conf/ of ROCKETMQ_HOME, as for RocketMQ's mqadmin. Without either, nothing is signed.

Java: acl/common/AclUtils.java (getAclRPCHook), tools/command/MQAdminStartup.java
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rocketlet.access.folder import TOOLS_FILE
from rocketlet.client.config import (
    ACCESS_KEY_VARIABLE,
    SECRET_KEY_VARIABLE,
    TLS_VARIABLE,
    TLS_VARIABLES,
    is_true,
)
from rocketlet.common.settings import SettingsError
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.signing import Signer


def signer(environment: Mapping[str, str]) -> list[Signer]:
    """Hooks for connections: one, or none. Raises SettingsError, FileError."""
    key, secret = (environment.get(name, "") for name in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE))
    if bool(key) != bool(secret):
        raise SettingsError(f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} are needed together")
    if key:
        return [Signer(key, secret)]
    home = environment.get("ROCKETMQ_HOME")
    path = Path(home) / "conf" / TOOLS_FILE if home else None
    if path is None or not path.is_file():
        return []
    from rocketlet.access.account_files import read_credentials  # yaml takes 40 ms to import

    credentials = read_credentials(str(path), path.read_bytes())
    return [Signer(credentials.access_key, credentials.secret_key)]


def pool_of(environment: Mapping[str, str]) -> PoolConfig:
    """The settings of connections."""
    if not is_true(environment.get(TLS_VARIABLE, "")):
        return PoolConfig()
    files = {name: environment.get(variable, "") for name, variable in TLS_VARIABLES.items()}
    return PoolConfig(
        use_tls=True,
        tls_auth_server=bool(files["tls_ca_file"]),
        tls_trust_path=files["tls_ca_file"],
        tls_cert_path=files["tls_cert_file"],
        tls_key_path=files["tls_key_file"],
        tls_server_name=files["tls_server_name"],
    )
