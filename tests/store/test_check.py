"""Checks change nothing, find damage, and announce what a repair then does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from rocketlet.store.check import DAMAGE, NOTE, REPAIRABLE, CheckReport, check, repair
from rocketlet.store.config import StoreConfig
from rocketlet.store.errors import CorruptStore
from rocketlet.store.geometry import found_config
from rocketlet.store.layout import seal_layout
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.real_disk import RealDisk
from tests.support.store_model import ROOT, StoreModel, message, small_config
from tests.support.stores import CASES, DAMAGED, unpacked


def checked(path: Path) -> CheckReport:
    """As by the command: from the directory only."""
    return check(RealDisk(), StoreConfig(store_path_root_dir=str(path)), lambda _: None)


def fingerprint(path: Path) -> dict[str, tuple[str, int]]:
    return {
        str(one.relative_to(path)): (hashlib.sha256(one.read_bytes()).hexdigest(), one.stat().st_mtime_ns)
        for one in sorted(path.rglob("*"))
        if one.is_file()
    }


@pytest.mark.parametrize("case", CASES)
def test_javas_stores_are_intact(case: str, tmp_path: Path) -> None:
    config = unpacked(case, tmp_path)
    assert found_config(RealDisk(), StoreConfig(store_path_root_dir=config.store_path_root_dir)) == (
        StoreConfig(
            store_path_root_dir=config.store_path_root_dir,
            mapped_file_size_commit_log=config.mapped_file_size_commit_log,
            mapped_file_size_consume_queue=config.mapped_file_size_consume_queue,
            mapped_file_size_consume_queue_ext=config.mapped_file_size_consume_queue_ext,
            max_hash_slot_num=config.max_hash_slot_num,
            max_index_num=config.max_index_num,
        )
    )
    before = fingerprint(tmp_path)
    report = checked(tmp_path / "store")
    assert report.is_sound, report.lines()
    assert report.records > 0
    assert fingerprint(tmp_path) == before


SOUND = {  # what a broker's next start handles silently
    "clean-control", "clean-first-file-gone", "clean-no-checkpoint", "clean-with-abort", "clean-zero-last-file",
    "clean-foreign-file", "crash-control", "crash-garbage-tail", "crash-no-checkpoint",
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_found_and_repaired(case: str, tmp_path: Path) -> None:
    unpacked(f"damaged/{case}", tmp_path)
    store = tmp_path / "store"
    before = fingerprint(tmp_path)
    report = checked(store)
    assert fingerprint(tmp_path) == before
    assert report.is_sound is (case in SOUND), report.lines()
    repair(RealDisk(), StoreConfig(store_path_root_dir=str(store)), lambda _: None)
    after = checked(store)
    assert after.is_sound, after.lines()
    assert after.is_clean


def model_of(count: int) -> StoreModel:
    model = StoreModel(small_config(), page_size=512)
    for number in range(count):
        model.put(message("T", number % 3, b"x" * 100, (b"u%d" % number,)))
    model.store.settle()
    model.run(model.store._log_flush.flush_once)
    model.run(model.store._seals.seal_all)
    model.close()
    return model


def findings(model: StoreModel) -> list[tuple[str, str]]:
    before = model.disk.files()
    report = check(model.disk, small_config(), lambda _: None)
    assert model.disk.files() == before
    return [(finding.severity, finding.where) for finding in report.findings]


def test_our_store_is_intact() -> None:
    model = model_of(60)
    report = check(model.disk, small_config(), lambda _: None)
    assert report.is_sound, report.lines()
    assert (report.records, report.queues, report.index_entries) == (60, 3, 60)
    assert report.sealed_files >= 5
    assert report.lines()[-1].endswith("sound")
    assert json.loads(json.dumps(report.as_dict()))["sound"] is True


def test_a_changed_property_is_detected_only_by_the_seal() -> None:
    model = model_of(60)
    one = model.kept[5]
    path = f"{ROOT}/commitlog/{0:020d}"
    content = bytearray(model.disk.files()[path])
    content[one.at.end - 1] ^= 1  # the last letter of the unique key
    model.disk.put_file(path, bytes(content))
    found = findings(model)
    assert (DAMAGE, "seal") in found
    report = check(model.disk, small_config(), lambda _: None)
    assert any("not what they were when the file was sealed" in line for line in report.lines())


def test_a_damaged_record() -> None:
    model = model_of(60)
    path = f"{ROOT}/commitlog/{2048:020d}"
    content = bytearray(model.disk.files()[path])
    content[100:140] = b"?" * 40
    model.disk.put_file(path, bytes(content))
    assert {(DAMAGE, "log"), (DAMAGE, "seal"), (REPAIRABLE, "queue"), (REPAIRABLE, "index")} == set(findings(model))
    repair(model.disk, small_config(), lambda _: None)
    assert findings(model) == []


def test_a_damaged_seal() -> None:
    model = model_of(60)
    path = next(path for path in model.disk.files() if "/seals/" in path)
    model.disk.put_file(path, b"ROCKSEAL" + bytes(50))
    assert findings(model) == [(REPAIRABLE, "seal")]


def test_tables() -> None:
    model = model_of(10)
    model.disk.put_file(f"{ROOT}/config/topics.json", b"[1]")
    model.disk.put_file(f"{ROOT}/config/consumerOffset.json", b'{"offsetTable":{"T@group":{0:3,1:99}}}')
    model.disk.put_file(f"{ROOT}/config/delayOffset.json", b"{1:")
    model.disk.put_file(f"{ROOT}/config/delayOffset.json.bak", b'{"offsetTable":{1:3}}')
    assert sorted(findings(model)) == [(DAMAGE, "table"), (NOTE, "table"), (REPAIRABLE, "table")]


def test_a_deleted_topic_is_no_damage() -> None:
    model = model_of(10)
    end = model.store.log.end
    for path in list(model.disk.files()):
        if "/consumequeue/T/" in path or path.endswith("progress.json"):
            model.disk.remove(path)
    assert findings(model) == [(REPAIRABLE, "queue")] * 3
    model.disk.put_file(f"{ROOT}/rocketlet/tombstones.json", b'{"next":2,"gone":[[1,"topic","T",%d]]}' % end)
    assert findings(model) == [(NOTE, "queue")]
    model.disk.put_file(f"{ROOT}/rocketlet/tombstones.json", b'{"next":2,"gone":[[1,"topic","T",%d]]}' % (end - 1))
    assert sorted(findings(model)) == [(NOTE, "queue"), (REPAIRABLE, "queue")], "one was made again"
    model.disk.put_file(f"{ROOT}/rocketlet/tombstones.json", b'{"gone":[[1]]}')
    assert findings(model) == [(REPAIRABLE, "queue")] * 3


def test_a_topic_that_was_deleted_and_made_again_is_no_damage() -> None:
    model = StoreModel(small_config(), page_size=512)
    for count in (5, 2):
        for number in range(count):
            model.put(message("T", 0, b"x", (b"u%d" % number,)))
        model.store.settle()
        if count == 5:
            model.run(lambda: model.store.drop_where(lambda queue: queue.topic == "T"))
    model.close()
    assert findings(model) == []


def test_a_checkpoint_ahead_of_the_log() -> None:
    model = model_of(60)
    last = max(path for path in model.disk.files() if "/commitlog/" in path)
    model.disk.remove(last)
    found = findings(model)
    assert (DAMAGE, "log") in found
    assert (DAMAGE, "checkpoint") in found


def test_a_store_in_use_is_checked_but_not_repaired() -> None:
    model = model_of(10)
    model.store = model._new()
    model.run(model.store.open)
    report = check(model.disk, small_config(), lambda _: None)
    assert report.in_use
    assert report.findings[0].severity == NOTE
    from rocketlet.store.errors import StoreLocked

    with pytest.raises(StoreLocked):
        repair(model.disk, small_config(), lambda _: None)


def test_a_missing_store() -> None:
    with pytest.raises(CorruptStore, match="no store there"):
        check(MemoryDisk(), small_config(), lambda _: None)


def test_a_seal_of_a_deleted_file_is_ignored() -> None:
    model = model_of(10)
    seal = seal_layout.encode(seal_layout.Seal(1 << 30, 1, 1, (0,)))
    model.disk.put_file(f"{ROOT}/rocketlet/seals/{1 << 30:020d}", seal)
    assert findings(model) == []
