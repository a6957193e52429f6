"""Sends served together are stored and answered as if each had been served alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.broker.durability import Durability, Shortfall, Then
from rocketlet.broker.handlers import send_together
from rocketlet.broker.handlers.send_together import _REST, SendTogether
from rocketlet.remoting.command import Command, HeaderType
from rocketlet.remoting.connection import GATHER_SECONDS
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.handler import FEW
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.remoting.signing import Signer
from rocketlet.store.errors import FlushFailed
from tests.broker.test_sending import create_topic, stuck_disk
from tests.support.memory_broker import RunningBroker, memory_broker
from tests.support.memory_folder import MemoryFolder, account, accounts
from tests.support.properties import examples
from tests.support.raw_client import RawClient

GUARDED: dict[str, Any] = {
    "acl_enable": True,
    "accounts": MemoryFolder(
        accounts(
            account("operator", admin=True),
            account("webshop", topics=("T=PUB",)),
            account("stranger", topics=("U=PUB",)),
        )
    ),
}
WEBSHOP = Signer("webshop", "correct-horse")
QUEUES = 4  # of a topic that a first send creates
JSON, BINARY = HeaderType.JSON, HeaderType.ROCKETMQ


def a_send(
    number: int,
    kind: HeaderType = BINARY,
    body: bytes = b"body",
    tail: str = "",
    signer: Signer | None = None,
    **changes: str,
) -> bytes:
    ext = {
        "a": "PG", "b": "T", "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES), "f": "0",
        "g": str(1_700_000_000_000 + number), "h": "3", "i": f"UNIQ_KEY\x01{number:08X}\x02TAGS\x01A{tail}",
        "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    command = Command(310, 100 + number, ext=ext | changes, body=body, header_type=kind)
    if signer is not None:
        signer.before("", command)
    return encode(command)


async def opened(one: RunningBroker, signer: Signer | None = None) -> RawClient:
    """A connection; every queue of the topic has a message."""
    client = RawClient(await one.network.dial(one.bound))
    for queue_id in range(QUEUES):
        assert (await client.ask(a_send(0, e=str(queue_id), tail="\x02WAIT\x01false", signer=signer))).code == 0
    return client


async def answers(client: RawClient, frames: Sequence[bytes]) -> list[Command]:
    await client.send(*frames)
    return [await client.receive() for _ in frames]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many sends were served together, each time. After a stall, as a busy machine has them, none would be."""
    counts: list[int] = []
    serve = SendTogether.serve

    def counting(self: SendTogether, *args: Any) -> Any:
        served = serve(self, *args)
        counts.append(served.count if served else 0)
        return served

    with monkeypatch.context() as patched:
        patched.setattr(SendTogether, "serve", counting)
        patched.setattr("rocketlet.broker.overload.LONG_PASS_SECONDS", math.inf)
        yield counts


def in_progress_of(one: RunningBroker) -> int:
    """How many sends are in progress."""
    return one.broker.parts.servers["main"].statistics().in_flight["send"]


def outcome(one: RunningBroker) -> tuple[Any, ...]:
    """What is stored and counted."""
    store, statistics = one.broker.store, one.broker.statistics
    store.settle()
    store._dispatch.enter_keys()
    files = {path: data for path, data in one.disk.files().items() if "/config/" not in path}
    flows = [statistics.put_flow("T", queue_id) for queue_id in range(QUEUES)]
    totals = [(flow.calls, flow.messages, flow.bytes) for flow in (*flows, statistics.put)]
    return files, totals, statistics.put_failed, store.statistics().puts, store.dispatched.value


async def both(
    frames: Sequence[bytes], *, changed: dict[str, Any] | None = None, signer: Signer | None = None
) -> list[Command]:
    """The answers, after the same frames went to a broker that serves sends together and to one that does not."""
    outcomes = []
    for together in (True, False):
        with pytest.MonkeyPatch.context() as patched:
            if not together:
                patched.setattr(SendTogether, "serve", lambda *_: None)
            async with memory_broker(**(changed or {})) as one:
                client = await opened(one, signer)
                received = await answers(client, frames)  # of new topics in any order
                assert in_progress_of(one) == 0
                outcomes.append((sorted(received, key=lambda answer: answer.opaque), outcome(one)))
    assert outcomes[0] == outcomes[1]
    return outcomes[0][0]


def in_virtual_time(frames: Sequence[bytes]) -> None:
    trio.run(both, frames, clock=MockClock(autojump_threshold=0))


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "body": st.sampled_from([b"", b"x" * 300, b"x" * 70_000]),
        "tail": st.sampled_from([
            "\x02WAIT\x01true", "\x02WAIT\x01false", "\x02KEYS\x01k1 k2",
            "\x02KEYS\x01k1xk2", "\x02DELAY\x011", "\x02CLUSTER\x01other",
            "\x02KEYS\x01\u00fc", "\x02", "\x02p\x01\x00", "\x02TIMER_DELAY_SEC\x011",
        ]),
        "e": st.sampled_from(["0", "3", "4", "9", "-1"]),
        "f": st.sampled_from(["4", "8", "12", "48"]),
        "b": st.sampled_from(["U", "T", "a b"]),
        "m": st.sampled_from(["true", "false"]),
    },
)  # fmt: skip


@settings(max_examples=examples(20))
@given(st.sampled_from([JSON, BINARY]), st.lists(st.tuples(CHANGES, st.integers(1, 3 * FEW)), min_size=1, max_size=4))
def test_together_is_as_alone(kind: HeaderType, stretches: list[tuple[dict[str, Any], int]]) -> None:
    """Each stretch is of sends that are like each other."""
    frames: list[bytes] = []
    for changes, count in stretches:
        frames += [a_send(number, kind, **changes) for number in range(len(frames), len(frames) + count)]
    in_virtual_time(frames)


@settings(max_examples=examples(20))
@given(st.sampled_from([JSON, BINARY]), st.lists(CHANGES, min_size=FEW, max_size=3 * FEW))
def test_a_tangle_is_as_alone(kind: HeaderType, each: list[dict[str, Any]]) -> None:
    in_virtual_time([a_send(number, kind, **changes) for number, changes in enumerate(each)])


@pytest.mark.parametrize("kind", [JSON, BINARY])
async def test_a_producers_sends_are_served_together(
    autojump_clock: MockClock, kind: HeaderType, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [a_send(number, kind, b"x" * (number % 7), "\x02WAIT\x01true") for number in range(100)]
    with counted(monkeypatch) as counts:
        received = await both(frames)
    assert {answer.code for answer in received} == {0}
    assert sum(counts) >= 90


async def test_a_connection_whose_sends_are_not_alike_is_tried_seldom(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    read = send_together.read_alike
    monkeypatch.setattr(send_together, "read_alike", lambda *args: tried.append(1) or read(*args))
    odd = [a_send(number, b="TU"[number % 2]) for number in range(3 * FEW)]
    alike = [a_send(number) for number in range(3 * FEW)]
    with counted(monkeypatch) as counts:
        async with memory_broker() as one:
            client = await opened(one)
            for _ in range(_REST + 1):
                await answers(client, odd)
            assert len(tried) == 1
            await answers(client, alike)
    assert counts == [0] * (_REST + 1) + [3 * FEW]


async def test_answers_come_in_the_order_of_requests(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        received = await answers(await opened(one), [a_send(number) for number in range(60)])
    assert [answer.opaque for answer in received] == list(range(100, 160))


async def test_sync_flush_answers_them_when_the_disk_has_them(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [a_send(number) for number in range(40)]
    with counted(monkeypatch) as counts:
        received = await both(frames, changed={"flush_disk_type": "SYNC_FLUSH"})
    assert {answer.code for answer in received} == {0}
    assert sum(counts) >= 32


async def test_each_is_told_whether_the_disk_has_it(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
        client = await opened(one)
        begin = one.broker.store.log.end

        def half(self: Durability, end: int, then: Then) -> None:
            then(Shortfall(ResponseCode.FLUSH_DISK_TIMEOUT, "late", begin + (end - begin) // 2))

        monkeypatch.setattr(Durability, "call", half)
        received = await answers(client, [a_send(number) for number in range(20)])
    assert [answer.code for answer in received] == [0] * 10 + [ResponseCode.FLUSH_DISK_TIMEOUT] * 10


async def test_a_queue_that_the_topic_has_no_more_is_refused(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        client = await opened(one)
        await create_topic(one, "T", readQueueNums=2, writeQueueNums=2)
        received = await answers(client, [a_send(number) for number in range(20)])
    assert [answer.code for answer in received] == [0, 0, ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR] * 5


async def test_without_a_slave_a_sync_master_tells_each(autojump_clock: MockClock) -> None:
    received = await both([a_send(number) for number in range(20)], changed={"broker_role": "SYNC_MASTER"})
    assert {answer.code for answer in received} == {ResponseCode.SLAVE_NOT_AVAILABLE}
    assert len({(answer.ext or {})["msgId"] for answer in received}) == 20


async def test_a_failed_flush_is_told_to_each_and_none_is_in_progress_after_it(autojump_clock: MockClock) -> None:
    received: list[Command] = []
    in_progress: list[int] = []
    with pytest.RaisesGroup(pytest.RaisesExc(FlushFailed, match="flush failed"), flatten_subgroups=True):
        async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
            client = await opened(one)
            one.disk.fail_next_flush = True
            received += await answers(client, [a_send(number) for number in range(20)])
            in_progress.append(in_progress_of(one))
    assert {answer.code for answer in received} == {ResponseCode.SYSTEM_ERROR}
    assert in_progress == [0]


async def test_more_of_a_peer_whose_sends_wait_is_read_when_they_are_answered_or_after_a_moment(
    autojump_clock: MockClock,
) -> None:
    async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
        client = await opened(one)
        began, before = trio.current_time(), one.broker.store.statistics().puts
        for first in (0, 20):
            await answers(client, [a_send(number) for number in range(first, first + 20)])
        assert trio.current_time() == began
        with stuck_disk(one):
            await client.send(*[a_send(number) for number in range(20)])
            await wait_all_tasks_blocked()
            await client.send(a_send(20))
            await wait_all_tasks_blocked()
            assert one.broker.store.statistics().puts - before == 60
            await trio.sleep(2 * GATHER_SECONDS)
            assert one.broker.store.statistics().puts - before == 61
        assert [(await client.receive()).opaque for _ in range(21)] == list(range(100, 121))


async def test_those_that_wait_are_in_progress_until_their_connection_closes(autojump_clock: MockClock) -> None:
    async with memory_broker(flush_disk_type="SYNC_FLUSH") as one:
        client = await opened(one)
        with stuck_disk(one):
            await client.send(*[a_send(number) for number in range(20)])
            await wait_all_tasks_blocked()
            assert in_progress_of(one) == 20
            await client.stream.aclose()
            await trio.sleep(2 * GATHER_SECONDS)
            assert in_progress_of(one) == 0


class TestSignedSends:
    """With access control, each request is checked before any is stored."""

    @pytest.mark.parametrize("kind", [JSON, BINARY])
    async def test_they_are_served_together(
        self, autojump_clock: MockClock, kind: HeaderType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frames = [a_send(number, kind, signer=WEBSHOP) for number in range(60)]
        with counted(monkeypatch) as counts:
            received = await both(frames, changed=GUARDED, signer=WEBSHOP)
        assert {answer.code for answer in received} == {0}
        assert sum(counts) >= 48

    @pytest.mark.parametrize("wrong", [0, FEW, 2 * FEW + 3])
    @pytest.mark.parametrize("kind", [JSON, BINARY])
    async def test_one_that_is_not_admitted_is_refused_and_no_other(
        self, autojump_clock: MockClock, kind: HeaderType, wrong: int
    ) -> None:
        right = [a_send(number, kind, signer=WEBSHOP) for number in range(3 * FEW)]
        for signer in (Signer("webshop", "wrong-secret"), Signer("stranger", "correct-horse")):
            frames = [*right]
            frames[wrong] = a_send(wrong, kind, signer=signer)
            received = await both(frames, changed=GUARDED, signer=WEBSHOP)
            refused = [answer.opaque - 100 for answer in received if answer.code]
            assert refused == [wrong]

    async def test_an_account_with_a_limit_has_each_counted_once(self, autojump_clock: MockClock) -> None:
        frames = [a_send(number, signer=WEBSHOP) for number in range(3 * FEW)]
        limited = GUARDED | {"requests_per_second_by_account": 2 * FEW}
        received = await both(frames, changed=limited, signer=WEBSHOP)
        assert {answer.code for answer in received} == {0, ResponseCode.SYSTEM_BUSY}
