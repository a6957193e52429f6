"""The first page: throughput, lag, problems, and charts of the last day.

Java: rocketmq-dashboard's controller/DashboardController.java
"""

from __future__ import annotations

from datetime import datetime

from markupsafe import Markup
from starlette.responses import Response

from rocketlet.console.charts import Line, chart
from rocketlet.console.trouble import troubles
from rocketlet.console.web import View

_TOP = 10


async def dashboard(view: View) -> Response:
    cluster = view.cluster
    brokers, groups, topics = await cluster.brokers(), await cluster.groups(), await cluster.topics()
    masters = [broker for broker in brokers if broker.is_master]
    rates = {
        name: view.console.history.latest(f"in {name}") for name, entry in topics.items() if entry.kind == "normal"
    }
    return view.page(
        "dashboard.html",
        brokers=brokers,
        troubles=troubles(brokers, groups.values(), view.console.clock(), view.t),
        topics=sum(entry.kind == "normal" for entry in topics.values()),
        groups=len(groups),
        tps_in=sum(broker.tps_in for broker in masters),
        tps_out=sum(broker.tps_out for broker in brokers),
        today_in=sum(
            broker.number_of("msgPutTotalTodayNow") - broker.number_of("msgPutTotalTodayMorning") for broker in masters
        ),
        lag=sum(group.lag() for group in groups.values()),
        retries=sum(group.retries for group in groups.values()),
        dead=sum(entry.kind == "dlq" for entry in topics.values()),
        busiest=sorted(((tps, name) for name, tps in rates.items() if tps > 0), reverse=True)[:_TOP],
        behind=sorted(((entry.lag(), entry.name) for entry in groups.values() if entry.lag() > 0), reverse=True)[:_TOP],
        flow=picture(view, view.t("Messages a second"), {view.t("in"): "in", view.t("out"): "out"}),
        lags=picture(view, view.t("Messages not consumed"), {view.t("lag"): "lag"}),
        samples=len(view.console.history),
    )


def picture(view: View, title: str, series: dict[str, str]) -> Markup:
    """Some series of the last day."""
    lines = [Line(name, *view.console.history.series(key)) for name, key in series.items()]
    times = [time for line in lines for time in line.times]
    clock = []
    if times:
        first, last = min(times), max(times)
        for number in range(1, 4):
            time = first + (last - first) * number / 4
            clock.append((time, datetime.fromtimestamp(time).strftime("%H:%M")))
    return chart(lines, title, view.t("Nothing recorded yet: a sample is taken once a minute."), clock)
