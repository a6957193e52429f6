"""`rocketlet send`, `tail` and `export`: messages from and to the shell.

`tail` and `export` leave no trace: they join no group and store no offset.

Java: tools/command/message/SendMessageCommand.java, ConsumeMessageCommand.java, PrintMessageByQueueCommand.java
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rocketlet.tools.look_commands import JSON, NAMESRV
from rocketlet.tools.output import print_json, say, text_of, time_of

if TYPE_CHECKING:
    from rocketlet.client import PullConsumer
    from rocketlet.common.message import MessageQueue, ReceivedMessage

# Exists on every broker from its start, for tools like these.
TOOLS_GROUP = "TOOLS_CONSUMER"
HOLD_SECONDS = 2.0  # how long a pull that finds nothing waits at the broker
BATCH = 32
PROGRESS_EVERY = 10_000


@click.command()
@click.argument("topic")
@click.argument("body", required=False)
@click.option("--file", "source", type=click.File("rb"), help="Send this file's content; - is standard input.")
@click.option("--lines", is_flag=True, help="With --file: each line is a message.")
@click.option("-t", "--tag", help="Its tag.")
@click.option("-k", "--key", "keys", multiple=True, help="A key to find it by; repeatable.")
@click.option("-p", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; repeatable.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="Deliver later: 1 is 1 s, 18 is 2 h.")
@click.option("--sharding-key", help="Messages with the same one go to the same queue, in order.")
@click.option("--group", default="rocketlet-cli", show_default=True, help="Producer group.")
@NAMESRV
@JSON
def send(
    topic: str,
    body: str | None,
    source: BinaryIO | None,
    lines: bool,
    namesrv: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Send BODY, or a file, to TOPIC."""
    from rocketlet.client import Message, Producer

    if (body is None) == (source is None):
        raise click.UsageError("give a BODY or a --file, one of the two")
    headers = {
        "tags": options["tag"],
        "keys": list(options["keys"]),
        "properties": _pairs(options["properties"]),
        "delay_level": options["delay_level"],
        "sharding_key": options["sharding_key"],
    }
    with Producer(options["group"], namesrv=namesrv) as producer:
        for content in _bodies(body, source, lines):
            result = producer.send(Message(topic, content, **headers))
            if as_json:
                print_json(
                    {
                        "status": result.status.name,
                        "message_id": result.message_id,
                        "offset_message_id": result.offset_message_id,
                        "broker": result.queue.broker_name,
                        "queue": result.queue.queue_id,
                        "offset": result.queue_offset,
                    }
                )
            else:
                say(f"{result.status.name} {result.message_id} in {result.queue} at {result.queue_offset}")
    return 0


def _bodies(body: str | None, source: BinaryIO | None, lines: bool) -> Iterator[bytes]:
    if source is None:
        assert body is not None
        yield body.encode("utf-8", "surrogateescape")
    elif lines:
        for line in source:
            yield line.rstrip(b"\r\n")
    else:
        yield source.read()


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise click.UsageError(f"-p {name}: write NAME=VALUE")
    return {name: value for name, _, value in pairs}


@click.command()
@click.argument("topic")
@click.option("--from-start", is_flag=True, help="Begin with the oldest message instead of the next one.")
@click.option("-f", "--filter", "tags", default="*", show_default=True, help="Tags, as in 'A || B'.")
@click.option("--sql", help="An SQL92 expression over properties, instead of tags.")
@click.option("--count", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--no-follow", is_flag=True, help="Stop at the end instead of waiting for more.")
@NAMESRV
@JSON
def tail(topic: str, from_start: bool, count: int | None, no_follow: bool, namesrv: str | None, **options: Any) -> int:
    """Print the messages of TOPIC as they come, until Ctrl-C. Nothing is consumed: no offset is stored."""
    remaining = count
    with _puller(namesrv) as consumer:
        for message in _messages(consumer, topic, _selection(options), from_start=from_start, follow=not no_follow):
            _print_message(message, as_json=options["as_json"])
            if remaining is not None:
                remaining -= 1
                if not remaining:
                    break
    return 0


@click.command()
@click.argument("topic")
@click.option("--to", "target", type=click.Path(dir_okay=False), help="File to write [standard output].")
@click.option("-f", "--filter", "tags", default="*", show_default=True, help="Tags, as in 'A || B'.")
@click.option("--sql", help="An SQL92 expression over properties, instead of tags.")
@click.option("--since", type=click.DateTime(), help="Only messages stored at or after this local time.")
@click.option("--until", type=click.DateTime(), help="Only messages stored before this local time.")
@NAMESRV
def export(topic: str, target: str | None, namesrv: str | None, since: Any, until: Any, **options: Any) -> int:
    """Write the messages that TOPIC contains now to a file, one JSON object per line.

    For Parquet, and for stores without a running broker: python -m rocketlet.spark_jobs export.
    """
    written = 0
    first = int(since.timestamp() * 1000) if since else 0
    end_time = int(until.timestamp() * 1000) if until else None
    with click.open_file(target or "-", "w", encoding="utf-8") as out, _puller(namesrv) as consumer:
        for message in _messages(consumer, topic, _selection(options), from_start=True, follow=False, since=first):
            if message.store_timestamp < first or (end_time is not None and message.store_timestamp >= end_time):
                continue
            _write_json(message, out)
            written += 1
            if written % PROGRESS_EVERY == 0:
                click.echo(f"{written:,} messages", err=True)
    noun = "message" if written == 1 else "messages"
    click.echo(f"{written:,} {noun} of {topic} written to {target or 'standard output'}", err=True)
    return 0


def _puller(namesrv: str | None) -> PullConsumer:
    from rocketlet.client import PullConsumer

    return PullConsumer(TOOLS_GROUP, namesrv=namesrv)


def _selection(options: dict[str, Any]) -> Any:
    if options["sql"]:
        from rocketlet.client import Sql

        return Sql(options["sql"])
    return options["tags"]


def _messages(
    consumer: PullConsumer, topic: str, selection: Any, *, from_start: bool, follow: bool, since: int = 0
) -> Iterator[ReceivedMessage]:
    """All queues in turn: with `follow` without end, otherwise up to their present ends."""
    offsets: dict[MessageQueue, int] = {}
    ends: dict[MessageQueue, int] = {}
    for queue in consumer.queues(topic):
        ends[queue] = consumer.max_offset(queue)
        if not from_start:
            offsets[queue] = ends[queue]
        elif since:
            offsets[queue] = consumer.offset_at(queue, since)
        else:
            offsets[queue] = consumer.min_offset(queue)
    idle = 0
    while offsets:
        for queue in list(offsets):
            if not follow and offsets[queue] >= ends[queue]:
                del offsets[queue]
                continue
            # A pull may be parked only if all queues were empty, or the others would wait.
            hold_seconds = HOLD_SECONDS / len(offsets) if follow and idle >= len(offsets) else 0.0
            result = consumer.pull(queue, offsets[queue], BATCH, selection, hold=hold_seconds)
            offsets[queue] = result.next_offset
            idle = 0 if result.messages else idle + 1
            yield from result.messages


def _print_message(message: ReceivedMessage, *, as_json: bool) -> None:
    if as_json:
        _write_json(message, sys.stdout)
        sys.stdout.flush()
        return
    place = f"{message.queue.broker_name}/{message.queue.queue_id}@{message.queue_offset}"
    tags = f" [{message.tags}]" if message.tags else ""
    keys = f" ({' '.join(message.keys)})" if message.keys else ""
    say(f"{time_of(message.store_timestamp)} {place}{tags}{keys} {text_of(message.body)}")


def _write_json(message: ReceivedMessage, out: Any) -> None:
    import json

    row = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "stored": message.store_timestamp,
        "born": message.born_timestamp,
        "born_host": message.born_host,
        "tags": message.tags,
        "keys": list(message.keys),
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        "body": text_of(message.body),
    }
    out.write(json.dumps(row, ensure_ascii=False) + "\n")
