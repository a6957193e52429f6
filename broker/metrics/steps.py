"""Work on many queues in steps, for what fills a page: a topic may have 65,535, and an old message is on the disk only.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeVar

from rocketlet.broker.statistics import Carried, Rate, Statistics, number_of
from rocketlet.metrics.page import Wait
from rocketlet.store.lookup import Lookup, NotInMemory

Result = TypeVar("Result")

STEP: Final = 500  # queues


def with_cold_reads(store: Lookup, look_up: Callable[[], Result]) -> Generator[Wait, None, Result]:
    """What a look-up finds, without reading a cold page on the loop."""
    try:
        return store.at_once(look_up)
    except NotInMemory:
        yield partial(store.with_cold_reads, look_up)
        return look_up()


def minute(statistics: Statistics, name: str, key: str) -> Generator[Wait, None, Rate | None]:
    """A statistic over the last minute; None if there is none of that name and key."""
    flows, carried = statistics.flows_of(name, key), Carried(number_of(name))
    for number, flow in enumerate(flows, 1):
        carried.add(flow, "minute")
        if number % STEP == 0:
            yield None
    return carried.rate("minute") if flows else None
