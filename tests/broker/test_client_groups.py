"""The members of consumer and producer groups, as connections and heartbeats come and go."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketlet.broker.consumer_groups import EXPIRY_MS, MAX_NAMED, ConsumerGroups, Consuming, Member
from rocketlet.broker.producer_groups import ProducerGroups
from rocketlet.common.subscription import SQL92, Subscription, parse_tags
from tests.support.compared import Compared
from tests.support.properties import examples


def member(connection: object, client_id: str = "c", seen: int = 0) -> Member:
    return Member(connection, client_id, "JAVA", 409, seen)


def consuming(group: str, *subscriptions: Subscription, model: str = "CLUSTERING") -> Consuming:
    return Consuming(group, "CONSUME_PASSIVELY", model, "CONSUME_FROM_LAST_OFFSET", subscriptions)


def tags(topic: str, expression: str = "*", version: int = 1) -> Subscription:
    return parse_tags(topic, expression, version)


class TestConsumers:
    def test_a_new_member_or_topic_is_a_change_but_a_new_version_is_not(self) -> None:
        groups = ConsumerGroups()
        assert groups.register(member(1), consuming("g", tags("t")))
        assert not groups.register(member(1), consuming("g", tags("t")))
        assert not groups.register(member(1), consuming("g", tags("t", "A", 2)))
        assert groups.register(member(1), consuming("g", tags("t", "A", 2), tags("u")))
        assert groups.register(member(1), consuming("g", tags("u")))
        assert groups.register(member(2, "d"), consuming("g", tags("u")))

    def test_only_a_newer_version_replaces(self) -> None:
        groups = ConsumerGroups()
        groups.register(member(1), consuming("g", tags("t", "A", 5)))
        groups.register(member(1), consuming("g", tags("t", "B", 4)))
        group = groups.get("g")
        assert group is not None
        assert group.subscriptions["t"].expression == "A"

    def test_the_latest_heartbeat_decides_the_kind_of_the_group(self) -> None:
        groups = ConsumerGroups()
        groups.register(member(1), consuming("g", tags("t")))
        groups.register(member(2, "d"), consuming("g", tags("t"), model="BROADCASTING"))
        group = groups.get("g")
        assert group is not None
        assert group.broadcasting

    def test_a_client_that_reconnects_is_listed_once_and_found_by_its_new_connection(self) -> None:
        groups = ConsumerGroups()
        groups.register(member("old", "c"), consuming("g", tags("t")))
        groups.register(member("new", "c"), consuming("g", tags("t")))
        group = groups.get("g")
        assert group is not None
        assert group.client_ids() == ["c"]
        youngest = group.member("c")
        assert youngest is not None
        assert youngest.connection == "new"
        assert group.member("unknown") is None

    def test_a_group_ends_with_its_last_member(self) -> None:
        groups = ConsumerGroups()
        groups.register(member(1, "a"), consuming("g", tags("t")))
        groups.register(member(2, "b"), consuming("g", tags("t")))
        groups.register(member(1, "a"), consuming("h", tags("t")))
        assert groups.of_topic("t") == ["g", "h"]
        assert groups.connection_closed(1) == [("g", "a"), ("h", "a")]
        assert groups.is_member("g", "b")
        assert not groups.is_member("g", "a")
        assert groups.get("h") is None
        assert groups.unregister("g", 2)
        assert not groups.unregister("g", 2)
        assert list(groups.all()) == []
        assert groups.connection_closed(1) == []

    def test_silence_expires(self) -> None:
        groups = ConsumerGroups()
        groups.register(member(1, "a", seen=0), consuming("g", tags("t")))
        groups.register(member(2, "b", seen=EXPIRY_MS), consuming("g", tags("t")))
        assert groups.expired(EXPIRY_MS) == []
        assert [gone.client_id for gone in groups.expired(EXPIRY_MS + 1)] == ["a"]

    def test_a_client_is_a_member_as_long_as_one_of_its_connections_is(self) -> None:
        groups = ConsumerGroups()
        groups.register(member(1, "a"), consuming("g", tags("t")))
        groups.register(member(2, "a"), consuming("g", tags("t")))
        groups.register(member(2, "b"), consuming("g", tags("t")))
        groups.register(member(3, "a"), consuming("g", tags("t")))
        groups.register(member(1, "a"), consuming("g", tags("t", "A")))
        group = groups.get("g")
        assert group is not None
        assert list(group.members) == [1, 2, 3]
        assert groups.connection_closed(1) == [("g", "a")]
        assert groups.is_member("g", "a")
        groups.connection_closed(3)
        assert not groups.is_member("g", "a")
        assert groups.is_member("g", "b")
        assert (group.connections, group.kinds.total()) == ({"b": 1}, 1)

    def test_asking_for_a_member_costs_the_same_in_a_large_group(self) -> None:
        groups = ConsumerGroups()
        for number in range(100):
            groups.register(member(number, Compared(f"c{number}")), consuming("g", tags("t")))
        before = Compared.count
        assert not groups.is_member("g", "x")
        assert Compared.count == before

    def test_members_with_different_subscriptions_are_reported_once(self, caplog: pytest.LogCaptureFixture) -> None:
        groups = ConsumerGroups()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                groups.register(member(1, "client-a"), consuming("g", tags("t", "A"), tags("%RETRY%g")))
                groups.register(member(2, "client-b"), consuming("g", tags("t", "B"), tags("%RETRY%g")))
        [warning] = caplog.messages
        assert "consumer group g" in warning
        assert "topic t" in warning
        assert "client-a: 'A'" in warning
        assert "client-b: 'B'" in warning

    def test_members_with_newly_different_subscriptions_are_reported_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        groups = ConsumerGroups()
        with caplog.at_level(logging.WARNING):
            groups.register(member(1, "a"), consuming("g", tags("t")))
            groups.register(member(2, "b"), consuming("g", tags("u")))
            assert len(caplog.messages) == 2  # each topic is missing in one of them
            groups.register(member(2, "b"), consuming("g", tags("t")))
            assert len(caplog.messages) == 2
            groups.register(member(2, "b"), consuming("g", Subscription("t", "x > 1", SQL92)))
        assert len(caplog.messages) == 3
        assert "b: 'SQL92 x > 1'" in caplog.messages[-1]

    def test_of_many_different_subscriptions_the_first_are_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        groups = ConsumerGroups()
        with caplog.at_level(logging.WARNING):
            for number, client in enumerate("ab"):
                groups.register(member(number, client), consuming("g", *(tags(f"t{n:03}", client) for n in range(150))))
        assert len(caplog.messages) == MAX_NAMED
        assert "topic t000" in caplog.messages[0]

    def test_two_connections_of_one_client_are_not_compared(self, caplog: pytest.LogCaptureFixture) -> None:
        groups = ConsumerGroups()
        with caplog.at_level(logging.WARNING):
            groups.register(member("old", "a"), consuming("g", tags("t", "A")))
            groups.register(member("new", "a"), consuming("g", tags("t", "B", 2)))
        assert caplog.messages == []


class TestProducers:
    def test_a_client_is_found_while_it_is_in_a_group(self) -> None:
        producers = ProducerGroups()
        producers.register("g", member(1, "a"))
        producers.register("h", member(1, "a"))
        assert producers.unregister("g", 1)
        assert not producers.unregister("g", 1)
        found = producers.client("a")
        assert found is not None
        assert found.connection == 1
        producers.connection_closed(1)
        assert producers.client("a") is None
        assert producers.all() == {}

    def test_the_newest_connection_of_a_client_is_used(self) -> None:
        producers = ProducerGroups()
        producers.register("g", member("old", "a"))
        producers.register("g", member("new", "a"))
        producers.connection_closed("old")
        found = producers.client("a")
        assert found is not None
        assert found.connection == "new"
        assert [one.connection for one in producers.members("g")] == ["new"]
        assert producers.members("unknown") == []

    def test_silence_expires(self) -> None:
        producers = ProducerGroups()
        producers.register("g", member(1, "a", seen=5))
        assert producers.expired(5 + EXPIRY_MS) == []
        assert [gone.connection for gone in producers.expired(6 + EXPIRY_MS)] == [1]


GROUPS = st.sampled_from(["g", "h"])
CONNECTIONS = st.integers(0, 3)


class ComingAndGoing(RuleBasedStateMachine):
    """A registry holds exactly the memberships that were registered and not ended, and no traces of others."""

    def __init__(self) -> None:
        super().__init__()
        self.consumers = ConsumerGroups()
        self.producers = ProducerGroups()
        self.consuming: dict[tuple[str, int], str] = {}
        self.producing: dict[tuple[str, int], str] = {}

    @rule(group=GROUPS, connection=CONNECTIONS, topics=st.lists(st.sampled_from("tuv"), unique=True))
    def consume(self, group: str, connection: int, topics: Sequence[str]) -> None:
        client = f"client-{connection // 2}"
        self.consumers.register(member(connection, client), consuming(group, *(tags(topic) for topic in topics)))
        self.consuming[group, connection] = client
        found = self.consumers.get(group)
        assert found is not None
        assert set(found.subscriptions) == set(topics)

    @rule(group=GROUPS, connection=CONNECTIONS)
    def produce(self, group: str, connection: int) -> None:
        client = f"client-{connection // 2}"
        self.producers.register(group, member(connection, client))
        self.producing[group, connection] = client

    @rule(group=GROUPS, connection=CONNECTIONS)
    def unregister(self, group: str, connection: int) -> None:
        assert self.consumers.unregister(group, connection) == ((group, connection) in self.consuming)
        assert self.producers.unregister(group, connection) == ((group, connection) in self.producing)
        self.consuming.pop((group, connection), None)
        self.producing.pop((group, connection), None)

    @rule(connection=CONNECTIONS)
    def close(self, connection: int) -> None:
        self.consumers.connection_closed(connection)
        self.producers.connection_closed(connection)
        self.consuming = {key: client for key, client in self.consuming.items() if key[1] != connection}
        self.producing = {key: client for key, client in self.producing.items() if key[1] != connection}

    @invariant()
    def agree(self) -> None:
        for group in ("g", "h"):
            expected = {client for (name, _), client in self.consuming.items() if name == group}
            found = self.consumers.get(group)
            assert (found is None) == (not expected)
            assert set(found.client_ids() if found else ()) == expected
            members = {one.connection for one in self.producers.members(group)}
            assert members == {connection for name, connection in self.producing if name == group}
        for client in ("client-0", "client-1"):
            online = {connection for (_, connection), name in self.producing.items() if name == client}
            found_producer = self.producers.client(client)
            assert (found_producer is not None) == bool(online)
            assert found_producer is None or found_producer.connection in online
        assert self.consumers.statistics().members == len(self.consuming)
        assert self.producers.statistics().members == len(self.producing)


TestComingAndGoing = ComingAndGoing.TestCase
TestComingAndGoing.settings = settings(max_examples=examples(30), stateful_step_count=30)
