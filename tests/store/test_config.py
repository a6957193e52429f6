from __future__ import annotations

from pathlib import Path

import pytest

from rocketlet.common import java_properties
from rocketlet.common.config_file import load
from rocketlet.common.rocketmq_keys import ALL
from rocketlet.common.settings import SettingsError, settings_of
from rocketlet.store.config import BrokerRole, FlushDiskType, StoreConfig
from rocketlet.store.layout.queue_rules import parse_delay_levels

OURS = {"diskFreeFloor", "diskFreeEnough", "sealEnable", "recoverStepBytes"}


def test_keys_and_defaults_are_rocketmqs(vectors: Path) -> None:
    text = (vectors / "config/broker-defaults.properties").read_text()
    java = {entry.key: entry.value for entry in java_properties.parse(text)}
    for setting in settings_of(StoreConfig):
        if setting.key in OURS:
            continue
        assert setting.key in ALL, setting.key
        if java.get(setting.key):  # what names a path of one machine is empty there
            assert setting.format(setting.default) == java[setting.key], setting.key


def test_a_brokers_configuration_file_is_read() -> None:
    given = {"flushDiskType": "SYNC_FLUSH", "brokerRole": "SLAVE", "deleteWhen": "04;16", "storePathRootDir": "/data"}
    config = load(StoreConfig, flags=given)[StoreConfig]
    assert config.is_sync_flush
    assert (config.flush_disk_type, config.broker_role) == (FlushDiskType.SYNC_FLUSH, BrokerRole.SLAVE)
    assert (config.delete_when, config.commit_log_path) == (("04", "16"), "/data/commitlog")


def test_queue_files_hold_whole_entries() -> None:
    assert StoreConfig(mapped_file_size_consume_queue=1001).queue_file_size == 1020


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == (1000, 300_000, 7_200_000, 86_400_000)
    assert len(parse_delay_levels(StoreConfig().message_delay_level)) == 18


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"message_delay_level": "1s later"}, "later is no delay"),
        ({"message_delay_level": " "}, "at least one level"),
        ({"delete_when": ("25",)}, "hours of the day"),
        ({"store_path_commit_log": "/a,/b"}, "several directories"),
    ],
)
def test_nonsensical_settings_are_reported(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        StoreConfig(**settings)  # type: ignore[arg-type]
