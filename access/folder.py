"""The folder of account files: plain_acl.yml, and all .yml and .yaml files below acl/. A seam for tests.

A file is replaced atomically: the new content is written to a temporary file that only its owner may read, synced, and
renamed over the old one. No backup is kept, since it would hold secrets.

Java: acl/plain/PlainPermissionManager.java (getAllAclFiles), acl/common/AclUtils.java (writeDataObject)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from rocketlet.common import platform_files

DEFAULT_FILE = "plain_acl.yml"
TOOLS_FILE = "tools.yml"
MORE_FILES = "acl"
MAX_FILES = 1_000
_SUFFIXES = (".yml", ".yaml")
_DEEPEST = 8  # folders below acl/

State = tuple[tuple[str, int, int, int], ...]


class Folder(Protocol):
    """Paths are full paths, as in log lines and in the answer to 52."""

    blocking: bool  # calls wait for a device, and must leave the event loop
    default_path: str  # of plain_acl.yml
    tools_path: str  # of tools.yml, the server's own account

    def state(self) -> State:
        """Path, time, size and inode of each account file, those of acl/ first; changes when a file does."""

    def read(self, path: str) -> bytes | None:
        """None if there is no such file."""

    def replace(self, path: str, data: bytes) -> None:
        """Replace the content atomically; after OSError the old content is intact."""


class RealFolder:
    """On disk."""

    blocking = True

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        self.default_path = str(self._path / DEFAULT_FILE)
        self.tools_path = str(self._path / TOOLS_FILE)

    def state(self) -> State:
        paths = sorted(_files_below(self._path / MORE_FILES, _DEEPEST))
        if len(paths) > MAX_FILES:
            raise OSError(f"{self._path / MORE_FILES} holds {len(paths)} files; at most {MAX_FILES} are allowed")
        states = []
        for path in [*paths, self.default_path]:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            states.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(states)

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        try:
            mode = os.stat(path).st_mode & 0o777
        except FileNotFoundError:
            mode = 0o600
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(temporary).unlink(missing_ok=True)  # left by a process that ended in between
        descriptor = os.open(temporary, platform_files.CREATE, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if hasattr(os, "fchmod"):  # Windows has no modes
                    os.fchmod(file.fileno(), mode)
                platform_files.flush(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        platform_files.sync_folder(os.path.dirname(path))


def _files_below(folder: Path, depth: int) -> list[str]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    paths = [entry.path for entry in entries if entry.is_file() and entry.name.endswith(_SUFFIXES)]
    if depth:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                paths += _files_below(Path(entry.path), depth - 1)
    return paths
