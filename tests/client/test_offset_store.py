from __future__ import annotations

from pathlib import Path

import pytest

from rocketlet.client.consuming.offset_store import LocalOffsets, RemoteOffsets
from rocketlet.client.errors import NoRoute, Refused
from rocketlet.client.talking.broker_calls import BrokerCalls
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import ConnectFailed

QUEUE, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "b", 1)


class Wire:
    """Connections that give scripted answers and record requests."""

    def __init__(self, *answers: Command | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Command]] = []

    async def call(self, address: str, command: Command, timeout: float) -> Command:
        self.asked.append((address, command))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def oneway(self, address: str, command: Command) -> None:
        self.asked.append((address, command))
        if self.answers and isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)


def remote(wire: Wire) -> RemoteOffsets:
    return RemoteOffsets("g", BrokerCalls(wire), {"a": "a:1"}.get)


async def test_committed_offsets_are_read_from_the_queues_broker() -> None:
    wire = Wire(Command(0, ext={"offset": "7"}), Command(22), Command(0, ext={"offset": "-1"}), Command(1, remark="no"))
    offsets = remote(wire)
    assert [await offsets.read(QUEUE) for _ in range(3)] == [7, None, None]
    with pytest.raises(Refused):
        await offsets.read(QUEUE)
    with pytest.raises(NoRoute):
        await offsets.read(OTHER)


async def test_an_offset_is_committed_every_round_until_forgotten() -> None:
    wire = Wire()
    offsets = remote(wire)
    await offsets.persist([QUEUE])
    offsets.update(QUEUE, 5)
    offsets.update(OTHER, 6)
    assert offsets.noted(QUEUE) == 5
    await offsets.persist([QUEUE, OTHER])
    await offsets.persist([QUEUE, OTHER])
    assert [(address, command.ext["commitOffset"]) for address, command in wire.asked if command.ext] == [
        ("a:1", "5"),
        ("a:1", "5"),
    ]
    offsets.forget(QUEUE)
    await offsets.persist([QUEUE])
    assert len(wire.asked) == 2


async def test_a_failed_commit_is_retried_in_the_next_round() -> None:
    wire = Wire(ConnectFailed("down"), Command(0))
    offsets = remote(wire)
    offsets.update(QUEUE, 5)
    await offsets.persist([QUEUE])
    await offsets.persist([QUEUE], wait=True)
    assert len(wire.asked) == 2


async def test_local_offsets_survive_a_restart_and_a_broken_file(tmp_path: Path) -> None:
    offsets = LocalOffsets(str(tmp_path), "10.0.0.1@DEFAULT", "g/../x")
    offsets.update(QUEUE, 5)
    await offsets.persist([QUEUE])
    offsets.update(OTHER, 6)
    await offsets.persist([QUEUE])
    again = LocalOffsets(str(tmp_path), "10.0.0.1@DEFAULT", "g/../x")
    assert (await again.read(QUEUE), await again.read(OTHER)) == (5, 6)
    (file,) = tmp_path.rglob("offsets.json")
    assert file.is_relative_to(tmp_path)
    file.write_text("{broken")
    before = LocalOffsets(str(tmp_path), "10.0.0.1@DEFAULT", "g/../x")
    assert (await before.read(QUEUE), await before.read(OTHER)) == (5, None)


async def test_javas_local_offsets_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "c" / "g"
    folder.mkdir(parents=True)
    (folder / "offsets.json").write_text('{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:42}}')
    assert await LocalOffsets(str(tmp_path), "c", "g").read(QUEUE) == 42
