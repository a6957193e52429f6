"""`rocketlet store`: exit codes, text and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rocketlet.store.real_disk import RealDisk
from rocketlet.tools.store_commands import store
from tests.support.stores import unpacked


def call(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(store, [str(one) for one in arguments], input=answer, standalone_mode=False)


def test_an_intact_store(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    result = call("check", tmp_path / "store")
    assert result.return_value == 0
    assert "600 records, 6 queues, 1200 index entries" in result.output
    assert result.output.strip().endswith("sound")
    told = json.loads(call("check", tmp_path / "store", "--json").output)
    assert (told["sound"], told["records"], told["findings"]) == (True, 600, [])


def test_a_damaged_store_and_its_repair(tmp_path: Path) -> None:
    unpacked("damaged/clean-no-queues", tmp_path)
    directory = tmp_path / "store"
    result = call("check", directory)
    assert result.return_value == 3
    assert "repairable: queue: TopicA:0: 120 entries missing or wrong" in result.output
    assert not (directory / "rocketlet").exists()
    refused = call("check", directory, "--repair", answer="n\n")
    assert refused.exception is not None
    assert not (directory / "rocketlet").exists()
    repaired = call("check", directory, "--repair", answer="y\n")
    assert repaired.return_value == 0
    places = [repaired.output.index(words) for words in ("repairable: queue", "Repair it", "rebuilt")]
    assert places == sorted(places)  # first shown, then asked, then done
    assert call("check", directory).return_value == 0
    assert call("check", directory, "--repair").return_value == 0  # nothing to ask


def test_a_repair_for_machines(tmp_path: Path) -> None:
    unpacked("damaged/crash-one-queue-behind", tmp_path)
    told = json.loads(call("check", tmp_path / "store", "--repair", "--json").output)
    assert told["before"]["sound"] is False
    assert told["after"]["sound"] is True
    assert any("TopicA:1: 5 entries rebuilt" in line for line in told["repaired"])
    again = json.loads(call("check", tmp_path / "store", "--repair", "--json").output)
    assert again["repaired"] == []


def test_settings_are_read_from_a_brokers_file(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=broker-a\nmaxMessageSize=32768\n")
    assert call("check", tmp_path / "store", "--config", config).return_value == 0


def test_printing_files(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    log = tmp_path / "store/commitlog/00000000000000000000"
    assert call("dump", log).output.splitlines()[-1] == "193 records"
    index = min((tmp_path / "store/index").iterdir())
    assert len(call("dump", index).output.splitlines()) == 400  # slots and entries are found out
    elsewhere = tmp_path / "copied"
    elsewhere.write_bytes(index.read_bytes())
    told = call("dump", elsewhere, "--kind", "index", "--slots", 100, "--entries", 400)
    assert told.output == call("dump", index).output
    assert "--kind" in str(call("dump", elsewhere).exception)
    assert "is none of" in str(call("dump", elsewhere, "--kind", "nonsense").exception)


def test_a_store_is_emptied_for_a_new_seed(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    directory = tmp_path / "store"
    (directory / "rocketlet").mkdir(exist_ok=True)
    (directory / "rocketlet/role.json").write_text("{}")
    (directory / "rocketlet/progress.json").write_text("{}")
    log = (directory / "commitlog/00000000000000000000").read_bytes()
    assert call("reseed", directory, answer="n\n").exception is not None
    assert (directory / "commitlog").exists()
    result = call("reseed", directory, answer="y\n")
    assert result.return_value == 0, result.output
    assert sorted(one.name for one in directory.iterdir()) == ["lock", "rocketlet", "set-aside"]
    assert [one.name for one in (directory / "rocketlet").iterdir()] == ["role.json"]
    (aside,) = (directory / "set-aside").iterdir()
    assert (aside / "commitlog/00000000000000000000").read_bytes() == log
    assert (aside / "config").is_dir()
    assert "has no log" in call("reseed", directory).output
    unpacked("clean", tmp_path / "more")
    (tmp_path / "more/store/commitlog").rename(directory / "commitlog")
    assert call("reseed", directory, "--yes", "--delete").return_value == 0
    assert sorted(one.name for one in directory.iterdir()) == ["lock", "rocketlet"]


def test_a_store_that_is_open_is_not_emptied(tmp_path: Path) -> None:
    unpacked("clean", tmp_path)
    directory = tmp_path / "store"
    lock = RealDisk().lock(f"{directory}/lock")
    try:
        result = call("reseed", directory, "--yes")
        assert "stop the broker first" in str(result.exception)
        assert (directory / "commitlog").exists()
    finally:
        lock.release()


@pytest.mark.parametrize("command", ["check", "dump", "reseed"])
def test_missing_files(command: str, tmp_path: Path) -> None:
    assert call(command, tmp_path / "nothing").exception is not None
