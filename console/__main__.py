"""`rocketlet console`, also `python -m rocketlet.console`.

Java: rocketmq-dashboard's App.java
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from typing import Any

import click

from rocketlet.common.errors import RocketletError, leaves

_HELP = {"help_option_names": ["-h", "--help"]}


@click.command(context_settings=_HELP)
@click.option("-n", "--namesrv", metavar="HOST:PORT", help="Name servers [NAMESRV_ADDR, or 127.0.0.1:9876].")
@click.option(
    "--listen", "host", default="127.0.0.1", show_default=True, metavar="HOST", help="Beyond loopback one logs in."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8088, show_default=True, help="0: a free one.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name that browsers use for it; repeatable.")
@click.option("--token", envvar="ROCKETLET_CONSOLE_TOKEN", default="", metavar="TEXT", help="What one logs in with.")
@click.option(
    "--viewer-token", envvar="ROCKETLET_CONSOLE_VIEWER_TOKEN", default="", metavar="TEXT", help="To look only."
)
@click.option("--read-only", is_flag=True, help="Nobody may change anything.")
@click.option("--audit", "audit_file", default="", metavar="FILE", help="Lines of changes are appended to it [stderr].")
@click.option("--language", type=click.Choice(["en", "zh"]), default=None, help="If a browser says nothing else.")
@click.option("--accounts", default="", metavar="DIR", help="The folder of plain_acl.yml: shows accounts' rights.")
@click.option("--access-key", envvar="ROCKETLET_ACCESS_KEY", default="", help="Account at brokers with access control.")
@click.option("--secret-key", envvar="ROCKETLET_SECRET_KEY", default="", help="Its secret; better in the environment.")
@click.option("--tls", envvar="ROCKETLET_TLS", is_flag=True, help="TLS to name servers and brokers.")
@click.option(
    "--tls-ca-file",
    envvar="ROCKETLET_TLS_CA_FILE",
    default="",
    metavar="FILE",
    help="Certificates to trust; without it none is verified.",
)
@click.option(
    "--tls-cert-file",
    envvar="ROCKETLET_TLS_CERT_FILE",
    default="",
    metavar="FILE",
    help="The console's own certificate.",
)
@click.option("--tls-key-file", envvar="ROCKETLET_TLS_KEY_FILE", default="", metavar="FILE", help="Its key.")
@click.option(
    "--tls-server-name",
    envvar="ROCKETLET_TLS_SERVER_NAME",
    default="",
    metavar="NAME",
    help="The name that servers' certificates must bear.",
)
@click.option("--print-addr", is_flag=True, help="Print the address alone, once ready.")
def console(namesrv: str | None, print_addr: bool, language: str | None, **options: Any) -> int:
    """Pages over a cluster, ours or a Java one: topics, consumers, messages, brokers.

    It is a client like others, in a process of its own; stop it with Ctrl-C.
    """
    from rocketlet.common.logging_setup import LogConfig, LogLevel, set_up
    from rocketlet.console.config import ConsoleConfig
    from rocketlet.tools.admin.calls import chosen_name_servers

    set_up(LogConfig(log_level=LogLevel.WARNING))
    config = ConsoleConfig(namesrv=chosen_name_servers(namesrv, os.environ), language=language or "", **options)
    token = ""
    if not config.is_loopback and not config.needs_login:
        token = secrets.token_urlsafe(18)
        config = ConsoleConfig(namesrv=config.namesrv, language=config.language, **{**options, "token": token})
    return _run(config, token, print_addr)


def _run(config: Any, made_token: str, print_addr: bool) -> int:
    try:
        import hypercorn
        import jinja2
        import starlette
    except ImportError as error:
        click.echo(f'rocketlet console needs more packages: pip install "rocketlet[console]" ({error})', err=True)
        return 1
    del hypercorn, jinja2, starlette
    import trio

    from rocketlet.console.app import run

    async def serve() -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                address: str = await nursery.start(run, config, stop.wait)
                if print_addr:
                    click.echo(address)
                else:
                    click.echo(f"The console is at {address}, over {config.namesrv}; Ctrl-C stops it.")
                    if made_token:
                        click.echo(f"Log in with the token {made_token}")
                sys.stdout.flush()
                await anext(aiter(signals))
                stop.set()

    code = 0
    try:
        trio.run(serve)
    except* (RocketletError, OSError) as group:
        for problem in leaves(group):
            click.echo(f"rocketlet console: {problem}", err=True)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(console(standalone_mode=False))
