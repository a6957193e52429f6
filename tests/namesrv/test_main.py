"""The command mqnamesrv: its output, its exit codes, and that it starts fast."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlet.namesrv.__main__ import start_up_line
from tests.support.programs import REPOSITORY, name_server, program

pytestmark = pytest.mark.process


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_and_stops_on_request(tmp_path: Path, sent: signal.Signals) -> None:
    with name_server(tmp_path) as (running, address):
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), timeout=60):
            running.process.send_signal(sent)
            assert running.ended() == 0


def test_the_startup_line_says_who_can_reach_it() -> None:
    assert "127.0.0.1:9876, for this host only; bindAddress=0.0.0.0 opens" in start_up_line("127.0.0.1:9876")
    assert start_up_line("0.0.0.0:9876").endswith("listening on 0.0.0.0:9876, for every host that reaches it")


def test_a_port_in_use_is_reported_and_exits_with_1(tmp_path: Path) -> None:
    with name_server(tmp_path) as (_, address):
        port = address.partition(":")[2]
        with program("namesrv", "--listenPort", port, "--kvConfigPath", str(tmp_path / "kv")) as second:
            assert second.ended() == 1
            assert second.output == [f"mqnamesrv: cannot listen on {address}: [Errno 98] Address already in use"]


def test_a_damaged_kv_file_is_reported_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "kv").write_bytes(b"\0\0")
    with program("namesrv", "--listenPort", "0", "--kvConfigPath", str(tmp_path / "kv")) as running:
        assert running.ended() == 1
        (line,) = running.output
        assert line.startswith(f"mqnamesrv: {tmp_path}/kv: ")
        assert "move it away" in line


def test_wrong_settings_exit_with_2(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("listenPort=99999\nlistenPrt=1\n")
    with program("namesrv", "-c", str(tmp_path / "conf")) as running:
        assert running.ended() == 2
        assert len(running.output) == 2
        assert "did you mean listenPort" in "\n".join(running.output)


def test_a_rocketmq_configuration_from_the_field_starts_with_warnings(tmp_path: Path) -> None:
    written = Path(__file__).parents[1] / "vectors/config/namesrv/namesrv-written-by-318.properties"
    lines = [line for line in written.read_text().splitlines() if not line.startswith(("listenPort", "kvConfigPath"))]
    conf = tmp_path / "namesrv.conf"
    conf.write_text("\n".join([*lines, "listenPort=0", f"kvConfigPath={tmp_path}/kv.json", ""]))
    with program("namesrv", "-c", str(conf)) as running:
        running.line_with("setting serverWorkerThreads is not served: there are no thread pools here")
        running.line_with("boot success")
        assert running.stop() == 0


def test_a_brokers_settings_of_tls_start_with_warnings(tmp_path: Path) -> None:
    conf = tmp_path / "both.conf"
    client = "useTLS=true\ntls.client.authServer=true\ntls.client.trustCertPath=ca.pem\n"
    conf.write_text(f"{client}listenPort=0\nkvConfigPath={tmp_path}/kv.json\n")
    with program("namesrv", "-c", str(conf)) as running:
        running.line_with("setting tls.client.trustCertPath is not served")
        running.line_with("boot success")
        assert running.stop() == 0


def test_it_prints_its_settings(tmp_path: Path) -> None:
    with program("namesrv", "-p", "--listenPort", "19876", "-n", "a:1;b:2") as running:
        assert running.ended() == 0
        assert {"listenPort=19876", "namesrvAddr=a:1;b:2", "orderMessageEnable=false"} <= set(running.output)


def test_help_imports_no_event_loop() -> None:
    """Importing trio is most of what a start costs (70 of 140 ms)."""
    code = "import sys; import namesrv.__main__; sys.exit('trio' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def test_startup_imports_only_what_it_needs() -> None:
    others = ["numpy", "crc32c", "click", "msgpack", "asyncio"]
    code = f"import sys; import namesrv.namesrv; sys.exit(str([one for one in {others} if one in sys.modules]))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == "[]"
