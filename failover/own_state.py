"""What a replica must not forget about itself: `rocketlet/failover.json` in its store.

Its identity (the store's id is created with the file, so a wiped disk is another member), the epochs of its log, and
`promised`, the newest epoch that it has joined or led. It never acknowledges anything to a lower one, so this is on
disk before its first acknowledgement of an epoch.

With ASYNC_FLUSH an acknowledgement says that the kernel has the bytes, not the disk. If the machine was restarted since
(its boot id has changed) and the store had not been closed, they may be gone. The store then takes a new id: it is a
new member, which does not count until it has caught up.

Java: store/ha/autoswitch/BrokerMetadata.java, EpochFileCache.java of 5.x
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import msgspec

from rocketlet.common.errors import RocketletError
from rocketlet.failover.epochs import BadEpochs, Epochs
from rocketlet.store.config import StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.layout.file_names import ABORT

log = logging.getLogger("rocketlet.failover.own_state")

FILE = "rocketlet/failover.json"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class StateUnreadable(RocketletError):
    """The file cannot be read, and without it this replica's promises are unknown."""


@dataclass(frozen=True, slots=True)
class OwnState:
    """Immutable: `OwnStateFile.write` replaces it."""

    store: str
    group: str = ""
    promised: int = 0
    epochs: Epochs = Epochs()  # noqa: RUF009 - immutable


class _File(msgspec.Struct):
    store: str
    group: str
    promised: int
    epochs: list[tuple[int, int]]
    boot: str = ""
    log: bool = False  # whether there were messages when this was written


class OwnStateFile:
    """The file of one store."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._root = config.store_path_root_dir
        self._is_sync = config.is_sync_flush
        self._path = f"{self._root}/{FILE}"
        self._log = config.commit_log_path
        self._has_log = False
        self._boot = (disk.read_file(_BOOT_ID) or b"").decode("ascii", "replace").strip()

    def open(self, new_id: str) -> OwnState:
        """The stored state, or that of a new member with that id. Call it before the store is opened.

        Raises StateUnreadable, OSError.
        """
        data = self._disk.read_file(self._path)
        if data is None:
            state = OwnState(new_id)
            self.write(state)
            return state
        try:
            stored = msgspec.json.decode(data, type=_File)
            state = OwnState(stored.store, stored.group, stored.promised, Epochs(stored.epochs))
        except (msgspec.DecodeError, BadEpochs) as error:
            raise StateUnreadable(
                f"{self._path} cannot be read ({error}). To take what the other replicas have, empty this store"
                f" with `rocketlet store reseed {self._root}`"
            ) from error
        self._has_log = stored.log
        if stored.log and not self._log_exists():
            log.warning("the log of this replica is gone: it is a new member, which is in sync once it has caught up")
            state = OwnState(new_id)
            self.write(state)
        elif stored.boot != self._boot:
            if self._disk.exists(f"{self._root}/{ABORT}") and not self._is_sync:
                log.warning(
                    "this machine was restarted, and with ASYNC_FLUSH some of the log may be lost: this replica is"
                    " a new member, which is in sync once it has caught up"
                )
                state = replace(state, store=new_id)
            self.write(state)
        return state

    def write(self, state: OwnState) -> None:
        """Durably. Raises OSError."""
        self._has_log = self._log_exists()
        entries = [(epoch.number, epoch.begin) for epoch in state.epochs.entries]
        stored = _File(state.store, state.group, state.promised, entries, self._boot, self._has_log)
        self._disk.write_file(self._path, msgspec.json.encode(stored) + b"\n")

    def mark_log_begun(self, state: OwnState) -> None:
        """There are messages now: if they are gone at the next start, this is another member. Raises OSError."""
        if not self._has_log:
            self.write(state)

    def _log_exists(self) -> bool:
        return bool(self._disk.entries(self._log))
