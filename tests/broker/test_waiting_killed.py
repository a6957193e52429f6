"""`kill -9` in the middle of deliveries, ends of transactions and retries, of real processes on real files."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from rocketlet.common.message_flags import PREPARED
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.protocol.pulling import SUBSCRIPTION, SUSPEND
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.protocol.transactions import COMMIT, ROLLBACK, EndTransactionHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import TcpNetwork
from tests.support.memory_broker import Client
from tests.support.programs import Program, program

pytestmark = pytest.mark.slow

WAITING = {"sysFlag": SUBSCRIPTION | SUSPEND, "suspendTimeoutMillis": 15_000}


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[tuple[Program, Client]]:
    """A broker on this directory, and a client of it; killed at the end of the block at the latest."""
    settings = {
        "storePathRootDir": folder / "store",
        "brokerName": "broker-a",
        "listenPort": 0,
        "messageDelayLevel": "1s 2s 1s 1s",
        "mappedFileSizeCommitLog": 1 << 22,
    }
    with program("broker", *(word for key, value in settings.items() for word in (f"--{key}", str(value)))) as running:
        line = await trio.to_thread.run_sync(running.line_with, "is ready")
        address = line.partition("clients are told ")[2].partition(",")[0].split(" ")[0]
        async with ConnectionPool(TcpNetwork(), PoolConfig()) as pool:
            yield running, Client(pool, address)


def at_least(count: int) -> Callable[[Counter[bytes]], bool]:
    return lambda found: len(found) >= count


async def all_bodies(client: Client, topic: str, until: Callable[[Counter[bytes]], bool]) -> Counter[bytes]:
    """Read queue 0 of a topic until the bodies are as expected."""
    found: Counter[bytes] = Counter()
    offset = 0
    with trio.fail_after(300):
        while not until(found):
            pulled = await client.pull(topic, 0, offset, **WAITING)
            assert pulled.code in (0, 19, 20), pulled
            found.update(bytes(record.body) for record in pulled.records)
            offset += len(pulled.records)
    return found


async def test_killed_while_delivering(tmp_path: Path) -> None:
    sent = 0
    for _ in range(3):
        async with broker(tmp_path) as (running, client):
            assert len(await all_bodies(client, "T", at_least(sent))) == sent
            async with trio.open_nursery() as nursery:
                for number in range(sent, sent + 1500):
                    nursery.start_soon(_delayed, client, b"%d" % number)
            sent += 1500
            # In the middle: the first of them are delivered, at 64 per millisecond.
            await all_bodies(client, "T", at_least(sent - 1499))
            running.kill()
    async with broker(tmp_path) as (running, client):
        found = await all_bodies(client, "T", at_least(sent))
        await client.send("T", b"end", DELAY="2")
        found = await all_bodies(client, "T", lambda found: found[b"end"] > 0)
        assert set(found.values()) == {1}, "nothing is doubled"
        assert len(found) == sent + 1


async def _delayed(client: Client, body: bytes) -> None:
    answer = await client.send("T", body, DELAY="1")
    assert answer.code == 0


async def test_killed_while_transactions_end(tmp_path: Path) -> None:
    halves: dict[bytes, Command] = {}
    acknowledged: dict[bytes, int] = {}

    async def end(client: Client, body: bytes, how: int) -> None:
        half = halves[body].ext or {}
        header = EndTransactionHeader(int(half["msgId"][-16:], 16), how, int(half["queueOffset"]), "P")
        try:
            answer = await client.call(RequestCode.END_TRANSACTION, header)
        except RemotingError:
            return
        if answer.code == 0:
            assert body not in acknowledged, "the first end wins"
            acknowledged[body] = how

    for life in range(3):
        async with broker(tmp_path) as (running, client):
            bodies = [b"%d-%d" % (life, number) for number in range(300)]
            for body in bodies:
                fields = {"sysFlag": PREPARED}
                halves[body] = await client.send("T", body, fields=fields, TRAN_MSG="true", PGROUP="P")
                assert halves[body].code == 0
            before = len(acknowledged)
            async with trio.open_nursery() as nursery:
                for number, body in enumerate(halves):
                    nursery.start_soon(end, client, body, ROLLBACK if number % 3 == 0 else COMMIT)
                while len(acknowledged) < before + 100:
                    await trio.sleep(0)
                running.kill()
    async with broker(tmp_path) as (running, client):
        async with trio.open_nursery() as nursery:
            for number, body in enumerate(halves):
                # A rolled back transaction is ended once more, with the opposite outcome.
                nursery.start_soon(end, client, body, COMMIT if number % 3 else ROLLBACK)
        async with trio.open_nursery() as nursery:
            for body in halves:
                nursery.start_soon(end, client, body, COMMIT)
        committed = {body for number, body in enumerate(halves) if number % 3}
        found = await all_bodies(client, "T", at_least(len(committed)))
        await client.send("T", b"end")
        found = await all_bodies(client, "T", lambda found: found[b"end"] > 0)
        del found[b"end"]
        assert set(found) == committed
        assert set(found.values()) == {1}
        assert all(acknowledged[body] == (COMMIT if body in committed else ROLLBACK) for body in acknowledged)


async def test_killed_after_a_send_back(tmp_path: Path) -> None:
    async with broker(tmp_path) as (running, client):
        for number in range(20):
            await client.send("T", b"%d" % number)
        for record in (await client.pull("T", 0, 0)).records:
            header = ConsumerSendMsgBackHeader(offset=record.log_offset, group="CG")
            assert (await client.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
        running.kill()
    async with broker(tmp_path) as (running, client):
        found = await all_bodies(client, "%RETRY%CG", at_least(20))
        assert set(found.values()) == {1}
        assert running.stop() == 0
