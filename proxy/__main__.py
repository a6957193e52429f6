"""mqproxy: `python -m rocketlet.proxy [-n HOST:PORT] [--grpc-port PORT] [-c FILE] [-p | -m] [--SETTING VALUE]...`

Exit codes: `remoting/server_process.py`.

Java: proxy/ProxyStartup.java, bin/mqproxy
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketlet.access.config import AccessConfig
from rocketlet.access.folder import RealFolder
from rocketlet.common import command_line
from rocketlet.common.errors import RocketletError
from rocketlet.metrics.config import MetricsConfig
from rocketlet.proxy.config import ProxyConfig
from rocketlet.remoting import server_process
from rocketlet.remoting.config import PoolConfig, ServerConfig

if TYPE_CHECKING:
    import trio

    from rocketlet.common.config_file import Loaded

PROGRAM = "mqproxy"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command; ends the process."""
    loaded = command_line.read(
        PROGRAM,
        "The gRPC endpoint: serves clients of RocketMQ 5 before brokers that speak remoting.",
        [ProxyConfig, ServerConfig, PoolConfig, AccessConfig, MetricsConfig],
        arguments=arguments,
        environment=os.environ,
    )
    sys.exit(server_process.run(PROGRAM, lambda nursery: _start(nursery, loaded)))


async def _start(nursery: trio.Nursery, loaded: Loaded) -> str:
    try:
        from rocketlet.proxy.proxy import Proxy
    except ModuleNotFoundError as error:
        raise RocketletError(f"package {error.name} is missing; pip install 'rocketlet[grpc]'") from error

    network = server_process.tcp_network(loaded[ServerConfig])
    access = loaded[AccessConfig]
    proxy = Proxy(
        loaded[ProxyConfig],
        loaded[ServerConfig],
        loaded[PoolConfig],
        network,
        access=access,
        accounts=RealFolder(access.folder(loaded.file_name)),
    )
    address: str = await nursery.start(proxy.run)
    metrics = ""
    config = loaded[MetricsConfig]
    if config.is_on:
        from rocketlet.metrics.endpoint import Endpoint

        endpoint = Endpoint(network, [proxy.metrics], config.metrics_max_series)
        host = config.metrics_prom_exporter_host or loaded[ProxyConfig].bind_address
        served = await nursery.start(endpoint.serve, host, config.metrics_prom_exporter_port)
        metrics = f", metrics at http://{served}/metrics"
    servers = ";".join(loaded[ProxyConfig].name_servers)
    return f"proxy boot success, gRPC with and without TLS at {address}, name servers {servers}{metrics}"


if __name__ == "__main__":
    main()
