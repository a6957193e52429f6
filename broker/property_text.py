"""The text of properties that the broker rewrites, in the order in which Java would have written them.

RocketMQ keeps properties in a `HashMap` and writes them in its order, so a rewritten record (delayed, half, retried)
has its properties ordered by their names' hashes. Readers do not care. We keep that order because it costs little and
makes such records equal byte for byte, so that tests can show that nothing else differs.

Java: common/message/MessageDecoder.java#messageProperties2String, java.util.HashMap
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketlet.common.java_numbers import string_hash
from rocketlet.common.message_properties import encode
from rocketlet.common.sized_cache import SizedCache

_SMALLEST_TABLE = 16


def rewritten(properties: Mapping[str, str]) -> bytes:
    """The bytes of a map in Java's order. REQUIRES: its entries are in insertion order."""
    slots = _SMALLEST_TABLE
    while len(properties) > slots * 3 // 4:
        slots *= 2
    ordered = sorted(properties, key=lambda name: _spread(name) & (slots - 1))
    return encode({name: properties[name] for name in ordered}).encode("utf-8", "surrogatepass")


def _spread_of(name: str) -> int:
    number = string_hash(name) & 0xFFFFFFFF
    return number ^ number >> 16


# HashMap's spreading of a hash: its upper half also decides the slot. Names recur, so they are cached.
_spread = SizedCache(_spread_of, len, 64 << 10)
