"""Delays and transactions in stores passed between a Java broker and ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from rocketlet.common.clock import system_clock
from rocketlet.common.message_flags import PREPARED
from rocketlet.common.message_record import decode
from rocketlet.remoting.command import Command
from rocketlet.remoting.command import request as command_of
from rocketlet.remoting.config import PoolConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.handler import Handler, Request
from rocketlet.remoting.protocol.pulling import SUBSCRIPTION, SUSPEND
from rocketlet.remoting.protocol.transactions import (
    COMMIT,
    ROLLBACK,
    CheckTransactionStateHeader,
    EndTransactionHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import TcpNetwork
from tests.support.java_programs import JavaPrograms
from tests.support.memory_broker import Client
from tests.support.ports import free_broker_port
from tests.support.programs import Program, name_server, program

pytestmark = pytest.mark.interop

QUICK = {"transactionCheckInterval": 1000, "transactionTimeOut": 500, "messageDelayLevel": "1s 5s 2s 3s"}


@contextmanager
def our_broker(folder: Path, namesrv: str, **settings: object) -> Iterator[tuple[Program, str]]:
    """Our broker on the Java broker's directories, and its address."""
    port = free_broker_port()
    given = {"storePathRootDir": folder / "store", "brokerName": "broker-a", "listenPort": port, **QUICK, **settings}
    words = (word for key, value in given.items() for word in (f"--{key}", str(value)))
    with program("broker", *words, "-n", namesrv) as running:
        running.line_with("is ready")
        yield running, f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with name_server(tmp_path_factory.mktemp("namesrv")) as (_, address):
        yield address


# --- stores passed between brokers
# ----------------------------------------------------------------------------------------


class Producer:
    """Group P: commits every transaction it is checked for."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.silent = False

    def check(self, request: Request) -> None:
        if self.silent:
            return
        header: CheckTransactionStateHeader = request.header
        self.asked.append(bytes(decode(request.body).body))
        ended = EndTransactionHeader(
            header.commitLogOffset, COMMIT, header.tranStateTableOffset, "P", True, header.msgId or ""
        )
        request.connection.send_oneway(command_of(RequestCode.END_TRANSACTION, ended))

    @asynccontextmanager
    async def client(self, address: str) -> AsyncIterator[Client]:
        handlers = {RequestCode.CHECK_TRANSACTION_STATE: Handler(self.check, CheckTransactionStateHeader)}
        async with ConnectionPool(TcpNetwork(), PoolConfig(), handlers) as pool:
            client = Client(pool, address)
            await client.heartbeat("producer@1", producer="P")
            yield client


async def prepare(client: Client, body: bytes) -> Command:
    fields = {"sysFlag": PREPARED, "bornTimestamp": system_clock()}
    answer = await client.send("T", body, fields=fields, TRAN_MSG="true", PGROUP="P")
    assert answer.code == 0
    return answer


async def end(client: Client, half: Command, how: int) -> None:
    ext = half.ext or {}
    header = EndTransactionHeader(int(ext["msgId"][-16:], 16), how, int(ext["queueOffset"]), "P")
    assert (await client.call(RequestCode.END_TRANSACTION, header)).code == 0


async def leave_work(address: str) -> None:
    """The first broker's state: delays due and not, transactions decided and not."""
    producer = Producer()
    async with producer.client(address) as client:
        producer.silent = True
        await client.send("T", b"at once", DELAY="1")
        await client.send("T", b"later", DELAY="2")
        for body in (b"undecided", b"committed", b"rolled back"):
            half = await prepare(client, body)
            if body != b"undecided":
                await end(client, half, COMMIT if body == b"committed" else ROLLBACK)
        await expect(client, [b"committed", b"at once"])


async def find_work(address: str) -> list[bytes]:
    """What the second broker does with it. Returns the transactions that were checked."""
    producer = Producer()
    async with producer.client(address) as client:
        await expect(client, [b"committed", b"at once", b"undecided", b"later"])
        await client.send("T", b"new", DELAY="3")
        await expect(client, [b"committed", b"at once", b"undecided", b"later", b"new"])
    return producer.asked


async def expect(client: Client, bodies: list[bytes]) -> None:
    """Queue 0 eventually holds each of these once; the two waiting ones may arrive in any order."""
    found: list[bytes] = []
    with trio.fail_after(300):
        while len(found) < len(bodies):
            pulled = await client.pull(
                "T", 0, len(found), sysFlag=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=5000, subVersion=1
            )
            found += [bytes(record.body) for record in pulled.records]
    assert sorted(found) == sorted(bodies)


def test_java_continues_where_ours_stopped(java: JavaPrograms, namesrv: str, tmp_path: Path) -> None:
    with our_broker(tmp_path, namesrv) as (running, address):
        trio.run(leave_work, address)
        assert running.stop() == 0
    with java.broker(tmp_path, namesrv, **QUICK) as broker:
        assert set(trio.run(find_work, broker.address)) == {b"undecided"}


def test_ours_continues_where_java_stopped(java: JavaPrograms, namesrv: str, tmp_path: Path) -> None:
    with java.broker(tmp_path, namesrv, **QUICK) as broker:
        trio.run(leave_work, broker.address)
        broker.stop()
    with our_broker(tmp_path, namesrv) as (_, address):
        assert trio.run(find_work, address) == [b"undecided"]


def test_ours_continues_where_java_was_killed(java: JavaPrograms, namesrv: str, tmp_path: Path) -> None:
    with java.broker(tmp_path, namesrv, **QUICK) as broker:
        trio.run(leave_work, broker.address)
        broker.kill()
    with our_broker(tmp_path, namesrv) as (_, address):
        assert trio.run(find_work, address) == [b"undecided"]
