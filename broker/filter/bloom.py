"""The bits that a queue's extension keeps per message: which SQL92 groups it matched when it was stored.

Each group of a topic owns k of m bits, by the murmur3 hash of `group#topic`. A message's map is the union of the bits
of all groups whose expression it matches, so a group whose bits are not all set certainly does not match, and one whose
bits are set probably does. k and m follow from the error rate and the number of groups: 20 % and 32 give 3 bits of 112.

    bit p  →  byte p // 8, mask 1 << p % 8          `GroupA#TopicTest` → 105, 17, 70

Java: filter/util/BloomFilter.java, BitsArray.java
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rocketlet.common.java_numbers import to_int32

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class Bloom:
    """The shape of all bit maps of a broker. Part of the disk format: a change makes Java drop all its stored
    filters."""

    hashes: int
    bits: int

    @classmethod
    def for_groups(cls, groups: int, error_percent: int) -> Bloom:
        """The shape for that many groups per topic and that percentage of false positives."""
        error = error_percent / 100
        bits = math.ceil(groups * math.log2(1 / error) * math.log2(math.e))
        return cls(math.ceil(math.log(error) / math.log(0.5)), -(-bits // 8) * 8)

    @property
    def size(self) -> int:
        """Bytes of a map."""
        return self.bits // 8

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of one group in the maps of a topic."""
        return _positions(f"{group}#{topic}", self.hashes, self.bits)

    def map_of(self, positions: Iterable[int]) -> bytes:
        """A map with these bits set."""
        bits = bytearray(self.size)
        for position in positions:
            bits[position >> 3] |= 1 << (position & 7)
        return bytes(bits)


def is_hit(positions: Sequence[int], bit_map: bytes) -> bool:
    """Whether all of them are set. REQUIRES: the map has the size that the positions were computed for."""
    return all(bit_map[position >> 3] & 1 << (position & 7) for position in positions)


@lru_cache(4096)
def _positions(text: str, hashes: int, bits: int) -> tuple[int, ...]:
    number = _murmur3(text.encode())
    low, high = number & 0xFFFFFFFF, number >> 32
    positions = []
    for i in range(1, hashes + 1):
        combined = to_int32(low + i * high)
        positions.append((combined if combined >= 0 else ~combined) % bits)
    return tuple(positions)


def _murmur3(data: bytes) -> int:
    """The first half of MurmurHash3 x64 128, seed 0."""
    h1 = h2 = 0
    blocks_end = len(data) & ~15
    for at in range(0, blocks_end, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotated(k1 * _C1, 31) * _C2 & _MASK
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotated(k2 * _C2, 33) * _C1 & _MASK
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[blocks_end:]
    h2 ^= _rotated(int.from_bytes(tail[8:], "little") * _C2, 33) * _C1 & _MASK
    h1 ^= _rotated(int.from_bytes(tail[:8], "little") * _C1, 31) * _C2 & _MASK
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return _mixed(h1) + _mixed(h2) & _MASK


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> (64 - bits)) & _MASK


def _mixed(number: int) -> int:
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33
