"""A peer at the port for slaves can end its own connection, and nothing else; nor can a master harm a slave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketlet.remoting.transport import ByteStream
from rocketlet.replication.admission import MAX_CONNECTIONS
from rocketlet.replication.feed import STALLED_SECONDS
from rocketlet.replication.stream_codec import SLICE, report
from tests.support.pair import Pair, pair
from tests.support.properties import examples

STRANGER = "10.9.0.1"
HUGE = (1 << 63) - 1


async def dial(cluster: Pair, address: str = "") -> ByteStream:
    return await cluster.network.of_host(STRANGER).dial(address or cluster.master.ha_address)


async def sends_go_on(cluster: Pair, count: int = 10) -> None:
    """The master acknowledges as fast as usual, and only with its real slave."""
    for _ in range(count):
        before = trio.current_time()
        assert (await cluster.master.send("T", b"x" * 200)).code == 0
        assert trio.current_time() - before < 0.5
        assert cluster.slave().store.log.end == cluster.master.store.log.end


async def is_closed(stream: ByteStream, seconds: float = 60) -> bool:
    """Whether the peer closes within that time; its data is dropped."""
    try:
        with trio.move_on_after(seconds):
            while await stream.receive_some():
                pass
            return True
    except trio.BrokenResourceError:
        return True
    return False


async def garbage(stream: ByteStream, cluster: Pair) -> None:
    await stream.send_all(Random(3).randbytes(3000))


async def negative(stream: ByteStream, cluster: Pair) -> None:
    await stream.send_all(report(-1))


async def huge(stream: ByteStream, cluster: Pair) -> None:
    await stream.send_all(report(HUGE >> 8))


async def end_and_then_more(stream: ByteStream, cluster: Pair) -> None:
    end = cluster.master.store.log.end
    await stream.send_all(report(end) + report(end + 10_000))


async def backwards(stream: ByteStream, cluster: Pair) -> None:
    end = cluster.master.store.log.end
    await stream.send_all(report(end) + report(end - 1))


async def all_at_once(stream: ByteStream, cluster: Pair) -> None:
    await stream.send_all(b"".join(report(number) for number in range(0, 1 << 20, 64)))


async def nothing(stream: ByteStream, cluster: Pair) -> None:
    pass


async def half_a_report(stream: ByteStream, cluster: Pair) -> None:
    await stream.send_all(b"\0\0\0")


@pytest.mark.parametrize(
    "hostile", [garbage, negative, huge, end_and_then_more, backwards, all_at_once, nothing, half_a_report]
)
async def test_a_hostile_peer_ends_its_own_connection(
    hostile: Callable[[ByteStream, Pair], Awaitable[None]], autojump_clock: MockClock
) -> None:
    async with pair(broker_role="SYNC_MASTER") as cluster:
        await trio.sleep(5)
        await sends_go_on(cluster)
        stream = await dial(cluster)
        try:
            await hostile(stream, cluster)
        except trio.BrokenResourceError:
            pass  # closed already
        await sends_go_on(cluster)
        assert await is_closed(stream)
        await sends_go_on(cluster)
        assert cluster.master.broker is not None
        assert len(cluster.master.broker.duties.feed.slaves) == 1
        assert cluster.master.broker.duties.feed.replicated.value == cluster.master.store.log.end
        cluster.same_log()


async def test_one_byte_a_second_is_not_progress(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER") as cluster:
        await trio.sleep(5)
        stream = await dial(cluster)
        with pytest.raises(trio.BrokenResourceError):
            for _ in range(60):
                await stream.send_all(b"\xff")
                await trio.sleep(1)
        stream = await dial(cluster)
        await stream.send_all(report(0))
        for byte in report(1 << 40) * 2:
            try:
                await stream.send_all(bytes([byte]))
            except trio.BrokenResourceError:
                break
            await sends_go_on(cluster, 1)
            await trio.sleep(1)
        assert await is_closed(stream)


async def test_forged_acknowledgements_confirm_nothing(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER", slaves=0) as cluster:
        await trio.sleep(5)
        assert (await cluster.master.send("T")).code == 11
        end = cluster.master.store.log.end
        stream = await dial(cluster)
        await stream.send_all(report(end))
        await trio.sleep(0.1)
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                answers: list[int] = []

                async def send() -> None:
                    answers.append((await cluster.master.send("T")).code)

                nursery.start_soon(send)
                nursery.start_soon(stream.send_all, report(end + 1_000_000))
        assert answers in ([], [11], [12])
        assert (await cluster.master.send("T")).code == 11
        assert cluster.master.broker is not None
        assert cluster.master.broker.duties.feed.replicated.value <= end


async def test_a_slave_that_never_acknowledges_is_dropped_soon(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER", slaves=0) as cluster:
        await trio.sleep(5)
        stream = await dial(cluster)
        await stream.send_all(report(0))
        await trio.sleep(0.1)
        assert (await cluster.master.send("T")).code == 12
        before = trio.current_time()
        assert await is_closed(stream)
        assert trio.current_time() - before < 2 * STALLED_SECONDS
        assert (await cluster.master.send("T")).code == 11


async def test_idle_connections_do_not_keep_slaves_out(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER") as cluster:
        await trio.sleep(5)
        await sends_go_on(cluster)
        held = [await dial(cluster) for _ in range(2 * MAX_CONNECTIONS)]
        await cluster.start("slave-2")
        await sends_go_on(cluster)
        await cluster.caught_up()
        cluster.same_log()
        assert len(held) == 2 * MAX_CONNECTIONS


async def test_only_allowed_slaves_are_served(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER", ha_allowed="10.1.0.0/24") as cluster:
        await trio.sleep(5)
        await sends_go_on(cluster)
        assert await is_closed(await dial(cluster), 0.5)
        await sends_go_on(cluster)


BYTES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda offset, size, data: SLICE.pack(offset, size) + data,
            st.one_of(st.integers(0, 300), st.integers(-(1 << 63), HUGE)),
            st.one_of(st.integers(0, 60), st.integers(-(1 << 31), (1 << 31) - 1)),
            st.binary(max_size=60),
        ),
    ),
    max_size=8,
)


@settings(max_examples=examples(5))
@given(BYTES)
def test_a_hostile_master_leaves_nothing_at_a_slave(chunks: list[bytes]) -> None:
    async def play() -> None:
        async with pair(slaves=0) as cluster:
            listener = await cluster.network.of_host(STRANGER).listen(STRANGER, 10912)
            slave = await cluster.start("slave-1", ha_master_address=f"{STRANGER}:10912")
            with trio.move_on_after(6):
                while True:
                    stream = await listener.accept()
                    try:
                        for chunk in chunks:
                            await stream.send_all(chunk)
                    except trio.BrokenResourceError:
                        pass
                    await trio.sleep(1)
                    await stream.aclose()
            assert slave.store.refusal  # still a slave, still running
            await cluster.stop("slave-1")
            await cluster.master.send("T", b"of the real one")
            await cluster.start("slave-1")
            await cluster.caught_up()
            cluster.same_log()

    trio.run(play, clock=MockClock(autojump_threshold=0))
