"""Shared by all mqadmin commands: `-n` and `--json`, a connection, and printing results.

    @command("topicStatus")
    @click.option("-t", "--topic", required=True)
    async def topic_status(calls: Admin, topic: str) -> Result: ...

A command returns a Table or Said, or yields several; both are printed as by RocketMQ's mqadmin, in columns that scripts
know, or as JSON lines with --json. Options with a value in RocketMQ (`-o true`) have one here.

Java: tools/command/SubCommand.java, tools/command/MQAdminStartup.java
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import click

from rocketlet.common.errors import RocketletError
from rocketlet.common.moment import moment_of
from rocketlet.tools.output import print_json

if TYPE_CHECKING:
    from rocketlet.tools.admin.calls import Admin


class AdminError(RocketletError):
    """A command failed for a reason found here and not at a server."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by key; `heads` are key -> heading, in order. `after` is printed for people only."""

    heads: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """Lines for people, and for machines one JSON object or a list of them, one per line."""

    lines: Sequence[str]
    data: Any = field(default_factory=lambda: {"done": True})


Result = Table | Said
Answering = Callable[..., Awaitable[Result]]
Yielding = Callable[..., AsyncIterator[Result]]

# Options that select one broker or those of a cluster.
BROKER = click.option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="This broker.")
CLUSTER = click.option("-c", "--clusterName", "cluster", metavar="NAME", help="All masters of this cluster.")
TOPIC = click.option("-t", "--topic", required=True, metavar="TOPIC", help="The topic.")
GROUP = click.option("-g", "--groupName", "group", required=True, metavar="GROUP", help="The consumer group.")


class AdminCommand(click.Command):
    """A command that can be used without a command line, by the console."""

    answering: Answering

    async def run(self, calls: Admin, **given_options: Any) -> Result:
        """Run the command with these options; the others have their defaults. Raises AdminError."""
        options = self.make_context(self.name, [], resilient_parsing=True).params
        del options["namesrv"], options["as_json"]
        unknown = given_options.keys() - options.keys()
        assert not unknown, f"{self.name} has no option {', '.join(unknown)}"
        try:
            return await self.answering(calls, **{**options, **given_options})
        except click.UsageError as error:
            raise AdminError(error.format_message()) from None


def command(name: str) -> Callable[[Answering | Yielding], AdminCommand]:
    """Turn a function of (calls, **options) into a click command. Its docstring is the help."""

    def decorate(function: Answering | Yielding) -> AdminCommand:
        @functools.wraps(function)
        def run(namesrv: str | None, as_json: bool, **options: Any) -> None:
            import trio

            trio.run(_run, function, namesrv, as_json, options)

        for option in (
            click.option("--json", "as_json", is_flag=True, help="One JSON object a line."),
            click.option("-n", "--namesrvAddr", "namesrv", metavar="HOST:PORT", help="Name servers [NAMESRV_ADDR]."),
        ):
            run = option(run)
        names = {"help_option_names": ["-h", "--help"]}
        result = click.command(name, cls=AdminCommand, context_settings=names)(run)
        result.answering = cast(Answering, function)
        return result

    return decorate


async def _run(function: Answering | Yielding, namesrv: str | None, as_json: bool, options: dict[str, Any]) -> None:
    async with connected(namesrv) as calls:
        answer = function(calls, **options)
        if isinstance(answer, AsyncIterator):
            async for result in answer:
                show(result, as_json=as_json)
        else:
            show(await answer, as_json=as_json)


@asynccontextmanager
async def connected(namesrv: str | None) -> AsyncIterator[Admin]:
    """Calls to the name servers of -n, or of NAMESRV_ADDR."""
    from rocketlet.tools.admin.calls import admin, chosen_name_servers
    from rocketlet.tools.admin.credentials import signer

    async with admin(chosen_name_servers(namesrv, os.environ), hooks=signer(os.environ)) as calls:
        yield calls


def show(result: Result, *, as_json: bool) -> None:
    """Print it."""
    if isinstance(result, Table):
        if as_json:
            for row in result.rows:
                print_json(row)
        else:
            _print_columns(result)
    elif not as_json:
        for line in result.lines:
            click.echo(line)
    elif isinstance(result.data, list):
        for item in result.data:
            print_json(item)
    elif result.data is not None:
        print_json(result.data)


def _print_columns(table: Table) -> None:
    lines = [list(table.heads.values())] if table.heads else []
    lines += [[_cell(row.get(key, "")) for key in table.heads] for row in table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for text in table.after:
        click.echo(text)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


async def brokers_chosen(calls: Admin, broker: str | None, cluster: str | None) -> dict[str, str]:
    """Name -> address of the brokers selected by -b and -c; of all masters without them."""
    if broker:
        return {await calls.broker_name(broker) or broker: broker}
    return await calls.masters(cluster or "")


async def addresses_chosen(calls: Admin, broker: str | None, cluster: str | None) -> list[str]:
    """The addresses of the same brokers. That of -b counts without a name server, which may be down."""
    return [broker] if broker else list((await calls.masters(cluster or "")).values())


def one_of(broker: str | None, cluster: str | None) -> None:
    """Raise UsageError unless exactly one of -b and -c is given."""
    if bool(broker) == bool(cluster):
        raise click.UsageError("give -b, one broker's address, or -c, a cluster's name")


def properties_lines(title: str, properties: Mapping[str, str]) -> list[str]:
    """Settings in mqadmin's format."""
    return [title, *(f"{key:<50}=  {value}" for key, value in properties.items()), ""]


def moment(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """A callback: `now`, -1, milliseconds since 1970, or 2026-01-31#23:59:59:999 in local time; -1 for now."""
    if text is None or text in ("now", "-1"):
        return None if text is None else -1
    if text.isdigit():
        return int(text)
    for pattern in ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S"):
        try:
            return int(datetime.strptime(text, pattern).timestamp() * 1000)
        except ValueError:
            continue  # the next spelling
    raise click.BadParameter(
        f"{text} is no time: write now, milliseconds since 1970, or 2026-01-31#23:59:59:000", ctx, param
    )


def wire_time(ms: int, *, fraction: bool = False, none: str = "") -> str:
    """A time as mqadmin prints it."""
    if ms <= 0:
        return none
    text = moment_of(ms).strftime("%Y-%m-%d %H:%M:%S")
    return f"{text},{ms % 1000:03d}" if fraction else text
