"""Whatever brokers, operators and time do, the route table answers like a naive model of plain dictionaries.

The model keeps a row per broker (`rows`) and per topic and broker name (`queues`), and computes every answer from them.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rocketlet.namesrv.route_table import LEASE_MS, RouteTable
from rocketlet.namesrv.route_values import DataVersion, Master, QueueData, Registration
from tests.support.properties import examples

NAMES = st.sampled_from(["a", "a", "b"])
IDS = st.sampled_from([0, 0, 1, 2])
ADDRESSES = st.sampled_from(["x:1", "y:1", "z:1"])
CONNECTIONS = st.integers(1, 3)
CLUSTERS = st.sampled_from(["C1", "C1", "C1", "C2"])
TOPICS = ["T1", "T2"]
VERSIONS = st.builds(DataVersion, st.just(1), st.integers(1, 2))
TABLES = st.dictionaries(
    st.sampled_from(TOPICS), st.tuples(st.integers(1, 2), st.sampled_from([4, 6, 7]), st.integers(0, 3)), max_size=3
)
FILTERS = st.none() | st.sampled_from([(), ("f:1",), ("f:1", "f:2")])


class RouteModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now = 0
        self.rows: list[dict[str, Any]] = []
        self.clusters: dict[str, str] = {}
        self.queues: dict[tuple[str, str], QueueData] = {}
        self.orders: dict[str, tuple[bool, DataVersion]] = {}
        self.answers = self.all_answers()
        self.changes = self.table.changes

    # ---- events, applied to both

    @rule(
        name=NAMES,
        broker_id=IDS,
        address=ADDRESSES,
        cluster=CLUSTERS,
        connection=CONNECTIONS,
        version=VERSIONS,
        table=TABLES,
        filters=FILTERS,
    )
    def register(
        self,
        name: str,
        broker_id: int,
        address: str,
        cluster: str,
        connection: int,
        version: DataVersion,
        table: dict[str, tuple[int, int, int]],
        filters: tuple[str, ...] | None,
    ) -> None:
        topics = {topic: QueueData(name, n, n, perm, flags) for topic, (n, perm, flags) in table.items()}
        ha = f"{address}-ha-{connection}"
        answer = self.table.register(
            Registration(cluster, name, broker_id, address, ha, connection, version, topics, filters), self.now
        )
        before = next((row for row in self.rows if row["address"] == address), None)
        same = before is not None and (before["name"], before["id"]) == (name, broker_id)
        replaced = [
            row for row in self.rows if row["address"] == address or (row["name"], row["id"]) == (name, broker_id)
        ]
        row = {
            "name": name,
            "id": broker_id,
            "address": address,
            "connection": connection,
            "seen": self.now,
            "version": version,
            "ha": ha,
            "filters": (before["filters"] if same and before else ()) if filters is None else filters,
        }
        self.rows = [other for other in self.rows if other not in replaced] + [row]
        for gone in replaced:
            if gone["id"] == 0 and not (same and gone is before):
                self.orders.pop(gone["name"], None)
        self.clusters[name] = cluster
        self.drop_orphans()
        if broker_id == 0:
            if name in self.orders and self.orders[name][1] != version:
                del self.orders[name]
            for topic, data in topics.items():
                self.queues[topic, name] = self.ordered(name, data)
            assert answer is None
        else:
            masters = [row for row in self.rows if (row["name"], row["id"]) == (name, 0)]
            assert answer == (Master(masters[0]["address"], masters[0]["ha"]) if masters else None)

    @rule(address=ADDRESSES, name=NAMES, broker_id=IDS)
    def unregister(self, address: str, name: str, broker_id: int) -> None:
        leaving = [row for row in self.rows if (row["address"], row["name"], row["id"]) == (address, name, broker_id)]
        assert self.table.unregister(address, name, broker_id) == bool(leaving)
        self.leave(leaving)

    @rule(connection=CONNECTIONS)
    def close(self, connection: int) -> None:
        leaving = [row for row in self.rows if row["connection"] == connection]
        assert sorted(self.table.forget(connection)) == sorted(row["address"] for row in leaving)
        self.leave(leaving)

    @rule(passes=st.sampled_from([1, 10_000, LEASE_MS // 2, LEASE_MS, LEASE_MS + 1]))
    def expire(self, passes: int) -> None:
        self.now += passes
        leaving = [row for row in self.rows if self.now - row["seen"] > LEASE_MS]
        expired = list(self.table.expire(self.now))
        assert sorted((e.address, e.broker_name, e.connection) for e in expired) == sorted(
            (row["address"], row["name"], row["connection"]) for row in leaving
        )
        self.leave(leaving)

    @rule(address=ADDRESSES, version=VERSIONS, connection=CONNECTIONS)
    def ask_version(self, address: str, version: DataVersion, connection: int) -> None:
        row = next((row for row in self.rows if row["address"] == address), None)
        known = row is not None and (row["version"], row["connection"]) == (version, connection)
        assert self.table.known_version(address, version, connection, self.now) == (
            not known,
            row["version"] if row else None,
        )
        if row is not None and known:
            row["seen"] = self.now

    @rule(name=NAMES, writable=st.booleans())
    def order(self, name: str, writable: bool) -> None:
        concerned = [key for key in self.queues if key[1] == name]
        change = self.table.add_write_permission if writable else self.table.wipe_write_permission
        assert sum(1 for _ in change(name)) == len(concerned)
        master = next((row for row in self.rows if (row["name"], row["id"]) == (name, 0)), None)
        self.orders[name] = (writable, master["version"] if master else DataVersion())
        for key in concerned:
            self.queues[key] = self.ordered(name, self.queues[key])
        if master is None:
            del self.orders[name]

    @rule(topic=st.sampled_from(TOPICS), cluster=st.none() | CLUSTERS)
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)
        self.queues = {
            key: data
            for key, data in self.queues.items()
            if not (key[0] == topic and cluster in (None, self.clusters[key[1]]))
        }

    # ---- the model's own rules

    def ordered(self, name: str, data: QueueData) -> QueueData:
        if name not in self.orders:
            return data
        perm = 6 if self.orders[name][0] else data.perm & ~2
        return QueueData(data.broker_name, data.read_queues, data.write_queues, perm, data.flags)

    def leave(self, leaving: list[dict[str, Any]]) -> None:
        self.rows = [row for row in self.rows if row not in leaving]
        for row in leaving:
            if row["id"] == 0:
                self.orders.pop(row["name"], None)
        self.drop_orphans()

    def drop_orphans(self) -> None:
        names = {row["name"] for row in self.rows}
        self.clusters = {name: cluster for name, cluster in self.clusters.items() if name in names}
        self.queues = {key: data for key, data in self.queues.items() if key[1] in names}

    def addresses(self, name: str) -> dict[int, str]:
        return {
            row["id"]: row["address"] for row in sorted(self.rows, key=lambda row: row["id"]) if row["name"] == name
        }

    # ---- invariants after every step

    @invariant()
    def routes_agree(self) -> None:
        for topic in TOPICS:
            names = sorted(name for (t, name) in self.queues if t == topic)
            route = self.table.route(topic)
            if not names:
                assert route is None
                continue
            assert route is not None
            assert route.queues == [self.queues[topic, name] for name in names]
            assert [(b.broker_name, b.cluster, b.addresses) for b in route.brokers] == [
                (name, self.clusters[name], self.addresses(name)) for name in names
            ]
            assert route.filter_servers == {
                row["address"]: row["filters"] for row in self.rows if row["name"] in names and row["filters"]
            }

    @invariant()
    def lists_agree(self) -> None:
        names = self.table.broker_names()
        assert names == sorted(self.clusters)
        for name in names:
            broker = self.table.broker(name)
            assert broker is not None
            assert broker.addresses == self.addresses(name)
        clusters = sorted(set(self.clusters.values()))
        assert self.table.clusters() == {c: sorted(n for n, of in self.clusters.items() if of == c) for c in clusters}
        assert self.topics() == sorted({topic for topic, _ in self.queues})
        for cluster in ("C1", "C2"):
            assert {topic for topic in self.topics() if self.table.is_in_cluster(topic, cluster)} == {
                topic for topic, name in self.queues if self.clusters[name] == cluster
            }
        flags = {topic: 0 for topic, _ in self.queues}
        for (topic, _), data in self.queues.items():
            flags[topic] |= data.flags
        assert {topic: self.table.flags_of(topic) for topic in self.topics()} == flags
        topics, address = self.table.system_topics()
        assert topics == sorted({*self.clusters, *self.clusters.values()})
        assert address == min((row["address"] for row in self.rows), default=None)
        statistics = self.table.statistics()
        assert statistics.addresses == len(self.rows)
        assert statistics.entries >= len(self.queues)

    @rule(most=st.integers(1, 5))
    def sweep(self, most: int) -> None:
        for _ in islice(self.table.sweep(), most):
            pass

    @rule()
    def sweep_all(self) -> None:
        for _ in self.table.sweep():
            pass
        statistics = self.table.statistics()
        assert (statistics.entries, statistics.topics) == (len(self.queues), len({topic for topic, _ in self.queues}))

    def topics(self) -> list[str]:
        return sorted(filter(self.table.is_served, self.table.all_topics()))

    @invariant()
    def a_changed_answer_is_a_counted_change(self) -> None:
        answers = self.all_answers()
        if answers != self.answers:
            assert self.table.changes > self.changes
        self.answers, self.changes = answers, self.table.changes

    def all_answers(self) -> str:
        brokers = [self.table.broker(name) for name in self.table.broker_names()]
        return repr(([self.table.route(topic) for topic in TOPICS], brokers, self.table.clusters(), self.topics()))


TestRouteModel = RouteModel.TestCase
TestRouteModel.settings = settings(max_examples=examples(40), stateful_step_count=30)


@pytest.mark.slow
def test_many_registrations_in_long_sequences() -> None:
    run_state_machine_as_test(RouteModel, settings=settings(max_examples=examples(300), stateful_step_count=60))
