from __future__ import annotations

from pathlib import Path

import pytest

from rocketlet.store.check import check
from rocketlet.store.config import StoreConfig
from rocketlet.store.consume_queue import ConsumeQueue
from rocketlet.store.errors import CorruptStore
from rocketlet.store.real_disk import RealDisk
from rocketlet.store.view import StoreView, open_store
from tests.support.stores import expected_of, files_of, store_of, unpacked


@pytest.mark.parametrize("case", ["clean", "retained", "slave", "ext"])
def test_a_java_store_in_arrays(case: str, tmp_path: Path) -> None:
    config = unpacked(case, tmp_path)
    before = files_of(config, "")
    expected = expected_of(case)
    view = StoreView(config.store_path_root_dir)
    names = {f"{topic}/{queue}" for topic, queues in view.topics().items() for queue in queues}
    assert names == set(expected["queues"])
    for name, queue_expected in expected["queues"].items():
        topic, _, queue_id = name.rpartition("/")
        array = view.queue(topic, int(queue_id)).to_numpy()
        first = queue_expected["min"] - queue_expected["firstUnit"]
        assert array.tolist() == [tuple(unit) for unit in queue_expected["units"][first:]]
        assert not array.flags.writeable
    heads = view.heads()
    assert heads["log_offset"].tolist() == [record["phy"] for record in expected["records"]]
    assert heads["queue_offset"].tolist() == [record["queueOffset"] for record in expected["records"]]
    assert files_of(config, "") == before


def test_messages(tmp_path: Path) -> None:
    config = unpacked("clean", tmp_path)
    view = StoreView(config.store_path_root_dir)
    found = view.messages("TopicA", 0, 3, 6)
    assert [record.queue_offset for record in found] == [3, 4, 5]
    assert len(view.messages("TopicA", 0)) == 120
    with pytest.raises(KeyError, match=r"topics\(\) lists all"):
        view.messages("Nobody", 0)


async def test_beside_a_running_store(tmp_path: Path) -> None:
    from tests.support.store_model import message

    config = unpacked("clean", tmp_path)
    store = store_of(config)
    await store.open()
    store.put(message("TopicA", 0, b"young"))
    store.settle()
    view = StoreView(config.store_path_root_dir)
    assert view.messages("TopicA", 0, 120)[0].body == b"young"
    await store.close()


@pytest.mark.parametrize(
    "damage", [bytes(20), b"\xff" * 20, (1 << 60).to_bytes(8, "big") + bytes([0, 0, 1, 0]) + bytes(8)]
)
@pytest.mark.parametrize("at", [0, 7])
def test_a_damaged_entry_is_named_and_no_other_is_left_out(
    damage: bytes, at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = unpacked("clean", tmp_path)
    whole = open_store(config.store_path_root_dir).queue("TopicA", 0).to_numpy().tolist()
    assert not caplog.records
    (path,) = _first_files(config, "TopicA", 0)
    with path.open("r+b") as file:
        file.seek(20 * at)
        file.write(damage)
    view = open_store(config.store_path_root_dir)
    queue = view.queue("TopicA", 0)
    rows = queue.to_numpy().tolist()
    assert (queue.begin, len(rows)) == (0, len(whole))
    assert [row for number, row in enumerate(rows) if number != at] == whole[:at] + whole[at + 1 :]
    assert f"1 entries of queue 0 of TopicA are damaged, the first at queue offset {at}" in caplog.text
    assert len(view.messages("TopicA", 0)) == len(whole) - 1


def test_a_damaged_entry_at_the_end_keeps_its_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = unpacked("clean", tmp_path)
    whole = open_store(config.store_path_root_dir).queue("TopicA", 0).to_numpy()
    files = Path(config.store_path_root_dir, "consumequeue/TopicA/0").iterdir()
    path = max(file for file in files if int(file.name) <= (len(whole) - 1) * 20)
    with path.open("r+b") as file:
        file.seek((len(whole) - 1) * 20 - int(path.name))
        file.write(b"\xff" * 20)
    view = open_store(config.store_path_root_dir)
    assert len(view.queue("TopicA", 0).to_numpy()) == len(whole)
    assert len(view.messages("TopicA", 0)) == len(whole) - 1
    assert f"the first at queue offset {len(whole) - 1}" in caplog.text


def test_a_damaged_entry_hides_nothing_after_retention(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = unpacked("retained", tmp_path)
    view = StoreView(config.store_path_root_dir)
    topic, queue_id, queue = next(
        (topic, queue_id, view.queue(topic, queue_id))
        for topic, queue_ids in view.topics().items()
        for queue_id in queue_ids
        if view.queue(topic, queue_id).end - view.queue(topic, queue_id).begin > 3
    )
    begin, end = queue.begin, queue.end
    for damaged in range(begin + 1, end - 1):
        path = next(
            Path(file.path) for file in queue.files.files if file.begin <= 20 * damaged < file.begin + file.size
        )
        before = path.read_bytes()
        at = 20 * damaged - int(path.name)
        path.write_bytes(before[:at] + bytes(20) + before[at + 20 :])
        caplog.clear()
        found = StoreView(config.store_path_root_dir).queue(topic, queue_id)
        assert (found.begin, found.end) == (begin, end)
        assert f"the first at queue offset {damaged}" in caplog.text
        path.write_bytes(before)


def test_damage_in_the_log_and_files_that_are_left_out_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = unpacked("clean", tmp_path)
    view = StoreView(config.store_path_root_dir)
    log = Path(view.log.files.files[0].path)
    third = int(view.heads()["log_offset"][2])
    with log.open("r+b") as file:
        file.seek(third)
        file.write(b"\xff" * 8)
    (path,) = _first_files(config, "TopicA", 1)
    with path.open("r+b") as file:
        file.truncate(40)
    view = StoreView(config.store_path_root_dir)
    assert f"{log} can be read to byte {third} only" in caplog.text
    assert f"{path} is left out (its length is wrong)" in caplog.text


def _first_files(config: StoreConfig, topic: str, queue_id: int) -> list[Path]:
    return sorted(Path(config.store_path_root_dir, "consumequeue", topic, str(queue_id)).iterdir())[:1]


def test_a_missing_store(tmp_path: Path) -> None:
    with pytest.raises(CorruptStore):
        StoreView(str(tmp_path))


def test_a_store_is_found_below_a_mixed_directory(tmp_path: Path) -> None:
    with pytest.raises(CorruptStore, match=r"no store there$"):
        open_store(tmp_path)
    for name in ("broker-a", "broker-b"):
        store = tmp_path / name
        (store / "commitlog").mkdir(parents=True)
        (store / "lock").touch()
        (tmp_path / "namesrv").mkdir(exist_ok=True)
        if name == "broker-a":
            assert open_store(tmp_path).topics() == {}
            with pytest.raises(CorruptStore, match=r"there is one in .*broker-a"):
                check(RealDisk(), StoreConfig(store_path_root_dir=str(tmp_path)))
    with pytest.raises(CorruptStore, match=r"choose one: .*broker-a, .*broker-b"):
        open_store(tmp_path)


def test_a_queue_as_a_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    queue = ConsumeQueue(RealDisk(), str(tmp_path / "q"), "T", 0, 400)
    for offset in range(25):
        queue.write(offset, offset * 100, 100, -offset)
    table = queue.to_arrow()
    assert table.column_names == ["log_offset", "size", "tags_code"]
    assert table.to_pydict()["tags_code"] == [-offset for offset in range(25)]
