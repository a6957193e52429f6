"""The history of a message: its sender, where it was stored, who consumed it, durations and results.

"None was recorded" is distinguished from "the request failed": the first is an answer, the second an error.

Java: rocketmq-dashboard's controller/MessageTraceController.java
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape
from starlette.responses import Response

from rocketlet.common.topic import TRACE_TOPIC
from rocketlet.console.web import Refused, View, ago, time_text
from rocketlet.tools.admin import trace
from rocketlet.tools.admin.reading import by_key

_MOST = 64
_LATEST = 1 << 47  # a time in milliseconds; any client can write a trace
_ROW, _LEFT, _WIDTH = 28, 190, 900


async def traces(view: View) -> Response:
    asked, topic = view.asked("q"), view.asked("trace_topic", TRACE_TOPIC)
    views: list[dict[str, Any]] = []
    note = ""
    if asked:
        if not await view.cluster.masters():
            raise Refused(view.t("No broker answers, so nothing can be said."), 502)
        if topic not in await view.cluster.topics():
            note = view.t("There is no topic {name}: brokers make it with traceTopicEnable=true.").format(name=topic)
        else:
            found = await by_key(view.calls, topic, asked, _MOST)
            views = [
                one
                for message in found
                for one in trace.decode(message.body.decode(errors="replace"))
                if (asked == one.get("msgId") or asked in str(one.get("keys", "")).split())
                and 0 <= one["timestamp"] < _LATEST
                and 0 <= one["costTime"] < _LATEST
            ]
            views.sort(key=lambda one: one["timestamp"])
            if not views:
                note = view.t("No trace was recorded of {text}: clients record them with trace=True.").format(
                    text=asked
                )
    return view.page(
        "traces.html", q=asked, trace_topic=topic, views=views, note=note, graph=graph(view, views) if views else ""
    )


def graph(view: View, views: list[dict[str, Any]]) -> Markup:
    """Bars over time: the send at the top, consumers below."""
    first = min((one["timestamp"] for one in views if one["timestamp"]), default=0)
    last = max(one["timestamp"] + max(one["costTime"], 0) for one in views)
    length = max(last - first, 1)
    height = _ROW * len(views) + 30
    parts = [f'<svg class="trace" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(view.t("Trace"))}">']
    for number, one in enumerate(views):
        top = number * _ROW + 6
        x = _LEFT + max(one["timestamp"] - first, 0) / length * (_WIDTH - _LEFT - 90)
        width = max(one["costTime"] / length * (_WIDTH - _LEFT - 90), 4)
        good = one["status"] in ("success", "COMMIT_MESSAGE")
        label = f"{one['type']} {one['group']}"[:28]
        parts.append(f'<text class="axis" x="0" y="{top + 14}">{escape(label)}</text>')
        parts.append(
            f'<rect class="{"good" if good else "bad"}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="18" rx="3">'
            f"<title>{escape(time_text(one['timestamp']))}: {escape(str(one['status']))}</title></rect>"
        )
        parts.append(
            f'<text class="axis" x="{min(x + width + 6, _WIDTH - 80):.1f}" y="{top + 14}">'
            f"{escape(ago(one['costTime']))}</text>"
        )
    parts.append(f'<text class="axis" x="{_LEFT}" y="{height - 6}">{escape(time_text(first))}</text></svg>')
    return Markup("".join(parts))
