"""Sources of settings, their precedence, and the messages about unknown keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketlet.common import java_properties, rocketmq_keys
from rocketlet.common.config_file import ConfigFile, Loaded, load, read_file
from rocketlet.common.settings import SettingsError, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Settings of a server."""

    listen_port: int = setting(9876, "Port to listen on.", minimum=0, maximum=65535, important=True)
    namesrv_addr: tuple[str, ...] = setting((), "Name servers.", env="NAMESRV_ADDR", default_note="none")
    rocketmq_home: str = setting("", "Home.", env="ROCKETMQ_HOME", path=True)
    water_mark: int = setting(0, "Bytes.", key="writeBufferHighWaterMark", unit="bytes")
    old: int = setting(1, "Old.", key="warmMapedFileEnable", old_keys=["warmMappedFileEnable"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Settings of a store.

    With more to say than the first line.
    """

    root: str = setting("~/store", "Where files are.", key="storePathRootDir", path=True)
    water_mark: int = setting(0, "Bytes.", key="writeBufferHighWaterMark", updatable=True)
    ratio: int = setting(75, "Percent.", updatable=True)

    def __post_init__(self) -> None:
        if self.ratio == 13:
            raise SettingsError("ratio: not 13, please")


def file(text: str) -> ConfigFile:
    return ConfigFile("broker.conf", java_properties.parse(text))


def refused(text: str = "", **sources: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as caught:
        load(Server, Store, file=file(text), **sources)
    return str(caught.value)


def test_flag_beats_environment_beats_file_beats_default() -> None:
    text = "listenPort=1"
    environment = {"ROCKETLET_LISTEN_PORT": "2"}
    flags = {"listenPort": "3"}
    found = [
        load(Server),
        load(Server, file=file(text)),
        load(Server, file=file(text), environment=environment),
        load(Server, file=file(text), environment=environment, flags=flags),
    ]
    assert [one[Server].listen_port for one in found] == [9876, 1, 2, 3]
    assert [one.origins["listenPort"] for one in found] == [
        "default",
        "broker.conf line 1",
        "environment ROCKETLET_LISTEN_PORT",
        "flag --listen-port",
    ]


def test_rocketmqs_variables_are_read_and_ours_win() -> None:
    loaded = load(Server, environment={"NAMESRV_ADDR": "a:1;b:2", "ROCKETMQ_HOME": "/opt/rocketmq"})
    assert loaded[Server].namesrv_addr == ("a:1", "b:2")
    assert loaded[Server].rocketmq_home == "/opt/rocketmq"
    both = load(Server, environment={"NAMESRV_ADDR": "a:1", "ROCKETLET_NAMESRV_ADDR": "c:3"})
    assert both[Server].namesrv_addr == ("c:3",)
    assert both.origins["namesrvAddr"] == "environment ROCKETLET_NAMESRV_ADDR"


def test_one_file_serves_several_dataclasses_even_with_a_common_key() -> None:
    loaded = load(Server, Store, file=file("ratio=80\nlistenPort=1\nwriteBufferHighWaterMark=7"))
    assert (loaded[Store].ratio, loaded[Server].listen_port) == (80, 1)
    assert (loaded[Store].water_mark, loaded[Server].water_mark) == (7, 7)
    with pytest.raises(KeyError):
        loaded[int]


def test_the_last_line_of_a_key_wins_in_either_spelling() -> None:
    assert load(Server, file=file("listenPort=1\nlistenPort=2")).origins["listenPort"] == "broker.conf line 2"
    loaded = load(Server, file=file("warmMapedFileEnable=2\nwarmMappedFileEnable=3"))
    assert loaded[Server].old == 3
    assert loaded.origins["warmMapedFileEnable"] == "broker.conf line 2"


def test_a_misspelt_key_is_refused_with_the_right_suggestion() -> None:
    assert refused("a=b\nlistnPort=1") == (
        "broker.conf line 1: unknown setting a; -p prints all that there are\n"
        "broker.conf line 2: unknown setting listnPort; did you mean listenPort?"
    )
    # Even an unserved RocketMQ key is suggested.
    assert refused("brokerNam=a") == "broker.conf line 1: unknown setting brokerNam; did you mean brokerName?"


def test_an_unserved_rocketmq_key_is_a_warning_that_names_it() -> None:
    loaded = load(Server, file=file("listenPort=1\nhighSpeedMode=true\nstoreType=x\nserverWorkerThreads=9"))
    assert loaded[Server].listen_port == 1
    assert [warning.partition(": ")[0] for warning in loaded.warnings] == [f"broker.conf line {n}" for n in (2, 3, 4)]
    assert "highSpeedMode is not served" in loaded.warnings[0]
    assert "only RocketMQ's files are served" in loaded.warnings[1]
    assert "no thread pools" in loaded.warnings[2]


def test_flags_follow_the_rules_of_the_file() -> None:
    assert refused(flags={"listnPort": "1"}) == "flags: unknown setting listnPort; did you mean listenPort?"
    loaded = load(Server, flags={"highSpeedMode": "true"})
    assert loaded.warnings[0].startswith("flags: setting highSpeedMode is not served")


def test_other_programs_variables_pass_and_misspelt_ones_are_warned_about() -> None:
    environment = {
        "ROCKETLET_BROKER_NAME": "a",
        "ROCKETLET_BROKER_IP1": "10.0.0.5",
        "ROCKETLET_LISTEN_PROT": "1",
        "PATH": "/bin",
    }
    assert load(Server, environment=environment).warnings == (
        "environment: unknown variable ROCKETLET_LISTEN_PROT; did you mean ROCKETLET_LISTEN_PORT?",
    )


def test_a_wrong_value_is_reported_with_its_place() -> None:
    assert refused("listenPort=high") == ("broker.conf line 1: listenPort=high: must be a whole number from 0 to 65535")
    assert refused(environment={"ROCKETLET_LISTEN_PORT": "-1"}).startswith("environment ROCKETLET_LISTEN_PORT: ")
    assert refused(flags={"listenPort": "x"}).startswith("flag --listen-port: ")
    assert refused("ratio=13") == "ratio: not 13, please"


def test_all_errors_are_reported_at_once() -> None:
    told = refused("listnPort=1\nratio=x\nstorePathRootDri=/x", environment={"ROCKETLET_LISTEN_PORT": "x"})
    assert len(told.splitlines()) == 4


def test_an_overridden_value_need_not_be_valid() -> None:
    assert load(Server, file=file("listenPort=x"), flags={"listenPort": "1"})[Server].listen_port == 1


def test_home_replaces_the_tilde_in_paths_only() -> None:
    loaded = load(Server, Store, environment={"HOME": "/home/me", "NAMESRV_ADDR": "~/x"})
    assert loaded[Store].root == "/home/me/store"
    assert loaded[Server].namesrv_addr == ("~/x",)
    assert load(Store, flags={"storePathRootDir": "/data"})[Store].root == "/data"
    assert load(Store)[Store].root == f"{Path.home()}/store"


def test_the_listing_shows_every_setting_with_its_origin() -> None:
    loaded = load(Server, Store, file=file("ratio=80"), environment={"HOME": "/h"})
    assert loaded.listing() == (
        "# Settings of a server.\n"
        "# [default] Port to listen on.\n"
        "listenPort=9876\n"
        "# [default] Name servers. Empty: none.\n"
        "namesrvAddr=\n"
        "# [default] Home.\n"
        "rocketmqHome=\n"
        "# [default] Bytes. Unit: bytes.\n"
        "writeBufferHighWaterMark=0\n"
        "# [default] Old.\n"
        "warmMapedFileEnable=1\n"
        "\n"
        "# Settings of a store.\n"
        "# [default] Where files are.\n"
        "storePathRootDir=/h/store\n"
        "# [default] Bytes.\n"
        "writeBufferHighWaterMark=0\n"
        "# [broker.conf line 1] Percent.\n"
        "ratio=80\n"
    )
    assert loaded.listing(important_only=True) == (
        "# Settings of a server.\n# [default] Port to listen on.\nlistenPort=9876\n"
    )


def test_the_listing_is_a_file_that_yields_the_same_settings() -> None:
    flags = {"storePathRootDir": "C:\\data\\é", "namesrvAddr": "a:1;b:2", "rocketmqHome": "~/x"}
    loaded = load(Server, Store, flags=flags, environment={"HOME": "/h"})
    assert load(Server, Store, file=file(loaded.listing())).configs == loaded.configs


def test_an_update_at_run_time_is_an_origin_too() -> None:
    loaded = load(Server, Store)
    updated = loaded.with_updates({"ratio": "60", "listenPort": "9876"})
    assert updated[Store].ratio == 60
    assert updated.origins["ratio"] == "changed at run time"
    assert updated.origins["listenPort"] == "default"
    with pytest.raises(SettingsError, match="not 13"):
        loaded.with_updates({"ratio": "13"})


def test_files_are_read_by_javas_rules(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"# comment\r\nstorePathRootDir = /data/\\\r\n   store\r\n")
    loaded = load(Store, file=read_file(path))
    assert loaded[Store].root == "/data/store"
    assert loaded.origins["storePathRootDir"] == f"{path} line 2"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing\.conf: No such file .*-c"):
        read_file(tmp_path / "missing.conf")
    with pytest.raises(SettingsError, match="Is a directory"):
        read_file(tmp_path)
    broken = tmp_path / "broken.conf"
    broken.write_text("a=\\u12")
    with pytest.raises(SettingsError, match=r"broken\.conf: line 1: "):
        read_file(broken)


@pytest.mark.parametrize(
    ("listing", "keys"),
    [
        ("namesrv-defaults", rocketmq_keys.NAME_SERVER | rocketmq_keys.REMOTING),
        ("broker-defaults", rocketmq_keys.BROKER | rocketmq_keys.STORE | rocketmq_keys.REMOTING),
        ("broker-important", rocketmq_keys.BROKER | rocketmq_keys.STORE),
    ],
)
def test_every_key_that_rocketmq_prints_is_known(vectors: Path, listing: str, keys: frozenset[str]) -> None:
    printed = java_properties.as_dict((vectors / f"config/{listing}.properties").read_text())
    assert set(printed) <= keys


def test_the_lists_hold_only_what_rocketmq_prints(vectors: Path) -> None:
    printed: set[str] = set()
    for listing in ("namesrv-defaults", "broker-defaults"):
        printed |= set(java_properties.as_dict((vectors / f"config/{listing}.properties").read_text()))
    known = rocketmq_keys.NAME_SERVER | rocketmq_keys.BROKER | rocketmq_keys.STORE | rocketmq_keys.REMOTING
    # What 4.9.8 reads but does not print: one has no getter, the other is printed by another name, which is not read.
    assert known - printed == {"brokerConfigPath", "enableBatchPush"}
    assert not known & rocketmq_keys.OTHER_VERSIONS
    assert set(rocketmq_keys.NOTES) <= rocketmq_keys.ALL


def test_loading_twice_gives_equal_values() -> None:
    first: Loaded = load(Server, Store)
    assert first == load(Server, Store)
