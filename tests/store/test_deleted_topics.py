"""Recoveries after topics were deleted: by a kill or a power cut at any moment of a deletion, and after it."""

from __future__ import annotations

from random import Random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.store.deleted_topics import read_deleted_topics
from rocketlet.store.layout.file_names import TOMBSTONES
from rocketlet.store.memory_disk import MemoryDisk, MemoryRegion
from rocketlet.store.message_store import MessageStore
from rocketlet.store.recovery import RecoveryReport
from tests.support.properties import examples
from tests.support.store_model import ROOT, StoreModel, message, small_config


class Deletions(StoreModel):
    """A model whose topics can be deleted, as the broker does it: dropped, noted, and then the files."""

    def __init__(self) -> None:
        super().__init__(small_config(), page_size=64)
        self.noted: dict[str, int] = {}

    def delete(self, topic: str, files: int = 1 << 30) -> None:
        """Delete a topic, but of its queues' files only those of so many queues, or its folders."""
        self.store.settle()
        self.run(self.store.flush)
        self.store.drop_topic(topic)
        self.kept = [one for one in self.kept if one.put.topic != topic]
        self.durable = len(self.kept)
        self.noted[topic] = self.store.log.end
        self.note(self.noted)
        for _ in range(files):
            if not self.store.queues.dropped.take(1):
                break
            self.store.queues.dropped.delete()

    def note(self, ends: dict[str, int]) -> None:
        gone = ",".join(f'[{number},"topic","{topic}",{end}]' for number, (topic, end) in enumerate(ends.items()))
        self.disk.write_file(f"{ROOT}/{TOMBSTONES}", b'{"next":9,"gone":[%s]}' % gone.encode())

    def save(self) -> None:
        """A progress point, with all flushed before it."""
        self.store.settle()
        self.run(self.store.flush)
        self.run(self.store._thorough.save)
        self.note_flushed()

    def reopen(self) -> RecoveryReport:
        """After a kill; the invariants of the model hold."""
        self.note_flushed()
        self.kill()
        self.store = self._new()
        self.report = self.run(self.store.open)
        self.compare()
        return self.report

    def compare(self) -> None:
        """Each queue has the messages since its topic was deleted for the last time, and no other queue is there."""
        end = self.store.log.end
        assert len([one for one in self.kept if one.at.end <= end]) >= self.durable
        self.kept = [one for one in self.kept if one.at.end <= end]
        self.durable = len(self.kept)
        self._check_queues()

    def files_of(self, topic: str) -> list[str]:
        return [path for path in self.disk.files() if f"/consumequeue/{topic}/" in path]


def model_of(count: int) -> Deletions:
    """Messages in three queues each of topics T and U; a progress point knows of the first half."""
    model = Deletions()
    for number in range(count):
        model.put(message("TU"[number % 2], number % 3, b"message %d" % number))
        if number == count // 2:
            model.save()
    model.store.settle()
    return model


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of files that were made."""
    paths: list[str] = []
    create = MemoryDisk.create

    def noting(disk: MemoryDisk, path: str, size: int) -> MemoryRegion:
        paths.append(path)
        return create(disk, path, size)

    monkeypatch.setattr(MemoryDisk, "create", noting)
    return paths


@pytest.mark.parametrize("files", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("is_saved", [True, False])
def test_after_a_kill_a_deleted_topic_costs_no_walk_and_no_files(files: int, is_saved: bool, made: list[str]) -> None:
    """Of 20,000 queues all files were made again, to be deleted again: 57 s. They were missing where the progress point
    listed them, and so the whole log was read first."""
    model = model_of(24)
    if is_saved:
        model.save()
    progress = model.disk.read_file(f"{ROOT}/rocketlet/progress.json")
    model.delete("T", files)
    made.clear()
    report = model.reopen()
    assert report.walked_from > 0
    assert not report.changed
    assert not [path for path in made if "/T/" in path]
    assert model.disk.read_file(f"{ROOT}/rocketlet/progress.json") != progress
    model.run(model.store.remove_dropped)
    assert not model.files_of("T")
    assert model.store.queues.topics() == {"U"}


@pytest.mark.parametrize("messages", [1, 2, 9])
@pytest.mark.parametrize("is_saved", [True, False])
def test_a_topic_made_again_starts_at_zero_also_where_the_progress_point_is_of_before(
    messages: int, is_saved: bool
) -> None:
    model = model_of(24)
    if is_saved:
        model.save()
    model.delete("T", 1)
    for number in range(messages):
        model.put(message("T", 1, b"new %d" % number))
    model.store.settle()
    report = model.reopen()
    assert report.walked_from > 0
    assert model.store.queue_end("T", 1) == messages


def test_the_whole_store_is_read_where_a_queue_goes_on_that_was_said_to_be_deleted() -> None:
    """A replica may have noted a deletion that the others have not: its log was set back, and the topic lives on."""
    model = model_of(24)
    model.save()
    for number in range(3):
        model.put(message("T", 0, b"later %d" % number))
    model.store.settle()
    model.note({"T": model.kept[-1].at.log_offset})
    model.kill()
    for path in model.files_of("T"):
        model.disk.remove(path)
    model.store = model._new()
    model.report = model.run(model.store.open)
    assert model.report.walked_from == 0
    queue = model.store.queue("T", 0)
    assert queue is not None
    assert (queue.begin, queue.end) == (0, 7)
    assert [offset for offset in range(7) if queue.entry(offset) is None] == []


def test_files_that_a_power_cut_brings_back_are_no_change() -> None:
    model = model_of(24)
    back = {path: model.disk.files()[path] for path in model.files_of("T")}
    model.delete("T")
    model.put(message("U", 0, b"x"))
    model.save()
    for path, content in back.items():
        model.disk.put_file(path, content)
    report = model.reopen()
    assert not report.changed
    assert report.gone == {"T": 3}
    model.run(model.store.remove_dropped)
    assert not model.files_of("T")


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_queue_whose_messages_are_gone_from_the_log_keeps_its_offsets(is_saved: bool) -> None:
    """It was made again after the deletion."""
    model = model_of(6)
    model.delete("T")
    for number in range(3):
        model.put(message("T", 0, b"new %d" % number))
    while model.store.log.end < 5 * 2048:
        model.put(message("U", 0, b"x" * 1000))
    model.save()
    while model.retain():
        pass
    assert model.store.log.begin > 2048
    model.kill()
    if not is_saved:
        model.disk.remove(f"{ROOT}/rocketlet/progress.json")
    model.store = model._new()
    model.run(model.store.open)
    queue = model.store.queue("T", 0)
    assert queue is not None
    assert queue.begin == queue.end == queue.next_offset == 3


@pytest.mark.parametrize(
    ("file", "spare"),
    [(b'{"gone":[[1,"topic","T",5],[2,"group","G",0]]}', None), (b"{", b'{"gone":[[1,"topic","T",5]]}')],
)
def test_the_notes_are_read(file: bytes, spare: bytes | None) -> None:
    disk = MemoryDisk()
    disk.put_file(f"{ROOT}/{TOMBSTONES}", file)
    if spare is not None:
        disk.put_file(f"{ROOT}/{TOMBSTONES}.bak", spare)
    deleted = read_deleted_topics(disk, ROOT)
    assert "T" in deleted
    assert "G" not in deleted
    assert [deleted.since("T", at) for at in (4, 5, 6)] == [True, True, False]
    assert [deleted.before("T", at) for at in (4, 5, 6)] == [False, True, True]
    assert not deleted.since("U", 0)
    assert not deleted.before("U", 9)


@pytest.mark.parametrize("file", [b"", b"[]", b'{"gone":[[1]]}', b'{"gone":[[1,"topic","T","x"]]}', b'{"gone":7}'])
def test_notes_that_make_no_sense_are_none(file: bytes) -> None:
    disk = MemoryDisk()
    disk.put_file(f"{ROOT}/{TOMBSTONES}", file)
    assert "T" not in read_deleted_topics(disk, ROOT)


async def test_what_a_kill_left_of_a_deleted_topic_is_deleted_while_the_store_is_used(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk(page_size=64)
    store = MessageStore(disk, small_config(), lambda: 0, on_progress=lambda _: None)
    await store.open()
    for queue_id in range(5):
        store.put(message("T", queue_id, b"x"))
    store.settle()
    store.drop_topic("T")
    disk = disk.copy()
    disk.write_file(f"{ROOT}/{TOMBSTONES}", b'{"gone":[[1,"topic","T",%d]]}' % store.log.end)
    again = MessageStore(disk, small_config(), lambda: 0, on_progress=lambda _: None)
    await again.open()
    assert [path for path in disk.files() if "/T/" in path]
    assert again.report.gone == {"T": 5}
    async with trio.open_nursery() as nursery:
        await nursery.start(again.run)
        await wait_all_tasks_blocked()
        assert not [path for path in disk.files() if "/T/" in path]
        nursery.cancel_scope.cancel()
    await again.close()


queues = st.tuples(st.sampled_from("TUV"), st.integers(0, 1))
steps = st.one_of(
    st.tuples(st.just("put"), queues),
    st.tuples(st.just("put"), queues),
    st.tuples(st.just("delete"), st.tuples(st.sampled_from("TUV"), st.integers(0, 4))),
    st.tuples(st.just("save"), st.none()),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("cut"), st.integers(0, 1 << 16)),
    st.tuples(st.just("close"), st.none()),
)


@given(st.lists(steps, max_size=40))
@settings(max_examples=examples(60))
def test_any_sequence(sequence: list[tuple[str, object]]) -> None:
    model = Deletions()
    for step, what in sequence:
        match step, what:
            case "put", (str(topic), int(queue_id)):
                model.put(message(topic, queue_id, b"x" * 30))
            case "delete", (str(topic), int(files)):
                model.delete(topic, files)
            case "save", _:
                model.save()
            case "kill", _:
                model.store.settle()
                model.reopen()
            case "cut", int(seed):
                model.store.settle()
                model.run(model.store.flush)  # otherwise a deletion may be noted for a place that the log lost
                model.crash(Random(seed))
                model.reopen()
            case "close", _:
                model.close()
                model.reopen()
        model.store.settle()
    model.reopen()
