"""Line charts over time as SVG, drawn here: nothing to load, and visible without scripts.

Java: (none; rocketmq-dashboard draws with echarts in the browser)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 640, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 10, 22
_MAX_POINTS = 320


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its name and its points; `times` in seconds since 1970."""

    name: str
    times: Sequence[float]
    values: Sequence[float]


def chart(lines: Sequence[Line], title: str, empty: str, clock: Sequence[tuple[float, str]] = ()) -> Markup:
    """An SVG element. `clock` are times with their labels on the axis."""
    drawn = [line for line in lines if len(line.times) >= 2]
    if not drawn:
        return Markup('<p class="quiet chart-empty">{}</p>').format(empty)
    first = min(line.times[0] for line in drawn)
    last = max(line.times[-1] for line in drawn)
    top = round_limit(max((max(line.values) for line in drawn), default=0.0))

    def x(time: float) -> float:
        return round(_LEFT + (time - first) / max(last - first, 1) * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - max(value, 0.0) / top * (HEIGHT - _TOP - _BOTTOM), 1)

    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for share in (0.0, 0.5, 1.0):
        height = y(top * share)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(
            f'<text class="axis" x="{_LEFT - 6}" y="{height + 4}" text-anchor="end">{short(top * share)}</text>'
        )
    for time, text in clock:
        if first <= time <= last:
            parts.append(
                f'<text class="axis" x="{x(time)}" y="{HEIGHT - 5}" text-anchor="middle">{escape(text)}</text>'
            )
    for number, line in enumerate(drawn):
        points = " ".join(f"{x(time)},{y(value)}" for time, value in thinned(line.times, line.values))
        parts.append(
            f'<polyline class="line line-{number % 6}" points="{points}"><title>{escape(line.name)}</title></polyline>'
        )
    parts.append("</svg>")
    legend = "".join(
        f'<li class="line-{number % 6}">{escape(line.name)} <b>{short(line.values[-1])}</b></li>'
        for number, line in enumerate(drawn)
    )
    return Markup("".join(parts) + f'<ul class="legend">{legend}</ul>')


def thinned(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """As many points as are visible; the highest of those that coincide, so that no peak is lost."""
    step = max(1, -(-len(times) // _MAX_POINTS))
    points = []
    for begin in range(0, len(times), step):
        highest = max(range(begin, min(begin + step, len(times))), key=values.__getitem__)
        points.append((times[highest], values[highest]))
    return points


def round_limit(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten: the end of an axis."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)


def short(value: float) -> str:
    """1234567 as 1.23M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
