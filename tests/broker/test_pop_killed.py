"""`kill -9` of a broker under pops and delayed sends: no message is lost, none is redelivered after its answered ack,
and each delayed one is delivered once. Real processes and files.

    POP_KILLS=30 pytest tests/broker/test_pop_killed.py
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import trio

from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.transport import TcpNetwork
from tests.support.memory_broker import Client
from tests.support.popping import PoppedMessage, Popper
from tests.support.programs import broker

ROUNDS = int(os.environ.get("POP_KILLS", "2"))
ROUND_SECONDS = 1.5
INVISIBLE_MS = 1500
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 22,
    "mappedFileSizeConsumeQueue": 20_000,
    "flushDiskType": "ASYNC_FLUSH",
}


@dataclass
class Ledger:
    """What was answered. Bodies are names, `d…` for delayed messages."""

    sent: set[bytes] = field(default_factory=set)
    maybe_sent: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    maybe_acked: set[bytes] = field(default_factory=set)  # requested, answered or not
    again: list[bytes] = field(default_factory=list)
    early: list[bytes] = field(default_factory=list)
    due: dict[bytes, int] = field(default_factory=dict)
    popped: int = 0
    late_ms: list[int] = field(default_factory=list)

    def saw(self, messages: list[PoppedMessage], done_before: set[bytes]) -> None:
        """`done_before`: what was acknowledged when the pop was sent."""
        now = time.time_ns() // 1_000_000
        self.popped += len(messages)
        for got in messages:
            if got.body in done_before:
                self.again.append(got.body)
            due = self.due.get(got.body)
            if due is not None and got.record.store_timestamp < due:
                self.early.append(got.body)
            elif due is not None and got.times == 0:
                self.late_ms.append(min(got.record.store_timestamp - due, now - due))


async def produce(address: str, name: str, ledger: Ledger, random: Random) -> None:
    async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
        client, number = Client(pool, address), 0
        while True:
            number += 1
            body = f"{name}-{number}".encode()
            properties = {"UNIQ_KEY": f"{name}-{number}"}
            ledger.maybe_sent.add(body)
            if name.startswith("d"):
                ledger.due[body] = time.time_ns() // 1_000_000 + random.randrange(1, 2500)
                properties["TIMER_DELIVER_MS"] = str(ledger.due[body])
            try:
                answer = await client.send("T", body, number % 4, fields={"bornTimestamp": 1}, **properties)
            except RemotingError:
                return
            assert answer.code == 0, answer
            ledger.sent.add(body)


async def consume(address: str, ledger: Ledger, random: Random) -> None:
    async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
        popper = Popper(Client(pool, address), invisible_ms=INVISIBLE_MS)
        try:
            while True:
                done = set(ledger.acked)
                messages = await popper.pop(random.choice([1, 8, 32]), poll_ms=500)
                ledger.saw(messages, done)
                random.shuffle(messages)
                kept = [got for got in messages if random.random() < 0.8]
                ledger.maybe_acked |= {got.body for got in kept}
                if len(kept) > 3 and random.random() < 0.5:
                    assert await popper.ack_all(kept) == 0
                    ledger.acked |= {got.body for got in kept}
                    continue
                for got in kept:
                    assert await popper.ack(got) == 0
                    ledger.acked.add(got.body)
                for got in [one for one in messages if one not in kept][:2]:
                    await popper.change(got, random.choice([0, 500]))
        except RemotingError:
            return


async def load(address: str, number: int, ledger: Ledger, kill: object) -> None:
    if number == 0:
        async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
            assert (await Client(pool, address).send("T", b"first")).code == 0
    async with trio.open_nursery() as nursery:
        for name in "pd":
            nursery.start_soon(produce, address, f"{name}{number}", ledger, Random(f"{name}{number}"))
        for which in range(3):
            nursery.start_soon(consume, address, ledger, Random(f"{number} {which}"))
        await trio.sleep(ROUND_SECONDS)
        kill()  # type: ignore[operator]


async def drain(address: str, ledger: Ledger) -> None:
    """Pop until nothing is left; then read everything stored, to find duplicates."""
    async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
        client = Client(pool, address)
        popper = Popper(client, invisible_ms=INVISIBLE_MS)
        empty = 0
        while empty < 2:
            done = set(ledger.acked)
            messages = await popper.pop(poll_ms=4000)
            ledger.saw(messages, done)
            empty = 0 if messages else empty + 1
            if messages:
                assert await popper.ack_all(messages) == 0
                ledger.acked |= {got.body for got in messages}
        stored: Counter[bytes] = Counter()
        for queue_id in range(4):
            offset = 0
            while (pulled := await client.pull("T", queue_id, offset, consumerGroup="CG")).code == 0:
                stored.update(record.body for record in pulled.records)
                offset = int(pulled.ext["nextBeginOffset"])
        assert [body for body in stored if stored[body] > 1] == []


@pytest.mark.slow
def test_nothing_is_lost_and_no_answered_ack_is_forgotten(tmp_path: Path) -> None:
    ledger = Ledger()
    for number in range(ROUNDS):
        with broker(tmp_path, **SETTINGS) as (running, address):
            trio.run(load, address, number, ledger, running.process.kill)
            assert running.ended() == -9
    with broker(tmp_path, **SETTINGS) as (running, address):
        trio.run(drain, address, ledger)
        assert running.stop() == 0
    assert ledger.again == []
    assert ledger.early == []
    assert ledger.sent - ledger.acked - ledger.maybe_acked == set()
    assert ledger.acked <= ledger.maybe_sent | {b"first"}
    delayed = sorted(ledger.late_ms)
    print(  # noqa: T201 - what a run by hand is for
        f"{ROUNDS} rounds, {len(ledger.sent)} sent ({len(ledger.due)} of them delayed), {ledger.popped} deliveries; "
        f"first deliveries of delayed ones late by {delayed[len(delayed) // 2]} ms in the median"
    )
