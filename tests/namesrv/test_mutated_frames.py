"""Whatever bytes arrive, the name server keeps serving: ten thousand mutated frames, fed whole and byte by byte.

Each goes over a connection of its own, behind which the peer hangs up. Afterwards a registered broker is still found.
"""

from __future__ import annotations

import base64
import json
import logging
import random
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rocketlet.common.config_file import load
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.command import request
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.configuration import TopicConfig, TopicConfigTable
from rocketlet.remoting.protocol.registration import RegisterBrokerBody, RegisterBrokerHeader
from rocketlet.remoting.protocol.routing import GetRouteInfoHeader
from rocketlet.remoting.request_codes import RequestCode

LONGEST = 700  # the long registrations only take longer


def frames(vectors: Path) -> list[bytes]:
    """What name servers were sent, in both header types."""
    found = set()
    for path in sorted((vectors / "frames").rglob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            frame = json.loads(line)
            if frame["to"] == "namesrv":
                found.add(base64.b64decode(frame["b64"]))
    return sorted(frame for frame in found if len(frame) <= LONGEST)


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """One to four changes: bits flipped, bytes set to what lies at borders, pieces cut out, doubled or put in."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice(b'\x00\x01\x7f\x80\xff{}[]",:0-')
            case 2:
                del data[at : at + chance.randint(1, 8)]
            case 3:
                data[at:at] = data[at : at + chance.randint(1, 40)]
            case _:
                begin = chance.choice([0, 4, 5, 8])
                data[begin : begin + 4] = chance.choice([0, 1, 3, 4, 0x7FFFFFFF, 0xFFFFFFFF, len(data)]).to_bytes(
                    4, "big"
                )
        if not data:
            return frame
    return bytes(data)


async def feed(network: MemoryNetwork, address: str, data: bytes) -> None:
    stream = await network.dial(address)
    try:
        await stream.send_all(data)
        with trio.move_on_after(0.001):
            await stream.receive_some()
    except trio.BrokenResourceError:
        pass  # it was closed before it had sent all: what a frame that is none deserves
    finally:
        await stream.aclose()


@pytest.mark.parametrize(
    ("count", "chunk_size"),
    [
        (1_000, None),
        (100, 1),
        pytest.param(10_000, None, marks=pytest.mark.slow),
        pytest.param(10_000, 1, marks=pytest.mark.slow),
    ],
)
async def test_the_name_server_survives(
    vectors: Path, autojump_clock: MockClock, count: int, chunk_size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    chance = random.Random(count)
    originals = frames(vectors)
    network = MemoryNetwork(chunk_size=chunk_size)
    flags = {"bindAddress": "10.0.0.9", "kvConfigPath": "kv", "configStorePath": "conf"}
    server = NameServer(load(NamesrvConfig, ServerConfig, MetricsConfig, flags=flags), network, files=MemoryFiles())
    async with trio.open_nursery() as nursery, ConnectionPool(network) as pool:
        address = await nursery.start(server.run)
        for _ in range(count):
            await feed(network, address, mutated(chance.choice(originals), chance))
        body = RegisterBrokerBody(
            [], TopicConfigTable(topicConfigTable={"Last": TopicConfig(topicName="Last")})
        ).to_json()
        header = RegisterBrokerHeader(0, "the-last", "last:1", "C")
        assert (await pool.call(address, request(RequestCode.REGISTER_BROKER, header, body), 3)).code == 0
        route = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader("Last"))
        assert (await pool.call(address, route, 3)).code == 0
        info = await pool.call(address, request(RequestCode.GET_BROKER_CLUSTER_INFO), 3)
        assert list(json.loads(bytes(info.body))["brokerAddrTable"]) == ["the-last"]
        nursery.cancel_scope.cancel()
