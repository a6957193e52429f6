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
    with pytest.raises(KeyError):
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
