"""The rules of the route table, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

import pytest

from rocketlet.namesrv import route_table
from rocketlet.namesrv.route_table import LEASE_MS, OlderEpoch, RouteTable, TableFull
from rocketlet.namesrv.route_values import DataVersion, Master, QueueData, Registration

V1, V2 = DataVersion(1700000000000, 1), DataVersion(1700000000000, 2)


def queues(name: str = "broker-a", read: int = 4, write: int = 4, perm: int = 6, flags: int = 0) -> QueueData:
    return QueueData(name, read, write, perm, flags)


def registration(
    address: str = "10.0.0.7:10911",
    name: str = "broker-a",
    broker_id: int = 0,
    *,
    cluster: str = "C",
    connection: object = "conn-1",
    version: DataVersion = V1,
    topics: dict[str, QueueData] | None = None,
    filters: tuple[str, ...] | None = None,
    loopback: str | None = None,
) -> Registration:
    return Registration(
        cluster, name, broker_id, address, address + "9", connection, version, topics, filters, loopback
    )


def perm_of(table: RouteTable, topic: str) -> int:
    route = table.route(topic)
    assert route is not None
    return route.queues[0].perm


def topics_changed(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def served(table: RouteTable) -> list[str]:
    return sorted(filter(table.is_served, table.all_topics()))


def of_cluster(table: RouteTable, cluster: str) -> list[str]:
    return [topic for topic in served(table) if table.is_in_cluster(topic, cluster)]


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


def test_a_registered_topic_is_found(table: RouteTable) -> None:
    assert table.route("T") is None
    assert table.register(registration(topics={"T": queues(read=7, write=6)}), now=0) is None
    route = table.route("T")
    assert route is not None
    assert route.queues == [QueueData("broker-a", 7, 6, 6)]
    assert [(b.cluster, b.broker_name, b.addresses) for b in route.brokers] == [
        ("C", "broker-a", {0: "10.0.0.7:10911"})
    ]
    assert route.filter_servers == {}


def test_a_topic_on_two_brokers_has_both_in_its_route(table: RouteTable) -> None:
    table.register(registration("b:1", "broker-b", topics={"T": queues("broker-b")}), now=0)
    table.register(registration("a:1", "broker-a", topics={"T": queues("broker-a", perm=4)}), now=0)
    route = table.route("T")
    assert route is not None
    assert [(q.broker_name, q.perm) for q in route.queues] == [("broker-a", 4), ("broker-b", 6)]
    assert [b.broker_name for b in route.brokers] == ["broker-a", "broker-b"]


def test_the_table_returns_copies(table: RouteTable) -> None:
    table.register(registration(topics={"T": queues()}), now=0)
    route = table.route("T")
    assert route is not None
    route.brokers[0].addresses.clear()
    route.queues.clear()
    again = table.route("T")
    assert again is not None
    assert again.queues
    assert again.brokers[0].addresses == {0: "10.0.0.7:10911"}


def test_a_registration_of_the_same_version_still_brings_topics_that_were_missing(table: RouteTable) -> None:
    """A 4.9 broker registers version 2 with one topic (after code 17) at a freshly started name server."""
    table.register(registration(version=V2, topics={"New": queues()}), now=0)
    table.register(registration(version=V2, topics={"New": queues(), "Old": queues()}), now=1)
    assert served(table) == ["New", "Old"]


def test_topics_absent_from_a_later_registration_stay(table: RouteTable) -> None:
    table.register(registration(topics={"T": queues(), "U": queues()}), now=0)
    table.register(registration(version=V2, topics={"T": queues(read=8)}), now=1)
    assert served(table) == ["T", "U"]
    route = table.route("T")
    assert route is not None
    assert route.queues[0].read_queues == 8


def test_a_slave_brings_no_topics_and_learns_its_master(table: RouteTable) -> None:
    assert table.register(registration("s:1", broker_id=1, topics={"T": queues()}), now=0) is None
    assert table.route("T") is None
    table.register(registration("m:1", topics={"T": queues()}), now=0)
    assert table.register(registration("s:1", broker_id=1), now=1) == Master("m:1", "m:19")
    route = table.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {0: "m:1", 1: "s:1"}


def test_a_promoted_slave_gives_up_its_old_id_and_keeps_the_topics(table: RouteTable) -> None:
    table.register(registration("m:1", connection="m", topics={"T": queues(), "U": queues()}), now=0)
    table.register(registration("s:1", broker_id=1, connection="s"), now=0)
    table.forget("m")
    table.register(registration("s:1", broker_id=0, connection="s", topics={"T": queues()}), now=1)
    broker = table.broker("broker-a")
    assert broker is not None
    assert broker.addresses == {0: "s:1"}
    assert served(table) == ["T", "U"]


def test_a_broker_that_moved_replaces_its_old_address(table: RouteTable) -> None:
    table.register(registration("old:1", connection="old", topics={"T": queues()}, filters=("f:1",)), now=0)
    table.register(registration("new:1", connection="new", topics={}), now=1)
    route = table.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {0: "new:1"}
    assert route.filter_servers == {}
    assert table.forget("old") == []
    assert table.route("T") is not None
    assert table.known_version("old:1", V1, "old", now=2) == (True, None)


def test_an_address_that_registers_under_another_name_leaves_the_first(table: RouteTable) -> None:
    table.register(registration(name="first", topics={"T": queues("first")}), now=0)
    table.register(registration(name="second", topics={"U": queues("second")}), now=1)
    assert served(table) == ["U"]
    assert table.broker_names() == ["second"]


def test_a_name_belongs_to_the_cluster_of_its_last_registration(table: RouteTable) -> None:
    table.register(registration(cluster="C1", topics={"T": queues()}), now=0)
    table.register(registration(cluster="C2"), now=1)
    assert table.clusters() == {"C2": ["broker-a"]}
    assert of_cluster(table, "C1") == []
    assert of_cluster(table, "C2") == ["T"]


def test_unregistration_removes_everything_of_the_last_address(table: RouteTable) -> None:
    table.register(registration(topics={"T": queues()}, filters=("f:1",)), now=0)
    assert table.unregister("10.0.0.7:10911", "broker-a", 0)
    assert table.route("T") is None
    assert (table.broker_names(), table.clusters(), served(table)) == ([], {}, [])
    assert table.statistics().addresses == 0


def test_the_topics_stay_while_a_slave_is_there(table: RouteTable) -> None:
    table.register(registration("m:1", connection="m", topics={"T": queues()}), now=0)
    table.register(registration("s:1", broker_id=1, connection="s"), now=0)
    table.unregister("m:1", "broker-a", 0)
    route = table.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {1: "s:1"}
    table.unregister("s:1", "broker-a", 1)
    assert table.route("T") is None


@pytest.mark.parametrize(
    ("address", "name", "broker_id"),
    [("10.0.0.7:10911", "other", 0), ("10.0.0.7:10911", "broker-a", 1), ("10.0.0.8:10911", "broker-a", 0)],
)
def test_an_unrelated_unregistration_changes_nothing(
    table: RouteTable, address: str, name: str, broker_id: int
) -> None:
    table.register(registration(topics={"T": queues()}), now=0)
    assert not table.unregister(address, name, broker_id)
    assert table.route("T") is not None


def test_a_closed_connection_removes_every_broker_registered_over_it(table: RouteTable) -> None:
    table.register(registration("a:1", "broker-a", connection="one", topics={"T": queues("broker-a")}), now=0)
    table.register(registration("b:1", "broker-b", connection="one", topics={"T": queues("broker-b")}), now=0)
    table.register(registration("c:1", "broker-c", connection="two", topics={"T": queues("broker-c")}), now=0)
    assert sorted(table.forget("one")) == ["a:1", "b:1"]
    route = table.route("T")
    assert route is not None
    assert [q.broker_name for q in route.queues] == ["broker-c"]


def test_a_late_close_does_not_remove_a_broker_that_has_reconnected(table: RouteTable) -> None:
    table.register(registration(connection="old", topics={"T": queues()}), now=0)
    table.register(registration(connection="new", topics={"T": queues()}), now=1)
    assert table.forget("old") == []
    assert table.route("T") is not None


def test_a_silent_broker_expires_after_its_lease(table: RouteTable) -> None:
    table.register(registration(topics={"T": queues()}), now=1000)
    assert list(table.expire(1000 + LEASE_MS)) == []
    assert [(e.address, e.broker_name, e.connection) for e in table.expire(1001 + LEASE_MS)] == [
        ("10.0.0.7:10911", "broker-a", "conn-1")
    ]
    assert table.route("T") is None


def test_silent_brokers_expire_one_at_a_time_and_one_that_is_heard_of_meanwhile_stays(table: RouteTable) -> None:
    """10,000 at once held the loop for 70 ms."""
    for number in range(3):
        table.register(registration(f"b:{number}", f"broker-{number}"), now=0)
    expiring = table.expire(LEASE_MS + 1)
    assert next(expiring).address == "b:0"
    assert [address in table for address in ("b:0", "b:1", "b:2")] == [False, True, True]
    table.register(registration("b:1", "broker-1"), now=LEASE_MS + 1)
    assert [expired.address for expired in expiring] == ["b:2"]
    assert "b:1" in table


def test_a_known_version_keeps_a_broker_alive(table: RouteTable) -> None:
    table.register(registration(version=V1), now=0)
    assert table.known_version("10.0.0.7:10911", V1, "conn-1", now=LEASE_MS) == (False, V1)
    assert list(table.expire(LEASE_MS + 1)) == []
    assert table.known_version("10.0.0.7:10911", V2, "conn-1", now=LEASE_MS + 5) == (True, V1)
    assert len(list(table.expire(2 * LEASE_MS + 1))) == 1
    assert table.known_version("10.0.0.7:10911", V1, "conn-1", now=0) == (True, None)


def test_a_version_query_over_a_new_connection_moves_the_lease(table: RouteTable) -> None:
    table.register(registration(version=V1), now=0)
    assert table.known_version("10.0.0.7:10911", V1, "conn-2", now=LEASE_MS) == (True, V1)
    assert len(list(table.expire(LEASE_MS + 1))) == 1


def test_the_state_version_of_5x_counts(table: RouteTable) -> None:
    table.register(registration(version=DataVersion(1, 1, 0)), now=0)
    assert table.known_version("10.0.0.7:10911", DataVersion(1, 1, 5), "conn-1", now=0)[0]


def test_a_wipe_lasts_until_a_registration_of_a_new_version(table: RouteTable) -> None:
    topics = {"T": queues(), "U": queues(perm=7)}
    table.register(registration(topics=topics), now=0)
    assert topics_changed(table.wipe_write_permission("broker-a")) == 2
    assert (perm_of(table, "T"), perm_of(table, "U")) == (4, 5)
    table.register(registration(topics={**topics, "Late": queues()}), now=1)
    assert (perm_of(table, "T"), perm_of(table, "Late")) == (4, 4)
    table.register(registration(version=V2, topics=topics), now=2)
    assert (perm_of(table, "T"), perm_of(table, "U")) == (6, 7)


def test_restored_write_permission_is_read_and_write_only(table: RouteTable) -> None:
    topics = {"T": queues(perm=4), "TBW102": queues(perm=7)}
    table.register(registration(topics=topics), now=0)
    topics_changed(table.wipe_write_permission("broker-a"))
    assert topics_changed(table.add_write_permission("broker-a")) == 2
    assert (perm_of(table, "T"), perm_of(table, "TBW102")) == (6, 6)
    table.register(registration(topics=topics), now=1)
    assert (perm_of(table, "T"), perm_of(table, "TBW102")) == (6, 6)


def test_a_wipe_affects_one_broker(table: RouteTable) -> None:
    table.register(registration("a:1", "broker-a", topics={"T": queues("broker-a")}), now=0)
    table.register(registration("b:1", "broker-b", topics={"T": queues("broker-b")}), now=0)
    assert topics_changed(table.wipe_write_permission("no-such")) == 0
    assert topics_changed(table.wipe_write_permission("broker-b")) == 1
    route = table.route("T")
    assert route is not None
    assert [q.perm for q in route.queues] == [6, 4]


def test_a_later_order_ends_one_that_is_being_applied(table: RouteTable) -> None:
    table.register(registration(topics={f"T{number}": queues() for number in range(5)}), now=0)
    wipe = table.wipe_write_permission("broker-a")
    next(wipe)
    table.delete_topic("T4")
    assert topics_changed(table.add_write_permission("broker-a")) == 4
    assert topics_changed(wipe) == 0
    assert {perm_of(table, topic) for topic in served(table)} == {6}


@pytest.mark.parametrize("leaves", ["close", "unregister", "expire"])
def test_a_returning_broker_is_writable(table: RouteTable, leaves: str) -> None:
    """An operator wipes a broker, restarts it, and expects it to be used again, as in RocketMQ."""
    table.register(registration(topics={"T": queues()}), now=0)
    table.register(registration("s:1", broker_id=1, connection="slave"), now=LEASE_MS)
    topics_changed(table.wipe_write_permission("broker-a"))
    if leaves == "close":
        table.forget("conn-1")
    elif leaves == "unregister":
        table.unregister("10.0.0.7:10911", "broker-a", 0)
    else:
        assert list(table.expire(LEASE_MS + 1))
    assert perm_of(table, "T") == 4  # its slave is still read from
    table.register(registration(topics={"T": queues()}), now=LEASE_MS + 2)
    assert perm_of(table, "T") == 6


def test_a_wipe_without_a_master_lasts_until_one_registers(table: RouteTable) -> None:
    table.register(registration("m:1", connection="m", topics={"T": queues()}), now=0)
    table.register(registration("s:1", broker_id=1, connection="s"), now=0)
    table.forget("m")
    assert topics_changed(table.wipe_write_permission("broker-a")) == 1
    assert perm_of(table, "T") == 4
    table.register(registration("m:1", connection="m", topics={"T": queues()}), now=1)
    assert perm_of(table, "T") == 6


def test_delete_topic_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    table.register(registration("a:1", "broker-a", cluster="C1", topics={"T": queues("broker-a")}), now=0)
    table.register(registration("b:1", "broker-b", cluster="C2", topics={"T": queues("broker-b")}), now=0)
    table.delete_topic("T", "C2")
    route = table.route("T")
    assert route is not None
    assert [q.broker_name for q in route.queues] == ["broker-a"]
    table.delete_topic("T", "NoSuch")
    table.delete_topic("NoSuch")
    assert served(table) == ["T"]
    table.delete_topic("T")
    assert table.route("T") is None
    assert table.broker_names() == ["broker-a", "broker-b"]


def test_lists(table: RouteTable) -> None:
    assert table.system_topics() == ([], None)
    table.register(
        registration(
            "a:1",
            "broker-a",
            cluster="C1",
            topics={"Unit": queues(flags=1), "Sub": queues(flags=2), "Both": queues(flags=3), "Plain": queues()},
        ),
        now=0,
    )
    table.register(registration("b:1", "broker-b", cluster="C2", topics={"Plain": queues("broker-b")}), now=0)
    assert served(table) == ["Both", "Plain", "Sub", "Unit"]
    assert of_cluster(table, "C2") == ["Plain"]
    assert of_cluster(table, "NoSuch") == []
    assert table.system_topics() == (["C1", "C2", "broker-a", "broker-b"], "a:1")
    assert [table.flags_of(topic) for topic in ("Both", "Plain", "Sub", "Unit", "None")] == [3, 0, 2, 1, 0]


def test_filter_servers_are_listed_until_a_registration_names_none(table: RouteTable) -> None:
    table.register(registration("m:1", topics={"T": queues()}, filters=("f:1", "f:2")), now=0)
    route = table.route("T")
    assert route is not None
    assert route.filter_servers == {"m:1": ("f:1", "f:2")}
    table.register(registration("m:1"), now=1)
    route = table.route("T")
    assert route is not None
    assert route.filter_servers == {"m:1": ("f:1", "f:2")}
    table.register(registration("m:1", filters=()), now=2)
    route = table.route("T")
    assert route is not None
    assert route.filter_servers == {}


def test_a_broker_may_register_an_address_for_its_own_host(table: RouteTable) -> None:
    table.register(registration(loopback="127.0.0.1:10911"), now=0)
    assert table.local_address("10.0.0.7:10911") == "127.0.0.1:10911"
    assert table.local_address("elsewhere:1") == "elsewhere:1"
    before = table.changes
    table.register(registration(), now=1)
    assert table.local_address("10.0.0.7:10911") == "10.0.0.7:10911"
    assert table.changes > before


def test_a_repeated_registration_changes_nothing(table: RouteTable) -> None:
    table.register(registration(topics={"T": queues()}, filters=()), now=0)
    topics_changed(table.wipe_write_permission("broker-a"))
    before = table.changes
    table.register(registration(topics={"T": queues()}, filters=()), now=1)
    table.known_version("10.0.0.7:10911", V1, "conn-1", now=2)
    assert table.changes == before


def test_full_tables_refuse_new_entries_and_serve_known_ones(
    table: RouteTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_table, "MAX_ADDRESSES", 1)
    monkeypatch.setattr(route_table, "MAX_ENTRIES", 2)
    table.register(registration("a:1", topics={"T": queues(), "U": queues()}), now=0)
    with pytest.raises(TableFull, match="MAX_ADDRESSES"):
        table.register(registration("b:1", "broker-b"), now=0)
    with pytest.raises(TableFull, match="MAX_ENTRIES"):
        table.register(registration("a:1", topics={"V": queues()}), now=0)
    assert served(table) == ["T", "U"]
    table.register(registration("a:1", topics={"T": queues(read=9), "U": queues()}), now=1)
    assert "addresses=1" in repr(table)


@pytest.mark.parametrize("which", ["cluster", "name", "address", "topic", "filter"])
def test_excessively_long_names_are_refused(table: RouteTable, which: str) -> None:
    long = "x" * 513
    asked = {
        "cluster": registration(cluster=long),
        "name": registration(name=long),
        "address": registration(long),
        "topic": registration(topics={long: queues()}),
        "filter": registration(filters=(long,)),
    }[which]
    with pytest.raises(TableFull, match="512 is the limit"):
        table.register(asked, now=0)
    assert table.statistics().addresses == 0


def test_too_many_filter_servers_are_refused(table: RouteTable) -> None:
    with pytest.raises(TableFull, match="MAX_FILTER_SERVERS"):
        table.register(registration(filters=("f:1",) * 101), now=0)


def test_a_master_of_an_older_epoch_is_refused() -> None:
    table = RouteTable()
    old = Registration("C", "b", 0, "old:1", "old:2", "c1", epoch=3)
    table.register(old, 0)
    table.register(Registration("C", "b", 0, "new:1", "new:2", "c2", epoch=4), 0)
    with pytest.raises(OlderEpoch, match="old:1 led b in epoch 3, and now it is epoch 4"):
        table.register(old, 1)
    assert table.master("b") == Master("new:1", "new:2")
    table.register(replace(old, broker_id=1), 2)  # it may register as a slave
    table.register(replace(old, address="java:1", epoch=0), 3)  # without an epoch it is a Java broker


def test_a_connection_registers_a_hundred_brokers_at_most(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them go when it closes."""
    monkeypatch.setattr(route_table, "MAX_ADDRESSES_OF_CONNECTION", 3)
    for number in range(3):
        table.register(registration(f"a{number}:1", f"broker-{number}"), now=0)
    with pytest.raises(TableFull, match="MAX_ADDRESSES_OF_CONNECTION"):
        table.register(registration("b:1", "broker-b"), now=0)
    table.register(registration("a1:1", "broker-1"), now=0)  # one that it has registered already
    table.register(registration("b:1", "broker-b", connection="conn-2"), now=0)
    table.unregister("a2:1", "broker-2", 0)
    table.register(registration("c:1", "broker-c"), now=0)
    assert table.forget("conn-1") == ["a0:1", "a1:1", "c:1"]
    assert "b:1" in table


class NeverGoneThrough(dict[str, dict[str, QueueData]]):
    """A table that is only looked up in."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all topics are gone through")

    values = items = keys = __iter__  # type: ignore[assignment]


def test_a_broker_is_removed_without_reading_topics_of_others(table: RouteTable) -> None:
    """A look at each of a million topics takes 50 ms."""
    table._topics = NeverGoneThrough()
    table.register(registration(topics={"T": queues(), "U": queues()}), now=0)
    table.register(registration("b:1", "broker-b", connection="conn-2", topics={"U": queues("broker-b")}), now=0)
    topics_changed(table.wipe_write_permission("broker-b"))
    assert table.forget("conn-2") == ["b:1"]
    route = table.route("U")
    assert route is not None
    assert [data.broker_name for data in route.queues] == ["broker-a"]
    assert table.forget("conn-1") == ["10.0.0.7:10911"]
    assert table.route("T") is None
    for _ in table.sweep():
        pass
    assert table.statistics().topics == 0


def test_topics_of_a_broker_that_left_are_in_no_answer_and_go_one_at_a_time(table: RouteTable) -> None:
    """A broker may have had 200,000."""
    swept: list[bool] = []
    table.on_stale = lambda: swept.append(False)
    table.register(registration(topics={"T": queues(), "U": queues(flags=1)}), now=0)
    table.forget("conn-1")
    assert swept
    assert (served(table), table.route("T"), table.flags_of("U")) == ([], None, 0)
    assert table.statistics().entries == 2
    table.register(registration(topics={"U": queues()}), now=0)  # back, without T, before they are gone
    assert served(table) == ["U"]
    assert [served(table) for _ in table.sweep()] == [["U"]]
    assert table.statistics().entries == 1
    table.delete_topic("U")
    assert table.statistics().entries == 0


class NeverCopied(set[str]):
    """Topics of which each is only looked up."""

    def __or__(self, other: object) -> NoReturn:
        raise AssertionError("all topics are gone through")

    __ior__ = __ror__ = __or__  # type: ignore[assignment]


def test_a_broker_may_leave_again_before_what_it_left_behind_is_gone(table: RouteTable) -> None:
    """Of 590,000 and 400,000 topics: to join them held the loop for 50 ms."""
    table.register(registration(topics={topic: queues() for topic in "TUVWX"}), now=0)
    table._topics_of["broker-a"] = NeverCopied("TUVWX")
    table.forget("conn-1")
    steps = table.sweep()
    next(steps)
    table.register(registration(topics={topic: queues() for topic in "TUY"}), now=0)
    assert served(table) == ["T", "U", "Y"]
    table._topics_of["broker-a"] = NeverCopied("TUY")
    table.forget("conn-1")
    table.delete_topic("U")
    assert served(table) == []
    table.register(registration(topics={"Y": queues()}), now=0)
    assert all(served(table) == ["Y"] for _ in steps)
    assert (table.statistics().topics, table.statistics().entries) == (1, 1)
    assert list(table.sweep()) == []
