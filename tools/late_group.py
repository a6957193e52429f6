"""A click group that imports its commands on demand, and the one place that handles a program's errors.

Importing all commands of `rocketlet` takes half a second. `--help` needs none of them, because the group knows their
names and summaries.

Java: tools/command/MQAdminStartup.java
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from rocketlet.common.errors import RocketletError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_INTERRUPTED = 130

# Name: its module, its name there, and its line in the list.
Commands = Mapping[str, tuple[str, str, str]]


class LateGroup(click.Group):
    """Knows its commands by name and imports them on demand."""

    def __init__(self, *args: Any, late: Commands, **options: Any) -> None:
        super().__init__(*args, **options)
        self.late = late

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.late)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.late:
            return None
        module, name, _ = self.late[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in self.late.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] == "help" and "help" not in self.late:  # `mqadmin help topicList`, as in RocketMQ
            args = [*args[1:2], "--help"] if args[1:] else ["--help"]
            if args == ["--help"]:
                click.echo(ctx.get_help())
                ctx.exit()
        if args and not args[0].startswith("-") and args[0] not in self.late:
            import difflib

            near = difflib.get_close_matches(args[0], self.late, n=1)
            hint = f"did you mean {near[0]}?" if near else f"--help lists all {len(self.late)}"
            ctx.fail(f"no command {args[0]}; {hint}")
        return super().resolve_command(ctx, args)


def print_version(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    """The callback of --version."""
    if requested and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("rocketlet")
        except PackageNotFoundError:  # run from a source tree that is not installed
            number = "of a source tree"
        click.echo(f"rocketlet {number}, speaks RocketMQ 4.9.8")
        ctx.exit()


VERSION = click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Print the version."
)


def run(command: click.Command, program: str, arguments: list[str] | None = None) -> int:
    """Run a click command and turn its errors into one line and an exit code."""
    try:
        result: Any = command.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{program}: interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader, such as `head`, has closed the pipe
    except UnicodeEncodeError as error:  # a word of the command line in another encoding, which no server can be sent
        click.echo(f"{program}: {error.object!r} is no valid text: {error.reason}", err=True)
        return EXIT_FAILED
    except (RocketletError, OSError) as error:
        click.echo(f"{program}: {error}", err=True)
        return EXIT_FAILED
    return result if isinstance(result, int) else 0
