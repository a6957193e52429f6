"""Transactions across restarts, in any order: the first end wins, and a committed message exists exactly once.

The model knows how each transaction ended, or that it is open. The broker may lose unflushed records in a power cut, so
after one the model reads the log, and expects that state from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.half_messages import EndRefused, half_of
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.message_record import decode
from rocketlet.common.topic import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TOPIC
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.message import Appended
from tests.support.virtual_time import START_MS
from tests.support.waiting_parts import OFFSETS, WaitingParts, waiting


@dataclass
class Transaction:
    """The model's view. `names`: every place under which its producer may know it."""

    body: bytes
    names: list[tuple[int, int]] = field(default_factory=list)
    ended: str = ""  # commit, roll_back or give_up


@dataclass
class Model:
    transactions: list[Transaction] = field(default_factory=list)
    disk: MemoryDisk = field(default_factory=lambda: MemoryDisk(page_size=256))
    born: int = 0

    def prepare(self, parts: WaitingParts) -> None:
        self.born += 1
        body = b"%d" % self.born
        half = parts.prepare("T", body, UNIQ_KEY=f"key-{self.born}" if self.born % 3 else "shared")
        self.transactions.append(Transaction(body, [(half.log_offset, half.queue_offset)]))

    def end(self, parts: WaitingParts, how: str, which: int, name: int) -> None:
        if not self.transactions:
            return
        transaction = self.transactions[which % len(self.transactions)]
        log_offset, offset = transaction.names[name % len(transaction.names)]
        try:
            getattr(parts, how)(Appended(log_offset, 0, offset, 0, 0))
        except EndRefused:
            assert transaction.ended, f"{transaction} is open, and could not be ended"
        else:
            assert not transaction.ended, f"{transaction} was ended twice"
            transaction.ended = how

    async def check(self, parts: WaitingParts) -> None:
        """A round of checks; the producers learn the places of the copies, and nobody answers yet."""
        await trio.sleep(7)
        asked = len(parts.producer.checks)
        await parts.check.check()
        for command in parts.producer.checks[asked:]:
            record = decode(command.body)
            self.of(record.body).names.append((record.log_offset, record.queue_offset))
        for record in parts.records(TRANS_CHECK_MAX_TOPIC):
            transaction = self.of(record.body)
            assert transaction.ended in ("", "give_up"), f"{transaction} was given up behind its end"
            transaction.ended = "give_up"

    def of(self, body: bytes) -> Transaction:
        return next(transaction for transaction in self.transactions if transaction.body == body)

    def compare(self, parts: WaitingParts) -> None:
        committed = [transaction.body for transaction in self.transactions if transaction.ended == "commit"]
        assert sorted(parts.bodies("T")) == sorted(committed)
        first_open = min(
            (transaction.names[-1][1] for transaction in self.transactions if not transaction.ended),
            default=parts.halves.end(),
        )
        assert parts.halves.next_open() == first_open

    def look(self, parts: WaitingParts) -> None:
        """Learn from the log what a power cut has left."""
        places: dict[bytes, list[tuple[int, int]]] = {}
        for record in parts.records(HALF_TOPIC):
            if half_of(record) is None:
                continue  # its body is intact, but the page of its properties was lost: no CRC covers those
            places.setdefault(bytes(record.body), []).append((record.log_offset, record.queue_offset))
        over = {int(body) for body in parts.bodies(OP_HALF_TOPIC)}
        for transaction in list(self.transactions):
            if transaction.body not in places:
                self.transactions.remove(transaction)
                continue
            transaction.names = places[transaction.body]
            if transaction.body in parts.bodies("T"):
                transaction.ended = "commit"
            elif transaction.body in parts.bodies(TRANS_CHECK_MAX_TOPIC):
                transaction.ended = "give_up"
            else:
                transaction.ended = "roll_back" if over & {offset for _, offset in transaction.names} else ""


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("prepare"), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["commit", "roll_back"]), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("check"), st.just(0), st.just(0)),
        st.tuples(st.sampled_from(["close", "kill", "power", "blackout", "save"]), st.integers(0, 20), st.just(0)),
    ),
    max_size=25,
)
Step = tuple[str, int, int]


async def live(model: Model, parts: WaitingParts, todo: list[Step]) -> None:
    """Take steps until one of them ends the process."""
    while todo:
        step, number, name = todo.pop(0)
        if step == "prepare":
            model.prepare(parts)
        elif step in ("commit", "roll_back"):
            model.end(parts, step, number, name)
        elif step == "check":
            await model.check(parts)
        elif step == "save":
            parts.save()
        else:
            model.compare(parts)
            if step == "power":
                await parts.store.flushed_to(parts.store.log.end)
            if step == "kill":
                model.disk = parts.disk.copy()
            elif step in ("power", "blackout"):
                model.disk = parts.disk.crash(Random(number))
            if step == "blackout":
                todo.insert(0, ("look", 0, 0))
            return
        if todo[:1] == [("look", 0, 0)]:
            todo.pop(0)


@given(STEPS)
def test_any_order_of_ends_checks_and_restarts(steps: list[Step]) -> None:
    async def run() -> None:
        model, clock = Model(), TrioWallClock(START_MS)
        todo: list[Step] = [*steps, ("close", 0, 0)]
        while todo:
            async with waiting(model.disk, clock, deliver=False) as parts:
                if todo[0][0] == "look":
                    todo.pop(0)
                    model.look(parts)
                model.compare(parts)
                await live(model, parts, todo)

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_killed_between_the_message_and_its_op(autojump_clock: trio.testing.MockClock) -> None:
    """The one gap in a commit: the message is in the log, its op entry is not."""
    disk, clock = MemoryDisk(), TrioWallClock(START_MS)
    killed: list[MemoryDisk] = []
    async with waiting(disk, clock) as parts:
        half, other = parts.prepare("T", b"x", DELAY="2"), parts.prepare("T", b"y")
        append, done = parts.store._writing._append, 0

        def append_and_die(*given: object) -> Appended:
            nonlocal done
            appended: Appended = append(*given)  # type: ignore[arg-type]
            done += 1
            if done in (1, 3):
                killed.append(disk.copy())
            return appended

        parts.store._writing._append = append_and_die  # type: ignore[method-assign, assignment]
        parts.commit(half)
        parts.commit(other)
    assert len(killed) == 2
    for left, committed in zip(killed, ([b"x"], [b"y", b"x"]), strict=True):
        async with waiting(left, clock) as parts:
            assert parts.bodies(OP_HALF_TOPIC) == [b"%d" % number for number in range(len(committed))]
            for again in (parts.commit, parts.roll_back):
                with pytest.raises(EndRefused):
                    again(half)
            await trio.sleep(10)
            await parts.check.check()
            assert parts.bodies("T") == committed
            assert len(parts.producer.checks) == 2 - len(committed)


async def test_lost_offsets_are_relearned(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk()
    async with waiting(disk) as parts:
        halves = [parts.prepare("T", b"%d" % number) for number in range(4)]
        parts.commit(halves[0])
        parts.roll_back(halves[2])
        await trio.sleep(7)
        await parts.check.check()
        assert parts.halves.next_open() == 4
    disk.remove(OFFSETS)
    async with waiting(disk) as parts:
        assert parts.halves.next_open() == 4
        assert parts.bodies("T") == [b"0"]
        for half in (halves[0], halves[2]):
            with pytest.raises(EndRefused):
                parts.commit(half)
        parts.commit(halves[1])
        assert parts.bodies("T") == [b"0", b"1"]


async def test_queues_left_by_java_are_taken_over(autojump_clock: trio.testing.MockClock) -> None:
    """Ops as RocketMQ writes them: late ones, several offsets in one entry (5.x), one for the first of two copies."""
    disk = MemoryDisk()
    async with waiting(disk) as parts:
        for number in range(5):
            parts.prepare("T", b"%d" % number, TRAN_PREPARED_QUEUE_OFFSET="1" if number == 4 else "77")
        parts.send(OP_HALF_TOPIC, b"0,3,", TAGS="d")
        parts.send(OP_HALF_TOPIC, b"1", TAGS="d")
        parts.send(OP_HALF_TOPIC, b"nonsense", TAGS="d")
    async with waiting(disk) as parts:
        assert [parts.halves.is_over(offset) for offset in range(5)] == [True, True, False, True, True]
        assert parts.halves.next_open() == 2
