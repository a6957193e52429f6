"""Whatever bytes arrive, the broker keeps serving, loses nothing, and finds no mistake in its own handlers."""

from __future__ import annotations

import base64
import json
import logging
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rocketlet.remoting.memory_network import MemoryNetwork
from tests.support.memory_broker import memory_broker
from tests.support.mutations import mended, mutated

LONGEST = 2000


@lru_cache(1)
def frames(vectors: Path) -> list[bytes]:
    """What brokers were sent, in both header types."""
    found = set()
    for path in sorted((vectors / "frames").rglob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            frame = json.loads(line)
            if frame["to"] == "broker":
                found.add(base64.b64decode(frame["b64"]))
    return sorted(frame for frame in found if len(frame) <= LONGEST)


async def feed(network: MemoryNetwork, address: str, data: bytes) -> None:
    """Over a connection of its own, behind which the peer hangs up."""
    stream = await network.dial(address)
    try:
        await stream.send_all(data)
        with trio.move_on_after(0.001):
            await stream.receive_some()
    except trio.BrokenResourceError:
        pass  # closed before all was sent: what a frame that is none deserves
    finally:
        await stream.aclose()


@pytest.mark.parametrize(
    ("count", "chunk_size"),
    [
        (1_000, None),
        (60, 1),
        pytest.param(20_000, None, marks=pytest.mark.slow),
        pytest.param(3_000, 1, marks=pytest.mark.slow),
    ],
)
async def test_the_broker_survives(
    vectors: Path, autojump_clock: MockClock, count: int, chunk_size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "rocketlet.remoting.dispatch")
    chance = Random(count)
    originals = frames(vectors)
    async with memory_broker(network=MemoryNetwork(chunk_size=chunk_size)) as one:
        sent = await one.send("Kept", b"kept")
        for _ in range(count):
            frame = mutated(chance.choice(originals), chance)
            await feed(one.network, one.bound, mended(frame) if chance.random() < 0.7 else frame)
        assert sent.code == 0
        assert [record.body for record in (await one.pull("Kept", 0, 0)).records] == [b"kept"]
        assert (await one.send("Kept", b"more")).code == 0
        assert one.broker.clients.consumers.statistics().members == 0
        assert one.broker.clients.producers.statistics().members == 0
        assert one.broker.long_poll.statistics().parked == 0
    mistakes = [record for record in caplog.records if record.name == "rocketlet.remoting.dispatch"]
    assert [record.getMessage() for record in mistakes] == []
