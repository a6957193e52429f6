"""Parked pulls: woken by progress, answered at their timeout, dropped with their connection, answered once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.long_poll import LongPoll
from rocketlet.remoting.handler import Answer, Refused, Reply
from rocketlet.store.watermark import Watermark
from tests.support.memory_broker import memory_broker


@dataclass(frozen=True)
class FakeConnection:
    """Connections with one name are equal."""

    name: object

    def answer_together(self, answers: list[tuple[FakeRequest, Answer]]) -> None:
        for request, answer in answers:
            request.reply(answer)


class FakeRequest:
    """Records its answer."""

    def __init__(self, connection: object = "connection") -> None:
        self.connection = FakeConnection(connection)
        self.answers: list[Any] = []
        self.time: float | None = None
        self.received_at = trio.current_time()

    def reply(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.time = trio.current_time()


class Pull:
    """A pull of one queue: answers with the messages after its offset, once there are enough."""

    def __init__(self, poll: LongPoll, queue: Watermark, *, connection: object = "c", needs: int = 1) -> None:
        self.request = FakeRequest(connection)
        self.queue = queue
        self.offset = queue.value
        self.needs = needs
        self.tries: list[bool] = []
        poll.park(self.request, queue, self.offset + 1, 15_000, self.attempt)  # type: ignore[arg-type]

    def attempt(self, last: bool) -> Answer | int:
        self.tries.append(last)
        if last or self.queue.value >= self.offset + self.needs:
            return Reply(0 if self.queue.value > self.offset else 19)
        return self.queue.value + 1

    @property
    def code(self) -> int | None:
        return self.request.answers[0].code if self.request.answers else None


@asynccontextmanager
async def long_poll() -> Any:
    poll = LongPoll(Settings(BrokerConfig()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll.run)
        yield poll
        nursery.cancel_scope.cancel()


async def test_progress_wakes_the_pulls_of_its_queue(autojump_clock: trio.testing.MockClock) -> None:
    async with long_poll() as poll:
        one, other = Watermark(5), Watermark(0)
        pull, another = Pull(poll, one), Pull(poll, other)
        one.advance(6)
        assert pull.code is None  # the watermark only records it
        poll.drain()
        assert (pull.code, pull.tries) == (0, [False])
        assert another.code is None
        assert poll.statistics().parked == 1


async def test_the_timeout_answers(autojump_clock: trio.testing.MockClock) -> None:
    async with long_poll() as poll:
        pull = Pull(poll, Watermark(5))
        started = trio.current_time()
        await trio.sleep(14.9)
        later = Pull(poll, Watermark(0))
        assert pull.code is None
        await trio.sleep(0.2)
        assert (pull.code, pull.tries) == (19, [True])
        assert pull.request.time == pytest.approx(started + 15)
        assert later.code is None
        await trio.sleep(15)
        assert later.code == 19
        assert poll.statistics().parked == 0


async def test_a_longer_timeout_does_not_delay_a_shorter_one(autojump_clock: trio.testing.MockClock) -> None:
    async with long_poll() as poll:
        Pull(poll, Watermark(0))
        await trio.sleep(0.001)
        request = FakeRequest()
        started = trio.current_time()
        poll.park(request, Watermark(0), 1, 50, lambda last: Reply(19))  # type: ignore[arg-type]
        await trio.sleep(1)
        assert request.time == pytest.approx(started + 0.05)


async def test_undrained_progress_is_noticed_soon(autojump_clock: trio.testing.MockClock) -> None:
    async with long_poll() as poll:
        queue = Watermark(0)
        pull = Pull(poll, queue)
        queue.advance(1)
        await trio.sleep(1.1)
        assert pull.code == 0


async def test_a_pull_whose_filter_matches_nothing_parks_again(autojump_clock: trio.testing.MockClock) -> None:
    async with long_poll() as poll:
        queue = Watermark(0)
        pull = Pull(poll, queue, needs=3)
        for end in (1, 2):
            queue.advance(end)
            poll.drain()
            assert pull.code is None
        queue.advance(3)
        poll.drain()
        assert (pull.code, pull.tries) == (0, [False] * 3)


async def test_pulls_of_a_closed_connection_are_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    async with long_poll() as poll:
        queue = Watermark(0)
        gone, stays = Pull(poll, queue, connection="gone"), Pull(poll, queue, connection="stays")
        poll.dropped(FakeConnection("gone"))
        poll.dropped(FakeConnection("unknown"))
        queue.advance(1)
        poll.drain()
        await trio.sleep(20)
        assert gone.code is None
        assert gone.tries == []
        assert stays.code == 0
        assert queue.statistics().waiting == 0


async def test_a_failed_attempt_is_answered(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(last: bool) -> Answer:
        raise Refused(17, "no topic any more")

    def crash(last: bool) -> Answer:
        raise ZeroDivisionError

    async with long_poll() as poll:
        queue = Watermark(0)
        refused, crashed = FakeRequest(), FakeRequest()
        poll.park(refused, queue, 1, 100_000, refuse)  # type: ignore[arg-type]
        poll.park(crashed, queue, 1, 100_000, crash)  # type: ignore[arg-type]
        queue.advance(1)
        poll.drain()
    assert (refused.answers[0].code, refused.answers[0].remark) == (17, "no topic any more")
    assert crashed.answers[0].code == 1
    assert "ZeroDivisionError" in caplog.text


async def test_all_pulls_are_answered_at_shutdown(autojump_clock: trio.testing.MockClock) -> None:
    async with long_poll() as poll:
        pulls = [Pull(poll, Watermark(0), connection=n) for n in range(3)]
        poll.answer_all()
        assert [pull.code for pull in pulls] == [19] * 3
        assert poll.statistics().parked == 0


def steps() -> Iterator[str]:
    yield from ("park", "advance", "drain", "drop", "sleep")


@given(st.lists(st.tuples(st.sampled_from(list(steps())), st.integers(0, 2)), max_size=40))
def test_each_pull_is_answered_once_or_dropped(script: list[tuple[str, int]]) -> None:
    """Whatever happens in any order, after its timeout each pull has one answer, or none if its peer left."""

    async def main() -> None:
        async with long_poll() as poll:
            queues = [Watermark(0) for _ in range(3)]
            pulls: list[Pull] = []
            dropped: set[int] = set()
            for step, n in script:
                if step == "park":
                    pulls.append(Pull(poll, queues[n], connection=n, needs=n + 1))
                elif step == "advance":
                    queues[n].advance(queues[n].value + 1)
                elif step == "drain":
                    poll.drain()
                elif step == "drop":
                    dropped |= {id(pull) for pull in pulls if pull.request.connection.name == n and pull.code is None}
                    poll.dropped(FakeConnection(n))
                else:
                    await trio.sleep(n * 4)
            await trio.sleep(16)
            for pull in pulls:
                assert len(pull.request.answers) == (0 if id(pull) in dropped else 1)
            assert poll.statistics().parked == 0
            assert all(queue.statistics().waiting == 0 for queue in queues)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_pulls_waiting_for_one_offset_are_woken_together(autojump_clock: MockClock) -> None:
    async with long_poll() as poll:
        queue = Watermark(5)
        pulls = [Pull(poll, queue) for _ in range(1000)]
        assert queue.statistics().waiting == 1
        poll.dropped(pulls[0].request.connection)
        assert queue.statistics().waiting == 0
        stays, leaves = Pull(poll, queue, connection="stays"), Pull(poll, queue, connection="leaves")
        queue.advance(6)
        poll.dropped(leaves.request.connection)
        poll.drain()
        assert (stays.code, leaves.code) == (0, None)
        assert poll.statistics().parked == 0


async def test_a_broker_that_has_ended_is_freed_although_pulls_were_parked(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        ended = weakref.ref(one.broker.store)
        with trio.move_on_after(1):
            await one.pull("T", 0, 1, sysFlag=6, suspendTimeoutMillis=15_000)
        assert one.broker.parts.long_poll.statistics().parked == 1
    del one
    await trio.sleep(1)
    gc.collect()
    assert ended() is None
