"""The Spark jobs' access to files: plain paths, and whatever Arrow's file systems know (`s3://`, `hdfs://`, `gs://`).

Everything is read with plain reads and never mapped: a live store may delete a file under a reader, which a read
survives with an error and a mapping does not survive at all. Writing is for plain paths only, since a broker is to
start on the result.

Java: store/MappedFile.java
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rocketlet.common.errors import RocketletError


class StoreNotFound(RocketletError):
    """There is no such directory, or none that looks like a store; check the path on every executor."""


class SeveralStores(RocketletError):
    """The directory holds the stores of several brokers, of which a job reads one."""


@dataclass(slots=True, frozen=True)
class Entry:
    name: str
    size: int
    is_folder: bool


def is_uri(path: str) -> bool:
    return "://" in path


def list_folder(path: str) -> list[Entry]:
    """What a directory holds, sorted by name; empty where there is no such directory."""
    if is_uri(path):
        return _list_remote(path)
    try:
        with os.scandir(path) as entries:
            result = [Entry(entry.name, entry.stat().st_size, entry.is_dir()) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(result, key=lambda entry: entry.name)


def read_range(path: str, start: int, size: int) -> bytearray:
    """Up to `size` bytes from `start`; fewer where the file ends."""
    if is_uri(path):
        system, remote_path = _remote(path)
        with system.open_input_file(remote_path) as file:
            return bytearray(file.read_at(min(size, max(file.size() - start, 0)), start))
    with open(path, "rb", buffering=0) as file:
        size = min(size, max(os.fstat(file.fileno()).st_size - start, 0))
        data = bytearray(size)
        view = memoryview(data)
        size_read = 0
        while size_read < size and (count := os.preadv(file.fileno(), [view[size_read:]], start + size_read)):
            size_read += count
        return data if size_read == size else data[:size_read]


def read_file(path: str) -> bytes | None:
    """A small file, or None where there is none."""
    if is_uri(path):
        system, remote_path = _remote(path)
        if system.get_file_info(remote_path).type.name != "File":
            return None
        with system.open_input_file(remote_path) as file:
            return bytes(file.read())
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write_file(path: str, size: int, pieces: Iterable[tuple[int, Any]]) -> None:
    """A file of that size with these (place, bytes); it stays sparse where nothing is written. Written to the disk."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb", buffering=0) as file:
        os.truncate(file.fileno(), size)
        for place, data in pieces:
            view = memoryview(data).cast("B")
            while view:
                count = os.pwrite(file.fileno(), view, place)
                view, place = view[count:], place + count
        os.fsync(file.fileno())


def write_text(path: str, text: str) -> None:
    """A small file, wherever a path may lead."""
    if is_uri(path):
        system, remote_path = _remote(path)
        with system.open_output_stream(remote_path) as stream:
            stream.write(text.encode())
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def rename(path: str, place: str) -> None:
    """Move a file or folder of this file system; a file that stands there is replaced, an empty folder too."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    os.replace(path, place)


def exists(path: str) -> bool:
    return os.path.exists(path)


def copy_folder(path: str, place: str) -> bool:
    """Copy a small folder of settings; False where there is none."""
    if not os.path.isdir(path):
        return False
    shutil.copytree(path, place)
    return True


def remove_folder(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


def is_locked(path: str) -> bool:
    """Whether another process holds the lock of a store, found without acquiring it. False where that is unknown."""
    try:
        import fcntl
    except ImportError:
        return False
    # struct flock of Linux: type, whence, start, length, process
    question = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        with open(path, "rb") as file:
            answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, question)
    except OSError:
        return False
    return bool(struct.unpack_from("@h", answer)[0] != fcntl.F_UNLCK)


def _list_remote(path: str) -> list[Entry]:
    from pyarrow import fs

    system, remote_path = _remote(path)
    infos = system.get_file_info(fs.FileSelector(remote_path, allow_not_found=True))
    result = [Entry(info.base_name, info.size or 0, info.type == fs.FileType.Directory) for info in infos]
    return sorted(result, key=lambda entry: entry.name)


@lru_cache(64)
def _remote(path: str) -> tuple[Any, str]:
    from pyarrow import fs

    system, remote_path = fs.FileSystem.from_uri(path)
    return system, remote_path
