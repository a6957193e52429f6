"""Who may receive the log itself: its streams to slaves and replicas carry no signature.

With strict access control and without `haAllowed` only this host may, unless every peer has to show a trusted
certificate. RocketMQ serves whoever connects.

Java: none
"""

from __future__ import annotations

from dataclasses import replace

from rocketlet.access.config import AccessConfig
from rocketlet.common.config_file import Loaded
from rocketlet.remoting.config import ServerConfig
from rocketlet.replication.config import ReplicationConfig

THIS_HOST = ("127.0.0.0/8", "::1/128")


def guarded(loaded: Loaded) -> Loaded:
    """The settings, with a list of hosts that may receive the log, if one is required."""
    access = loaded[AccessConfig]
    open_to_all = not access.acl_enable or not access.acl_strict or loaded[ServerConfig].trusts_certified_only
    if open_to_all or loaded[ReplicationConfig].ha_allowed:
        return loaded
    configs = tuple(
        replace(config, ha_allowed=THIS_HOST) if isinstance(config, ReplicationConfig) else config
        for config in loaded.configs
    )
    origins = {
        **loaded.origins,
        "haAllowed": "access control: slaves elsewhere need haAllowed, or TLS with certificates",
    }
    return replace(loaded, configs=configs, origins=origins)
