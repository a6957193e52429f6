"""The rocketlet command against a stack in this process: its output and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketlet.client import LitePullConsumer
from rocketlet.tools.__main__ import COMMANDS, rocketlet
from rocketlet.tools.late_group import EXIT_FAILED, EXIT_USAGE, run
from rocketlet.tools.thread_stack import ThreadStack


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Ran]


@pytest.fixture
def command(
    rocketmq_session: ThreadStack, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs `rocketlet ...` with NAMESRV_ADDR set to the stack."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_session.namesrv)

    def call(*arguments: str) -> Ran:
        capfd.readouterr()
        code = run(rocketlet, "rocketlet", list(arguments))
        said = capfd.readouterr()
        return Ran(code, said.out, said.err)

    return call


def test_tail_shows_what_is_sent(command: Command) -> None:
    sent = command("send", "cli-tail", "Hello, world", "-t", "A", "-k", "k1", "-k", "k2", "-p", "colour=blue", "--json")
    assert sent.code == 0
    assert sent.rows[0]["status"] == "SEND_OK"
    shown = command("tail", "cli-tail", "--from-start", "--no-follow", "--json").rows
    assert [row["body"] for row in shown] == ["Hello, world"]
    assert shown[0]["tags"] == "A"
    assert shown[0]["keys"] == ["k1", "k2"]
    assert shown[0]["message_id"] == sent.rows[0]["message_id"]
    properties = shown[0]["properties"]
    assert isinstance(properties, dict)
    assert properties["colour"] == "blue"


def test_tail_filters_by_tag_and_by_sql(command: Command) -> None:
    for tag, price in (("A", "1"), ("B", "5"), ("A", "9")):
        command("send", "cli-filter", f"{tag}{price}", "-t", tag, "-p", f"price={price}")
    by_tag = command("tail", "cli-filter", "--from-start", "--no-follow", "--filter", "A", "--json").rows
    assert sorted(str(row["body"]) for row in by_tag) == ["A1", "A9"]
    by_sql = command("tail", "cli-filter", "--from-start", "--no-follow", "--sql", "price > 3", "--json").rows
    assert sorted(str(row["body"]) for row in by_sql) == ["A9", "B5"]


def test_a_file_is_sent_whole_or_line_by_line(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "lines.txt"
    source.write_bytes(b"one\ntwo\r\nthree")
    assert command("send", "cli-file", "--file", str(source)).code == 0
    assert command("send", "cli-lines", "--file", str(source), "--lines").code == 0
    whole = command("tail", "cli-file", "--from-start", "--no-follow", "--json").rows
    assert [row["body"] for row in whole] == ["one\ntwo\r\nthree"]
    lines = command("tail", "cli-lines", "--from-start", "--no-follow", "--json").rows
    assert sorted(str(row["body"]) for row in lines) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "nowhere"], "no broker serves topic nowhere"),
        (["tail", "nowhere", "--no-follow"], "no broker serves the topic"),
        (["export", "nowhere"], "no broker serves the topic"),
        (["groups", "nobody"], "no broker knows consumer group nobody"),
        (["dead-letters", "list", "nobody"], "no broker knows consumer group nobody"),
    ],
)
def test_unknown_names_exit_with_1(command: Command, arguments: list[str], said: str) -> None:
    ended = command(*arguments)
    assert (ended.code, ended.out) == (EXIT_FAILED, "")
    assert said in ended.err


def test_topics_and_groups_are_listed_with_messages_and_lag(command: Command, rocketmq_session: ThreadStack) -> None:
    for number in range(5):
        command("send", "cli-lag", str(number), "--sharding-key", "one")
    with LitePullConsumer("cli-lag-group", topics={"cli-lag": "*"}, namesrv=rocketmq_session.namesrv) as consumer:
        for message in consumer:
            if message.body == b"2":
                break
        consumer.commit()
    assert command("topics", "cli-lag", "--json").rows == [
        {
            "topic": "cli-lag",
            "brokers": 1,
            "queues": 4,
            "messages": 5,
            "last message": command("topics", "cli-lag", "--json").rows[0]["last message"],
            "groups": "cli-lag-group",
        }
    ]
    (row,) = [one for one in command("groups", "cli-lag-group", "--json").rows if one["topic"] == "cli-lag"]
    assert (row["consumed"], row["lag"], row["members"]) == (3, 2, 0)
    assert "cli-lag-group" in command("groups").out
    queues = [one for one in command("groups", "cli-lag-group", "--queues", "--json").rows if one["topic"] == "cli-lag"]
    assert sum(int(str(one["lag"])) for one in queues) == 2


def test_the_brokers_own_topics_are_listed_only_on_demand(command: Command) -> None:
    command("send", "cli-own", "x")
    usual = {row["topic"] for row in command("topics", "--json").rows}
    assert "cli-own" in usual
    assert not usual & {"TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest"}
    assert {"cli-own", "TBW102"} <= {row["topic"] for row in command("topics", "--all", "--json").rows}


def test_export_writes_one_line_per_message_and_counts_them(command: Command, tmp_path: Path) -> None:
    for number in range(7):
        command("send", "cli-export", str(number))
    target = tmp_path / "out.jsonl"
    ran = command("export", "cli-export", "--to", str(target))
    assert ran.code == 0
    assert "7 messages" in ran.err
    assert sorted(json.loads(line)["body"] for line in target.read_text().splitlines()) == list("0123456")
    none = command("export", "cli-export", "--since", "2999-01-01")
    assert none.out == ""
    assert "0 messages" in none.err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["send", "cli-usage"], EXIT_USAGE, "give a BODY or a --file"),
        (["snd"], EXIT_USAGE, "did you mean send?"),
        (["tail", "cli-no-such-topic"], EXIT_FAILED, "no broker serves the topic"),
        (["send", "a b", "x"], EXIT_FAILED, "a b"),
        (["send", "T", "x", "-p", "novalue"], EXIT_USAGE, "NAME=VALUE"),
        (["topics", "-n", "127.0.0.1:1"], EXIT_FAILED, "127.0.0.1:1"),
        (["up", "--set", "novalue", "--memory"], EXIT_USAGE, "KEY=VALUE"),
        (["up", "--set", "flushDiskTyp=SYNC_FLUSH", "--memory"], EXIT_USAGE, "flushDiskType"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(command: Command, arguments: list[str], code: int, says: str) -> None:
    ran = command(*arguments)
    assert ran.code == code
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_help_lists_every_command_and_each_has_help(command: Command) -> None:
    listed = command("--help").out
    for name in COMMANDS:
        assert name in listed
        assert command(name, "--help").code == 0


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_our_variable(command: Command, shell: str) -> None:
    assert "_ROCKETLET_COMPLETE" in command("completion", shell).out
