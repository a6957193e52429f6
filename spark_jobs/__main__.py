"""python -m rocketlet.spark_jobs: index, find, verify, export, stats and follow: logs and topics, here or on a cluster.

Results go to stdout, progress and remarks to stderr. Exit codes: 0 good, 1 something was found wrong (verify, index
with damages) or not found (find, topics to follow), 2 the command could not run.

Java: tools/command (mqadmin queryMsgByKey, exportMetadata, ...), which need a broker
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocketlet.common.errors import RocketletError
from rocketlet.common.host import host_text
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import decode
from rocketlet.common.moment import moment_of
from rocketlet.common.settings import SettingsError
from rocketlet.spark_jobs.commit_log import DEFAULT_SPLIT, list_segments, store_roots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.follow import Source
    from rocketlet.spark_jobs.index_segments import Rules

F = TypeVar("F", bound=Callable[..., Any])


class Failing(click.Group):
    """Prints our own errors as one line, without a stack trace."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except RocketletError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(2)


@click.group(cls=Failing, help="A RocketMQ store's log, offline, with Spark.")
def main() -> None:
    """The command."""


def spark_options(command: F) -> F:
    for option in (
        click.option("--master", help="Where Spark runs; local[*] unless spark-submit says otherwise."),
        click.option("--partitions", type=click.IntRange(1), help="Cut the log into about this many tasks."),
        click.option("--split-mib", type=click.IntRange(1), default=DEFAULT_SPLIT >> 20, show_default=True,
                     help="MiB of the log that one task reads, where --partitions is not given."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting for Spark."),
    ):  # fmt: skip
        command = option(command)
    return command


def rule_options(command: F) -> F:
    for option in (
        click.option("--queue-file-size", type=click.IntRange(20),
                     help="mappedFileSizeConsumeQueue; that of the store's queues if it has any, else 6000000."),
        click.option("--index-slots", type=click.IntRange(1), default=5_000_000, show_default=True,
                     help="maxHashSlotNum"),
        click.option("--index-entries", type=click.IntRange(2), default=20_000_000, show_default=True,
                     help="maxIndexNum"),
        click.option("--delay-levels", help="messageDelayLevel, where it is not RocketMQ's default."),
    ):  # fmt: skip
        command = option(command)
    return command


def store_option(command: F) -> F:
    text = "The store's root, its commitlog folder, the directory of `rocketlet up`, or several separated by commas."
    return click.option("--store", required=True, metavar="DIR", help=text)(command)


def store_of(path: str) -> str:
    """The stores that a path leads to. Raises SeveralStores."""
    return ",".join(store_roots(path))


@contextmanager
def session_of(
    name: str, master: str | None, conf: tuple[str, ...], *, passes_bytes: bool = False
) -> Iterator[SparkSession]:
    """The session of this process, stopped afterwards if it was started here."""
    from pyspark.sql import SparkSession

    from rocketlet.spark_jobs.session import job_settings, spark_session

    if wrong := [pair for pair in conf if "=" not in pair]:
        raise click.BadParameter(f"{wrong[0]!r} is not like spark.executor.memory=2g", param_hint="--conf")
    was_there = SparkSession.getActiveSession() is not None
    settings = job_settings(master, dict(pair.split("=", 1) for pair in conf), passes_bytes=passes_bytes)
    session = spark_session(name, master=master, settings=settings)
    try:
        yield session
    finally:
        if not was_there:
            session.stop()


def rules_of(
    store: str, queue_file_size: int | None, index_slots: int, index_entries: int, delay_levels: str | None
) -> Rules:
    from rocketlet.spark_jobs.index_segments import Rules
    from rocketlet.spark_jobs.index_writer import queue_file_size as size_found
    from rocketlet.store.layout.consume_queue_entry import ENTRY_SIZE, file_size_for
    from rocketlet.store.layout.index_layout import IndexGeometry
    from rocketlet.store.layout.queue_rules import DEFAULT_DELAY_LEVELS, parse_delay_levels

    try:
        delays = parse_delay_levels(delay_levels or DEFAULT_DELAY_LEVELS)
    except SettingsError:
        raise click.BadParameter(f"{delay_levels!r} is not like '1s 5s 1m 2h'", param_hint="--delay-levels") from None
    size = file_size_for(queue_file_size or size_found(store))
    return Rules(size // ENTRY_SIZE, IndexGeometry(index_slots, index_entries), delays)


@main.command()
@store_option
@click.option("--out", metavar="DIR", help="Where consumequeue/ and index/ go; the store itself for a repair.")
@click.option("--replace", is_flag=True, help="Put the new ones in the place of those that are there.")
@click.option("--stop-at-damage", is_flag=True, help="End at the first damage, as RocketMQ's own recovery does.")
@click.option("--lookup", metavar="DIR", help="Also write the lookup index for `find` there.")
@click.option("--buckets", type=click.IntRange(1, 10_000), default=32, show_default=True, help="Of the lookup index.")
@rule_options
@spark_options
def index(
    store: str, out: str | None, replace: bool, stop_at_damage: bool, lookup: str | None, buckets: int,
    queue_file_size: int | None, index_slots: int, index_entries: int, delay_levels: str | None, master: str | None,
    partitions: int | None, split_mib: int, conf: tuple[str, ...],
) -> None:  # fmt: skip
    """Rebuild all queues and index files from the log, byte for byte as a broker's recovery would."""
    from rocketlet.spark_jobs.index_writer import rebuild_index
    from rocketlet.spark_jobs.lookup import write_lookup

    if out is None and lookup is None:
        raise click.UsageError("say where the result goes: --out DIR, --lookup DIR, or both")
    out = store_of(out) if out == store else out
    store = store_of(store)
    rules = rules_of(store, queue_file_size, index_slots, index_entries, delay_levels)
    list_segments(store)  # before Spark starts
    size = split_mib << 20
    damaged = False
    with session_of("index", master, conf, passes_bytes=lookup is None) as session:
        if out is not None:
            report = rebuild_index(
                session, store, out, rules, partitions=partitions, split_size=size, replace=replace,
                stop_at_damage=stop_at_damage,
            )  # fmt: skip
            for line in report.lines():
                click.echo(line)
            damaged = bool(report.damages)
        if lookup is not None:
            lookup_info = write_lookup(session, store, lookup, buckets=buckets, partitions=partitions, split_size=size)
            click.echo(f"{lookup}: keys of the log from {lookup_info.log_begin} to {lookup_info.log_end}")
    sys.exit(1 if damaged else 0)


@main.command()
@click.option("--lookup", required=True, metavar="DIR", help="What `index --lookup` wrote.")
@click.option("--key", required=True, help="A unique key, or one word of KEYS.")
@click.option("--topic", help="Only of this topic.")
@click.option("--from", "begin", help="Stored at or after: 2026-11-18T12:00, or ms since 1970. UTC unless it says.")
@click.option("--to", "end", help="Stored at or before.")
@click.option("--store", metavar="DIR", help="Also show the messages, from this store's log.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def find(
    lookup: str, key: str, topic: str | None, begin: str | None, end: str | None, store: str | None, as_json: bool
) -> None:
    """Messages with a key, from the lookup index; needs neither Spark nor a broker."""
    from rocketlet.spark_jobs.lookup import find as find_hits
    from rocketlet.spark_jobs.lookup import read_record

    hits = find_hits(lookup, key, topic=topic, begin=milliseconds(begin), end=milliseconds(end))
    for hit in hits:
        fields: dict[str, Any] = {
            "topic": hit.topic, "queue": hit.queue_id, "queueOffset": hit.queue_offset, "logOffset": hit.log_offset,
            "size": hit.size, "stored": moment(hit.store_time), "key": hit.key, "unique": hit.is_unique,
        }  # fmt: skip
        if store is not None:
            fields |= message_fields(read_record(store, hit))
        if as_json:
            click.echo(json.dumps(fields, ensure_ascii=False))
        else:
            click.echo("  ".join(f"{name}={value}" for name, value in fields.items()))
    if not hits:
        click.echo(f"no message with key {key!r}", err=True)
        sys.exit(1)


def message_fields(raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        return {"body": None, "remark": "the log does not have it any more"}
    record = decode(raw)
    return {
        "properties": decode_bytes(record.properties), "bornHost": host_text(record.born_host),
        "body": record.body.decode("utf-8", "backslashreplace"),
    }  # fmt: skip


@main.command()
@store_option
@click.option("--json", "as_json", is_flag=True, help="The whole report as JSON.")
@rule_options
@spark_options
def verify(
    store: str, as_json: bool, queue_file_size: int | None, index_slots: int, index_entries: int,
    delay_levels: str | None, master: str | None, partitions: int | None, split_mib: int, conf: tuple[str, ...],
) -> None:  # fmt: skip
    """Check every record, queue entry and index entry; exit code 1 where something is wrong."""
    from rocketlet.spark_jobs.verify_segments import verify as verify_store

    store = store_of(store)
    rules = rules_of(store, queue_file_size, index_slots, index_entries, delay_levels)
    list_segments(store)  # before Spark starts
    with session_of("verify", master, conf, passes_bytes=True) as session:
        report = verify_store(session, store, rules, partitions=partitions, split_size=split_mib << 20)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=1, ensure_ascii=False))
    else:
        for line in report.lines():
            click.echo(line)
        click.echo("good" if report.is_good else "NOT GOOD")
    sys.exit(0 if report.is_good else 1)


@main.command()
@store_option
@click.option("--out", required=True, metavar="DIR", help="Replaced if it exists.")
@click.option("--topic", multiple=True, help="Only these; may be given several times.")
@click.option("--tag", multiple=True)
@click.option("--from", "begin", help="Stored at or after: 2026-11-18T12:00, or ms since 1970. UTC unless it says.")
@click.option("--to", "end", help="Stored before.")
@click.option("--where", help="A further condition in Spark SQL, e.g. \"properties['vip'] = 'true'\".")
@click.option("--format", "file_format", type=click.Choice(["parquet", "json"]), default="parquet", show_default=True)
@click.option("--body", type=click.Choice(["bytes", "text", "json"]), default="bytes", show_default=True,
              help="json reads each body into a column `json`.")  # fmt: skip
@click.option("--json-schema", metavar="DDL", help='Of the bodies, e.g. "id long, name string"; else inferred.')
@spark_options
def export(
    store: str, out: str, topic: tuple[str, ...], tag: tuple[str, ...], begin: str | None, end: str | None,
    where: str | None, file_format: str, body: str, json_schema: str | None, master: str | None,
    partitions: int | None, split_mib: int, conf: tuple[str, ...],
) -> None:  # fmt: skip
    """Messages as Parquet or JSON lines, in folders by day and topic."""
    from rocketlet.spark_jobs.export import Selection
    from rocketlet.spark_jobs.export import export as export_messages

    times = [None if time is None else moment(milliseconds(time) or 0) for time in (begin, end)]
    selection = Selection(topic, tag, times[0], times[1], where)
    list_segments(store)  # before Spark starts
    with session_of("export", master, conf) as session:
        count = export_messages(
            session, store, out, selection, file_format=file_format, body=body, json_schema=json_schema,
            partitions=partitions, split_size=split_mib << 20,
        )  # fmt: skip
    click.echo(f"{count} messages in {out}")


@main.command()
@store_option
@click.option("--plot", "picture", metavar="FILE.png", help="Draw rates, sizes and lags.")
@click.option("--json", "as_json", is_flag=True)
@spark_options
def stats(
    store: str, picture: str | None, as_json: bool, master: str | None, partitions: int | None, split_mib: int,
    conf: tuple[str, ...],
) -> None:  # fmt: skip
    """Messages, bytes, rates and sizes by topic, and the lag of each group."""
    from rocketlet.spark_jobs.plot import plot
    from rocketlet.spark_jobs.stats import stats as stats_of

    store = store_of(store)
    list_segments(store)  # before Spark starts
    with session_of("stats", master, conf) as session:
        result = stats_of(session, store, partitions=partitions, split_size=split_mib << 20)
    if as_json:
        click.echo(json.dumps(result.as_dict(), ensure_ascii=False))
    else:
        for line in result.lines():
            click.echo(line)
    if picture is not None:
        plot(result, picture)
        click.echo(f"drawn: {picture}", err=True)


@main.command()
@click.option(
    "--namesrv", metavar="HOST:PORT", help="Follow the topics of running brokers, told by these name servers."
)
@click.option("--topics", metavar="NAMES", help="Topics, separated by commas.")
@click.option("--topics-pattern", metavar="REGEX", help="Or all topics whose whole name is like this.")
@click.option("--store", metavar="DIR", help="Or follow the store of a running broker by its files.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the source, such as tags=paid, tlsCaFile=ca.pem or failOnDataLoss=false.",
)
@click.option("--out", required=True, metavar="DIR", help="Where day=/topic= files are kept up to date.")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where the first run begins; later ones go on where the last stopped.",
)
@click.option("--every", default="10 seconds", show_default=True, help="How often new files appear.")
@click.option("--once", is_flag=True, help="Write what is there now, and end.")
@click.option(
    "--file-mib", type=click.IntRange(1), default=128, show_default=True, help="Small files are joined up to this size."
)
@click.option("--master", help="Where Spark runs; local[*] unless spark-submit says otherwise.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting for Spark.")
def follow(
    namesrv: str | None, topics: str | None, topics_pattern: str | None, store: str | None, options: tuple[str, ...],
    out: str, start: str, every: str, once: bool, file_mib: int, master: str | None, conf: tuple[str, ...],
) -> None:  # fmt: skip
    """Keep Parquet files by day and topic up to date: each message once, whatever is killed in between."""
    import signal
    import threading
    from pathlib import Path

    from rocketlet.spark_jobs.follow import UnknownTopic, check_topics
    from rocketlet.spark_jobs.follow import follow as follow_into
    from rocketlet.spark_jobs.progress import tell

    if store is not None and once:
        list_segments(store)  # nobody is about to start a broker there
    source = _source(namesrv, topics, topics_pattern, store, start, _pairs(options, "--option"))
    try:
        check_topics(source, Path(out))
    except UnknownTopic as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    stopped = threading.Event()

    def stop(*_: object) -> None:
        tell("stopping")
        stopped.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with session_of("follow", master, conf) as session:
        tell(f"following into {out}; end it with Ctrl-C or SIGTERM")
        written = follow_into(
            session,
            source,
            Path(out),
            every=every,
            once=once,
            target_bytes=file_mib << 20,
            stopped=stopped,
            report=tell,
        )
    tell(f"{written:,} messages written to {out}")


@main.command()
@click.option("--out", required=True, metavar="DIR", help="Where `follow` writes.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="secretKey=…, which is kept nowhere.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(out: str, options: tuple[str, ...], as_json: bool) -> None:
    """How far `follow` has come, and how much it lags behind. Needs no Spark."""
    from pathlib import Path

    from rocketlet.spark_jobs.follow import status as status_of

    result = status_of(Path(out), _pairs(options, "--option"))
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    click.echo(f"batch {result['batch']} was written at {moment(result['time'])}")
    if "lag_bytes" in result:
        click.echo(f"{result['lag_bytes']:,} bytes of the log are not written yet")
    for topic, lag in sorted(result.get("lag", {}).items()):
        click.echo(f"{topic}: {lag:,} messages are not written yet")


def _source(
    namesrv: str | None,
    topics: str | None,
    pattern: str | None,
    store: str | None,
    start: str,
    extra_options: dict[str, str],
) -> Source:
    """What to follow. Raises the errors of the source's options, before Spark starts."""
    from rocketlet.spark_jobs.follow import Source
    from rocketlet.spark_jobs.rocketmq.options import read_options

    if (namesrv is None) == (store is None):
        raise click.UsageError("name what to follow by one of --namesrv and --store")
    if store is not None:
        return Source("commitlog", {**extra_options, "path": store, "starting": start})
    named = {"topics": topics, "topicsPattern": pattern, "namesrv": namesrv, "startingOffsets": start}
    options = {**extra_options, **{name: value for name, value in named.items() if value is not None}}
    read_options(options, streaming=True)
    return Source("rocketmq", options)


def _pairs(texts: tuple[str, ...], hint: str) -> dict[str, str]:
    if wrong := [pair for pair in texts if "=" not in pair]:
        raise click.BadParameter(f"{wrong[0]!r} is not like name=value", param_hint=hint)
    return dict(pair.split("=", 1) for pair in texts)


def milliseconds(text: str | None) -> int | None:
    """Of `2026-11-18T12:00:00+01:00` (UTC where no zone is given) or of a number of ms."""
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time: write 2026-11-18T12:00 or ms since 1970") from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def moment(ms: int) -> str:
    return moment_of(ms, UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    main(prog_name="python -m rocketlet.spark_jobs")
