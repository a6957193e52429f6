"""One connection: many calls both ways at once, each ending in one of four ways and leaving nothing behind."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.remoting.command import ONEWAY, Command, HeaderType
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import CallTimeout, ConnectionLost, RemotingError, TooManyRequests
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Handler, Reply, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from tests.support.raw_client import RawClient
from tests.support.serving import HASTY, serving


class Pair:
    """A raw peer, connected to a pool's connection."""

    def __init__(self, connection: Connection, peer: RawClient) -> None:
        self.connection = connection
        self.peer = peer


async def pair(nursery: trio.Nursery, pool: ConnectionPool, network: MemoryNetwork) -> Pair:
    listener = await network.listen("server", 1)
    connections: list[Connection] = []

    async def dial() -> None:
        connections.append(await pool.connection("server:1"))

    nursery.start_soon(dial)
    peer = RawClient(await listener.accept())
    await wait_all_tasks_blocked()
    return Pair(connections[0], peer)


async def ask(connection: Connection, code: int, into: list[Command | RemotingError], timeout: float = 5) -> None:
    try:
        into.append(await connection.call(Command(code), timeout))
    except RemotingError as error:
        into.append(error)


async def test_a_peer_that_asks_without_reading_is_left(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    for size in (100_000, 2 << 20):
        network = MemoryNetwork()
        handlers = {7: Handler(lambda request, size=size: Reply(body=bytes(size)))}
        async with ConnectionPool(network, handlers=handlers) as pool:
            both = await pair(nursery, pool, network)
            while not both.connection.closed:
                both.peer.stream.send_now(encode(Command(7)))
                await wait_all_tasks_blocked()
                assert both.connection.unsent < 40 << 20
    assert caplog.text.count("more requests than it reads answers to") == 2


async def test_a_peer_that_reads_may_ask_as_much_as_it_likes(nursery: trio.Nursery) -> None:
    handlers = {7: Handler(lambda request: Reply(body=bytes(2 << 20)))}
    network = MemoryNetwork()
    async with ConnectionPool(network, handlers=handlers) as pool:
        both = await pair(nursery, pool, network)
        for _ in range(10):
            await both.peer.send(*[Command(7)] * 8)
            for _ in range(8):
                assert len((await both.peer.receive()).body) == 2 << 20


async def test_answers_in_any_order_match_their_calls(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        answers: dict[int, Command] = {}

        async def call(code: int) -> None:
            answers[code] = await both.connection.call(Command(code), 5)

        for code in range(10, 30):
            nursery.start_soon(call, code)
        asked = [await both.peer.receive() for _ in range(20)]
        assert len({one.opaque for one in asked}) == 20
        await both.peer.send(*[Command(one.code + 100, one.opaque, 1) for one in reversed(asked)])
        await wait_all_tasks_blocked()
        assert {code: answer.code for code, answer in answers.items()} == {code: code + 100 for code in range(10, 30)}
        assert both.connection.statistics().calls == 0


async def test_concurrent_calls_are_written_together(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        into: list[Command | RemotingError] = []
        for code in range(50):
            nursery.start_soon(ask, both.connection, code, into)
        chunks = [await both.peer.stream.receive_some()]
        await wait_all_tasks_blocked()
        while network.bytes_in_flight:
            chunks.append(await both.peer.stream.receive_some())
        assert len(chunks) <= 2  # the first alone, since there were no others yet; then all others


async def test_a_call_times_out_and_its_late_answer_is_dropped(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        began = trio.current_time()
        with pytest.raises(CallTimeout, match="server:1 did not answer HEART_BEAT within 3 s"):
            await both.connection.call(Command(34), 3)
        assert trio.current_time() - began == 3
        assert both.connection.statistics().calls == 0
        late = await both.peer.receive()
        into: list[Command | RemotingError] = []
        nursery.start_soon(ask, both.connection, 35, into)
        second = await both.peer.receive()
        await both.peer.send(Command(1, late.opaque, 1), Command(0, second.opaque, 1))
        await wait_all_tasks_blocked()
        assert [one.code for one in into if isinstance(one, Command)] == [0]


async def test_a_cancelled_call_leaves_nothing_behind(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                for code in range(10):
                    inner.start_soon(both.connection.call, Command(code), 100)
                await wait_all_tasks_blocked()
                assert both.connection.statistics().calls == 10
                scope.cancel()
        assert scope.cancelled_caught
        assert both.connection.statistics().calls == 0
        for _ in range(10):
            await both.peer.send(Command(0, (await both.peer.receive()).opaque, 1))
        await wait_all_tasks_blocked()
        assert not both.connection.closed


async def test_calls_on_a_lost_connection_say_so(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        into: list[Command | RemotingError] = []
        for code in range(3):
            nursery.start_soon(ask, both.connection, code, into)
        await wait_all_tasks_blocked()
        network.cut("server:1")
        await wait_all_tasks_blocked()
        assert [type(one) for one in into] == [ConnectionLost] * 3
        assert "cut" in str(into[0])
        with pytest.raises(ConnectionLost, match="is closed"):
            await both.connection.call(Command(1), 5)
        with pytest.raises(ConnectionLost):
            both.connection.send_oneway(Command(1))
        assert "closed" in repr(both.connection)


async def test_a_peer_that_closes_during_calls(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        into: list[Command | RemotingError] = []
        nursery.start_soon(ask, both.connection, 1, into)
        await both.peer.receive()
        await both.peer.stream.aclose()
        await wait_all_tasks_blocked()
        assert [type(one) for one in into] == [ConnectionLost]


async def test_the_call_limit_names_its_setting(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    config = PoolConfig(client_async_semaphore_value=3)
    async with ConnectionPool(network, config) as pool:
        both = await pair(nursery, pool, network)
        into: list[Command | RemotingError] = []
        for code in range(3):
            nursery.start_soon(ask, both.connection, code, into)
        await wait_all_tasks_blocked()
        with pytest.raises(TooManyRequests, match="clientAsyncSemaphoreValue=3"):
            await both.connection.call(Command(1), 5)
        await both.peer.send(Command(0, (await both.peer.receive()).opaque, 1))
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, both.connection, 4, into)
        await wait_all_tasks_blocked()
        assert both.connection.statistics().calls == 3


async def test_the_limits_of_a_servers_own_requests(nursery: trio.Nursery) -> None:
    config = ServerConfig(server_drain_seconds=0.0, server_oneway_semaphore_value=5, server_async_semaphore_value=2)
    running = await serving(nursery, {1: Handler(lambda request: Reply())}, config)
    client = await running.client()
    await client.ask(Command(1))
    (connection,) = running.server.connections
    for _ in range(5):
        connection.send_oneway(Command(40))
    with pytest.raises(TooManyRequests, match="serverOnewaySemaphoreValue=5"):
        connection.send_oneway(Command(40))
    assert [(await client.receive()).flag for _ in range(5)] == [ONEWAY] * 5
    connection.send_oneway(Command(40))  # the others are written
    into: list[Command | RemotingError] = []
    for _ in range(3):
        nursery.start_soon(ask, connection, 307, into)
    await wait_all_tasks_blocked()
    assert [type(one) for one in into] == [TooManyRequests]
    assert "serverAsyncSemaphoreValue=2" in str(into[0])


async def test_both_sides_call_each_other_at_once(nursery: trio.Nursery) -> None:
    """A server's handler calls back on the connection of the request it is serving."""

    async def relay(request: Request) -> Answer:
        answer = await request.connection.call(Command(307, body=bytes(request.body)), 5)
        return Reply(body=answer.body + b" relayed")

    def on_client(request: Request) -> Answer:
        return Reply(body=[b"info ", request.body])

    running = await serving(nursery, {1: Handler(relay)})
    async with ConnectionPool(running.network, handlers={307: Handler(on_client)}) as pool:
        into: list[bytes] = []

        async def call(number: int) -> None:
            into.append((await pool.call(running.address, Command(1, body=b"%d" % number), 5)).body)

        async with trio.open_nursery() as inner:
            for number in range(20):
                inner.start_soon(call, number)
        assert sorted(into) == sorted(b"info %d relayed" % number for number in range(20))


async def test_a_client_answers_unknown_requests_with_3(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        answer = await both.peer.ask(Command(309, 7))
        assert (answer.code, answer.opaque) == (3, 7)


async def test_calls_waiting_for_room_are_still_answered(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A client's connection keeps reading while the server reads nothing; its calls wait, within their timeouts."""
    network = MemoryNetwork()
    config = PoolConfig(client_write_buffer_high_water_mark=100_000)
    async with ConnectionPool(network, config) as pool:
        both = await pair(nursery, pool, network)
        into: list[Command | RemotingError] = []
        both.connection.send_oneway(Command(1, body=bytes(500_000)))
        await wait_all_tasks_blocked()
        with pytest.raises(TooManyRequests, match="bytes to server:1 wait"):
            both.connection.send_oneway(Command(1))
        with pytest.raises(CallTimeout):
            await both.connection.call(Command(2), 1)
        nursery.start_soon(ask, both.connection, 3, into)
        await both.peer.send(Command(309, 7))
        assert (await both.peer.receive()).code == 1
        assert {(await both.peer.receive()).code for _ in range(2)} == {3}
        await wait_all_tasks_blocked()
        assert both.connection.statistics().unsent == 0


async def test_a_deferred_answer_wakes_the_writer_once_for_many(nursery: trio.Nursery) -> None:
    held: list[Request] = []

    def park(request: Request) -> Deferred:
        held.append(request)
        return DEFERRED

    running = await serving(nursery, {11: Handler(park)}, HASTY)
    client = await running.client()
    await client.send(*[Command(11, number) for number in range(30)])
    await wait_all_tasks_blocked()
    for request in held:
        request.reply(Reply(19))
    assert running.network.bytes_in_flight == 0
    chunk = await client.stream.receive_some()
    assert chunk.count(b'"code":19') == 30


async def test_frames_encoded_by_the_caller(nursery: trio.Nursery) -> None:
    network = MemoryNetwork()
    async with ConnectionPool(network) as pool:
        both = await pair(nursery, pool, network)
        into: list[Command | ConnectionLost] = []
        opaque = both.connection.take_opaque()
        both.connection.call_frame_soon(opaque, encode(Command(310, opaque)), into.append)
        asked = await both.peer.receive()
        assert asked.opaque == opaque
        await both.peer.send(Command(0, opaque, 1))
        await wait_all_tasks_blocked()
        assert [one.code for one in into if isinstance(one, Command)] == [0]
        forgotten = both.connection.take_opaque()
        both.connection.call_frame_soon(forgotten, encode(Command(310, forgotten)), into.append)
        both.connection.forget(forgotten)
        lost = both.connection.take_opaque()
        both.connection.call_frame_soon(lost, encode(Command(310, lost)), into.append)
        network.cut("server:1")
        await wait_all_tasks_blocked()
        assert [type(one) for one in into] == [Command, ConnectionLost]
        assert both.connection.header_type is HeaderType.JSON
