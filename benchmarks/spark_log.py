"""Writes a commit log as left by a broker: records of a given body, files of a given size, real keys.

    python -m benchmarks.spark_log DIRECTORY --mib 1024

The records are packed by the same codec as a broker's, 500,000 a second; there are no queues and no index, since those
are what the Spark jobs and a recovery build.
"""

from __future__ import annotations

import argparse
import os
import pathlib

from rocketlet.common.host import pack_host
from rocketlet.common.message_record import BLANK_SIZE, blank, pack_into, record_size, topic_field
from rocketlet.store.layout.file_names import COMMIT_LOG, offset_name

START_MS = 1_700_000_000_000


def write_log(
    root: pathlib.Path, total: int, *, body_size: int = 1024, file_size: int = 1 << 30, topics: int = 1, queues: int = 8
) -> int:
    """Fill `root/commitlog` up to `total` bytes. Returns the number of records."""
    folder = root / COMMIT_LOG
    folder.mkdir(parents=True, exist_ok=True)
    names = ["TopicTest", *[f"Topic{n}" for n in range(1, topics)]]
    fields = [topic_field(name) for name in names]
    host = pack_host("127.0.0.1", 10911)
    body = os.urandom(body_size)
    offsets = dict.fromkeys(((t, q) for t in range(topics) for q in range(queues)), 0)
    number, written = 0, 0
    for start in range(0, total, file_size):
        length = min(file_size, total - start)
        buffer = bytearray(length)
        at = 0
        while True:
            topic, queue = number % topics, number // topics % queues
            properties = (
                b"KEYS\x01order-%d user-%d\x02UNIQ_KEY\x017F0000010A1B18B4AAC20A1B%08X\x02CLUSTER\x01DefaultCluster\x02"
                b"TAGS\x01Tag%c\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true"
                % (number, number % 5000, number, 65 + number % 3)
            )
            size = record_size(body_size, fields[topic], len(properties))
            if at + size + BLANK_SIZE > length:
                break
            now = START_MS + number // 20
            queue_offset = offsets[topic, queue]
            offsets[topic, queue] = queue_offset + 1
            at = pack_into(
                buffer, at, size, queue, 0, queue_offset, start + at, 0, now, host, now, host, 0, 0, body,
                fields[topic], properties,
            )  # fmt: skip
            number += 1
        if length == file_size:
            buffer[at : at + BLANK_SIZE] = blank(length - at)
        with open(folder / offset_name(start), "wb") as file:
            file.write(buffer if length == file_size else memoryview(buffer)[:at])
            file.truncate(file_size)
        written += at
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--topics", type=int, default=1)
    options = parser.parse_args()
    count = write_log(options.directory, options.mib << 20, body_size=options.body, topics=options.topics)
    print(f"{count} records in {options.directory}")


if __name__ == "__main__":
    main()
