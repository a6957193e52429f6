"""kill -9 of a real process in the middle of its appends, again and again on one directory: every acknowledged message
is found by its offset and its key, and queues and index agree with the log."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from rocketlet.store.check import check
from rocketlet.store.message_store import MessageStore
from rocketlet.store.real_disk import RealDisk
from tests.support.appending import appending, config_of
from tests.support.records import decode_all

pytestmark = pytest.mark.process

AGAIN = 100  # messages of a queue that are read again, although they were found after an earlier kill


def run_and_kill(directory: Path, flush: str, first: int, after: int) -> list[tuple[int, int, int]]:
    """Let it append until that many bytes of acknowledgements arrived, then kill it. Returns the acknowledged
    messages."""
    with appending(str(directory), flush, first) as (process, lines):
        said = b""
        while len(said) < after and (more := lines.read(after - len(said))):
            said += more
        process.kill()
        said += lines.readall()
    assert process.exitcode == -signal.SIGKILL, said[-300:]
    whole = said[: said.rfind(b"\n") + 1]
    return [tuple(map(int, line.split())) for line in whole.splitlines()]  # type: ignore[misc]


class Looking:
    """One directory, whose store is opened after each kill and compared with what was acknowledged."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        self._directory = directory
        self._random = random
        self._seen: dict[int, int] = {}  # queue → the offset up to which all was found before

    async def look(self, flush: str, *, whole: bool) -> int:
        """Open the store, compare it, and end it; returns the first number that was never used.

        Unless `whole`, only the last messages of former lives are read again, and a part of the keys looked up: all of
        them each time would take most of the test.
        """
        store = MessageStore(RealDisk(), config_of(str(self._directory), flush), lambda: 0, on_progress=lambda _: None)
        report = await store.open()
        assert not report.was_clean
        assert not report.losses
        found: dict[tuple[int, int], int] = {}
        begins: dict[int, int] = {}
        for queue in store.queues:
            seen = 0 if whole else self._seen.get(queue.queue_id, 0)
            begins[queue.queue_id] = offset = max(queue.begin, seen - AGAIN)
            while (result := await store.load(store.get("T", queue.queue_id, offset, 32))).count:
                for record in decode_all(result.body()):
                    number = int(record.properties.partition(b"\x02")[0].partition(b"\x01k")[2])
                    assert record.body == b"%d " % number * (number % 50)
                    found[record.queue_id, record.queue_offset] = number
                offset = result.next_offset
            assert offset >= seen, "what was there before the kill is gone"
            self._seen[queue.queue_id] = offset
        wanted = {
            (queue_id, offset): number
            for (queue_id, offset), number in self.acknowledged.items()
            if offset >= begins.get(queue_id, 0)
        }
        assert {place: found.get(place) for place in wanted} == wanted
        numbers = list(self.acknowledged.values())
        for number in [*numbers[-400::10], *self._random.sample(numbers, min(40, len(numbers)))]:
            assert len(store.find_by_key("T", f"k{number}", 32, 0, 1 << 62).records) >= 1
        assert store._lock is not None
        store._lock.release()  # and nothing else of a close: like a second kill right after the recovery
        return max(found.values(), default=-1) + 1


async def kill_again_and_again(directory: Path, times: int, seed: int) -> None:
    random = Random(seed)
    looking = Looking(directory, Random(seed))
    acknowledged = looking.acknowledged
    first = 0
    for life in range(1, times + 1):
        flush = random.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
        for number, queue_id, offset in run_and_kill(directory, flush, first, random.randrange(1, 20_000)):
            assert acknowledged.setdefault((queue_id, offset), number) == number, "an offset was assigned twice"
        first = await looking.look(flush, whole=life % 5 == 0)
    report = check(RealDisk(), config_of(str(directory), "SYNC_FLUSH"), lambda _: None)
    assert report.is_sound, report.lines()
    assert report.records >= len(acknowledged) > 0


async def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    await kill_again_and_again(tmp_path / "store", 5, 1)


@pytest.mark.slow
async def test_a_process_killed_a_hundred_times_loses_nothing(tmp_path: Path) -> None:
    for seed in range(5):
        await kill_again_and_again(tmp_path / f"store{seed}", 20, seed)
