"""Stores of a Java RocketMQ 4.9.8, unpacked, with their original settings."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketlet.store.config import StoreConfig
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from tests.support.recorded_stores import STORES, unpack

CASES = ["clean", "crash", "mixed", "shapes", "ext", "ipv6", "retained", "slave"]
DAMAGED = sorted(path.name for path in (STORES / "damaged").iterdir() if path.is_dir())
NOW = 1_800_000_000_000


def manifest_of(name: str) -> dict[str, Any]:
    """What was sent and with which settings; a damaged store has those of its original."""
    folder = STORES / name
    if not (folder / "manifest.json").exists():
        folder = STORES / json.loads((folder / "java.json").read_text())["base"]
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return manifest


def expected_of(name: str) -> dict[str, Any]:
    """The results of a reader written from the format page."""
    expected: dict[str, Any] = json.loads((STORES / name / "expected.json").read_text("utf-8"))
    return expected


def java_of(name: str) -> dict[str, Any]:
    """A Java broker's treatment of a damaged store."""
    treatment: dict[str, Any] = json.loads((STORES / "damaged" / name / "java.json").read_text("utf-8"))
    return treatment


def unpacked(name: str, under: Path) -> StoreConfig:
    """The store's files below a directory; returns its settings."""
    unpack(name, under)
    java = manifest_of(name)["settings"]
    config = StoreConfig(
        store_path_root_dir=str(under / "store"),
        mapped_file_size_commit_log=int(java["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(java["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(java["maxHashSlotNum"]),
        max_index_num=int(java["maxIndexNum"]),
        max_message_size=int(java.get("maxMessageSize", 4 << 20)),
        disk_free_floor=0,
    )
    if "enableConsumeQueueExt" in java:
        config = replace(
            config,
            enable_consume_queue_ext=True,
            mapped_file_size_consume_queue_ext=int(java["mappedFileSizeConsumeQueueExt"]),
        )
    return config


def store_of(config: StoreConfig) -> MessageStore:
    return MessageStore(RealDisk(), config, lambda: NOW, on_progress=lambda _: None)


def files_of(config: StoreConfig, *folders: str) -> dict[str, bytes]:
    """Contents of the store's files in these folders, by path."""
    root = Path(config.store_path_root_dir)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def remove(config: StoreConfig, *folders: str) -> None:
    for folder in folders:
        shutil.rmtree(Path(config.store_path_root_dir) / folder, ignore_errors=True)
