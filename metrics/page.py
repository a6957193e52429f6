"""A page of metrics: families of samples by name and labels, as sources fill it at each scrape.

Nothing is counted here. What is counted anyway, in the broker's statistics or the store's watermarks, is read at the
scrape, so sends and pulls pay nothing for it. Pure.

Invariants: a name has one kind and one list of labels; a family holds each combination of label values once; a page
holds at most `most_series` samples, and `left_out` counts the rest.

Java: broker/metrics/BrokerMetricsManager.java
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

Kind = Literal["gauge", "counter", "histogram"]
Labels = tuple[str, ...]
Wait = Callable[[], Awaitable[object]] | None


class Family:
    """The samples of one name. Counters end in `_total`, as their samples do."""

    __slots__ = ("_page", "help", "kind", "labels", "name", "samples")

    def __init__(self, page: Page, name: str, kind: Kind, help: str, labels: Labels) -> None:
        self._page = page
        self.name = name
        self.kind = kind
        self.help = help
        self.labels = labels
        self.samples: dict[tuple[str, Labels], float] = {}
        """By suffix of the name and label values; those of a histogram have `le` as their last label."""

    def add(self, values: Sequence[str], value: float) -> None:
        """One sample. If several sources of a page have the same labels, their values are summed."""
        self._add("", tuple(values), value)

    def add_histogram(self, values: Sequence[str], buckets: Mapping[float, int], total: float) -> None:
        """`buckets`: how many fell into each bucket, not cumulative; the last bound is infinite."""
        cumulative = 0
        labels = tuple(values)
        for bound, count in buckets.items():
            cumulative += count
            self._add("_bucket", (*labels, "+Inf" if bound == float("inf") else repr(bound)), cumulative)
        self._add("_sum", labels, total)
        self._add("_count", labels, cumulative)

    def _add(self, suffix: str, labels: Labels, value: float) -> None:
        key = (suffix, labels)
        present = self.samples.get(key)
        if present is not None:
            self.samples[key] = present + value
        elif self._page.has_room():
            self.samples[key] = value


class Page:
    """The answer to one scrape."""

    def __init__(self, most_series: int) -> None:
        self._families: dict[str, Family] = {}
        self._most_series = most_series
        self._series = 0
        self.left_out = 0

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Family:
        """A value that goes up and down. The family of that name is created if it is new, as by the other two."""
        return self._family(name, "gauge", help, labels)

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Family:
        """A value that only grows while the process runs."""
        assert name.endswith("_total"), name
        return self._family(name, "counter", help, labels)

    def histogram(self, name: str, help: str, labels: Sequence[str] = ()) -> Family:
        """How many values are below each bound."""
        return self._family(name, "histogram", help, labels)

    def _family(self, name: str, kind: Kind, help: str, labels: Sequence[str]) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(self, name, kind, help, tuple(labels))
        assert (family.kind, family.labels) == (kind, tuple(labels)), f"{name} is two different families"
        return family

    def has_room(self) -> bool:
        """Reserve room for one more sample; if there is none, count it and return False."""
        if self._series >= self._most_series:
            self.left_out += 1
            return False
        self._series += 1
        return True

    def __len__(self) -> int:
        return self._series

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())


class Source(Protocol):
    """A source of metrics: a broker, a name server, the process."""

    def fill(self, page: Page) -> Iterator[Wait]:
        """Add to the page. It yields after each small piece of work, so that other tasks can run: None, or an async
        function that has to be over before it goes on."""

    def not_ready(self) -> Sequence[str]:
        """The reasons why clients cannot be served now; none if they can."""
