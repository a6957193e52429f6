"""One flipped bit found by its checksum: the commonest damage there is on disks and in memory.

A CRC-32 is linear: stored XOR computed depends only on which bits flipped, not on what the body says. The pattern of
one flipped bit, i bits before the end, is the remainder of x^(31+i); so the bit is where the patterns, computed one
after the other from the end, meet the one seen. With RocketMQ's 31 bits another damage is taken for a flipped bit with
a chance of bits / 2^31, 1 in 16,000 at the longest body that is tried. One bit that differs between the two sums with
no such place in the body is a flipped bit of the stored sum itself.

Java: (none)
"""

from __future__ import annotations

from rocketlet.common.crc import crc32

_POLYNOMIAL = 0xEDB88320  # of zlib's CRC-32, least significant bit first
_MASK = 0x7FFFFFFF
LONGEST = 16 << 10  # bytes: 131,072 steps, 10 ms


def flipped_bit(body: bytes, stored_crc: int) -> int | None:
    """The bit of the body (8 * byte + bit, lowest first) whose flip makes its CRC the stored one; None without one.

    REQUIRES that the CRC does not match as it is.
    """
    wanted = (crc32(body) ^ stored_crc) & _MASK
    bits = len(body) * 8
    if not wanted or len(body) > LONGEST:
        return None
    pattern = _POLYNOMIAL  # of the last bit: the highest of the last byte
    for place in range(bits - 1, -1, -1):
        if pattern & _MASK == wanted:
            return place
        pattern = pattern >> 1 ^ (_POLYNOMIAL if pattern & 1 else 0)
    return None


def is_flipped_sum(body: bytes, stored_crc: int) -> bool:
    """Whether one bit of the stored sum itself flipped. REQUIRES that `flipped_bit` found nothing."""
    return (crc32(body) & _MASK ^ stored_crc & 0xFFFFFFFF).bit_count() == 1


def mended(body: bytes, stored_crc: int) -> bytes | None:
    """The body as it was, where one bit of it or of its sum flipped; None where more is wrong."""
    place = flipped_bit(body, stored_crc)
    if place is not None:
        found = bytearray(body)
        found[place // 8] ^= 1 << place % 8
        return bytes(found)
    return body if is_flipped_sum(body, stored_crc) else None
