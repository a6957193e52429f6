"""Settings of a running name server: what may change, what may not, and where a change is saved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio.testing

from rocketlet.common.config_file import Loaded, load, read_file
from rocketlet.common.settings import SettingsError
from rocketlet.namesrv.config import NamesrvConfig, with_config_store_path
from rocketlet.namesrv.durable_file import DurableFile
from rocketlet.namesrv.run_time_settings import RunTimeSettings
from rocketlet.remoting.changeable_settings import Forbidden
from rocketlet.remoting.handler import Refused

CONF = "# ours\nlistenPort = 19876\n\norderMessageEnable=false  \n! the end\n"


def started(tmp_path: Path, text: str = CONF) -> RunTimeSettings:
    path = tmp_path / "namesrv.conf"
    path.write_text(text)
    loaded = with_config_store_path(load(NamesrvConfig, file=read_file(path), environment={"HOME": "/home/x"}))
    return RunTimeSettings(loaded, DurableFile(loaded[NamesrvConfig].config_store_path))


async def test_a_change_is_applied_saved_and_read_at_the_next_start(tmp_path: Path) -> None:
    settings = started(tmp_path)
    assert settings.namesrv.order_message_enable is False
    assert await settings.update({"orderMessageEnable": "true"}) == {"orderMessageEnable": "true"}
    assert await settings.update({"orderMessageEnable": "true"}) == {}
    assert settings.namesrv.order_message_enable is True
    assert "orderMessageEnable=true\n" in settings.properties()
    text = (tmp_path / "namesrv.conf").read_text()
    assert text == "# ours\nlistenPort = 19876\n\norderMessageEnable=true\n! the end\n"
    assert started(tmp_path, text).namesrv.order_message_enable is True


async def test_changes_are_saved_to_the_file_of_c(tmp_path: Path) -> None:
    settings = started(tmp_path, "configStorePath=/elsewhere\n")
    assert settings.namesrv.config_store_path == str(tmp_path / "namesrv.conf")


async def test_without_c_a_change_goes_to_config_store_path(tmp_path: Path) -> None:
    loaded: Loaded = with_config_store_path(
        load(NamesrvConfig, flags={"configStorePath": f"{tmp_path}/new/namesrv.properties"})
    )
    settings = RunTimeSettings(loaded, DurableFile(loaded[NamesrvConfig].config_store_path))
    await settings.update({"orderMessageEnable": "true"})
    assert (tmp_path / "new/namesrv.properties").read_text() == "orderMessageEnable=true\n"


@pytest.mark.parametrize(
    "key", ["kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"], ids=lambda key: key
)
async def test_paths_and_the_black_list_itself_cannot_be_changed(tmp_path: Path, key: str) -> None:
    settings = started(tmp_path)
    same = dict(line.split("=", 1) for line in settings.properties().splitlines())[key]
    for value in (same, "/tmp/elsewhere"):
        with pytest.raises(Forbidden, match=key):
            await settings.update({"orderMessageEnable": "true", key: value})
    assert settings.namesrv.order_message_enable is False


async def test_an_empty_black_list_still_protects_paths(tmp_path: Path) -> None:
    settings = started(tmp_path, "configBlackList=\n")
    with pytest.raises(Forbidden):
        await settings.update({"kvConfigPath": "/tmp/x"})


async def test_settings_read_only_at_start_are_refused_with_advice(tmp_path: Path) -> None:
    settings = started(tmp_path)
    with pytest.raises(SettingsError, match=r"listenPort.*restart"):
        await settings.update({"orderMessageEnable": "true", "listenPort": "1"})
    assert settings.namesrv.order_message_enable is False
    assert (tmp_path / "namesrv.conf").read_text() == CONF
    await settings.update({"listenPort": "19876", "clusterTest": "false"})  # its present value


async def test_bad_values_and_unknown_keys_are_refused(tmp_path: Path) -> None:
    settings = started(tmp_path)
    with pytest.raises(SettingsError, match="true or false"):
        await settings.update({"orderMessageEnable": "yes"})
    with pytest.raises(SettingsError, match="did you mean orderMessageEnable"):
        await settings.update({"orderMessagesEnable": "true"})


async def test_unserved_rocketmq_keys_are_refused_by_name(tmp_path: Path) -> None:
    settings = started(tmp_path)
    with pytest.raises(SettingsError, match="serverWorkerThreads is not served: there are no thread pools"):
        await settings.update({"serverWorkerThreads": "16", "orderMessageEnable": "true"})
    assert (tmp_path / "namesrv.conf").read_text() == CONF


async def test_a_change_that_cannot_be_saved_is_not_applied(tmp_path: Path) -> None:
    settings = started(tmp_path)
    (tmp_path / "namesrv.conf").unlink()
    (tmp_path / "namesrv.conf").mkdir()
    with pytest.raises(OSError, match=r"namesrv\.conf"):
        await settings.update({"orderMessageEnable": "true"})
    assert settings.namesrv.order_message_enable is False


async def test_others_run_between_the_audit_logs_reading_of_a_change_and_its_own(tmp_path: Path) -> None:
    """Both are of 16,000 lines at most: 12 ms each."""
    connection = SimpleNamespace(peer="10.0.0.1:40000")
    unreadable: Any = SimpleNamespace(connection=connection, body=b"=\n" * 10 + b"a=\\u12")
    with trio.testing.assert_checkpoints(), pytest.raises(Refused, match="four hex digits"):
        await started(tmp_path).update_by(unreadable)


async def test_java_shows_the_same_keys(tmp_path: Path, vectors: Path) -> None:
    shown = {line.partition("=")[0] for line in started(tmp_path).properties().splitlines()}
    written = (vectors / "config/namesrv-defaults.properties").read_text()
    java = {line.partition("=")[0] for line in written.splitlines() if "=" in line and not line.startswith("#")}
    of_the_name_server = {
        "rocketmqHome",
        "kvConfigPath",
        "configStorePath",
        "productEnvName",
        "clusterTest",
        "orderMessageEnable",
        "configBlackList",
        "listenPort",
    }
    assert of_the_name_server <= java & shown


async def test_the_defaults_are_javas(vectors: Path) -> None:
    lines = (vectors / "config/namesrv-defaults.properties").read_text().splitlines()
    java = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    config = NamesrvConfig()
    assert config.listen_port == int(java["listenPort"])
    assert config.product_env_name == java["productEnvName"]
    assert (config.cluster_test, config.order_message_enable) == (False, False)
    assert ";".join(config.config_black_list) == java["configBlackList"]
