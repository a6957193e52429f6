"""`rocketlet up`: a name server and a broker in one process, in the foreground, until Ctrl-C.

Once everything is ready it prints the addresses, the data directory, how to connect and how to stop. With --print-addr
it prints only the name server's address, for test suites in any language.

Java: (none)
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rocketlet.common.errors import RocketletError

if TYPE_CHECKING:
    import trio

    from rocketlet.tools.local_settings import Addresses, LocalSettings

DEFAULT_DIRECTORY = "rocketlet-data"
CONSOLE_PORT = 8088
METRICS_PORT = 5557  # RocketMQ 5's


class ConsoleFailed(RocketletError):
    """The console did not start."""


@click.command()
@click.option(
    "--dir", "directory", envvar="ROCKETLET_DIR", metavar="DIR", default=DEFAULT_DIRECTORY, show_default=True,
    type=click.Path(file_okay=False), help="Where all data is kept; created if missing.",
)  # fmt: skip
@click.option("--memory", is_flag=True, help="Keep all data in memory only.")
@click.option(
    "--listen", "host", metavar="HOST", default="127.0.0.1", show_default=True,
    help="Address to listen on; 0.0.0.0 for access from containers and other hosts.",
)  # fmt: skip
@click.option(
    "--advertise", envvar="ROCKETLET_ADVERTISE", metavar="HOST", default="",
    help="Address that clients are told to connect to, if it is another one.",
)  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=9876, show_default=True, help="Port of the name server.")
@click.option(
    "--broker-port",
    type=click.IntRange(0, 65535),
    default=10911,
    show_default=True,
    help="Port of the broker; 0: any free port.",
)
@click.option("--brokers", type=click.IntRange(1, 8), default=1, show_default=True, help="Number of brokers.")
@click.option(
    "--processes",
    is_flag=True,
    help="Run each broker in a process of its own, to use more cores.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 4), default=1, show_default=True,
    help="Copies of each broker's messages: 2 are a SYNC_MASTER and a slave, 3 elect their master.",
)  # fmt: skip
@click.option(
    "-c", "--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="A broker.conf of RocketMQ's."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker setting, as in broker.conf; repeatable."
)
@click.option(
    "--metrics-port", type=click.IntRange(-1, 65535), metavar="PORT",
    help="Of the page of metrics: 5557, or a free one where that is taken. 0: a free one. -1: none.",
)  # fmt: skip
@click.option(
    "--grpc-port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Serve clients of RocketMQ 5 too, usually at 8081; 0: a free port. Needs the extra grpc.",
)  # fmt: skip
@click.option("--console", "with_console", is_flag=True, help="And the console, at port 8088 or a free one.")
@click.option("--print-addr", is_flag=True, help="Print the name server's address alone, once ready; for test suites.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON once ready.")
@click.option("-v", "--verbose", is_flag=True, help="Log to stderr.")
def up(print_addr: bool, as_json: bool, verbose: bool, with_console: bool, **options: Any) -> int:
    """Start a name server and a broker in this process.

    Clients find them with NAMESRV_ADDR=127.0.0.1:9876. Ctrl-C stops them in order. After a crash or kill -9 the next
    start recovers everything that was acknowledged.
    """
    from rocketlet.common.config_file import read_file
    from rocketlet.common.logging_setup import LogConfig, LogLevel, set_up
    from rocketlet.common.settings import SettingsError
    from rocketlet.tools.local import LocalStack
    from rocketlet.tools.local_settings import LocalSettings

    if options["processes"] and (options["memory"] or options["replicas"] > 1):
        raise click.UsageError("--processes is for brokers with a directory and without replicas")
    set_up(LogConfig(log_level=LogLevel.INFO if verbose else LogLevel.WARNING))
    file = options["config_file"]
    try:
        settings = LocalSettings(
            directory=None if options["memory"] else os.path.abspath(options["directory"]),
            host=options["host"],
            advertise=options["advertise"],
            namesrv_port=options["port"],
            broker_port=options["broker_port"],
            brokers=options["brokers"],
            replicas=options["replicas"],
            processes=options["processes"],
            metrics_port=_metrics_port(options["metrics_port"], options["port"]),
            grpc_port=options["grpc_port"],
            metrics_port_may_differ=options["metrics_port"] is None,
            settings={"traceTopicEnable": "true", **_pairs(options["settings"])},
            file=read_file(file) if file else None,
        )
        stack = LocalStack(settings)
    except SettingsError as error:
        for problem in error.problems:
            click.echo(f"rocketlet up: {problem}", err=True)
        return 2
    for warning in stack.warnings:
        click.echo(f"rocketlet up: {warning}", err=True)
    format = "address" if print_addr else "json" if as_json else "person"
    return _run(stack, settings, format, with_console)


def _metrics_port(port: int | None, namesrv_port: int) -> int | None:
    if port is not None:
        return port if port >= 0 else None
    return METRICS_PORT if namesrv_port else 0  # a free port for one means free ports for all


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals or not key:
            raise click.UsageError(f"--set {key}: write KEY=VALUE, as in broker.conf")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _run(stack: Any, settings: LocalSettings, format: str, with_console: bool) -> int:
    import trio

    from rocketlet.common.errors import leaves
    from rocketlet.remoting.server_process import GC_THRESHOLDS

    async def serve() -> None:
        gc.set_threshold(*GC_THRESHOLDS)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                addresses: Addresses = await nursery.start(stack.run)
                _print_addresses(addresses, settings, format)
                if with_console:
                    await nursery.start(_console, addresses.namesrv, format)
                gc.collect()
                gc.freeze()  # what exists after the start lives as long as the process
                number = await anext(aiter(signals))
                if format == "person":
                    click.echo(f"{signal.Signals(number).name}: stopping")
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C does not wait
                nursery.cancel_scope.cancel()

    code = 0
    try:
        trio.run(serve)
    except* (RocketletError, OSError) as group:
        code = 1
        for error in leaves(group):
            click.echo(f"rocketlet up: {error}{_advice(error)}", err=True)
    return code


async def _console(namesrv: str, format: str, *, task_status: trio.TaskStatus[None]) -> None:
    """The console, in a separate process that ends with this one."""
    import subprocess

    import trio

    port = str(CONSOLE_PORT) if await _is_free(CONSOLE_PORT) else "0"
    command = [sys.executable, "-m", "rocketlet.console", "-n", namesrv, "--port", port, "--print-addr"]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        line = b""
        while not line.endswith(b"\n") and (chunk := await process.stdout.receive_some()):
            line += chunk
        if not line:
            raise ConsoleFailed("the console has not started; its own lines above say why")
        if format == "person":
            click.echo(f"  console       {line.decode().strip()}")
            sys.stdout.flush()
        task_status.started()
        await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _is_free(port: int) -> bool:
    import trio

    with trio.socket.socket() as probe:
        try:
            await probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _advice(error: BaseException) -> str:
    """Advice for an address that cannot be listened on."""
    import errno

    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    if number == errno.EADDRINUSE:
        return (
            "; another one is running there: use it, stop it, or choose with --port and --broker-port (0: a free port)"
        )
    if number == errno.EADDRNOTAVAIL:
        return "; this machine has no such address: --listen takes one of its own, or 0.0.0.0 for all"
    if number == errno.EACCES:
        return "; choose a directory that you may write to, or a port from 1024 on"
    return ""


def _print_addresses(addresses: Addresses, settings: LocalSettings, format: str) -> None:
    if format == "address":
        click.echo(addresses.namesrv)
    elif format == "json":
        import json

        click.echo(
            json.dumps(
                {
                    "namesrv": addresses.namesrv,
                    "brokers": dict(addresses.brokers),
                    "onThisHost": dict(addresses.loopback),
                    "metrics": f"http://{addresses.metrics}/metrics" if addresses.metrics else "",
                    "grpc": addresses.grpc,
                    "directory": settings.directory,
                    "pid": os.getpid(),
                }
            )
        )
    else:
        click.echo(_greeting(addresses, settings))
    sys.stdout.flush()


def _greeting(addresses: Addresses, settings: LocalSettings) -> str:
    open_to_all = settings.host in ("0.0.0.0", "::")
    lines = ["Rocketlet is ready.", f"  name server   {addresses.namesrv}"]
    lines += [f"  clients are told {name} at {address}" for name, address in addresses.brokers.items()]
    if addresses.loopback:
        lines += [f"     and on this host {name} at {address}" for name, address in addresses.loopback.items()]
    lines += [f"  recovered     {name}: {note}" for name, note in addresses.recovered.items()]
    lines += [
        f"  data          {settings.directory or 'in memory only'}",
        f"  connect       NAMESRV_ADDR={addresses.namesrv} with any RocketMQ client",
    ]
    if addresses.grpc:
        lines.append(f"  gRPC          endpoints={addresses.grpc} with clients of RocketMQ 5, by TLS or plain")
    if addresses.metrics:
        lines.append(f"  metrics       http://{addresses.metrics}/metrics, also /healthz and /readyz")
    if open_to_all:
        host = next(iter(addresses.brokers.values())).rpartition(":")[0]
        port = addresses.namesrv.rpartition(":")[2]
        lines.append(f"  from elsewhere NAMESRV_ADDR={host}:{port}")
    lines += [
        "  try           rocketlet send hello 'Hello, world'; rocketlet tail hello --from-start",
        f"  stop          Ctrl-C, or kill {os.getpid()}",
    ]
    if settings.host in ("127.0.0.1", "localhost"):
        lines.append("  It listens on this host only; --listen 0.0.0.0 admits containers and other hosts.")
    elif not settings.advertise:
        lines.append("  If clients cannot reach this address, name another one with --advertise HOST.")
    return "\n".join(lines)
