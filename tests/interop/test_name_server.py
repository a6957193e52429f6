"""The official client and a Java broker cannot tell our name server from RocketMQ's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java_admin import JavaAdmin
from tests.support.java_programs import WITHOUT_PUSH, JavaBroker, JavaPrograms, Outcome
from tests.support.programs import Program, name_server

pytestmark = pytest.mark.interop

ROUTES = [
    "route",
    "cluster-info",
    "topic-lists",
    "unit-topics",
    "register-broker",
    "register-crc",
    "register-slave",
    "broker-dies",
    "write-permission",
    "kv-config",
    "order-config",
    "namesrv-config",
    "namesrv-rotation",
]


@pytest.fixture(scope="module")
def stack(java: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, str, JavaBroker]]:
    """Our name server with a Java broker."""
    folder = tmp_path_factory.mktemp("stack")
    with name_server(folder) as (program, address), java.broker(folder / "broker", address) as broker:
        yield program, address, broker


@pytest.fixture(scope="module")
def outcomes(java: JavaPrograms, stack: tuple[Program, str, JavaBroker]) -> dict[str, Outcome]:
    """All route scenarios, run once, by a client with JSON headers."""
    return java.scenarios(stack[1], "routes")


@pytest.mark.parametrize("name", ROUTES)
def test_scenario(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].verdict == "PASS", outcomes[name].why


def test_no_scenario_is_left_out(outcomes: dict[str, Outcome]) -> None:
    assert sorted(outcomes) == sorted(ROUTES)


def assert_sends_arrive(java: JavaPrograms, address: str) -> None:
    outcomes = java.scenarios(address, *WITHOUT_PUSH)
    assert {name: outcome.why for name, outcome in outcomes.items() if outcome.verdict != "PASS"} == {}


def test_a_java_broker_is_found_removed_when_killed_and_found_again(
    java: JavaPrograms, java_admin: JavaAdmin, tmp_path: Path
) -> None:
    with name_server(tmp_path) as (program, address), java.broker(tmp_path / "broker", address) as broker:
        program.line_with(f"broker {broker.address} registered: broker-a (id 0) of cluster DefaultCluster")
        assert_sends_arrive(java, address)
        assert broker.address in java_admin("clusterList", "-n", address)
        broker.kill()
        program.line_with(f"broker {broker.address} is gone")
        assert broker.address not in java_admin("clusterList", "-n", address)
        broker.start()
        program.line_with(f"broker {broker.address} registered")
        assert_sends_arrive(java, address)
        broker.stop()
        program.line_with(f"broker {broker.address} unregistered")
        assert program.stop() == 0


def test_two_name_servers_hold_the_same_and_share_nothing(
    java: JavaPrograms, java_admin: JavaAdmin, tmp_path: Path
) -> None:
    with name_server(tmp_path / "one") as (_, one), name_server(tmp_path / "two") as (second, two):
        both = f"{one};{two}"
        with java.broker(tmp_path / "broker", both) as broker:
            outcomes = java.scenarios(both, "routes", binary=True)
            assert {name: outcome.why for name, outcome in outcomes.items() if outcome.verdict != "PASS"} == {}
            second.kill()
            assert_sends_arrive(java, both)
            assert broker.address in java_admin("clusterList", "-n", one)


def test_mqadmin_reads_what_mqadmin_wrote(java_admin: JavaAdmin, stack: tuple[Program, str, JavaBroker]) -> None:
    _, address, broker = stack
    java_admin("updateTopic", "-n", address, "-b", broker.address, "-t", "AdminTopic", "-r", "3", "-w", "3")
    assert broker.address in java_admin("topicRoute", "-n", address, "-t", "AdminTopic")
    java_admin("updateKvConfig", "-n", address, "-s", "NS", "-k", "key", "-v", "value")
    java_admin("updateOrderConf", "-n", address, "-t", "AdminTopic", "-m", "put", "-v", "broker-a:3")
    assert "broker-a:3" in java_admin("updateOrderConf", "-n", address, "-t", "AdminTopic", "-m", "get")
    assert "AdminTopic" in java_admin("topicList", "-n", address)
    for _ in range(5):
        java_admin("wipeWritePerm", "-n", address, "-b", "broker-a")
        route = java_admin("topicRoute", "-n", address, "-t", "AdminTopic").replace(" ", "")
        if '"perm":4' in route:
            break  # otherwise the broker registered in between with a new version, because it had learned of the order
    assert '"perm":4' in route
    java_admin("addWritePerm", "-n", address, "-b", "broker-a")
    assert '"perm":6' in java_admin("topicRoute", "-n", address, "-t", "AdminTopic").replace(" ", "")
    assert "listenPort" in java_admin("getNamesrvConfig", "-n", address)
    java_admin("deleteTopic", "-n", address, "-c", "DefaultCluster", "-t", "AdminTopic")
    assert "AdminTopic" not in java_admin("topicList", "-n", address)
