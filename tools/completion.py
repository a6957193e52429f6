"""`rocketlet completion SHELL`: the script that makes a shell complete commands, options and file names.

Java: (none)
"""

from __future__ import annotations

import click

VARIABLE = "_ROCKETLET_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes these commands in a shell.

    \b
    bash:  eval "$(rocketlet completion bash)"      in ~/.bashrc
    zsh:   eval "$(rocketlet completion zsh)"       in ~/.zshrc
    fish:  rocketlet completion fish > ~/.config/fish/completions/rocketlet.fish
    """
    from click.shell_completion import get_completion_class

    from rocketlet.tools.__main__ import rocketlet

    kind = get_completion_class(shell)
    assert kind is not None  # click.Choice has checked it
    click.echo(kind(rocketlet, {}, "rocketlet", VARIABLE).source())
