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
    query, topic = view.query_value("q"), view.query_value("trace_topic", TRACE_TOPIC)
    views: list[dict[str, Any]] = []
    note = ""
    if query:
        if not await view.cluster.masters():
            raise Refused(view.t("No broker answers, so nothing can be said."), 502)
        if topic not in await view.cluster.topics():
            note = view.t("There is no topic {name}: brokers make it with traceTopicEnable=true.").format(name=topic)
        else:
            messages = await by_key(view.calls, topic, query, _MOST)
            views = [
                span
                for message in messages
                for span in trace.decode(message.body.decode(errors="replace"))
                if (query == span.get("msgId") or query in str(span.get("keys", "")).split())
                and 0 <= span["timestamp"] < _LATEST
                and 0 <= span["costTime"] < _LATEST
            ]
            views.sort(key=lambda span: span["timestamp"])
            if not views:
                note = view.t("No trace was recorded of {text}: clients record them with trace=True.").format(
                    text=query
                )
    return view.page(
        "traces.html", q=query, trace_topic=topic, views=views, note=note, graph=graph(view, views) if views else ""
    )


def graph(view: View, views: list[dict[str, Any]]) -> Markup:
    """Bars over time: the send at the top, consumers below."""
    first = min((span["timestamp"] for span in views if span["timestamp"]), default=0)
    last = max(span["timestamp"] + max(span["costTime"], 0) for span in views)
    length = max(last - first, 1)
    height = _ROW * len(views) + 30
    parts = [f'<svg class="trace" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(view.t("Trace"))}">']
    for number, span in enumerate(views):
        top = number * _ROW + 6
        x = _LEFT + max(span["timestamp"] - first, 0) / length * (_WIDTH - _LEFT - 90)
        width = max(span["costTime"] / length * (_WIDTH - _LEFT - 90), 4)
        good = span["status"] in ("success", "COMMIT_MESSAGE")
        label = f"{span['type']} {span['group']}"[:28]
        parts.append(f'<text class="axis" x="0" y="{top + 14}">{escape(label)}</text>')
        parts.append(
            f'<rect class="{"good" if good else "bad"}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="18" rx="3">'
            f"<title>{escape(time_text(span['timestamp']))}: {escape(str(span['status']))}</title></rect>"
        )
        parts.append(
            f'<text class="axis" x="{min(x + width + 6, _WIDTH - 80):.1f}" y="{top + 14}">'
            f"{escape(ago(span['costTime']))}</text>"
        )
    parts.append(f'<text class="axis" x="{_LEFT}" y="{height - 6}">{escape(time_text(first))}</text></svg>')
    return Markup("".join(parts))
