from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from rocketlet.store.dump import KINDS, UnknownKind, dump, kind_of, main
from rocketlet.store.layout.index_layout import IndexGeometry
from rocketlet.store.layout.queue_rules import LOST_MARK
from rocketlet.store.memory_disk import MemoryDisk
from rocketlet.store.real_disk import RealDisk
from tests.support.store_model import ROOT, StoreModel, message, small_config
from tests.support.stores import unpacked


def lines_of(path: Path | str, **more: object) -> list[str]:
    return list(dump(RealDisk(), str(path), **more))  # type: ignore[arg-type]


def test_a_log_file(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    lines = lines_of(tmp_path / "store/commitlog/00000000000000000000")
    assert lines[0] == "log file from offset 0, 65536 bytes"
    assert "TopicA:1 offset 0" in lines[2]
    assert "KEYS=order-1" in lines[2]
    assert "b'message 1 abcdefghijklmnopqrstuvwxyz0123456789'" in lines[2]
    assert "id 0A00000500002A9F00000000000000B9" in lines[2]
    assert lines[-2].endswith("blank, 320 bytes to the end of the file")
    assert lines[-1] == "193 records"
    last = lines_of(tmp_path / "store/commitlog/00000000000000196608")
    assert last[-2].endswith("nothing written from here")


def test_a_damaged_log_file(tmp_path: Path) -> None:
    unpacked("damaged/crash-magic", tmp_path)
    lines = lines_of(tmp_path / "store/commitlog/00000000000000131072")
    assert any("NO RECORD: no record magic, 318 bytes" in line for line in lines)
    assert lines[-1] == "15 records"
    unpacked("damaged/clean-body-bit", tmp_path / "other")
    lines = lines_of(tmp_path / "other/store/commitlog/00000000000000131072")
    assert sum("BODY DOES NOT MATCH ITS CRC" in line for line in lines) == 1


def test_queue_and_extension_files(tmp_path: Path) -> None:
    unpacked("slave", tmp_path)
    lines = lines_of(tmp_path / "store/consumequeue/TopicA/0/00000000000000002000")
    assert lines[0] == "queue file from offset 100, 24 of 50 entries"
    assert lines[1].endswith("pre-blank")
    assert lines[16].endswith("tags code -934813832")
    unpacked("ext", tmp_path / "ext")
    lines = lines_of(tmp_path / "ext/store/consumequeue/TopicS/0/00000000000000000000")
    assert lines[2].endswith("extension unit at 34")
    lines = lines_of(tmp_path / "ext/store/consumequeue_ext/TopicS/0/00000000000000000000")
    assert "tags code 2598919" in lines[1]
    assert lines[-1].endswith("end mark")
    unpacked("mixed", tmp_path / "mixed")
    lines = lines_of(tmp_path / "mixed/store/consumequeue/SCHEDULE_TOPIC_XXXX/0/00000000000000000000")
    assert "delivered 20" in lines[1]


def test_an_index_file(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    path = min((tmp_path / "store/index").iterdir())
    lines = lines_of(path, geometry=IndexGeometry(100, 400))
    assert lines[0].startswith("index file, 399 entries in 97 slots; log offsets 0 to 67808")
    assert len(lines) == 400
    assert "hash 1395899715" in lines[1]
    assert "does not have 5000000 slots" in lines_of(path)[1]


def test_small_files(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    assert "(1795006268535)" in lines_of(tmp_path / "store/checkpoint")[0]
    assert '"topicConfigTable"' in "\n".join(lines_of(tmp_path / "store/config/topics.json"))


def test_our_own_files() -> None:
    model = StoreModel(small_config(), page_size=64)
    for number in range(30):
        model.put(message("T", 0, b"%d" % number * 60))
    model.store.settle()
    model.run(model.store._log_flush.flush_once)
    model.run(model.store._seals.seal_all)
    model.close()
    disk = model.disk
    seal = next(path for path in disk.files() if "/seals/" in path)
    assert next(dump(disk, seal)).startswith("seal of the log file from offset 0, 2048 bytes")
    disk.put_file(seal, b"junk")
    assert list(dump(disk, seal)) == ["NO SEAL, or a damaged one"]
    assert any('"log_offset"' in line for line in dump(disk, f"{ROOT}/rocketlet/progress.json"))
    marks = f"{ROOT}/rocketlet/flushed"
    assert f"flushed up to {model.store.log.end}  CRC-32" in "\n".join(dump(disk, marks))
    disk.put_file(marks, b"junk")
    assert list(dump(disk, marks)) == ["NO FLUSH MARK, or damaged ones"]
    lost = message("T", 0, b"x")
    lost.prepared_offset = LOST_MARK
    model.open()
    model.put(lost)
    path = f"{ROOT}/commitlog/{model.store.log.files.files[-1].begin:020d}"
    assert any("LOST TO DAMAGE" in line for line in dump(disk, path))


def test_kinds_of_files() -> None:
    assert kind_of("/a/consumequeue/T/0/00000000000000000000") == "queue"
    assert kind_of("store/rocketlet/seals/00000000000000000000") == "seal"
    with pytest.raises(UnknownKind, match="--kind"):
        kind_of("/tmp/00000000000000000000")
    disk = MemoryDisk()
    disk.put_file("/tmp/00000000000000000000", bytes(200))
    for kind in KINDS:
        if kind != "json":
            assert list(dump(disk, "/tmp/00000000000000000000", kind))
    for kind in ("log", "checkpoint"):
        with pytest.raises(FileNotFoundError):
            list(dump(disk, "/tmp/nothing", kind))


def test_the_module_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked("clean", tmp_path)
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main([str(tmp_path / "store/checkpoint")]) == 0
    assert "log flushed up to" in out.getvalue()
    assert main([]) == 2
    assert main([str(tmp_path / "nothing.json")]) == 1
    assert "usage: python -m rocketlet.store.dump" in err.getvalue()
