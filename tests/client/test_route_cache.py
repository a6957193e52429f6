from __future__ import annotations

from rocketlet.client.talking.route_cache import RouteCache, borrowed_route, route_of
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.protocol.routing import BrokerData, QueueData, TopicRouteData


def data(order: str | None = None, **perms: int) -> TopicRouteData:
    return TopicRouteData(
        brokerDatas=[
            BrokerData(brokerAddrs={0: f"{name}:1", 1: f"{name}:2"}, brokerName=name, cluster="c") for name in perms
        ],
        queueDatas=[
            QueueData(brokerName=name, perm=perm, readQueueNums=3, writeQueueNums=2) for name, perm in perms.items()
        ],
        orderTopicConf=order,
    )


def test_queues_follow_permissions_and_counts() -> None:
    route = route_of("T", data(b=6, a=4, c=2))
    assert route.writable == tuple(MessageQueue("T", name, n) for name in "bc" for n in range(2))
    assert route.readable == tuple(MessageQueue("T", name, n) for name in "ab" for n in range(3))


def test_a_broker_without_a_master_cannot_be_written_to() -> None:
    only_slave = data(a=6)
    only_slave.brokerDatas[0].brokerAddrs = {1: "a:2"}
    route = route_of("T", only_slave)
    assert route.writable == ()
    assert len(route.readable) == 3


def test_an_order_configuration_lists_exactly_the_writable_queues() -> None:
    route = route_of("T", data("b:1;a:3;broken", a=6, b=4))
    assert [(queue.broker_name, queue.queue_id) for queue in route.writable] == [("b", 0), ("a", 0), ("a", 1), ("a", 2)]


def test_a_default_route_has_at_most_the_requested_queues() -> None:
    assert len(borrowed_route("T", data(a=7), 2).writable) == 2
    assert len(borrowed_route("T", data(a=7), 9).writable) == 3
    assert borrowed_route("T", data(a=7), 2).borrowed


def test_a_changed_route_is_reported_and_the_rotation_continues() -> None:
    cache = RouteCache()
    assert cache.put(route_of("T", data(a=6), 7))
    route = cache.get("T")
    assert route is not None
    assert [route.next_turn(), route.next_turn()] == [7, 8]
    assert not cache.put(route_of("T", data(a=6)))
    assert cache.put(route_of("T", data(a=6, b=6)))
    changed = cache.get("T")
    assert changed is not None
    assert changed.next_turn() == 9


def test_addresses_are_known_while_a_route_has_them() -> None:
    cache = RouteCache()
    cache.put(route_of("T", data(a=6)))
    cache.put(route_of("U", data(b=6)))
    assert cache.masters() == {"a:1": "a", "b:1": "b"}
    assert cache.all_addresses() == {"a:1", "a:2", "b:1", "b:2"}
    assert cache.name_at("b:2") == "b"
    cache.put(route_of("U", data(a=6)))
    assert cache.master("b") == "b:1", "what was pulled from it is still to be committed there"
    assert cache.forget_vanished() == {"b:1", "b:2"}
    assert cache.master("b") is None
    assert cache.name_at("b:2") is None


def test_reading_falls_back_to_the_master_and_then_to_any_replica() -> None:
    cache = RouteCache()
    cache.put(route_of("T", data(a=6)))
    assert cache.address("a", 1) == ("a:2", 1)
    assert cache.address("a", 5) == ("a:1", 0)
    assert cache.address("z") is None
    only_slave = data(b=4)
    only_slave.brokerDatas[0].brokerAddrs = {2: "b:3", 1: "b:2"}
    cache.put(route_of("U", only_slave))
    assert cache.address("b") == ("b:2", 1)
    assert cache.master("b") is None
