"""A name server as a source of metrics. It is ready as soon as it listens: brokers fill it within half a minute.

Java: (none)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rocketlet.access.verdicts import Reason
from rocketlet.metrics.page import Page
from rocketlet.namesrv.route_table import RouteTable
from rocketlet.remoting.server import Server

_NODE = ("namesrv",)


class NamesrvSource:
    """See `metrics.page.Source`. `address` and `server` are set once it listens."""

    def __init__(self, table: RouteTable, denied: Mapping[Reason, int] | None = None) -> None:
        self._table = table
        self._denied = {} if denied is None else denied
        self.address = ""
        self.server: Server | None = None

    def fill(self, page: Page) -> Iterator[None]:
        numbers, this = self._table.statistics(), (self.address,)
        for name, help, value in (
            ("clusters", "Clusters that brokers named", numbers.clusters),
            ("broker_names", "Broker names, each a master and its slaves", numbers.broker_names),
            ("brokers", "Brokers that are registered now", numbers.addresses),
            ("topics", "Topics that have a route", numbers.topics),
            ("routes", "Pairs of a topic and a broker name", numbers.entries),
        ):
            page.gauge(f"rocketlet_namesrv_{name}", help, _NODE).add(this, value)
        page.counter("rocketlet_namesrv_changes_total", "Changes of the route table", _NODE).add(this, numbers.changes)
        if self.server is not None:
            page.gauge("rocketlet_namesrv_connections", "Open connections", _NODE).add(
                this, self.server.statistics().connections
            )
            refused = page.counter(
                "rocketlet_namesrv_peer_refused_total",
                "What peers wanted beyond a limit, by its setting",
                (*_NODE, "setting"),
            )
            for setting, count in self.server.peers.refused.items():
                refused.add((*this, setting), count)
        denied = page.counter(
            "rocketlet_namesrv_access_denied_total", "Requests that were not let in", (*_NODE, "reason")
        )
        for reason, count in self._denied.items():
            denied.add((*this, reason.value), count)
        yield

    def not_ready(self) -> Sequence[str]:
        return () if self.server is not None else ("the name server is starting",)
