"""`rocketlet store`: check, repair, print and empty the files of a store, without a broker.

Java: (none)
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import Any

import click

from rocketlet.tools.output import print_json, say

EXIT_DAMAGED = 3


@click.group()
def store() -> None:
    """Check, repair, print and empty a store's files, without a broker."""


@store.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--repair", "repairs", is_flag=True, help="Show what would be done, then do it.")
@click.option("--yes", "-y", is_flag=True, help="With --repair: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of text.")
@click.option("--config", "-c", type=click.Path(exists=True, dir_okay=False), help="The broker's configuration file.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def check(directory: str, repairs: bool, yes: bool, as_json: bool, config: str | None, quiet: bool) -> int:
    """Verify the store in DIRECTORY: the log record by record, seals, queues, index, checkpoint, tables.

    The directory of `rocketlet up` will do, where it has one broker.
    Changes nothing without --repair. Exit code 3: something is damaged or needs repair.
    """
    from rocketlet.store.check import check as look
    from rocketlet.store.check import repair
    from rocketlet.store.geometry import store_in
    from rocketlet.store.real_disk import RealDisk

    logging.getLogger("rocketlet.store").addHandler(logging.NullHandler())  # it prints the log lines itself
    disk = RealDisk()
    settings = _settings(store_in(disk, directory), config)
    on_progress = _progress if sys.stderr.isatty() and not quiet else _silent
    report = look(disk, settings, on_progress)
    _clear(on_progress)
    if as_json and not repairs:
        print_json(report.as_dict())
        return 0 if report.is_sound else EXIT_DAMAGED
    if not as_json:
        for line in report.lines():
            say(line, fg="red" if line.startswith("damage") else None)
    if not repairs or (report.is_sound and report.is_clean):
        if as_json:
            print_json({"before": report.as_dict(), "repaired": [], "after": report.as_dict()})
        return 0 if report.is_sound else EXIT_DAMAGED
    if not yes and not as_json:
        click.confirm("Repair it as said?", abort=True)
    repaired = repair(disk, settings, on_progress)
    after = look(disk, settings, on_progress)
    _clear(on_progress)
    if as_json:
        print_json({"before": report.as_dict(), "repaired": repaired.lines(), "after": after.as_dict()})
    else:
        for line in (*repaired.lines(), *after.lines()):
            say(line)
    return 0 if after.is_sound else EXIT_DAMAGED


@store.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--kind", help="Where its path does not tell: log, queue, ext, index, checkpoint, seal, flushed or json.")
@click.option("--slots", type=int, help="Hash slots of an index file (maxHashSlotNum), where they are not the usual.")
@click.option("--entries", type=int, help="Entries of an index file (maxIndexNum), where they are not the usual.")
def dump(file: str, kind: str | None, slots: int | None, entries: int | None) -> None:
    """Print any FILE of a store as text."""
    from rocketlet.store.dump import KINDS
    from rocketlet.store.dump import dump as lines
    from rocketlet.store.layout.index_layout import IndexGeometry
    from rocketlet.store.real_disk import RealDisk

    if kind is not None and kind not in KINDS:
        raise click.BadParameter(f"{kind} is none of {', '.join(KINDS)}", param_hint="--kind")
    disk = RealDisk()
    geometry = _geometry(disk, file, slots, entries) or IndexGeometry()
    for line in lines(disk, file, kind, geometry):
        say(line)


@store.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--delete", is_flag=True, help="Delete the files, including those set aside before: this cannot be undone."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--config", "-c", type=click.Path(exists=True, dir_okay=False), help="The broker's configuration file.")
def reseed(directory: str, delete: bool, yes: bool, config: str | None) -> int:
    """Empty the store in DIRECTORY, so that its broker, started again as a slave, takes its master's log again.

    For a slave whose log does not continue its master's. The broker must not run. Everything is set aside in
    DIRECTORY/set-aside, which takes no time; delete that folder when the slave has caught up, or use --delete.
    """
    from rocketlet.common.clock import system_clock
    from rocketlet.store.errors import StoreError
    from rocketlet.store.geometry import found_config
    from rocketlet.store.real_disk import RealDisk
    from rocketlet.store.reseed import reseed as empty

    disk, settings = RealDisk(), _settings(directory, config)
    stored = found_config(disk, settings)
    logs = [log_file for log_file in disk.entries(stored.commit_log_path) if log_file.size]
    if not logs:
        say(f"{directory} has no log: a slave that starts there takes its master's log from the begin on")
        return 0
    begin = int(logs[0].name) if logs[0].name.isdigit() else 0
    outcome = "deleted, and what was set aside before," if delete else "set aside"
    say(
        f"{directory}: a log of {len(logs)} files, {sum(log_file.size for log_file in logs) >> 20} MiB,"
        f" from offset {begin} on."
    )
    if not yes:
        click.confirm(f"Shall log, queues, index and tables be {outcome}?", abort=True)
    try:
        folder = empty(disk, settings, system_clock(), keep=not delete)
    except StoreError as error:
        raise click.ClickException(f"{error}; stop the broker first") from None
    say(f"{directory} is empty." if delete else f"{directory} is empty; what it was is in {folder}.")
    say("Now start its broker with brokerRole=SLAVE and a brokerId from 1 on; mqadmin haStatus shows how it comes on.")
    return 0


def _settings(directory: str, config: str | None) -> Any:
    from rocketlet.common.config_file import load, read_file
    from rocketlet.store.config import StoreConfig

    settings = StoreConfig() if config is None else load(StoreConfig, file=read_file(config))[StoreConfig]
    return replace(settings, store_path_root_dir=directory.rstrip("/") or "/")


def _geometry(disk: Any, file: str, slots: int | None, entries: int | None) -> Any:
    """The geometry of an index file: as given, or derived from its store."""
    from pathlib import Path

    from rocketlet.store.config import StoreConfig
    from rocketlet.store.geometry import found_config
    from rocketlet.store.layout.index_layout import IndexGeometry

    if slots and entries:
        return IndexGeometry(slots, entries)
    place = Path(file).absolute()
    if place.parent.name != "index":
        return None
    stored = found_config(disk, StoreConfig(store_path_root_dir=str(place.parent.parent)))
    return IndexGeometry(stored.max_hash_slot_num, stored.max_index_num)


def _progress(line: str) -> None:
    click.echo(f"\r\x1b[K{line}", nl=False, err=True)


def _silent(_: str) -> None:
    pass


def _clear(on_progress: Any) -> None:
    if on_progress is _progress:
        click.echo("\r\x1b[K", nl=False, err=True)
