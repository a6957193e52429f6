"""Bits of a record's SYSFLAG. They are on disk and on the wire: DO NOT CHANGE.

Java: common/sysflag/MessageSysFlag.java
"""

from __future__ import annotations

COMPRESSED = 0x1
MULTI_TAGS = 0x2

TRANSACTION_MASK = 0xC
NOT_TRANSACTION = 0x0
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC

BORN_V6 = 0x10
STORE_V6 = 0x20
HOST_FLAGS = BORN_V6 | STORE_V6  # the store sets them, from the hosts of the record
NEED_UNWRAP = 0x40  # 5.x: one record holds a batch
INNER_BATCH = 0x80

COMPRESSION_MASK = 0x700  # read only together with COMPRESSED, though the bits may be stored without it
COMPRESSION_LEGACY_ZLIB = 0x000
LZ4 = 0x100
ZSTD = 0x200
ZLIB = 0x300


def gets_queue_entry(sys_flag: int) -> bool:
    """Prepared and rolled back records are in the log but in no queue."""
    return sys_flag & TRANSACTION_MASK in (NOT_TRANSACTION, COMMIT)


def gets_index_entry(sys_flag: int) -> bool:
    return sys_flag & TRANSACTION_MASK != ROLLBACK
