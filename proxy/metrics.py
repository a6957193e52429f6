"""The endpoint's metrics: calls by method and status, latencies, connections, clients, bytes held.

Java: proxy/metrics/ProxyMetricsManager.java
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from rocketlet.metrics.page import Page
from rocketlet.proxy.call import Call
from rocketlet.proxy.grpc_wire import GrpcStatus
from rocketlet.proxy.server import GrpcServer
from rocketlet.proxy.service.brokers import Brokers
from rocketlet.proxy.service.clients import Clients
from rocketlet.proxy.service.renewals import Renewals
from rocketlet.proxy.service.transactions import Transactions
from rocketlet.proxy.wire import messages as m

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0, 30.0, float("inf"))
_KINDS = {m.PRODUCER: "producer", m.PUSH_CONSUMER: "push_consumer", m.SIMPLE_CONSUMER: "simple_consumer"}


class CallCounts:
    """Finished calls. See CallEvents."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._totals: dict[str, float] = {}

    def over(self, call: Call, status: GrpcStatus, now: float) -> None:
        """Count one."""
        method = call.method
        self._calls[method.name, str(call.code or 20000) if status is GrpcStatus.OK else status.name] += 1
        if not method.is_stream:
            took = now - call.began
            counts = self._times.get(method.name)
            if counts is None:
                counts = self._times[method.name] = [0] * len(BOUNDS)
            counts[bisect_left(BOUNDS, took)] += 1
            self._totals[method.name] = self._totals.get(method.name, 0.0) + took

    def fill(self, page: Page) -> None:
        """Add them to the page."""
        calls = page.counter(
            "rocketlet_proxy_calls_total", "gRPC calls that are over, by RocketMQ's code.", ("rpc", "code")
        )
        for labels, count in self._calls.items():
            calls.add(labels, count)
        times = page.histogram("rocketlet_proxy_call_seconds", "How long they took, streams left out.", ("rpc",))
        for method, counts in self._times.items():
            times.add_histogram((method,), dict(zip(BOUNDS, counts, strict=True)), self._totals[method])


class ProxyMetrics:
    """A source of metrics: counters, and the state at the time of a scrape."""

    def __init__(
        self,
        calls: CallCounts,
        server: GrpcServer,
        brokers: Brokers,
        clients: Clients,
        renewals: Renewals,
        transactions: Transactions,
    ) -> None:
        self._calls = calls
        self._server = server
        self._brokers = brokers
        self._clients = clients
        self._renewals = renewals
        self._transactions = transactions

    def fill(self, page: Page) -> Iterator[None]:
        """See Source."""
        self._calls.fill(page)
        yield
        connections = list(self._server.connections)
        for name, text, value in (
            ("connections", "Open connections of clients.", len(connections)),
            ("connections_refused_total", "Connections above grpcMaxConnections.", self._server.refused),
            ("calls_open", "Calls in progress, streams and waiting receives among them.",
             sum(len(connection.calls) for connection in connections)),
            ("held_bytes", "Bytes of requests in progress.", sum(connection.held for connection in connections)),
            ("unread_bytes", "Bytes of answers that clients have not read.",
             sum(connection.unread for connection in connections)),
            ("renewed_handles", "Messages that push consumers hold, whose invisible time is renewed.",
             len(self._renewals)),
            ("open_transactions", "Transactions that are neither committed nor rolled back.", len(self._transactions)),
        ):  # fmt: skip
            kind = page.counter if name.endswith("_total") else page.gauge
            kind(f"rocketlet_proxy_{name}", text).add((), value)
        yield
        clients = page.gauge("rocketlet_proxy_clients", "Clients with an open telemetry.", ("kind",))
        kinds = Counter(_KINDS.get(client.kind, "other") for client in self._clients)
        for kind_name in _KINDS.values():
            clients.add((kind_name,), kinds[kind_name])
        yield

    def not_ready(self) -> Sequence[str]:
        """See Source."""
        return () if self._brokers.masters else ("no broker is known yet",)
