"""The console as an ASGI application, and its server: starlette on hypercorn's trio worker.

Java: rocketmq-dashboard's App.java
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from rocketlet.client.talking.session import World
from rocketlet.common.clock import WallClock, system_clock
from rocketlet.common.errors import RocketletError
from rocketlet.console.audit import Audit
from rocketlet.console.cluster import Cluster
from rocketlet.console.config import ConsoleConfig
from rocketlet.console.history import History
from rocketlet.console.jobs import Jobs
from rocketlet.console.routes import ROUTES
from rocketlet.console.sampling import Sampler
from rocketlet.console.visitors import Visitors
from rocketlet.console.web import Console
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.signing import Signer
from rocketlet.remoting.transport import Network, join_address
from rocketlet.tools.admin.calls import Admin, admin

log = logging.getLogger("rocketlet.console.app")


def create_app(
    config: ConsoleConfig,
    calls: Admin,
    nursery: trio.Nursery,
    clock: WallClock = system_clock,
    world: World | None = None,
) -> Starlette:
    """The application for a cluster. Long changes run in the nursery."""
    app = Starlette(
        routes=[*ROUTES, Mount("/static", StaticFiles(directory=str(files("rocketlet.console") / "static")))]
    )
    app.state.console = Console(
        config,
        Cluster(calls),
        History(config.sample_seconds),
        Visitors(config.token, config.viewer_token, read_only=config.read_only, chance=os.urandom),
        Audit(config.audit_file),
        Jobs(nursery),
        clock,
        world,
    )
    return app


@asynccontextmanager
async def connected(config: ConsoleConfig, network: Network | None = None) -> AsyncIterator[Admin]:
    """Calls to the cluster, signed if an account is given."""
    hooks = [Signer(config.access_key, config.secret_key)] if config.access_key else []
    pool = PoolConfig(
        use_tls=config.tls, tls_auth_server=bool(config.tls_ca_file), tls_trust_path=config.tls_ca_file,
        tls_cert_path=config.tls_cert_file, tls_key_path=config.tls_key_file, tls_server_name=config.tls_server_name,
    )  # fmt: skip
    async with admin(config.namesrv, network=network, hooks=hooks, pool=pool) as calls:
        yield calls


async def run(config: ConsoleConfig, stop: Callable[[], Awaitable[None]], *, task_status: trio.TaskStatus[str]) -> None:
    """Serve until `stop` returns. Reports the address of the first page as started."""
    async with connected(config) as calls, trio.open_nursery() as nursery:
        app = create_app(config, calls, nursery)
        nursery.start_soon(Sampler(app.state.console).run)
        server = Config()
        server.bind = [join_address(config.host, config.port)]
        server.accesslog = None
        server.errorlog = logging.getLogger("rocketlet.console.server")
        server.include_server_header = False
        server.backlog = 1024  # as at the other ports
        server.graceful_timeout = 1
        server.keep_alive_timeout = 30
        server.h11_max_incomplete_size = 64 << 10
        bound = cast(list[str], await nursery.start(_serve, app, server, stop))
        task_status.started(bound[0])
        await stop()
        nursery.cancel_scope.cancel()


async def _serve(
    app: Starlette, config: Config, stop: Callable[[], Awaitable[None]], *, task_status: trio.TaskStatus[list[str]]
) -> None:
    logging.getLogger("rocketlet.console.server").setLevel(logging.WARNING)
    try:
        await serve(app, config, shutdown_trigger=stop, task_status=task_status, mode="asgi")  # type: ignore[arg-type]
    except OSError as error:
        raise ListenRefused(
            f"cannot listen on {config.bind[0]}: {error.strerror}; choose another with --port"
        ) from None


class ListenRefused(RocketletError):
    """The address is in use, or not ours."""
