"""The pool: shares dials, recovers, times out, falls back to JSON; nobody cancels another caller's dial."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.remoting.command import Command, HeaderType
from rocketlet.remoting.config import PoolConfig, SerializeType
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import CallTimeout, ConnectFailed, ConnectionLost, RemotingError
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.handler import Handler, Reply, Request
from rocketlet.remoting.hooks import ClientHook
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.transport import ByteStream
from tests.support.raw_client import RawClient
from tests.support.serving import serving

ECHO = {1: Handler(lambda request: Reply(body=request.body))}


class CountingNetwork(MemoryNetwork):
    """Counts its dials."""

    dials = 0

    async def dial(self, address: str) -> ByteStream:
        self.dials += 1
        return await super().dial(address)


async def test_many_callers_share_one_dial(nursery: trio.Nursery) -> None:
    network = CountingNetwork()
    running = await serving(nursery, ECHO, network=network)
    bodies: list[bytes] = []
    async with ConnectionPool(network) as pool:

        async def call(number: int) -> None:
            bodies.append((await pool.call(running.address, Command(1, body=b"%d" % number), 5)).body)

        async with trio.open_nursery() as inner:
            for number in range(20):
                inner.start_soon(call, number)
        assert sorted(bodies) == sorted(b"%d" % number for number in range(20))
        assert network.dials == 1
        assert list(pool.connections) == [running.address]
    await wait_all_tasks_blocked()
    assert running.server.statistics().connections == 0


async def test_a_lost_connection_is_dialled_again(nursery: trio.Nursery) -> None:
    network = CountingNetwork()
    running = await serving(nursery, ECHO, network=network)
    async with ConnectionPool(network) as pool:
        for _ in range(3):
            assert (await pool.call(running.address, Command(1), 5)).code == 0
            network.cut(running.address)
            await wait_all_tasks_blocked()
        assert pool.connections == {}
        (await pool.connection(running.address)).close()
        assert (await pool.call(running.address, Command(1), 5)).code == 0
        assert network.dials == 5


async def test_dialling_a_closed_port(nursery: trio.Nursery) -> None:
    async with ConnectionPool(MemoryNetwork()) as pool:
        for address in ("nowhere:1", "nonsense"):
            with pytest.raises(ConnectFailed, match=f"cannot connect to {address}"):
                await pool.call(address, Command(1), 5)
        errors: list[str] = []

        async def call() -> None:
            try:
                await pool.oneway("nowhere:1", Command(1))
            except ConnectFailed as error:
                errors.append(str(error))

        async with trio.open_nursery() as inner:
            for _ in range(3):
                inner.start_soon(call)
        assert errors == ["cannot connect to nowhere:1: connection refused"] * 3


async def test_a_dial_has_its_timeout_and_a_call_may_have_less(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    network.isolate("far:1")
    async with ConnectionPool(network) as pool:
        with pytest.raises(ConnectFailed, match="connectTimeoutMillis=3000"):
            await pool.call("far:1", Command(1), 60)
        assert trio.current_time() == pytest.approx(3, abs=0.1)
        with pytest.raises(CallTimeout, match="far:1 was not reached within 1 s"):
            await pool.call("far:1", Command(1), 1)


async def test_a_cancelled_caller_does_not_cancel_a_shared_dial(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = CountingNetwork(delay=0.5)
    running = await serving(nursery, ECHO, network=network)
    network.isolate(running.address)
    async with ConnectionPool(network) as pool, trio.open_nursery() as inner:
        answers: list[int] = []

        async def patient() -> None:
            answers.append((await pool.call(running.address, Command(1), 10)).code)

        with trio.move_on_after(1) as impatient:
            inner.start_soon(patient)
            await pool.call(running.address, Command(1), 10)
        assert impatient.cancelled_caught
        network.rejoin(running.address)
        await trio.sleep(5)
        assert answers == [0]
        assert network.dials == 1


async def test_a_half_dead_connection_is_replaced(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A call during which nothing arrived closes the connection; a slow one among others that are answered does not."""
    network = CountingNetwork()

    async def never(request: Request) -> Reply:
        await trio.sleep_forever()
        raise AssertionError

    running = await serving(nursery, {**ECHO, 2: Handler(never)}, network=network)
    async with ConnectionPool(network) as pool:
        async with trio.open_nursery() as inner:
            inner.start_soon(expect_timeout, pool, running.address, 2)
            await trio.sleep(1)
            assert (await pool.call(running.address, Command(1), 3)).code == 0
        assert network.dials == 1
        network.isolate(running.address)
        await expect_timeout(pool, running.address, 1)
        network.rejoin(running.address)
        assert (await pool.call(running.address, Command(1), 3)).code == 0
        assert network.dials == 2
    async with ConnectionPool(network, PoolConfig(client_close_socket_if_timeout=False)) as pool:
        await expect_timeout(pool, running.address, 2)
        assert (await pool.call(running.address, Command(1), 3)).code == 0
        assert network.dials == 3


async def expect_timeout(pool: ConnectionPool, address: str, code: int) -> None:
    with pytest.raises(CallTimeout):
        await pool.call(address, Command(code), 3)


async def test_idle_connections_are_closed_and_reported(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    class Events(ConnectionEvents):
        def connected(self, connection: Connection) -> None:
            seen.append("connected")

        def closed(self, connection: Connection) -> None:
            seen.append("closed")

        def idle(self, connection: Connection) -> None:
            seen.append("idle")

        def failed(self, connection: Connection) -> None:
            seen.append("failed")

    seen: list[str] = []
    running = await serving(nursery, ECHO)
    config = PoolConfig(client_channel_max_idle_time_seconds=60)
    async with ConnectionPool(running.network, config, events=[Events()]) as pool:
        await pool.call(running.address, Command(1), 5)
        await trio.sleep(59)
        assert pool.connections
        await trio.sleep(2)
        assert not pool.connections
        await pool.call(running.address, Command(1), 5)
        running.network.cut(running.address)
        await wait_all_tasks_blocked()
    assert seen == ["connected", "idle", "closed", "connected", "failed", "closed"]


async def test_hooks_sign_and_see_answers(nursery: trio.Nursery) -> None:
    class Sign(ClientHook):
        def before(self, address: str, command: Command) -> None:
            command.ext = {**(command.ext or {}), "AccessKey": "ak"}

        def after(self, address: str, command: Command, answer: Command) -> None:
            seen.append((address, command.code, answer.code))

    def look(request: Request) -> Reply:
        return Reply(header={"key": request.ext.get("AccessKey", "none")})

    seen: list[tuple[str, int, int]] = []
    running = await serving(nursery, {1: Handler(look)})
    async with ConnectionPool(running.network, hooks=[Sign()]) as pool:
        answer = await pool.call(running.address, Command(1), 5)
        await pool.oneway(running.address, Command(1))
    assert answer.ext == {"key": "ak"}
    assert seen == [(running.address, 1, 0)]


@pytest.mark.parametrize("serialize_type", SerializeType)
async def test_requests_use_the_chosen_header_type(nursery: trio.Nursery, serialize_type: SerializeType) -> None:
    def look(request: Request) -> Reply:
        return Reply(header={"type": str(request.header_type)})

    running = await serving(nursery, {1: Handler(look)})
    async with ConnectionPool(running.network, PoolConfig(serialize_type=serialize_type)) as pool:
        answer = await pool.call(running.address, Command(1), 5)
        assert answer.header_type == serialize_type.header_type
        assert answer.ext == {"type": str(int(serialize_type.header_type))}


async def test_a_peer_that_does_not_know_msgpack_gets_json(nursery: trio.Nursery) -> None:
    """As in RocketMQ, an unknown header type closes the connection."""
    network = MemoryNetwork()
    listener = await network.listen("java", 1)
    seen: list[int] = []

    async def serve_as_java() -> None:
        while True:
            client = RawClient(await listener.accept())
            try:
                while True:
                    asked = await client.receive()
                    seen.append(asked.header_type)
                    if asked.header_type is HeaderType.MSGPACK:
                        break
                    await client.send(Command(0, asked.opaque, 1, body=b"json"))
            except EOFError:
                pass  # the pool has gone
            await client.stream.aclose()

    nursery.start_soon(serve_as_java)
    async with ConnectionPool(network, PoolConfig(serialize_type=SerializeType.MSGPACK)) as pool:
        assert (await pool.call("java:1", Command(1), 5)).body == b"json"
        pool.connections["java:1"].close()
        assert (await pool.call("java:1", Command(1), 5)).body == b"json"
    assert seen == [HeaderType.MSGPACK, HeaderType.JSON, HeaderType.JSON]


async def test_leaving_the_pool_ends_waiting_calls(nursery: trio.Nursery) -> None:
    running = await serving(nursery, {1: Handler(lambda request: None)})
    errors: list[RemotingError] = []

    async def call(pool: ConnectionPool) -> None:
        try:
            await pool.call(running.address, Command(1), 5)
        except RemotingError as error:
            errors.append(error)

    async with ConnectionPool(running.network) as pool:
        nursery.start_soon(call, pool)
        await wait_all_tasks_blocked()
    await wait_all_tasks_blocked()
    assert [type(error) for error in errors] == [ConnectionLost]
    with pytest.raises(ConnectFailed, match="pool of connections is closed"):
        await pool.call(running.address, Command(1), 5)


async def test_exceptions_inside_the_pool_pass_through(nursery: trio.Nursery) -> None:
    running = await serving(nursery, ECHO)
    with pytest.raises(KeyError):
        async with ConnectionPool(running.network) as pool:
            await pool.call(running.address, Command(1), 5)
            raise KeyError
