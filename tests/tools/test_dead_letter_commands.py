"""`rocketlet dead-letters`: listing, and resending to the right consumers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from rocketlet.client import Message, NoRoute, Producer, PullConsumer, PullStatus, ReceivedMessage
from rocketlet.tools.admin.calls import NoSuchGroup
from rocketlet.tools.dead_letter_commands import dead_letters
from tests.support.local_stack import local_stack


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A stack in which group CG has given up three of four orders."""
    with local_stack() as address:
        with Producer("P", namesrv=address) as producer:
            for number in range(4):
                body = f"order {number}".encode() + (b" with a long list" * 20 if number == 2 else b"")
                producer.send(Message("Orders", body, tags="new", keys=[f"k{number}"], properties={"n": str(number)}))
        with PullConsumer("CG", namesrv=address) as consumer:
            for message in everything(consumer, "Orders"):
                if message.keys != ("k3",):
                    consumer.send_back(message, -1)
            until_known(consumer, "%DLQ%CG")
        yield address


def until_known(consumer: PullConsumer, topic: str) -> None:
    """Poll until the broker has registered a topic that it has just created."""
    for _ in range(1000):
        try:
            consumer.queues(topic)
        except NoRoute:
            continue
        return
    raise AssertionError(f"{topic} is not known")


def everything(consumer: PullConsumer, topic: str) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for queue in consumer.queues(topic):
        offset = 0
        while (result := consumer.pull(queue, offset)).status is PullStatus.FOUND:
            found += result.messages
            offset = result.next_offset
    return sorted(found, key=lambda message: message.keys)


def run(namesrv: str, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(dead_letters, [*arguments, "-n", namesrv], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value or 0, result.stdout, result.stderr


def test_list(namesrv: str) -> None:
    code, out, _ = run(namesrv, "list", "CG")
    assert code == 0
    heads, *lines = out.splitlines()
    assert heads.split() == ["stored", "topic", "tries", "id", "keys", "body"]
    assert len(lines) == 3
    assert "..." in out
    _, out, _ = run(namesrv, "list", "CG", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["keys"] for row in rows} == {"k0", "k1", "k2"}
    assert all((row["topic"], row["tries"]) == ("Orders", 1) for row in rows)
    assert len(rows[2]["body"]) > 300
    _, out, _ = run(namesrv, "list", "CG", "--json", "--key", "k1")
    assert [json.loads(line)["keys"] for line in out.splitlines()] == ["k1"]
    _, out, _ = run(namesrv, "list", "CG", "--json", "--newest", "1")
    assert len(out.splitlines()) == 1


def test_a_group_without_dead_letters(namesrv: str) -> None:
    code, out, said = run(namesrv, "list", "CG", "--key", "nothing")
    assert (code, out) == (0, "")
    assert "no such dead letter" in said


@pytest.mark.parametrize("command", [("list",), ("resend", "--all")])
def test_an_unknown_group(namesrv: str, command: tuple[str, ...]) -> None:
    with pytest.raises(NoSuchGroup, match="no broker knows consumer group Nobody"):
        run(namesrv, *command, "Nobody")


def test_resend_to_the_group_only(namesrv: str) -> None:
    _, out, _ = run(namesrv, "list", "CG", "--json", "--key", "k0")
    letter = json.loads(out)
    code, out, said = run(namesrv, "resend", "CG", "--id", letter["id"], "--dry-run")
    assert (code, said) == (0, "1 would be sent\n")
    code, out, said = run(namesrv, "resend", "CG", "--id", letter["id"], "--json")
    assert (code, said) == (0, "1 sent\n")
    assert json.loads(out)["sent to"] == "%RETRY%CG"
    with PullConsumer("CG", namesrv=namesrv) as consumer:
        (again,) = everything(consumer, "%RETRY%CG")
        assert len(everything(consumer, "Orders")) == 4
    assert (again.body, again.tags, again.keys) == (b"order 0", "new", ("k0",))
    assert (again.message_id, again.reconsume_times) == (letter["id"], 0)
    assert (again.properties["RETRY_TOPIC"], again.properties["n"]) == ("Orders", "0")


def test_resend_to_a_topic(namesrv: str) -> None:
    code, _, said = run(namesrv, "resend", "CG", "--key", "k1", "--key", "k2", "--to", "Again")
    assert (code, said) == (0, "2 sent\n")
    with PullConsumer("Others", namesrv=namesrv) as consumer:
        until_known(consumer, "Again")
        first, second = everything(consumer, "Again")
    assert (first.body, first.properties["n"]) == (b"order 1", "1")
    assert "RETRY_TOPIC" not in first.properties
    assert second.keys == ("k2",)


def test_without_a_name_server() -> None:
    for command in (["list", "CG"], ["resend", "CG", "--all"]):
        with pytest.raises(NoRoute, match="no name server answered"):
            run("127.0.0.1:1", *command)


def test_errors_are_reported(namesrv: str) -> None:
    with pytest.raises(click.UsageError, match="--all"):
        run(namesrv, "resend", "CG")
    code, _, said = run(namesrv, "resend", "CG", "--id", "nonsense")
    assert code == 1
    assert "has the id nonsense" in said
    for arguments in (["resend", "CG", "--all", "--to", "not a name"], ["list", "no group"]):
        with pytest.raises(click.UsageError, match="characters other than"):
            run(namesrv, *arguments)
    code, _, said = run(namesrv, "resend", "CG", "--key", "k1", "--to", "SCHEDULE_TOPIC_XXXX")
    assert code == 1
    assert "not sent" in said
