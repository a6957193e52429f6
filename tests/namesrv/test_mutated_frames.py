"""Whatever bytes arrive, the name server keeps serving: ten thousand mutated frames, fed whole and byte by byte.

Each is sent on its own connection, which the peer then closes. Afterwards a registered broker is still found.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rocketlet.access.config import AccessConfig
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
from tests.support.mutations import feed, frames_to, mutated

LONGEST = 700  # long registrations would only take more time


@pytest.mark.parametrize(
    ("count", "chunk_size"),
    [
        (1_000, None),
        (100, 1),
        pytest.param(10_000, None, marks=pytest.mark.slow),
        pytest.param(10_000, 1, marks=pytest.mark.slow),
    ],
)
async def test_the_name_server_survives_mutated_frames(
    vectors: Path, autojump_clock: MockClock, count: int, chunk_size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    chance = Random(count)
    originals = frames_to("namesrv", vectors, LONGEST)
    network = MemoryNetwork(chunk_size=chunk_size)
    flags = {"bindAddress": "10.0.0.9", "kvConfigPath": "kv", "configStorePath": "conf"}
    server = NameServer(
        load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags), network, files=MemoryFiles()
    )
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
