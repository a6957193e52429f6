"""Settings of the name server, by RocketMQ's keys; those of its connections are in `remoting/config.py`.

One default differs from RocketMQ's: the name server listens on loopback only, until `bindAddress` opens it. While it
runs, `orderMessageEnable` may be changed (request 318) and nothing else.

Java: common/namesrv/NamesrvConfig.java
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from rocketlet.common.config_file import Loaded
from rocketlet.common.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """Settings of the name server."""

    rocketmq_home: str = setting(
        "", "Folder of a RocketMQ installation; not needed here.", path=True, env="ROCKETMQ_HOME"
    )
    kv_config_path: str = setting(
        "~/namesrv/kvConfig.json", "File of the KV configuration, the only state that lasts.", path=True, important=True
    )
    config_store_path: str = setting(
        "~/namesrv/namesrv.properties",
        "File that settings changed while running are written to; with -c it is that file.",
        path=True,
        important=True,
    )
    product_env_name: str = setting("center", "Name of the product environment that clusterTest asks.")
    cluster_test: bool = setting(
        False, "Ask the product environment's name servers for a route that is missing here.", important=True
    )
    order_message_enable: bool = setting(
        False, "Routes carry the order configuration of their topic.", updatable=True, important=True
    )
    config_black_list: tuple[str, ...] = setting(
        ("configBlackList", "configStorePath", "kvConfigPath"),
        "Settings that a request to change is refused for (code 16).",
    )
    bind_address: str = setting(
        "127.0.0.1", "Address to listen on; 0.0.0.0 opens the name server to every network of the host.", important=True
    )
    listen_port: int = setting(9876, "Port to listen on; 0 takes a free one.", important=True, minimum=0, maximum=65535)
    namesrv_addr: tuple[str, ...] = setting(
        (),
        # Not from NAMESRV_ADDR: if set, it usually names this name server, which would then ask itself.
        "Name servers of the product environment, host:port, for clusterTest.",
        flag="-n",
        default_note="looked up at namesrvDomain",
    )
    namesrv_domain: str = setting(
        "jmenv.tbsite.net",
        "Host, or host:port, that clusterTest asks over HTTP for the product environment's name servers.",
    )
    namesrv_domain_subgroup: str = setting("nsaddr", "Last part of the path of that request.")


def with_config_store_path(loaded: Loaded) -> Loaded:
    """With `-c` a change is saved in that file, whatever configStorePath says, so that it holds at the next start."""
    if not loaded.file_name:
        return loaded
    configs = tuple(
        dataclasses.replace(config, config_store_path=loaded.file_name) if isinstance(config, NamesrvConfig) else config
        for config in loaded.configs
    )
    return dataclasses.replace(loaded, configs=configs)
