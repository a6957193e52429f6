"""Look-ups in the store for plain handlers: at once where what they need is in memory, as it mostly is, and where it is
not, when a worker thread has read it. A page from a slow disk would hold the loop for 5 ms and more.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rocketlet.remoting.handler import Later
from rocketlet.store.lookup import Lookup, NotInMemory

Result = TypeVar("Result")


def at_once(store: Lookup, look_up: Callable[[], Result]) -> Result:
    """What the look-up finds. Raises Later, so nothing may have been changed before.

    Requires: the look-up changes nothing; it may be made more than once.
    """
    try:
        return store.at_once(look_up)
    except NotInMemory:
        raise Later(partial(store.with_cold_reads, look_up)) from None
