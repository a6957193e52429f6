"""Messages as a column run, as a broker makes it of alike sends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from rocketlet.common.java_hashes import index_hashes
from rocketlet.common.message_record import topic_field
from rocketlet.common.property_places import property_places
from rocketlet.store.column_run import ColumnRun
from rocketlet.store.message import Put
from rocketlet.store.message_run import Shared


def column_run(puts: Sequence[Put]) -> ColumnRun:
    """REQUIRES: they are of one topic and sender, and their properties are as long as each other and alike."""
    first = puts[0]
    size = len(first.properties)
    before = topic_field(first.topic) + size.to_bytes(2, "big")
    tails = numpy.frombuffer(b"".join(before + put.properties for put in puts), numpy.uint8).reshape(len(puts), -1)
    shared = Shared(
        first.topic, first.queue_id, first.sys_flag, first.born_timestamp, first.born_host, first.store_host,
        first.reconsume_times,
    )  # fmt: skip
    return ColumnRun(
        shared,
        first.flag,
        numpy.array([put.queue_id for put in puts]),
        numpy.array([put.born_timestamp for put in puts]),
        [put.body for put in puts],
        tails,
        size,
        numpy.array([put.tags_code for put in puts]),
        index_hashes(first.topic.encode() + b"#", tails[:, len(before) :], property_places(first.properties).keys),
    )
