"""KV configuration: visible values are on disk, the file is read back, and damage is reported or repaired."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import trio
import trio.testing

from rocketlet.namesrv import kv_config
from rocketlet.namesrv.durable_file import DurableFile, RealFiles
from rocketlet.namesrv.kv_config import KvConfig, KvConfigFull, KvFileDamaged
from rocketlet.namesrv.memory_files import MemoryFiles


def opened(files: MemoryFiles) -> KvConfig:
    config = KvConfig(DurableFile("kv.json", files))
    config.load()
    return config


async def test_put_get_list_delete_and_read_again() -> None:
    files = MemoryFiles()
    config = opened(files)
    assert config.get("NS1", "k") is None
    assert config.namespace("NS1") is None
    await config.put("NS1", "k", "first")
    await config.put("NS1", "ключ", "wért=✓;x")
    await config.put("NS1", "k", "v")
    await config.delete("NS1", "no such")
    await config.delete("no such", "k")
    assert json.loads(files.files["kv.json"]) == {"configTable": {"NS1": {"k": "v", "ключ": "wért=✓;x"}}}
    assert opened(files).namespace("NS1") == {"k": "v", "ключ": "wért=✓;x"}
    await config.delete("NS1", "k")
    await config.delete("NS1", "ключ")
    assert config.namespace("NS1") == {}
    assert opened(files).namespace("NS1") == {}


async def test_a_java_name_servers_file_is_read(vectors: Path) -> None:
    config = KvConfig(DurableFile(str(vectors / "config/namesrv/kvConfig.json"), RealFiles()))
    config.load()
    assert config.namespace("ORDER_TOPIC_CONFIG") == {"TopicO": "broker-a:4", "AdmOrder": "broker-a:8"}
    assert config.get("NS1", "ключ") == "wért=✓;x"
    assert config.namespace("NSadm") == {}


async def test_the_file_equals_javas(vectors: Path) -> None:
    written = (vectors / "config/namesrv/kvConfig.json").read_bytes()
    files = MemoryFiles({"kv.json": written})
    config = opened(files)
    await config.put("NSadm", "k", "v")
    await config.delete("NSadm", "k")
    assert files.files["kv.json"] == written
    assert files.files["kv.json.bak"] == (vectors / "config/namesrv/kvConfig.json.bak").read_bytes()


async def test_a_failed_write_changes_nothing() -> None:
    files = MemoryFiles()
    config = opened(files)
    await config.put("NS", "k", "old")
    changes = config.changes
    files.fails = True
    with pytest.raises(OSError, match="No space"):
        await config.put("NS", "k", "new")
    with pytest.raises(OSError, match="No space"):
        await config.delete("NS", "k")
    assert (config.get("NS", "k"), config.changes) == ("old", changes)
    files.fails = False
    await config.put("NS", "k", "new")
    assert config.get("NS", "k") == "new"


async def test_a_table_that_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "MAX_BYTES", 100)
    config = opened(MemoryFiles())
    await config.put("NS", "k", "x" * 20)
    with pytest.raises(KvConfigFull, match="MAX_BYTES"):
        await config.put("NS", "k2", "x" * 100)
    assert config.namespace("NS") == {"k": "x" * 20}


async def test_a_table_of_too_many_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketlet.namesrv.kv_config.MAX_KEYS", 4)
    kv = KvConfig(DurableFile("kv", MemoryFiles()))
    for key in ("a", "b", "c"):
        await kv.put("N", key, "1")
    for namespace, key in (("N", "d"), ("M", "a")):
        with pytest.raises(KvConfigFull, match="4 keys and namespaces, the limit is 4"):
            await kv.put(namespace, key, "1")
    await kv.put("N", "a", "2")
    await kv.delete("N", "b")
    await kv.put("N", "d", "1")
    assert kv.namespace("N") == {"a": "2", "c": "1", "d": "1"}


async def test_concurrent_changes_all_take_effect(tmp_path: Path) -> None:
    """On real files, where each write waits in a thread while others arrive."""
    config = KvConfig(DurableFile(str(tmp_path / "kv.json")))
    config.load()
    async with trio.open_nursery() as nursery:
        for i in range(20):
            nursery.start_soon(config.put, "NS", f"k{i}", str(i))
    again = KvConfig(DurableFile(str(tmp_path / "kv.json")))
    again.load()
    assert again.namespace("NS") == {f"k{i}": str(i) for i in range(20)} == config.namespace("NS")


async def test_an_untouched_table_is_not_written() -> None:
    files = MemoryFiles()
    await opened(files).delete("NS", "k")
    assert files.writes == 0


@pytest.mark.parametrize("content", [b"", b'{"configTable":{"NS":{"k"', b"[]", b'{"configTable":{"NS":5}}', b"\0" * 64])
async def test_a_damaged_file_is_restored_from_its_backup(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles({"kv.json": content, "kv.json.bak": b'{"configTable":{"NS":{"k":"older"}}}'})
    assert opened(files).get("NS", "k") == "older"
    assert "one change older" in caplog.text


@pytest.mark.parametrize("backup", [None, b"", b"{"])
async def test_a_damaged_file_without_a_backup_fails_the_start(backup: bytes | None) -> None:
    files = MemoryFiles({"kv.json": b"\0\0"} | ({} if backup is None else {"kv.json.bak": backup}))
    with pytest.raises(KvFileDamaged, match=r"kv\.json: .* move it away"):
        opened(files)


async def test_a_damaged_backup_alone_does_not_fail_the_start(caplog: pytest.LogCaptureFixture) -> None:
    assert opened(MemoryFiles({"kv.json.bak": b"{"})).namespace("NS") is None
    assert "without KV configuration" in caplog.text


async def test_values_other_than_text_become_text() -> None:
    config = opened(MemoryFiles({"kv.json": b'{"configTable":{"NS":{"n":5,"b":true,"o":{"a":1},"z":null}}}'}))
    assert config.namespace("NS") == {"n": "5", "b": "true", "o": '{"a":1}'}


async def test_the_table_is_logged_every_ten_minutes(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = opened(MemoryFiles())
    await config.put("NS", "k", "v")
    with trio.move_on_after(60 + 3 * 600 - 1):
        await config.print_periodically()
    assert caplog.text.count("kv config of namespace NS: k = v") == 3
