"""The Grafana dashboard and the alert rules in conf/: they use only exported metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import yaml

from rocketlet.metrics import exposition
from rocketlet.metrics.loop_delay import LoopDelay
from rocketlet.metrics.page import Page
from rocketlet.namesrv.metrics import NamesrvSource
from rocketlet.namesrv.route_table import RouteTable
from rocketlet.remoting.protocol.offsets import UpdateConsumerOffsetHeader
from rocketlet.remoting.request_codes import RequestCode
from tests.support.memory_broker import memory_broker, tags

CONF = Path(__file__).parent.parent / "conf"
RULES = CONF / "prometheus-rules.yml"
# Of Prometheus itself.
SCRAPED = {"up": {"job", "instance"}}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONF / "grafana-dashboard.json").read_text("utf-8"))
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    yield from (variable["query"] for variable in dashboard()["templating"]["list"] if variable["type"] == "query")
    yield from (rule["expr"] for rule in rules())


async def names_and_labels() -> dict[str, set[str]]:
    """The metrics of brokers and name servers, by the names of samples."""
    page = Page(10_000)
    async with memory_broker() as one:
        for topic in ("T", "%DLQ%CG"):
            await one.send(topic)
        async with one.client() as other:
            await one.heartbeat("c1", "CG", tags("T", "A"), producer="PG")
            await other.heartbeat("c2", "CG", tags("T", "B"))
            await one.pull("T", 0, 0)
            header = UpdateConsumerOffsetHeader(consumerGroup="CG", topic="T", queueId=0, commitOffset=0)
            await one.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            for source in (one.broker.metrics, NamesrvSource(RouteTable()), LoopDelay()):
                list(source.fill(page))
    page.gauge("rocketlet_metrics_series_left_out", "").add((), 0)
    page.gauge("rocketlet_registered", "", ("cluster", "broker", "namesrv")).add(("c", "b", "n"), 1)
    text = b"".join(exposition.pieces(page)).decode()
    found: dict[str, set[str]] = dict(SCRAPED)
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, {"instance", "job"}).update(re.findall(r'(\w+)="', labels))
    return found


async def test_every_expression_uses_exported_names_and_labels(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told = await names_and_labels()
    asked = list(expressions())
    assert len(asked) > 25
    for expression in asked:
        names = re.findall(r"\b(?:rocketmq|rocketlet|process)_\w+|\bup\b", expression)
        assert names, expression
        assert [name for name in names if name not in told] == [], expression
        labels = set().union(*(told[name] for name in names)) | {"le", "group"}
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert [label for label in re.split(r",\s*", group) if label not in labels] == [], expression


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_alerts_name_the_problem_and_the_remedy() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.process
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (of Prometheus) is not on this machine")
def test_promtool_reads_the_rules() -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"SUCCESS: {len(rules())} rules found" in checked.stdout
