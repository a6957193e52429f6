"""Emptying a store, so that its broker can take its master's log again.

Everything is moved into `set-aside/<time>/` of the same directory, by renames, so it costs no time and can be undone by
hand. What says who the broker is (`rocketlet/role.json`) stays where it is: without it a demoted master would be a
master again, of an empty log.

Java: (none; there the directory is deleted by hand)
"""

from __future__ import annotations

from datetime import datetime

from rocketlet.store.config import StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.layout.file_names import LOCK, OWN

SET_ASIDE = "set-aside"
ROLE = "role.json"


def reseed(disk: Disk, config: StoreConfig, now: int, *, keep: bool = True) -> str:
    """Set the store aside, or with `keep=False` delete it; returns the folder where it is. Raises StoreLocked, OSError.

    After a crash in its middle it can be called again.
    """
    root = config.store_path_root_dir
    lock = disk.lock(f"{root}/{LOCK}")
    try:
        stamp = f"{datetime.fromtimestamp(now // 1000):%Y%m%d-%H%M%S}-{now % 1000:03d}"
        aside = f"{root}/{SET_ASIDE}/{stamp}"
        log_path = config.commit_log_path
        moved = [log_path] if not log_path.startswith(f"{root}/") else []
        for path in moved:
            disk.rename(path, f"{path}.{SET_ASIDE}-{stamp}")
        # Queues go before the log, and tables last: what a crash leaves between is a store that starts.
        names = sorted((entry.name for entry in disk.entries(root)), key=_order)
        for name in names:
            if name == OWN:
                for entry in disk.entries(f"{root}/{OWN}"):
                    if entry.name != ROLE:
                        disk.rename(f"{root}/{OWN}/{entry.name}", f"{aside}/{OWN}/{entry.name}")
            elif name not in (LOCK, SET_ASIDE):
                disk.rename(f"{root}/{name}", f"{aside}/{name}")
        disk.sync_directory(root)
        if not keep:
            _delete(disk, f"{root}/{SET_ASIDE}")
            for path in moved:
                _delete(disk, f"{path}.{SET_ASIDE}-{stamp}")
        return aside
    finally:
        lock.release()


def _delete(disk: Disk, path: str) -> None:
    for entry in disk.entries(path):
        if entry.is_directory:
            _delete(disk, f"{path}/{entry.name}")
        else:
            disk.remove(f"{path}/{entry.name}")
    disk.remove_directory(path)


def _order(name: str) -> tuple[int, str]:
    return {"consumequeue": 0, "consumequeue_ext": 0, "index": 0, "commitlog": 1, "config": 3}.get(name, 2), name
