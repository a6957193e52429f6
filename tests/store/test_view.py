from __future__ import annotations

from pathlib import Path

import pytest

from rocketlet.store.errors import CorruptStore
from rocketlet.store.view import StoreView
from tests.support.stores import expected_of, files_of, store_of, unpacked


@pytest.mark.parametrize("case", ["clean", "retained", "slave", "ext"])
def test_a_store_of_javas_in_arrays(case: str, tmp_path: Path) -> None:
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


def test_no_store_there(tmp_path: Path) -> None:
    with pytest.raises(CorruptStore):
        StoreView(str(tmp_path))
