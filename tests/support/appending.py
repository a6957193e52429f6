"""Processes that append to a store and write acknowledgements into a pipe, until they are killed.

They are forked from one process that has imported everything: importing would be most of their lives.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import trio

from rocketlet.common.clock import system_clock
from rocketlet.store.config import FlushDiskType, StoreConfig
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from tests.support.store_model import message


def config_of(directory: str, flush: str) -> StoreConfig:
    """Files so small that all kinds of them are created and filled many times a second."""
    return StoreConfig(
        store_path_root_dir=directory,
        flush_disk_type=FlushDiskType(flush),
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=50,
        max_index_num=200,
        max_message_size=8192,
        flush_interval_commit_log=10,
        flush_interval_consume_queue=20,
        flush_consume_queue_thorough_interval=50,
        disk_free_floor=0,
    )


@contextmanager
def appending(directory: str, flush: str, first: int) -> Iterator[tuple[BaseProcess, FileIO]]:
    """A process that appends messages from number `first` on, and its acknowledgements: a line for each, of number,
    queue and offset."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__, "numpy"])
    reader, writer = processes.Pipe(duplex=False)
    process = processes.Process(target=_run, args=(directory, flush, first, writer), daemon=True)
    process.start()
    writer.close()
    with reader, open(reader.fileno(), "rb", buffering=0, closefd=False) as lines:
        try:
            yield process, lines
        finally:
            process.kill()
            process.join()


def _run(directory: str, flush: str, first: int, writer: Connection) -> None:
    trio.run(_append, directory, flush, first, writer.fileno())


async def _append(directory: str, flush: str, first: int, descriptor: int) -> None:
    store = MessageStore(RealDisk(), config_of(directory, flush), system_clock, on_progress=lambda _: None)
    await store.open()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        number = first
        while True:
            acks, end = [], 0
            for _ in range(number % 17 + 1):
                put = message("T", number % 4, b"%d " % number * (number % 50), (b"k%d" % number,), b"TagA")
                appended = store.put(put)
                acks.append(b"%d %d %d\n" % (number, put.queue_id, appended.queue_offset))
                number, end = number + 1, appended.end
            store.settle()
            if store.config.is_sync_flush:
                await store.flushed_to(end, 5000)
            else:
                await trio.sleep(0)
            os.write(descriptor, b"".join(acks))
