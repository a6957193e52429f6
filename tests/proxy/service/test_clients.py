"""The table of clients: their topics, while a telemetry stream is open, within bounds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from rocketlet.proxy.call import Call, Method, Refusal
from rocketlet.proxy.http2.protocol import Stream
from rocketlet.proxy.service import clients as module
from rocketlet.proxy.service.clients import Clients
from rocketlet.proxy.wire import messages as m


def telemetry(client_id: str) -> Call:
    method = Method("Telemetry", m.TelemetryCommand, m.TelemetryCommand, lambda *_: None, is_stream=True)
    owner: Any = None
    return Call(owner, Stream(1, 0), method, {b"x-mq-client-id": client_id.encode()}, 0.0, None)


def producing(*topics: str) -> m.Settings:
    return m.Settings(
        client_type=m.PRODUCER, publishing=m.Publishing(topics=[m.Resource(name=topic) for topic in topics])
    )


def end(call: Call) -> None:
    assert call.when_over is not None
    call.when_over(call)


def test_producers_are_found_by_the_topics_in_their_settings() -> None:
    clients = Clients(Random(1))
    one, two = telemetry("a"), telemetry("b")
    clients.apply_settings(one, producing("T", "U"))
    clients.apply_settings(two, producing("T"))
    assert {client.id for client in clients.producers("T")} == {"a", "b"}
    clients.apply_settings(one, producing("U"))
    assert [client.id for client in clients.producers("T")] == ["b"]
    end(two)
    assert clients.topics() == {"U"}
    end(one)
    assert (len(clients), clients.size, clients.topics()) == (0, 0, set())


def test_a_client_with_a_second_telemetry_stream_outlives_the_first() -> None:
    clients = Clients(Random(1))
    first, second = telemetry("a"), telemetry("a")
    clients.apply_settings(first, producing("T"))
    clients.apply_settings(second, producing("T"))
    end(first)
    (client,) = clients
    assert client.telemetry is second


def test_invalid_names_are_not_remembered() -> None:
    clients = Clients(Random(1))
    clients.apply_settings(telemetry("a"), producing("x" * 1000, "a/b", "T"))
    assert clients.topics() == {"T"}


def test_all_settings_together_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 10_000)
    clients = Clients(Random(1))
    with pytest.raises(Refusal):
        for number in range(100):
            clients.apply_settings(telemetry(str(number)), producing(*(f"topic-{n}" for n in range(10))))
    assert clients.size <= 10_000
    assert len(clients) == number


def test_short_names_count_for_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with one producer takes half a kilobyte, however short its name is."""
    clients = Clients(Random(1))
    clients.apply_settings(telemetry("a"), producing(*(f"{number}" for number in range(1000))))
    assert clients.size > 400_000
