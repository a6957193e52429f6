"""RocketMQ's mqadmin prints the same for our name server and broker as for RocketMQ's, except times and addresses.

Both stacks get the same topics, messages and consumers; then one mqadmin queries first the one and then the other, with
every command of 4.9.8 except `startMonitoring`, which prints nothing.
"""

from __future__ import annotations

import difflib
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rocketlet import ConsumeFrom, LitePullConsumer, Message, Producer, PushConsumer
from tests.interop.admin_commands import (
    AFTER,
    BEFORE,
    CONFIGURATIONS,
    KNOWN,
    LIVE,
    PRODUCERS,
    READERS,
    STATISTICS,
    TOPIC,
    Said,
    lines,
)
from tests.support.java_admin import JavaAdmin
from tests.support.java_programs import PATIENT, JavaPrograms
from tests.support.ports import free_broker_port
from tests.support.programs import broker, name_server

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SETTINGS = PATIENT | {"transactionCheckInterval": 1000}  # RocketMQ creates their topic at the first check
MESSAGES, QUEUES, TAKEN = 12, 4, 8
SECONDS = 60
ENDLESS_SECONDS = 12  # after which an endless command is stopped: more than the ten of a sample


class Stack:
    """A name server and a broker, brought into the same state in both stacks."""

    def __init__(self, admin: JavaAdmin, namesrv: str, address: str, folder: Path) -> None:
        self.admin = admin
        self.namesrv = namesrv
        self.own = {"NAMESRV": namesrv, "BROKER": address, "FOLDER": str(folder / "export"), "PLACE": str(folder)}
        self.said: dict[str, Said] = {}

    def ask(self, command: str) -> None:
        words = [self.own.get(word, word) for word in command.split()]
        self.said[command] = Said(*self.admin.both(*words, "-n", self.namesrv), self.own)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """With messages, a group that consumed some of them, and a connected producer and consumer."""
        for command in BEFORE:
            self.ask(command)
        self.own["MOMENT"] = str(int(time.time() * 1000) - 1000)
        with Producer(PRODUCERS, namesrv=self.namesrv) as producer:
            queues = sorted(producer.publish_queues(TOPIC), key=lambda one: one.queue_id)
            for number in range(MESSAGES):
                tag = "one" if number % 2 else "two"
                message = Message(TOPIC, b"body %d" % number, tags=tag, keys=[f"key-{number}"])
                sent = producer.send(message, queue=queues[number % QUEUES])
                if number == 0:
                    self.own |= {"UNIQUE": sent.message_id, "OFFSET_ID": sent.offset_message_id}
            self.own["SINGLE_ID"] = producer.send(Message("golden-single", b"single")).offset_message_id
            first = ConsumeFrom.FIRST_OFFSET
            with LitePullConsumer(READERS, topics={TOPIC: "*"}, namesrv=self.namesrv, consume_from=first) as consumer:
                for taken, _ in enumerate(consumer, 1):
                    if taken == MESSAGES:
                        break
                for queue in queues:
                    consumer.seek(queue, TAKEN // QUEUES)
                consumer.commit()
            seen = threading.Semaphore(0)
            with PushConsumer(
                LIVE, topics={TOPIC: "*"}, listener=lambda _: seen.release(), namesrv=self.namesrv, consume_from=first
            ) as live:
                assert all(seen.acquire(timeout=SECONDS) for _ in range(MESSAGES))
                self.own["LIVE_CLIENT"] = live.client_id
                self._wait_until_committed()
                for command in STATISTICS:
                    self.ask(command)
                yield

    def _wait_until_committed(self) -> None:
        """Consumers commit every few seconds: all queues of the topic, and the one of retries."""
        deadline = time.monotonic() + SECONDS
        while (rows := self.admin("consumerProgress", "-g", LIVE, "-n", self.namesrv).count("broker-a")) <= QUEUES:
            assert time.monotonic() < deadline, f"{rows} queues are committed"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def said(java: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Stack]]:
    """RocketMQ's output and ours, after all commands."""
    folder = tmp_path_factory.mktemp("beside")
    their_folder, our_folder = folder / "theirs", folder / "ours"
    our_folder.mkdir()
    with ExitStack() as running:
        their_names = running.enter_context(java.name_server(their_folder))
        theirs = running.enter_context(java.broker(their_folder, their_names, **SETTINGS))
        _, our_names = running.enter_context(name_server(our_folder))
        port = free_broker_port()
        _, ours = running.enter_context(broker(our_folder, namesrvAddr=our_names, listenPort=port, **SETTINGS))
        admin = running.enter_context(JavaAdmin(java, folder, ENDLESS_SECONDS))
        stacks = Stack(admin, their_names, theirs.address, their_folder), Stack(admin, our_names, ours, our_folder)
        for stack in stacks:
            running.enter_context(stack.in_use())
        for command in AFTER:
            for stack in stacks:
                stack.ask(command)
        yield stacks


@pytest.mark.parametrize("command", BEFORE + STATISTICS + AFTER)
def test_it_prints_the_same(said: tuple[Stack, Stack], command: str) -> None:
    theirs, ours = (lines(command, stack.said[command]) for stack in said)
    known = KNOWN.get(command)
    if known is not None:
        theirs, ours = _without(theirs, known.theirs), _without(ours, known.ours)
    if command.startswith(CONFIGURATIONS):
        ours = [line for line in ours if line in theirs]
    assert _differences(theirs, ours) == []


@pytest.mark.parametrize("file", ["metadata.json", "topic.json", "configs.json", "metrics.json"])
def test_it_exports_the_same(said: tuple[Stack, Stack], file: str) -> None:
    command = "exportMetrics" if file == "metrics.json" else "export"
    texts = [(Path(stack.own["FOLDER"]) / file).read_text() for stack in said]
    theirs, ours = (lines(command, Said(text, "", stack.own)) for text, stack in zip(texts, said, strict=True))
    assert _differences(theirs, ours) == []


def _differences(theirs: list[str], ours: list[str]) -> list[str]:
    return [line for line in difflib.ndiff(theirs, ours) if line[0] in "+-"]


def _without(found: list[str], pattern: str) -> list[str]:
    """The remaining lines; at least one must match, or the difference no longer exists."""
    left = [line for line in found if not re.search(pattern, line)]
    assert left != found, f"none has {pattern}"
    return left
