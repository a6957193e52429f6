"""A page as text in Prometheus's format 0.0.4, by prometheus-client; and that package's process metrics.

A page of 50,000 series takes half a second to write, so it is written in pieces, between which other tasks run.

Java: io.prometheus.client.exporter (of the exporter that RocketMQ 5 uses)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from rocketlet.metrics.page import Family, Page

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_PIECE = 200  # samples; 2 ms


class _One(Collector):
    """A single metric, as generate_latest wants it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class _Process(CollectorRegistry):
    """The process and its interpreter: memory, CPU, descriptors, garbage collections."""

    def __init__(self) -> None:
        super().__init__()
        for kind in (ProcessCollector, PlatformCollector, GCCollector):
            kind(registry=self)


_process = _Process()


def pieces(page: Page) -> Iterator[bytes]:
    """The text of the page, a little at a time."""
    for family in page:
        yield from _family(family)
    for metric in _process.collect():
        yield generate_latest(_One(metric))


def _family(family: Family) -> Iterator[bytes]:
    samples = list(family.samples.items())
    for begin in range(0, max(len(samples), 1), _PIECE):
        text = generate_latest(_One(_metric(family, samples[begin : begin + _PIECE])))
        # HELP and TYPE appear once, at the head of the family.
        yield text if begin == 0 else text.split(b"\n", 2)[2]


def _metric(family: Family, samples: Sequence[tuple[tuple[str, tuple[str, ...]], float]]) -> Metric:
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.help, family.kind)
    for (suffix, values), value in samples:
        names = family.labels if suffix != "_bucket" else (*family.labels, "le")
        metric.add_sample(family.name + suffix, dict(zip(names, values, strict=True)), value)
    return metric
