"""A picture of a store's statistics: messages in time by topic, sizes of bodies, lags of groups.

Needs matplotlib, which only this module imports (`pip install 'rocketlet[plot]'`).

Java: none
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rocketlet.common.errors import RocketletError

if TYPE_CHECKING:
    from rocketlet.spark_jobs.stats import StoreStats

_MAX_TOPICS = 8
_MAX_LAGS = 12
_MAX_LETTERS = 44


class NoPlot(RocketletError):
    """matplotlib is not installed; pip install 'rocketlet[plot]', or leave --plot away."""


def plot(stats: StoreStats, path: str) -> None:
    """Write a PNG. Raises NoPlot."""
    try:
        import matplotlib
    except ImportError:
        raise NoPlot("a plot needs matplotlib: pip install 'rocketlet[plot]', or leave --plot away") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(11, 12), layout="constrained")
    figure.suptitle(f"log offsets {stats.log_begin:,} to {stats.log_end:,}, times in UTC")
    _rates(axes[0], stats)
    _sizes(axes[1], stats)
    _lags(axes[2], stats)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _rates(axes: Any, stats: StoreStats) -> None:
    largest = sorted(stats.topics, key=lambda topic: -topic.messages)
    named = [topic.topic for topic in largest[:_MAX_TOPICS]]
    slots = sorted({slot for _, slot, _, _ in stats.series})
    if not slots:
        axes.text(0.5, 0.5, "no messages", ha="center")
        return
    # Every step between first and last, so that a pause shows as one.
    step = stats.step * 1000
    slots = list(range(slots[0], slots[-1] + step, step))
    rows = {name: dict.fromkeys(slots, 0.0) for name in [*named, "others"]}
    for topic, slot, messages, _ in stats.series:
        rows[topic if topic in rows else "others"][slot] += messages / stats.step
    labels = [name for name in rows if any(rows[name].values())]
    times = [datetime.fromtimestamp(slot / 1000, UTC) for slot in slots]
    if len(times) == 1:
        axes.bar(labels, [rows[name][slots[0]] for name in labels])
    else:
        axes.stackplot(times, [list(rows[name].values()) for name in labels], labels=_short(labels), step="post")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
        axes.tick_params(axis="x", labelrotation=20)
    axes.set_ylabel(f"messages per second\n(means over {stats.step} s)")
    axes.set_title("Messages stored")
    axes.set_ylim(bottom=0)


def _sizes(axes: Any, stats: StoreStats) -> None:
    topics = sorted(stats.topics, key=lambda topic: -topic.log_bytes)[:_MAX_TOPICS][::-1]
    places = range(len(topics))
    axes.barh(places, [topic.body_p99 for topic in topics], color="lightsteelblue", label="99 % are at most")
    axes.barh(places, [topic.body_median for topic in topics], height=0.5, color="steelblue", label="half are at most")
    axes.set_yticks(places, _short([topic.topic for topic in topics]), fontsize="small")
    axes.set_xlabel("bytes of a body")
    axes.set_title("Sizes")
    if topics:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")


def _lags(axes: Any, stats: StoreStats) -> None:
    lags = stats.lags[:_MAX_LAGS][::-1]
    axes.set_title("Messages not consumed yet")
    if not lags:
        axes.text(0.5, 0.5, "no consumer offsets", ha="center")
        axes.set_axis_off()
        return
    axes.barh(range(len(lags)), [lag.lag for lag in lags], color="indianred")
    names = _short([f"{lag.group} on {lag.topic}" for lag in lags])
    axes.set_yticks(range(len(lags)), names, fontsize="small")
    axes.set_xlim(0, max(1, max(lag.lag for lag in lags)) * 1.15)
    for place, lag in enumerate(lags):
        axes.text(lag.lag, place, f" {lag.lag:,}", va="center", fontsize="small")


def _short(names: list[str]) -> list[str]:
    return [name if len(name) <= _MAX_LETTERS else f"{name[: _MAX_LETTERS - 1]}…" for name in names]
