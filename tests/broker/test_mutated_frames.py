"""Whatever bytes arrive, the broker keeps serving, loses nothing, and none of its handlers fails."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest
from trio.testing import MockClock

from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_broker import memory_broker
from tests.support.mutations import feed, frames_to, mutated, with_fixed_length

LONGEST = 2000
RECORDED_SETTINGS = b"autoCreateSubscriptionGroup=true\nautoCreateTopicEnable=true\nbrokerPermission=6\n"


@pytest.mark.parametrize(
    ("count", "chunk_size"),
    [
        (1_000, None),
        (60, 1),
        pytest.param(20_000, None, marks=pytest.mark.slow),
        pytest.param(3_000, 1, marks=pytest.mark.slow),
    ],
)
async def test_the_broker_survives_mutated_frames(
    vectors: Path, autojump_clock: MockClock, count: int, chunk_size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "rocketlet.remoting.dispatch")
    chance = Random(count)
    originals = frames_to("broker", vectors, LONGEST)
    async with memory_broker(network=MemoryNetwork(chunk_size=chunk_size)) as one:
        sent = await one.send("Kept", b"kept")
        for _ in range(count):
            frame = mutated(chance.choice(originals), chance)
            await feed(one.network, one.bound, with_fixed_length(frame) if chance.random() < 0.7 else frame)
        assert sent.code == 0
        # Some frames change settings, and may have arrived intact.
        await one.call(RequestCode.UPDATE_BROKER_CONFIG, None, RECORDED_SETTINGS)
        assert [record.body for record in (await one.pull("Kept", 0, 0)).records] == [b"kept"]
        assert (await one.send("Kept", b"more")).code == 0
        assert one.broker.clients.consumers.statistics().members == 0
        assert one.broker.clients.producers.statistics().members == 0
        assert one.broker.parts.long_poll.statistics().parked == 0
    mistakes = [record for record in caplog.records if record.name == "rocketlet.remoting.dispatch"]
    assert [record.getMessage() for record in mistakes] == []
