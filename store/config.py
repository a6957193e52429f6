"""Settings of the store, by RocketMQ's keys and with its defaults.

Ours, and not RocketMQ's: `diskFreeFloor` and `diskFreeEnough` beside the ratios (nine tenths of a terabyte used leaves
a hundred gigabytes, and Java refuses sends there), `sealEnable`, `recoverStepBytes`.

What fixes the layout of files that exist already (their sizes, slots and entries) must stay as it was when they were
made, on both sides of a takeover.

Java: store/config/MessageStoreConfig.java
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocketlet.common.settings import LONG_MAX, SettingsError, setting
from rocketlet.store.layout.consume_queue_entry import file_size_for
from rocketlet.store.layout.queue_rules import DEFAULT_DELAY_LEVELS, parse_delay_levels


class FlushDiskType(StrEnum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(StrEnum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of the store."""

    # Where
    store_path_root_dir: str = setting(
        "~/store", "Directory of all that the broker stores.", path=True, important=True, default_note="~/store"
    )
    store_path_commit_log: str = setting(
        "", "Directory of the log.", path=True, important=True, default_note="storePathRootDir/commitlog"
    )
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER, "Master or slave; a slave takes no sends.", important=True
    )

    # Layout of the files
    mapped_file_size_commit_log: int = setting(
        1 << 30, "Size of a log file.", unit="bytes", minimum=1024, maximum=1 << 31
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000, "Size of a queue file, rounded up to whole entries of 20.", unit="bytes", minimum=20, maximum=1 << 31
    )
    enable_consume_queue_ext: bool = setting(False, "Keep filter bit maps beside the queues.")
    mapped_file_size_consume_queue_ext: int = setting(
        48 << 20, "Size of a queue's extension file.", unit="bytes", minimum=256, maximum=1 << 31
    )
    message_index_enable: bool = setting(True, "File messages under their keys.")
    max_hash_slot_num: int = setting(5_000_000, "Hash slots of an index file.", minimum=1)
    max_index_num: int = setting(20_000_000, "Entries of an index file.", minimum=2)
    message_index_safe: bool = setting(False, "Accepted for compatibility: here a recovery always completes the index.")

    # Flushing
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH, "Whether a send is answered before or after its flush.", important=True
    )
    flush_interval_commit_log: int = setting(
        500, "How often the log is flushed (ASYNC_FLUSH).", unit="ms", minimum=1, updatable=True
    )
    flush_commit_log_least_pages: int = setting(
        4, "Fewer dirty pages of 4 KiB wait for the thorough interval.", minimum=0, updatable=True
    )
    flush_commit_log_thorough_interval: int = setting(
        10_000, "How often all dirty pages of the log are flushed.", unit="ms", minimum=1, updatable=True
    )
    flush_interval_consume_queue: int = setting(
        1000, "How often queues are flushed.", unit="ms", minimum=1, updatable=True
    )
    flush_consume_queue_least_pages: int = setting(
        2, "A queue with fewer dirty pages waits for the thorough interval.", minimum=0, updatable=True
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000, "How often queues, index and checkpoint are flushed completely.", unit="ms", minimum=1, updatable=True
    )
    sync_flush_timeout: int = setting(
        5000, "How long a send waits for its flush.", unit="ms", minimum=1, updatable=True
    )
    recover_step_bytes: int = setting(
        256 << 20,
        "How much of the log is read after a crash, at most.",
        unit="bytes",
        minimum=4096,
        maximum=LONG_MAX,
    )
    check_crc_on_recover: bool = setting(True, "Recovery verifies the checksum of each body.", key="checkCRCOnRecover")
    seal_enable: bool = setting(True, "Checksum each full log file into rocketlet/seals.")

    # Limits of a message
    max_message_size: int = setting(4 << 20, "Longest body.", unit="bytes", minimum=1, maximum=1 << 30, updatable=True)

    # Reading
    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144, "Bytes of one pull of recent messages.", minimum=1, updatable=True
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32, "Messages of one pull of recent messages.", minimum=1, updatable=True
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536, "Bytes of one pull of old messages.", minimum=1, updatable=True
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8, "Messages of one pull of old messages.", minimum=1, updatable=True
    )
    access_message_in_memory_max_ratio: int = setting(
        40, "Messages are recent within this share of the RAM.", unit="percent", minimum=0, maximum=100, updatable=True
    )
    max_msgs_num_batch: int = setting(64, "Messages found by one query of a key.", minimum=1, updatable=True)

    # Retention
    file_reserved_time: int = setting(72, "Files older than this are deleted.", unit="hours", minimum=0, updatable=True)
    delete_when: tuple[str, ...] = setting(("04",), "Hours of the day at which old files are deleted.", updatable=True)
    disk_max_used_space_ratio: int = setting(
        75, "Above it old files are deleted at any hour.", unit="percent", minimum=1, maximum=100, updatable=True
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85,
        "Above it the oldest files are deleted whatever their age.",
        unit="percent",
        minimum=1,
        maximum=100,
        updatable=True,
    )
    disk_space_warning_level_ratio: int = setting(
        90, "Above it sends are refused.", unit="percent", minimum=1, maximum=100, updatable=True
    )
    disk_free_floor: int = setting(
        128 << 20,
        "With less free than this sends are refused.",
        unit="bytes",
        minimum=0,
        maximum=LONG_MAX,
        updatable=True,
    )
    disk_free_enough: int = setting(
        20 << 30,
        "With this much free the ratios neither delete nor refuse, below it step by step; 0: they always do.",
        unit="bytes",
        minimum=0,
        maximum=LONG_MAX,
        updatable=True,
    )
    clean_file_forcibly_enable: bool = setting(True, "Whether files may be deleted before their time.", updatable=True)
    clean_resource_interval: int = setting(10_000, "How often retention checks.", unit="ms", minimum=1, updatable=True)

    # Delayed messages
    message_delay_level: str = setting(DEFAULT_DELAY_LEVELS, "The delays of levels 1, 2, ...; s, m, h or d.")

    def __post_init__(self) -> None:
        parse_delay_levels(self.message_delay_level)
        for hour in self.delete_when:
            if not (hour.isascii() and hour.isdigit() and int(hour) < 24):
                raise SettingsError(f"deleteWhen={hour}: must be hours of the day, 00 to 23, separated by ;")
        if "," in self.store_path_commit_log:
            raise SettingsError(
                f"storePathCommitLog={self.store_path_commit_log}: a log over several directories is not served;"
                " give one directory"
            )

    @property
    def commit_log_path(self) -> str:
        return self.store_path_commit_log or f"{self.store_path_root_dir}/commitlog"

    @property
    def queue_file_size(self) -> int:
        return file_size_for(self.mapped_file_size_consume_queue)

    @property
    def is_sync_flush(self) -> bool:
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def delay_level_count(self) -> int:
        return len(parse_delay_levels(self.message_delay_level))
