"""`kill -9` of a broker under load, with async flush, loses nothing that it acknowledged: real processes and files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from rocketlet.common import message_properties
from rocketlet.common.message_record import Record
from rocketlet.remoting.command import Command
from rocketlet.remoting.frame_codec import FrameDecoder, encode
from rocketlet.remoting.protocol.header import to_ext
from rocketlet.remoting.protocol.pulling import SUBSCRIPTION, PullMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.transport import TcpNetwork
from tests.support.programs import broker
from tests.support.raw_client import RawClient
from tests.support.records import decode_all

PRODUCERS, QUEUES, WINDOW = 4, 4, 64
ROUNDS, ACKNOWLEDGED = 3, 6000


@dataclass
class Ledger:
    """What was acknowledged: (queue, offset) -> body."""

    places: dict[tuple[int, int], bytes] = field(default_factory=dict)
    enough: trio.Event = field(default_factory=trio.Event)
    goal: int = 0

    def acknowledged(self, answer: Command, body: bytes) -> None:
        assert answer.ext is not None, answer
        self.places[int(answer.ext["queueId"]), int(answer.ext["queueOffset"])] = body
        if len(self.places) >= self.goal:
            self.enough.set()


async def produce(address: str, name: str, ledger: Ledger) -> None:
    """Send as fast as a window of unanswered messages allows, until the broker is gone."""
    stream = await TcpNetwork().dial(address)
    decoder, in_flight_sends, number = FrameDecoder(), {}, 0
    try:
        while True:
            frames = []
            while len(in_flight_sends) < WINDOW:
                number += 1
                body = f"{name}-{number}-".encode() + b"x" * (number % 700)
                properties = message_properties.encode({"UNIQ_KEY": f"{name}{number}", "TAGS": name, "WAIT": "true"})
                header = SendMessageHeaderV2(number % QUEUES, "T", "PG", "TBW102", QUEUES, properties=properties)
                frames.append(encode(Command(310, opaque=number, ext=to_ext(header), body=body)))
                in_flight_sends[number] = body
            await stream.send_all(b"".join(frames))
            chunk = await stream.receive_some(1 << 16)
            if not chunk:
                return
            for answer in decoder.feed(chunk):
                assert answer.code == 0, answer
                ledger.acknowledged(answer, in_flight_sends.pop(answer.opaque))
    except trio.BrokenResourceError:
        return  # killed: answers that we have not read do not count
    finally:
        await stream.aclose()


async def load(address: str, name: str, ledger: Ledger, kill: object) -> None:
    """Four producers until enough is acknowledged; then the broker is killed in the middle of their sends."""
    async with trio.open_nursery() as nursery:
        for n in range(PRODUCERS):
            nursery.start_soon(produce, address, f"{name}{'abcd'[n]}", ledger)
        await ledger.enough.wait()
        kill()  # type: ignore[operator]


async def everything(address: str) -> dict[tuple[int, int], Record]:
    """All messages that can be pulled, by queue and offset."""
    client = RawClient(await TcpNetwork().dial(address))
    found = {}
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            header = PullMessageHeader(queue_id, offset, 32, "T", "CG", SUBSCRIPTION, subscription="*")
            answer = await client.ask(Command(11, ext=to_ext(header)))
            if answer.code != 0:
                assert answer.code == 19, answer
                break
            for record in decode_all(bytes(answer.body)):
                found[queue_id, record.queue_offset] = record
            assert answer.ext is not None
            offset = int(answer.ext["nextBeginOffset"])
    await client.stream.aclose()
    return found


@pytest.mark.slow
def test_no_acknowledged_message_is_lost(tmp_path: Path) -> None:
    settings = {
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 20_000,
        "flushDiskType": "ASYNC_FLUSH",
        "cleanFileForciblyEnable": "false",  # however full this machine's disk is
    }
    ledger = Ledger()
    for number in range(ROUNDS):
        with broker(tmp_path, **settings) as (running, address):
            ledger.goal, ledger.enough = len(ledger.places) + ACKNOWLEDGED, trio.Event()
            trio.run(load, address, f"r{number}", ledger, running.process.kill)
            assert running.ended() == -9
    with broker(tmp_path, **settings) as (running, address):
        found = trio.run(everything, address)
        assert running.stop() == 0
    lost = [place for place, body in ledger.places.items() if place not in found or found[place].body != body]
    assert lost == []
    assert len(ledger.places) >= ROUNDS * ACKNOWLEDGED
    offsets = defaultdict(list)
    for queue_id, offset in found:
        offsets[queue_id].append(offset)
    for queue_id, present in offsets.items():
        assert sorted(present) == list(range(len(present))), queue_id
