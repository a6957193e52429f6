"""`rocketlet dead-letters`: list and resend the dead letters of a group.

Java: (the console's page "DLQ message")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rocketlet.common.message import ReceivedMessage

Function = TypeVar("Function", bound=Callable[..., Any])

SHOWN = 60  # characters of a body

_namesrv = click.option(
    "-n", "--namesrv", envvar="NAMESRV_ADDR", default="127.0.0.1:9876", show_default=True, metavar="HOST:PORT;...",
    help="Name servers.",
)  # fmt: skip
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a message.")


def _selection_options(function: Function) -> Function:
    """The options that choose among a group's dead letters."""
    for option in (
        click.option("--id", "ids", multiple=True, metavar="ID", help="Message id, of whatever kind; repeatable."),
        click.option("--key", "keys", multiple=True, metavar="KEY", help="One of its keys; repeatable."),
    ):
        function = option(function)
    return function


@click.group("dead-letters")
def dead_letters() -> None:
    """List and resend dead letters."""


@dead_letters.command("list")
@click.argument("group")
@_selection_options
@click.option(
    "--newest", type=click.IntRange(1), default=100, show_default=True, help="At most this many from each queue."
)
@_namesrv
@_as_json
def list_them(
    group: str, ids: tuple[str, ...], keys: tuple[str, ...], newest: int, namesrv: str, as_json: bool
) -> None:
    """List the messages that GROUP could not consume, oldest first."""
    import trio

    from rocketlet.tools.dead_letters import Wanted, dead_letters_of
    from rocketlet.tools.output import print_rows

    _check_names(group)

    async def read() -> list[ReceivedMessage]:
        async with dead_letters_of(group, namesrv) as letters:
            selection = Wanted(frozenset(ids), frozenset(keys))
            return await letters.read(selection, None if ids or keys else newest)

    rows = [_row(message, as_json) for message in trio.run(read)]
    if not rows:
        trio.run(_check_group, group, namesrv)
        click.echo(f"group {group} has no such dead letter", err=True)
        return
    print_rows(["stored", "topic", "tries", "id", "keys", "body"], rows, as_json=as_json)


@dead_letters.command("resend")
@click.argument("group")
@_selection_options
@click.option("--all", "everything", is_flag=True, help="All dead letters of the group.")
@click.option("--to", "topic", metavar="TOPIC", help="Send to this topic, for everybody, not only to the group.")
@click.option("--dry-run", is_flag=True, help="Only show what would be sent.")
@_namesrv
@_as_json
def resend(
    group: str,
    ids: tuple[str, ...],
    keys: tuple[str, ...],
    everything: bool,
    topic: str | None,
    dry_run: bool,
    namesrv: str,
    as_json: bool,
) -> int:
    """Resend dead letters of GROUP, to that group only, or with --to to a topic.

    A dead letter stays in its queue: resending it twice delivers it twice.
    """
    import trio

    from rocketlet.client.errors import ClientError
    from rocketlet.tools.dead_letters import Wanted, dead_letters_of, ids_of
    from rocketlet.tools.output import print_rows

    if not (ids or keys or everything):
        raise click.UsageError("say which: --id, --key or --all")
    _check_names(group, topic)
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    missing = set(ids)

    async def work() -> None:
        async with dead_letters_of(group, namesrv) as letters:
            for message in await letters.read(Wanted(frozenset(ids), frozenset(keys))):
                missing.difference_update(ids_of(message))
                row = _row(message, as_json)
                if not dry_run:
                    try:
                        row["sent to"] = await letters.send_again(message, topic)
                    except ClientError as error:
                        failed.append(f"{message.message_id}: {error}")
                        continue
                rows.append(row)

    trio.run(work)
    if not rows and not failed:
        trio.run(_check_group, group, namesrv)
    heads = ["stored", "topic", "tries", "id", "keys", "body"] + ([] if dry_run else ["sent to"])
    print_rows(heads, rows, as_json=as_json)
    for line in failed:
        click.echo(f"not sent: {line}", err=True)
    for missing_id in sorted(missing):
        click.echo(f"no dead letter of group {group} has the id {missing_id}", err=True)
    click.echo(f"{len(rows)} {'would be sent' if dry_run else 'sent'}", err=True)
    return 1 if failed or missing else 0


async def _check_group(group: str, namesrv: str) -> None:
    from rocketlet.tools.admin.calls import admin
    from rocketlet.tools.admin.credentials import signer

    async with admin(namesrv, hooks=signer(os.environ)) as calls:
        await calls.check_group(group)


def _check_names(group: str, topic: str | None = None) -> None:
    from rocketlet.common.topic import InvalidName, check_group_name, check_topic_name

    try:
        check_group_name(group)
        if topic is not None:
            check_topic_name(topic)
    except InvalidName as error:
        raise click.UsageError(str(error)) from None


def _row(message: ReceivedMessage, whole: bool) -> dict[str, Any]:
    from rocketlet.tools.dead_letters import origin_of
    from rocketlet.tools.output import text_of, time_of

    body = text_of(message.body)
    return {
        "stored": time_of(message.store_timestamp),
        "topic": origin_of(message),
        "tries": message.reconsume_times,
        "id": message.message_id,
        "keys": " ".join(message.keys),
        "body": body if whole or len(body) <= SHOWN else body[: SHOWN - 3] + "...",
    }
