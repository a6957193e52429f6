"""A walk that reads stretches by columns finds, heals, cuts and rebuilds what one does that reads record by record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock
from unittest.mock import ANY

import trio
from hypothesis import example, given
from hypothesis import strategies as st

from rocketlet.common.host import UNKNOWN_HOST
from rocketlet.common.message_record import BLANK_SIZE, Record, blank, encode
from rocketlet.common.topic import SCHEDULE_TOPIC
from rocketlet.store.errors import CorruptStore
from rocketlet.store.layout.queue_rules import LOST_MARK
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message_store import MessageStore
from tests.support.store_model import ROOT, small_config

LOG = f"{ROOT}/commitlog"
START = 1_700_000_000_000

PROPERTIES = st.one_of(
    st.sampled_from([b"", b"TAGS\x01TagA", b"KEYS\x01a b\x02TAGS\x01T\xc3\xa9g", b"DELAY\x012\x02UNIQ_KEY\x01u"]),
    st.builds(
        lambda unique, key: b"UNIQ_KEY\x01%016d\x02KEYS\x01order-%03d\x02TAGS\x01TagA" % (unique, key),
        st.integers(0, 99),
        st.integers(0, 99),
    ),
    st.sampled_from([b"p\x01\0", b"TAGS\x01\0\0\0", bytes(600), b"\x02\x01", b"KEYS\x01" + b"k" * 300]),
)
USUAL = st.builds(
    Record,
    topic=st.sampled_from(["TopicA", "TopicA", "TopicB", "%RETRY%group"]),
    queue_id=st.integers(0, 2),
    queue_offset=st.just(0),  # the next one, or that much more
    log_offset=st.just(0),
    body=st.integers(0, 200).map(lambda size: b"x" * size),
    properties=PROPERTIES,
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12]),
    store_timestamp=st.just(7),  # so much later than the one before
)
ODD = st.builds(
    Record,
    topic=st.sampled_from(["TopicA", "TopicB", SCHEDULE_TOPIC, "a\0b", "no topic!", "", "n\u00e4me", "x" * 130]),
    queue_id=st.integers(-1, 2),
    queue_offset=st.sampled_from([0, 0, 0, 1, 3, -1, -2, 1 << 40]),
    log_offset=st.just(0),
    body=st.binary(max_size=300),
    properties=PROPERTIES,
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 12]),
    store_timestamp=st.sampled_from([7, 7, 7, 2000, -5000]),
    born_host=st.sampled_from([UNKNOWN_HOST, UNKNOWN_HOST, bytes(20)]),
    prepared_offset=st.sampled_from([0, 0, LOST_MARK]),
)
RECORDS = st.lists(st.one_of(USUAL, USUAL, USUAL, ODD), min_size=1, max_size=12)
# Which file, counted from the last, where in it as a share of its length, and what happens to how many bytes there.
DAMAGES = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.floats(0, 1),
        st.sampled_from(["flip", "zero", "scribble", "shift"]),
        st.sampled_from([1, 4, 40, 512, 1 << 20]),
    ),
    max_size=3,
)


def log_files(records: list[Record], file_size: int) -> dict[str, bytes]:
    """A log of these records, each of which goes on in its queue."""
    files, data, base, time, nexts = dict[str, bytes](), b"", 0, START, dict[tuple[str, int], int]()
    for record in records:
        key, time = (record.topic, record.queue_id), time + record.store_timestamp
        queue_offset = nexts.get(key, 0) + record.queue_offset
        nexts[key] = queue_offset + 1 if abs(record.queue_offset) < 1 << 40 else nexts.get(key, 0) + 1
        one = replace(record, queue_offset=queue_offset, log_offset=base + len(data), store_timestamp=time)
        if len(data) + len(encode(one)) + BLANK_SIZE > file_size:
            data += blank(file_size - len(data))
            files[f"{LOG}/{base:020d}"] = data.ljust(file_size, b"\xee")
            base, data = base + file_size, b""
            one.log_offset = base
        data += encode(one)
    files[f"{LOG}/{base:020d}"] = data.ljust(file_size, b"\0")
    return files


def damaged(content: bytes, share: float, kind: str, count: int) -> bytes:
    at = min(int(share * len(content)), len(content) - 1)
    part = content[at : at + count]
    if kind == "flip":
        part = bytes([part[0] ^ 1]) + part[1:]
    elif kind == "shift":
        part = content[max(at - 60, 0) :][: len(part)].ljust(len(part), b"\0")
    else:
        part = bytes(len(part)) if kind == "zero" else bytes(number * 37 % 251 for number in range(len(part)))
    return content[:at] + part + content[at + len(part) :]


def opened(disk: MemoryDisk, config: Any) -> tuple[Any, ...]:
    """All there is after a recovery, on a copy of this disk."""
    disk = disk.copy()
    store = MessageStore(disk, config, lambda: START, on_progress=lambda _: None)
    try:
        report = trio.run(store.open)
    except CorruptStore as error:
        return (str(error),)
    queues = [(queue.topic, queue.queue_id, queue.begin, queue.end, queue.next_offset) for queue in store.queues]
    return replace(report, seconds=0.0), store.log.end, queues, store.index.statistics(), disk.files()


@given(
    records=RECORDS,
    times=st.integers(1, 30),
    file_size=st.sampled_from([1024, 4096, 1 << 15]),
    stretch=st.sampled_from([400, 3000, 1 << 22]),
    many=st.sampled_from([1, 2, 24]),
    known=st.one_of(st.none(), st.floats(0, 1)),
    is_clean=st.booleans(),
    damages=DAMAGES,
)
@example([Record("T", 0, 0, 0, b"x", b"KEYS\x01a", store_timestamp=7)], 30, 4096, 400, 1, None, False, [])
@example(  # a queue goes on where its file of the log begins, but at a later offset, or at -1
    [*[Record("TopicA", 0, 0, 0, b"", b"")] * 42, Record("TopicA", 0, 5, 0, b"", b""),
     *[Record("TopicA", 0, 0, 0, b"", b"")] * 41], 1, 4096, 1 << 22, 1, None, False, [],
)  # fmt: skip
@example(
    [*[Record("TopicA", 0, 0, 0, b"", b"")] * 42, Record("TopicA", 0, -43, 0, b"", b""),
     *[Record("TopicA", 0, 0, 0, b"", b"")] * 41], 1, 4096, 1 << 22, 1, None, False, [],
)  # fmt: skip
@example(
    [*[Record("TopicA", 0, 0, 0, b"", b"", store_timestamp=7)] * 6, Record("TopicA", -1, 0, 0, b"", b""),
     Record("TopicB", -1, 0, 0, b"", b"")], 2, 4096, 3000, 1, None, False, [],
)  # fmt: skip
def test_both_ways_end_alike(
    records: list[Record], times: int, file_size: int, stretch: int, many: int, known: float | None, is_clean: bool,
    damages: list[tuple[int, float, str, int]],
) -> None:  # fmt: skip
    config = small_config(mapped_file_size_commit_log=file_size, mapped_file_size_consume_queue=400)
    disk = MemoryDisk(page_size=512)
    records = (records * times)[:150]
    if known is not None:  # files that were right when the log had a part of the records
        for path, content in log_files(records[: int(known * len(records))], file_size).items():
            disk.put_file(path, content)
        store = MessageStore(disk, config, lambda: START, on_progress=lambda _: None)
        trio.run(open_and_close, store)
    for path, content in log_files(records, file_size).items():
        disk.put_file(path, content)
    if not is_clean:
        disk.put_file(f"{ROOT}/abort", b"")
    paths = sorted(path for path in disk.files() if path.startswith((LOG, f"{ROOT}/consumequeue", f"{ROOT}/index")))
    for number, share, kind, count in damages:
        path = paths[-1 - number % len(paths)]
        disk.put_file(path, damaged(disk.files()[path], share, kind, count))
    one_by_one = opened(disk, config)
    if known is not None and len(one_by_one) > 1:
        # Where the log does not continue as the progress point says, it is walked again from its beginning; how much
        # of the index was put right before that was found depends on how many records were read together.
        one_by_one[0].index = ANY
    with mock.patch.multiple("rocketlet.store.log_walk", _SMALL_LOG=0, _STRETCH=stretch, _MANY=many):
        by_columns = opened(disk, config)
    assert by_columns == one_by_one


async def open_and_close(store: MessageStore) -> None:
    await store.open()
    await store.close()
