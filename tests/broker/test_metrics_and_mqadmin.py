"""A running broker's page of metrics compared with mqadmin at the same moment, value by value.

Rates change all the time. So the page is read before mqadmin runs, repeatedly meanwhile (Java's is slow), and after it:
mqadmin's value must lie between the pages' values. Constant values must be equal to the last digit. If a rate's span
moves between two reads, everything is read again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rocketlet.client import ConsumeFrom, LitePullConsumer, Message, Producer
from rocketlet.tools.admin.__main__ import mqadmin
from rocketlet.tools.late_group import run
from tests.support.java_admin import JavaAdmin
from tests.support.java_programs import JavaPrograms, Missing
from tests.support.metrics_page import EXPORTER, Page, runtime_value
from tests.support.ports import free_ports
from tests.support.programs import broker, name_server

pytestmark = [pytest.mark.process, pytest.mark.slow]

SENT, TAKEN = 40, 25
PAGE_LIVES_S = 1.0
ROUNDS = 5
EXPORTER_SECONDS = 300.0
EXPORTER_TASKS = ("TopicOffset", "Producer", "ConsumerOffset", "BrokerStatsTopic", "BrokerStats", "BrokerRuntimeStats")

Admin = Callable[..., str]


@pytest.fixture(params=["ours", pytest.param("java", marks=pytest.mark.interop)])
def admin(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Admin]:
    """mqadmin's output: ours or RocketMQ's."""

    def ours(*words: str) -> str:
        capfd.readouterr()
        assert run(mqadmin, "mqadmin", list(words)) == 0
        return capfd.readouterr().out

    if request.param == "ours":
        yield ours
        return
    try:
        java = JavaPrograms.prepare()
    except Missing as missing:
        pytest.skip(str(missing))
    with JavaAdmin(java, tmp_path) as admin:
        yield admin


class Shop:
    """A broker with messages, some of which a connected group has consumed."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        _, self.namesrv = held.enter_context(name_server(folder))
        running, self.broker = held.enter_context(
            broker(folder, namesrvAddr=self.namesrv, metricsExporterType="PROM", metricsPromExporterPort=0)
        )
        (line,) = [line for line in running.output if "/metrics" in line]
        self.url = re.findall(r"http://\S+/metrics", line)[0]
        with Producer("shop", namesrv=self.namesrv) as producer:
            for number in range(SENT):
                producer.send(Message("orders", b"x" * (number + 1), keys=[str(number)]))
        consumer = held.enter_context(
            LitePullConsumer(
                "billing", topics={"orders": "*"}, namesrv=self.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
            )
        )
        for number, _ in enumerate(consumer, 1):
            if number == TAKEN:
                break
        consumer.commit()

    def page(self) -> Page:
        time.sleep(PAGE_LIVES_S + 0.1)
        with urllib.request.urlopen(self.url, timeout=120) as answer:
            return Page(answer.read().decode())


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with ExitStack() as held:
        yield Shop(tmp_path, held)


# ---- mqadmin's output, by the page's names

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def rows(text: str) -> list[list[str]]:
    """A table's rows, without headings and footers."""
    lines = [line.split() for line in text.splitlines()]
    return [words for words in lines if len(words) > 3 and not words[0].startswith("#")]


def values_in_mqadmin(admin: Admin, shop: Shop) -> Values:
    """The output of the three commands, by name and labels of the page."""
    asked = ("-n", shop.namesrv)
    lines = admin("brokerStatus", "-b", shop.broker, *asked).splitlines()
    table = {key.strip(): value.strip() for key, mark, value in (line.partition(":") for line in lines) if mark}
    values: Values = {}

    def say(name: str, value: float, **labels: str) -> None:
        place = (name, frozenset(labels.items()))
        values[place] = values.get(place, 0.0) + value

    for name in EXPORTER:
        if name.startswith("rocketmq_brokeruntime_"):
            say(name, runtime_value(name, table), boottime=table["bootTimestamp"])
    for _, _, low, high, *_ in rows(admin("topicStatus", "-t", "orders", *asked)):
        say("rocketmq_producer_offset", int(high), topic="orders")
        say("rocketmq_messages_in_total", int(high) - int(low), topic="orders")
    text = admin("consumerProgress", "-g", "billing", *asked)
    for topic, _, queue, end, place, behind, *_ in rows(text):
        of = {"topic": topic, "group": "billing"}
        say("rocketlet_consumer_lag_messages", int(behind), queue=queue, **of)
        if topic == "orders":
            assert int(end) - int(place) == int(behind)
            say("rocketmq_consumer_offset", int(place), **of)
            say("rocketmq_group_consume_total_offset", int(place), **of)
            say("rocketmq_group_diff", int(behind), **of)
            say("rocketmq_consumer_lag_messages", int(behind), topic=topic, consumer_group="billing")
    say("rocketmq_group_consume_tps", float(re.findall(r"Consume TPS: (\S+)", text)[0]), group="billing")
    for group, count, *_, total in rows(admin("consumerProgress", *asked)):
        if group == "billing":
            say("rocketmq_group_count", int(count), group=group)
            say("rocketlet_consumer_lag_messages", int(total), group=group)
    return values


# Printed with one or two digits; the file system is shared.
ROUNDED = {
    "rocketmq_brokeruntime_commitlogdir_capacity_total": 0.1,
    "rocketmq_brokeruntime_commitlogdir_capacity_free": 0.1,
    "rocketmq_group_consume_tps": 0.01,
}


def differing(values: Values, pages: list[Page]) -> list[str]:
    """Values that differ on the pages."""
    found = []
    for (name, labels), value in values.items():
        seen = [page.value(name, **dict(labels)) for page in pages]
        room = ROUNDED.get(name, 0.0) * max(1.0, value)
        if not min(seen) - room <= value <= max(seen) + room:
            found.append(f"{name} {dict(labels)}: {value} by mqadmin, {seen} on the pages")
    return found


def test_the_page_agrees_with_mqadmin(admin: Admin, shop: Shop) -> None:
    for _ in range(ROUNDS):
        pages = [shop.page()]
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(values_in_mqadmin, admin, shop)
            while not asked.done():
                pages.append(shop.page())
        pages.append(shop.page())
        values = asked.result()
        differences = differing(values, pages)
        if not differences:
            break
    assert differences == []
    assert len([name for name, _ in values if name.startswith("rocketmq_brokeruntime_")]) == 63
    page = pages[0]
    assert page.value("rocketmq_producer_offset", topic="orders") == SENT
    assert page.value("rocketmq_consumer_offset", topic="orders", group="billing") == TAKEN
    assert page.value("rocketmq_group_diff", topic="orders", group="billing") == SENT - TAKEN
    assert page.value("rocketmq_brokeruntime_msg_put_total_today_now") >= SENT
    assert page.value("rocketmq_group_count", group="billing") == 1


# ---- rocketmq-exporter, which no registry has: built from its sources, and named by ROCKETMQ_EXPORTER


JAR = os.environ.get("ROCKETMQ_EXPORTER", "")


@contextmanager
def exporter(folder: Path, namesrv: str) -> Iterator[str]:
    """A running exporter that queries the brokers every two seconds; returns the address of its page."""
    port, other = free_ports(2)
    words = [
        f"-Duser.home={folder}", "-jar", JAR, f"--server.port={port}", f"--grpc.server.port={other}",
        f"--rocketmq.config.namesrvAddr={namesrv}",
        *(f"--task.collect{task}.cron=*/2 * * * * ?" for task in EXPORTER_TASKS),
    ]  # fmt: skip
    with (folder / "exporter.log").open("wb") as log:
        process = subprocess.Popen(["java", *words], cwd=folder, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.kill()
        process.wait()


@pytest.mark.interop
@pytest.mark.skipif(not JAR, reason="ROCKETMQ_EXPORTER names no jar of it (mvn package makes …-exec.jar)")
@pytest.mark.skipif(shutil.which("java") is None, reason="no java on the PATH")
def test_the_exporter_reads_our_answers_and_reports_the_same(shop: Shop, tmp_path: Path) -> None:
    labels = {"topic": "orders", "group": "billing"}
    # Its rates date from its last round.
    still = [
        (name, frozenset[tuple[str, str]]()) for name in EXPORTER if "_brokeruntime_" in name and "tps" not in name
    ]
    still.append(("rocketmq_producer_offset", frozenset({"topic": "orders"}.items())))
    still += [(name, frozenset(labels.items())) for name in ("rocketmq_consumer_offset", "rocketmq_group_diff")]
    with exporter(tmp_path, shop.namesrv) as url:
        found = ["it says nothing yet"]
        deadline = time.monotonic() + EXPORTER_SECONDS
        while found and time.monotonic() < deadline:
            page = shop.page()
            try:
                with urllib.request.urlopen(url, timeout=120) as answer:
                    theirs = Page(answer.read().decode())
            except OSError:
                continue  # it starts
            found = [f"{name} {dict(of)}" for name, of in still if not theirs.values(name, **dict(of))]
            if found:
                continue  # it has not read everything yet
            values = {(name, of): theirs.value(name, **dict(of)) for name, of in still}
            found = differing(values, [page, shop.page()])
    assert found == []
