"""The command line of a server process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketlet.common import command_line, java_properties
from rocketlet.common.config_file import Loaded
from rocketlet.common.logging_setup import JsonLines, LogConfig, LogLevel
from rocketlet.common.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of a thing."""

    listen_port: int = setting(9876, "Port.", minimum=0, maximum=65535, important=True)
    namesrv_addr: tuple[str, ...] = setting((), "Name servers, 100 % of them.", env="NAMESRV_ADDR", flag="-n")
    clean: bool = setting(True, "Clean up.", key="cleanFileForciblyEnable")
    config_file: str = setting("", "A key that the parser's own names must not meet.", key="config_file")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, restored afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    for handler in [one for one in root.handlers if one not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


def read(*arguments: str, **environment: str) -> Loaded:
    return command_line.read("mqthing", "A thing.", [Config], arguments=arguments, environment=environment)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        read(*arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize("flag", ["--listen-port", "--listenPort"])
def test_a_setting_is_a_flag_in_both_spellings(flag: str) -> None:
    assert read(flag, "1")[Config].listen_port == 1
    assert read(f"{flag}=1").origins["listenPort"] == "flag --listen-port"


def test_a_boolean_flag_needs_no_value() -> None:
    assert read("--clean-file-forcibly-enable", "-n", "a:1")[Config].clean
    assert not read("--clean-file-forcibly-enable", "false")[Config].clean


def test_the_start_scripts_short_flags(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("listenPort=5\nnamesrvAddr=b:2\n")
    loaded = read("-c", str(path), "-n", "a:1")
    assert (loaded[Config].listen_port, loaded[Config].namesrv_addr) == (5, ("a:1",))
    assert read("--configFile", str(path))[Config].listen_port == 5


@pytest.mark.parametrize("flag", ["-p", "--printConfigItem"])
def test_p_prints_every_setting_with_its_origin_and_ends(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    with pytest.raises(SystemExit) as caught:
        read(flag, "--listen-port", "1", NAMESRV_ADDR="a:1")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "# [flag --listen-port] Port.\nlistenPort=1\n" in out
    assert "# [environment NAMESRV_ADDR] Name servers, 100 % of them.\nnamesrvAddr=a:1\n" in out
    assert "# [default] Least level that is logged. One of DEBUG, INFO, WARNING, ERROR.\nlogLevel=INFO\n" in out
    assert "cleanFileForciblyEnable" in java_properties.as_dict(out)


def test_m_prints_only_the_important_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("-m")
    assert caught.value.code == 0
    assert list(java_properties.as_dict(capsys.readouterr().out)) == ["listenPort"]


def test_h_lists_all_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("-h")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for words in (
        "usage: mqthing [-c FILE]",
        "--listenPort",
        "  -n",
        "--namesrvAddr LIST",
        "100 % of them",
        "[true]",
        "--log-level",
    ):
        assert words in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        read("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("mqthing (Rocketlet) ")


def test_errors_are_single_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("listnPort=5\ncleanFileForciblyEnable=ja\n")
    assert refused(capsys, "-c", str(path)) == (
        f"mqthing: {path} line 1: unknown setting listnPort; did you mean listenPort?\n"
        f"mqthing: {path} line 2: cleanFileForciblyEnable=ja: must be true or false\n"
    )
    assert refused(capsys, "-c", "/no/such.conf").startswith("mqthing: configuration file /no/such.conf: No such file")
    assert refused(capsys, "--listen-port", "x").startswith("mqthing: flag --listen-port: listenPort=x: must be")
    assert refused(capsys, "--log-file", "/no/such/file").startswith("mqthing: logFile=/no/such/file: No such file")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listn-port", "3"], "unknown argument --listn-port; did you mean --listen-port?"),
        (["--listnPort=3"], "unknown argument --listnPort=3; did you mean --listen-port?"),
        (["--frobnicate"], "unknown argument --frobnicate; -h lists all"),
        (["start"], "unknown argument start; -h lists all"),
    ],
)
def test_an_unknown_argument_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert refused(capsys, *arguments) == f"mqthing: {words}\n"


def test_logging_is_set_up_and_warnings_are_logged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, root_logger: logging.Logger
) -> None:
    path = tmp_path / "a.conf"
    path.write_text("highSpeedMode=true\nlogFormat=json\n")
    loaded = read("-c", str(path), ROCKETLET_LOG_LEVEL="warning")
    assert loaded[LogConfig].log_level is LogLevel.WARNING
    assert root_logger.level == logging.WARNING
    assert any(isinstance(one.formatter, JsonLines) for one in root_logger.handlers)
    assert "highSpeedMode is not served" in capsys.readouterr().err
