"""A cache with a size limit: values computed from texts, the least recently used dropped first.

`functools.lru_cache` counts entries, so peers that choose the texts choose its size in bytes: 4,096 subscriptions of
64 KB parsed are more than a gigabyte, for good. Here an entry costs its text, and whatever is too long is computed each
time.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SizedCache(Generic[Key, Value]):
    """`function` of a key, remembered. `cost_of` is the size of a key; the entry used longest ago goes first.

    An entry of more than a sixteenth of `max_size` is not kept, so one entry cannot clear the cache of all others.
    """

    def __init__(self, function: Callable[[Key], Value], cost_of: Callable[[Key], int], max_size: int) -> None:
        self._function = function
        self._cost_of = cost_of
        self._max_size = max_size
        self._entries: dict[Key, tuple[Value, int]] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        """Whether the value of a key is remembered."""
        return key in self._entries

    def __call__(self, key: Key) -> Value:
        """The value of a key. Raises what the function raises, which is not remembered."""
        entries = self._entries
        cached = entries.pop(key, None)
        if cached is None:
            cached = self._function(key), self._cost_of(key)
            if cached[1] > self._max_size // 16:
                return cached[0]
            self.size += cached[1]
        entries[key] = cached
        while self.size > self._max_size:
            oldest = next(iter(entries))
            self.size -= entries.pop(oldest)[1]
        return cached[0]
