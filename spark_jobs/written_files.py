"""What the tasks that write queue and index files share: files that appear whole, and the report about them.

Java: none
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rocketlet.spark_jobs.files import rename, write_file

if TYPE_CHECKING:
    import pyarrow as pa

# What such a task reports about a file.
FILE_SCHEMA = (
    "path string, topic string, queue_id int, number long, units long, lost long, rewound long, implausible long, "
    "begin_time long, end_time long"
)


def write_once(staging: str, path: str, size: int, pieces: Iterable[tuple[int, Any]]) -> None:
    """Written to a temporary name and renamed, so that a task that runs twice never spoils the file of the one that
    finished."""
    temporary = f"{staging}/tmp/{uuid.uuid4().hex}"
    write_file(temporary, size, pieces)
    rename(temporary, path)


def file_rows(rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    types = {"string": pa.string(), "int": pa.int32(), "long": pa.int64()}
    fields = [part.split() for part in FILE_SCHEMA.split(", ")]
    schema = pa.schema([pa.field(name, types[kind]) for name, kind in fields])
    empty = {"path": "", "topic": "", **dict.fromkeys([name for name, kind in fields if kind != "string"], 0)}
    return pa.Table.from_pylist([empty | row for row in rows], schema=schema)
