"""CRC-32 as RocketMQ computes it over bodies: by isal where it is installed, else by zlib, with the same result.

isal takes 0.05 µs for a body of 100 bytes and 0.06 for 1 KiB, zlib 0.15 and 0.31 (docs/decisions/isal.md).

Java: common/UtilAll.java#crc32
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zlib import crc32
else:
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        from zlib import crc32

__all__ = ["crc32"]
