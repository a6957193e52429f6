"""Our name server gives a Java 4.9.8 name server's recorded answers: the same code, header fields and body.

Bodies are compared as JSON (RocketMQ's keys are in hash table order), lists of topics as sets. Two differences are
ours: `topicSynFlag` beside `topicSysFlag` for the Go client, and code 3 where Java gives no answer.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from rocketlet.common import fastjson
from rocketlet.namesrv.route_table import RouteTable
from rocketlet.namesrv.route_values import QueueData, Registration
from rocketlet.remoting import frame_codec
from rocketlet.remoting.command import Command
from tests.support.name_server_desk import Desk

# Scenarios that begin on an empty name server (or with `KV` below).
FRESH = [
    "broker-registration.jsonl",
    "broker-registration-compressed-query-version.jsonl",
    "broker-unregister.jsonl",
    "namesrv-config.jsonl",
    "rocketmq-client/namesrv-kv.jsonl",
    "rocketmq-server/broker-registration.jsonl",
    "rocketmq-server/broker-unregister.jsonl",
]
# Scenarios on the name server of the recording, where broker-a was registered with 31 topics.
KNOWING = [
    "namesrv-broker-lifecycle.jsonl",
    "namesrv-kv.jsonl",
    "namesrv-lists.jsonl",
    "namesrv-route-variants.jsonl",
    "rocketmq-client/namesrv-route-variants.jsonl",
    "slave-registration-and-sync.jsonl",
]
# The KV configuration before each recording.
KV = {
    "broker-registration-compressed-query-version.jsonl": {"AdmOrder": "broker-a:8"},
    "namesrv-broker-lifecycle.jsonl": {"TopicO": "broker-a:4"},
    "namesrv-lists.jsonl": {"TopicO": "broker-a:4"},
    "rocketmq-client/namesrv-kv.jsonl": {"AdmOrder": "broker-a:8"},
    "rocketmq-server/broker-registration.jsonl": {"TopicO": "broker-a:4", "AdmOrder": "broker-a:8"},
    "slave-registration-and-sync.jsonl": {"TopicO": "broker-a:4", "AdmOrder": "broker-a:8"},
}
# 319 shows the paths and pools of one machine; test_run_time_settings.py compares the keys.
SETTINGS = 319


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def raw(line: dict[str, Any]) -> bytes:
    return base64.b64decode(line["b64"])


def command_of(line: dict[str, Any]) -> Command:
    (command,) = frame_codec.FrameDecoder().feed(raw(line))
    return command


def comparable(body: bytes | memoryview) -> Any:
    value: Any = fastjson.loads(bytes(body)) if body else None
    if isinstance(value, dict):
        for queues in value.get("queueDatas", ()):
            queues.pop("topicSynFlag", None)
        if "topicList" in value:
            value["topicList"] = sorted(value["topicList"])
    return value


def assert_same(ours: Command | None, java: Command) -> None:
    assert ours is not None
    assert (ours.code, ours.opaque, ours.flag, ours.header_type) == (
        java.code,
        java.opaque,
        java.flag,
        java.header_type,
    )
    assert (ours.ext or {}) == (java.ext or {})
    # The rest of a remark is Java's link to further reading.
    assert (ours.remark or "").startswith((java.remark or "").split("\n")[0].rstrip("."))
    assert comparable(ours.body) == comparable(java.body)


async def replay(desk: Desk, recorded: list[dict[str, Any]]) -> int:
    """Replay the requests in order and compare. Returns the number of answers compared."""
    answers = {line["request"]["seq"]: command_of(line) for line in recorded if line["response"] and line["request"]}
    compared = 0
    for line in recorded:
        if line["to"] != "namesrv" or line["response"]:
            continue
        ours = await desk.answer(raw(line), line["conn"])
        java = answers.get(line["seq"])
        if java is None:
            assert ours is None or line["oneway"] or not line["answered"]
        elif line["code"] != SETTINGS:
            assert_same(ours, java)
            compared += 1
    return compared


async def knowing(vectors: Path, order: dict[str, str] | None) -> Desk:
    """A table with broker-a, as registered in the recording."""
    desk = Desk(order)
    registration = next(
        line for line in lines(vectors / "frames/namesrv-lists.jsonl") if line["code"] == 103 and not line["response"]
    )
    assert await desk.answer(raw(registration), conn=-1) is not None
    return desk


@pytest.mark.parametrize("name", FRESH)
async def test_recorded_scenarios_on_a_fresh_name_server(vectors: Path, name: str) -> None:
    assert await replay(Desk(KV.get(name)), lines(vectors / "frames" / name)) > 0


@pytest.mark.parametrize("name", KNOWING)
async def test_recorded_scenarios_on_a_name_server_in_use(vectors: Path, name: str) -> None:
    desk = await knowing(vectors, KV.get(name))
    assert await replay(desk, lines(vectors / "frames" / name)) > 0


async def test_a_routes_bytes_are_javas_except_for_the_second_flag(vectors: Path) -> None:
    """Both dialects: with quotes around broker ids for clients since 4.9.4, without for older ones."""
    recorded = lines(vectors / "frames/namesrv-route-variants.jsonl")
    desk = await knowing(vectors, None)
    requests = {line["seq"]: line for line in recorded if not line["response"]}
    seen = set()
    for line in recorded:
        if line["response"] and line["code"] == 0 and requests[line["request"]["seq"]]["code"] == 105:
            ours = await desk.answer(raw(requests[line["request"]["seq"]]))
            assert ours is not None
            assert bytes(ours.body).replace(b'"topicSynFlag":0,', b"") == bytes(command_of(line).body)
            seen.add(b'{"0":' in bytes(ours.body))
    assert seen == {True, False}


async def test_the_same_registrations_give_every_recorded_route(vectors: Path) -> None:
    """267 routes of all scenarios: their brokers are registered as in the answer, then the route is requested."""
    count = 0
    for path in sorted((vectors / "frames").rglob("*.jsonl")):
        recorded = lines(path)
        requests = {line["seq"]: line for line in recorded if line["to"] == "namesrv" and line["code"] == 105}
        for line in recorded:
            if line["response"] and line["request"] and line["request"]["seq"] in requests:
                java = command_of(line)
                asked = command_of(requests[line["request"]["seq"]])
                order = (comparable(java.body) or {}).get("orderTopicConf")
                desk = Desk({asked.ext["topic"]: order} if order and asked.ext else None)
                register_as_shown(desk.table, (asked.ext or {}).get("topic", ""), comparable(java.body))
                assert_same(await desk.answer(raw(requests[line["request"]["seq"]])), java)
                count += 1
    assert count == 267


def register_as_shown(table: RouteTable, topic: str, route: Any) -> None:
    for broker in (route or {}).get("brokerDatas", ()):
        name = broker["brokerName"]
        (shown,) = [one for one in route["queueDatas"] if one["brokerName"] == name]
        queues = QueueData(name, shown["readQueueNums"], shown["writeQueueNums"], shown["perm"], shown["topicSysFlag"])
        addresses = {int(broker_id): address for broker_id, address in broker["brokerAddrs"].items()}
        for broker_id, address in ({0: "the master that died:1"} | addresses).items():
            table.register(
                Registration(broker["cluster"], name, broker_id, address, "", address, topics={topic: queues}), now=0
            )
        table.unregister("the master that died:1", name, 0)
