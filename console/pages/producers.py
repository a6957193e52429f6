"""Producers: all groups and their members.

Java: rocketmq-dashboard's controller/ProducerController.java
"""

from __future__ import annotations

from starlette.responses import Response

from rocketlet.console.web import View
from rocketlet.remoting.command import version_name


async def producers(view: View) -> Response:
    filter_text = view.query_value("filter").lower()
    groups: list[tuple[str, dict[str, dict[str, object]]]] = []
    for group, clients in (await view.cluster.producers()).items():
        rows: dict[str, dict[str, object]] = {}
        for broker, client in clients:
            row = rows.setdefault(
                client.clientId,
                {
                    "address": client.remoteIP.lstrip("/"),
                    "language": client.language,
                    "version": version_name(client.version),
                    "seen": 0,
                    "brokers": [],
                },
            )
            row["seen"] = max(int(str(row["seen"])), client.lastUpdateTimestamp)
            brokers = row["brokers"]
            assert isinstance(brokers, list)
            brokers.append(broker)
        if filter_text in group.lower() or any(filter_text in client.lower() for client in rows):
            groups.append((group, rows))
    pager = view.paged(groups)
    return view.page("producers.html", pager=pager, filter=view.query_value("filter"))
