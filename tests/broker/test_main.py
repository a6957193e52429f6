"""The command mqbroker: its output, its exit codes, and that it starts with a broker.conf from the field."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from rocketlet.broker.__main__ import main, start_up_line
from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.identity import Identity
from tests.support.programs import broker, program

pytestmark = pytest.mark.process


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_and_stops_on_request(tmp_path: Path, sent: signal.Signals) -> None:
    with broker(tmp_path) as (running, address):
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), timeout=60):
            running.process.send_signal(sent)
            assert running.ended() == 0
    assert not (tmp_path / "store/abort").exists()
    assert (tmp_path / "store/config/topics.json").exists()


def test_a_store_in_use_and_a_port_in_use_end_with_1(tmp_path: Path) -> None:
    with broker(tmp_path) as (_, address):
        with program("broker", "--listenPort", "0", "--storePathRootDir", str(tmp_path / "store")) as second:
            assert second.ended() == 1
            assert "another process has this store open" in second.output[-1]
        port = address.partition(":")[2]
        with program("broker", "--listenPort", port, "--storePathRootDir", str(tmp_path / "other")) as third:
            assert third.ended() == 1
            assert f"cannot listen on {address}" in third.output[-1]


def test_wrong_settings_end_with_2_and_name_them_all(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("listenPort=99999\nbrokerNme=a\nbrokerName=a b\nmessageDelayLevel=soon\n")
    with program("broker", "-c", str(tmp_path / "broker.conf")) as running:
        assert running.ended() == 2
    said = "\n".join(running.output)
    for part in ("listenPort=99999", "did you mean brokerName?", "messageDelayLevel=soon"):
        assert part in said


def test_a_broker_conf_from_the_field_starts_with_a_warning_for_what_is_not_served(tmp_path: Path) -> None:
    """All settings of RocketMQ 4.9.8 as printed by `mqbroker -p`, except paths and ports."""
    printed = Path(__file__).parents[1] / "vectors/config/broker-defaults.properties"
    own = {"listenPort": "0", "storePathRootDir": str(tmp_path / "store"), "brokerName": "field"}
    lines = [line for line in printed.read_text().splitlines() if line.partition("=")[2]]
    lines = [line for line in lines if line.partition("=")[0] not in own]
    conf = tmp_path / "broker.conf"
    conf.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in own.items()), ""]))
    with program("broker", "-c", str(conf)) as running:
        running.line_with("boot success, field of DefaultCluster")
        assert running.stop() == 0
    warnings = [line for line in running.output if "is not served" in line]
    assert any("sendMessageThreadPoolNums" in line and "there are no thread pools here" in line for line in warnings)
    assert not any(key in line for key in ("flushDiskType", "aclEnable") for line in warnings)


def test_p_prints_the_address_that_follows_from_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["-p", "--brokerIP1", "10.1.1.1"])
    printed = capsys.readouterr().out.splitlines()
    line = printed.index("bindAddress=0.0.0.0")
    assert printed[line - 1].startswith("# [follows brokerIP1]")


def test_m_prints_the_important_settings(tmp_path: Path) -> None:
    with program("broker", "-m", "-n", "10.0.0.1:9876;10.0.0.2:9876") as running:
        assert running.ended() == 0
    assert "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876" in running.output
    assert "brokerClusterName=DefaultCluster" in running.output


OPEN = {"bind_address": "0.0.0.0"}


@pytest.mark.parametrize(
    ("settings", "loopback", "part"),
    [
        ({}, "", "told 10.0.0.1:10911, VIP port 10909; for this host only, bindAddress=0.0.0.0"),
        (OPEN, "127.0.0.1:10911", "told 10.0.0.1:10911, those on this host 127.0.0.1:10911"),
        (OPEN, "127.0.0.1:10911", "set brokerIP1 where they reach this host by another"),
        (OPEN | {"broker_ip1": "10.0.0.1"}, "", "told 10.0.0.1:10911, VIP port 10909"),
    ],
)
def test_the_startup_line_gives_the_address_clients_get(settings: dict[str, str], loopback: str, part: str) -> None:
    identity = Identity("b", "C", 0, address="10.0.0.1:10911", loopback_address=loopback)
    line = start_up_line(identity, BrokerConfig(**settings))  # type: ignore[arg-type]
    assert line.startswith("broker boot success, b of C: ")
    assert part in line
