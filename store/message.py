"""The values that go into the store and come back, without behaviour.

Java: store/MessageExtBrokerInner.java, store/AppendMessageResult.java, store/QueryMessageResult.java
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from rocketlet.common.host import UNKNOWN_HOST
from rocketlet.common.message_record import Buffer


class Put(Struct, gc=False):
    """One message to be stored. Hosts are packed (`common.host`), properties are the text as it will stand in the log.

    `keys`: for the index, the unique key first, then the words of KEYS. `tags_code`: the hash of TAGS; in the queues of
    the delay levels the store puts the time of delivery instead. `filter_bits`: the SQL bit map, where one is kept.
    """

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes = b""
    tags_code: int = 0
    keys: tuple[bytes, ...] | list[bytes] = ()
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = UNKNOWN_HOST
    store_host: bytes = UNKNOWN_HOST
    reconsume_times: int = 0
    prepared_offset: int = 0
    filter_bits: bytes = b""


class Appended(Struct, gc=False):
    """Where a message was stored. It is durable once `flushed` has reached `end`."""

    log_offset: int
    size: int
    queue_offset: int
    store_timestamp: int
    end: int


@dataclass(slots=True)
class FoundByKey:
    """Messages that carry a key, oldest first: (log offset, record). The end of the index tells how new it is."""

    records: list[tuple[int, bytes]] = field(default_factory=list)
    index_timestamp: int = 0
    index_log_offset: int = 0


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A snapshot, for the runtime info of a broker and for people.

    `puts_failed` counts what RocketMQ counts: single messages that the log refused, for their size or for lack of room,
    and batches for lack of room; not what is refused while the store is closed, full or a slave's.
    """

    log_begin: int
    log_end: int
    flushed: int
    dispatched: int
    log_files: int
    queues: int
    waiting: int
    index_files: int
    index_entries: int
    puts: int
    puts_failed: int
    put_bytes: int
    gets: int
    flush_rounds: int
    disk_ratio: float
    refusal: str
