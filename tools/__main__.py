"""The `rocketlet` command. Each subcommand's module is imported when it is used, so that `--help` takes 100 ms.

Exit codes: 0 done; 1 failed, and a line on stderr says why and what to do; 2 wrong arguments or settings; 3 damage was
found (`store check`); 130 interrupted.

Java: (none; `rocketlet` is for newcomers, `mqadmin` has RocketMQ's own commands)
"""

from __future__ import annotations

import sys

import click

from rocketlet.tools.late_group import VERSION, Commands, LateGroup, run

COMMANDS: Commands = {
    "up": ("rocketlet.tools.up", "up", "Start a name server and a broker in this process."),
    "console": ("rocketlet.console.__main__", "console", "Pages over a cluster, for a browser."),
    "send": ("rocketlet.tools.message_commands", "send", "Send a message."),
    "tail": ("rocketlet.tools.message_commands", "tail", "Print the messages of a topic as they come."),
    "topics": ("rocketlet.tools.look_commands", "topics", "List topics with their queues and messages."),
    "groups": ("rocketlet.tools.look_commands", "groups", "List consumer groups with their lag."),
    "brokers": ("rocketlet.tools.look_commands", "brokers", "List masters, and slaves with what they lack."),
    "export": ("rocketlet.tools.message_commands", "export", "Write the messages of a topic to a file."),
    "dead-letters": (
        "rocketlet.tools.dead_letter_commands",
        "dead_letters",
        "Look at dead letters, send them again.",
    ),
    "store": (
        "rocketlet.tools.store_commands",
        "store",
        "Check, repair, print, empty a store's files, without a broker.",
    ),
    "tls": ("rocketlet.tools.tls_commands", "tls", "Make certificates for TLS."),
    "completion": (
        "rocketlet.tools.completion",
        "completion",
        "Print a shell's completion script.",
    ),
}


@click.group(cls=LateGroup, late=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@VERSION
def rocketlet() -> None:
    """RocketMQ in Python: start one, send, look, repair.

    NAMESRV_ADDR selects the name servers (default 127.0.0.1:9876); NO_COLOR switches colours off; every
    command that prints data has --json. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found, 130 interrupted.
    RocketMQ's own administration commands are in `mqadmin`.
    """


def main(arguments: list[str] | None = None) -> None:
    """The command; ends the process."""
    sys.exit(run(rocketlet, "rocketlet", arguments))


if __name__ == "__main__":
    main()
