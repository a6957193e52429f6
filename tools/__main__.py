"""The `rocketlet` command. Each sub-command's module is imported when it is used, so that `--help` answers in 100 ms.

Exit codes: 0 done; 1 it failed, a line on stderr says what and what to do; 2 wrong arguments or settings; 3 damage was
found (`store check`); 130 interrupted.

Java: (none; `rocketlet` is what a newcomer meets first, `mqadmin` speaks RocketMQ's own commands)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import click

from common.errors import RocketletError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_INTERRUPTED = 130

# Name: where it is, and its line in the list, which is here so that no module is imported to print it.
COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "up": ("tools.up", "up", "Start a name server and a broker in this process."),
    "send": ("tools.message_commands", "send", "Send a message."),
    "tail": ("tools.message_commands", "tail", "Print the messages of a topic as they come."),
    "topics": ("tools.look_commands", "topics", "List topics with their queues and messages."),
    "groups": ("tools.look_commands", "groups", "List consumer groups with their lag."),
    "export": ("tools.message_commands", "export", "Write the messages of a topic to a file."),
    "dead-letters": ("tools.dead_letter_commands", "dead_letters", "Look at dead letters and send them again."),
    "store": ("tools.store_commands", "store", "Check, repair and print a store's files, without a broker."),
    "completion": ("tools.completion", "completion", "Print the script that completes these commands in a shell."),
}


class LateGroup(click.Group):
    """Knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
            ctx.fail(f"no command {args[0]}; {hint}")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("rocketlet")
        except PackageNotFoundError:  # run from a source tree that was never installed
            number = "of a source tree"
        click.echo(f"rocketlet {number}, speaks RocketMQ 4.9.8")
        ctx.exit()


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def rocketlet() -> None:
    """RocketMQ in Python: start one, send, look, repair.

    NAMESRV_ADDR says which name servers are meant (default 127.0.0.1:9876); NO_COLOR switches colours off; every
    command that prints data has --json. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found.
    """


def main(arguments: list[str] | None = None) -> None:
    """The command; ends the process."""
    sys.exit(run(rocketlet, "rocketlet", arguments))


def run(command: click.Command, program: str, arguments: list[str] | None = None) -> int:
    """Run a click command and turn what it raises into one line and an exit code."""
    try:
        result: Any = command.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo(f"{program}: interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader, `head` say, has seen enough
    except (RocketletError, OSError) as error:
        click.echo(f"{program}: {error}", err=True)
        return EXIT_FAILED
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
