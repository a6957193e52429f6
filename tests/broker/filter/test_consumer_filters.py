"""The table of SQL92 filters: versions, groups that leave and return, and its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketlet.broker.filter import consumer_filters
from rocketlet.broker.filter.bloom import Bloom
from rocketlet.broker.filter.consumer_filters import DAY_MS, Allowance, ConsumerFilters
from rocketlet.broker.filter.selector import Selector
from rocketlet.common import fastjson
from rocketlet.common.message_record import decode
from rocketlet.common.subscription import SQL92, Subscription
from tests.support.recorded_stores import unpack

BLOOM = Bloom.for_groups(32, 20)


def sql(topic: str, expression: str, version: int = 1) -> Subscription:
    return Subscription(topic, expression, SQL92, version=version)


def table(*subscriptions: Subscription, group: str = "g", now: int = 1000) -> ConsumerFilters:
    filters = ConsumerFilters(BLOOM)
    filters.register(group, subscriptions, now)
    return filters


def expression_of(filters: ConsumerFilters, topic: str = "t", group: str = "g") -> str | None:
    known = filters.get(topic, group)
    return known.selector.expression if known else None


def test_tag_subscriptions_have_no_entry() -> None:
    assert len(table(Subscription("t", "*"), Subscription("u", "A", tags={"A"}, codes={65}))) == 0


def test_only_a_newer_version_replaces_a_filter() -> None:
    filters = table(sql("t", "a = 1", 5))
    filters.register("g", [sql("t", "a = 2", 4)], 1001)
    filters.register("g", [sql("t", "a = 3", 5)], 1002)
    assert expression_of(filters) == "a = 1"
    filters.register("g", [sql("t", "a = 4", 6)], 1003)
    known = filters.get("t", "g")
    assert known is not None
    assert (known.selector.expression, known.client_version, known.born) == ("a = 4", 6, 1003)


def test_the_same_expression_keeps_its_creation_time() -> None:
    filters = table(sql("t", "a = 1", 5))
    before = filters.version
    filters.register("g", [sql("t", "a = 1", 9)], 2000)
    known = filters.get("t", "g")
    assert known is not None
    assert (known.born, known.client_version) == (1000, 9)
    assert filters.version > before


def test_an_expression_that_does_not_compile_removes_the_old_one(caplog: pytest.LogCaptureFixture) -> None:
    filters = table(sql("t", "a = 1", 5))
    filters.register("g", [sql("t", "a !", 6)], 2000)
    assert filters.get("t", "g") is None
    assert len(filters) == 0
    assert "does not compile" in caplog.text
    filters.register("g", [sql("t", "a !", 7)], 2000)
    assert len(filters) == 0


def test_leaving_and_coming_back() -> None:
    filters = table(sql("t", "a = 1", 5), sql("u", "b = 1", 5))
    filters.register("g", [sql("t", "a = 1", 5)], 2000)
    gone = filters.get("u", "g")
    assert gone is not None
    assert gone.dead
    filters.group_left("g", 3000)
    assert {known.topic: known.left_at for known in filters.of_group("g")} == {"t": 3000, "u": 2000}
    filters.register("g", [sql("t", "a = 1", 5)], 4000)
    back = filters.get("t", "g")
    assert back is not None
    assert not back.dead
    filters.forget_old(2000 + DAY_MS)
    assert [known.topic for known in filters.of_group("g")] == ["t"]


def test_a_heartbeat_compiles_no_more_than_it_is_allowed() -> None:
    long, short = "a = 1 OR " * 900 + "a = 2", "b = 1"  # 8,105 characters
    filters, allowance = ConsumerFilters(BLOOM), Allowance()
    broken = sql("v", "NOT " * 30 + "=")
    remaining = filters.register("g", [sql("t", long), broken, sql("u", short)], 1000, allowance)
    assert [s.topic for s in remaining] == ["v"]
    assert filters.register("h", [sql("t", long)], 1000, allowance) == [sql("t", long)]
    assert filters.register("g", [sql("t", long), broken, sql("u", short)], 1000, Allowance(0)) == [broken]
    filters.take("h", sql("t", long), 1001)
    filters.take("g", broken, 1001)
    assert [known.group for known in filters.of_topic("t")] == ["g", "h"]
    assert len(filters) == 3


def test_one_long_expression_is_compiled_at_once() -> None:
    filters = ConsumerFilters(BLOOM)
    assert filters.register("g", [sql("t", "a = 1 OR " * 1800 + "a = 2")], 1000, Allowance()) == []
    assert len(filters) == 1


def test_a_table_that_comes_again_compiles_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = table(sql("t", "a = 1"), sql("u", "a = 2"))
    newer = table(sql("t", "a = 1"), sql("u", "a = 3")).to_body()
    expressions = []

    def counted(expression: str) -> Selector:
        expressions.append(expression)
        return Selector(expression)

    monkeypatch.setattr(consumer_filters, "compiled", counted)
    filters.load(newer, 2000)
    assert expressions == ["a = 3"]
    assert expression_of(filters, "u") == "a = 3"


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(consumer_filters, "MAX_FILTERS", 2)
    filters = table(sql("t", "a = 1"), sql("u", "a = 1"), sql("v", "a = 1"))
    assert len(filters) == 2
    assert "full" in caplog.text
    filters.register("g", [sql("t", "a = 2", 2), sql("u", "a = 1", 2)], 1001)
    assert expression_of(filters) == "a = 2"


def test_a_java_brokers_file_is_read(vectors: Path) -> None:
    text = (vectors / "config" / "sql" / "consumerFilter.json").read_bytes()
    filters = ConsumerFilters(BLOOM)
    filters.load(fastjson.loads(text), now=1795006400000)
    assert len(filters) == 2
    assert expression_of(filters, "TopicS", "CG_sql0") == "a > 5 AND b = 'x'"
    assert all(known.dead for known in filters.of_topic("TopicS"))
    assert json.loads(fastjson.dumps(filters.to_body())) == fastjson.loads(text)


def test_a_record_as_text_is_the_java_brokers(vectors: Path) -> None:
    text = (vectors / "config" / "sql" / "consumerFilter.json").read_text()
    filters = ConsumerFilters(BLOOM)
    filters.load(fastjson.loads(text), now=1795006400000)
    indented = filters.text("TopicS", "CG_sql0").replace("\n", "\n" + "\t" * 4)
    assert f'"CG_sql0":{indented}' in text
    assert filters.text("TopicS", "nobody") == "null"


def test_loaded_filters_wait_for_their_group() -> None:
    filters = ConsumerFilters(BLOOM)
    filters.load(table(sql("t", "a = 1", 5)).to_body(), now=100_000)
    known = filters.get("t", "g")
    assert known is not None
    assert known.left_at == 70_000
    filters.register("g", [sql("t", "a = 1", 5)], 100_001)
    assert not known.dead


def test_a_file_for_other_bit_maps_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    other = ConsumerFilters(Bloom.for_groups(64, 20))
    other.register("g", [sql("t", "a = 1", 5)], 1000)
    filters = ConsumerFilters(BLOOM)
    filters.load(other.to_body(), now=2000)
    assert len(filters) == 0
    assert "other bit maps" in caplog.text


@pytest.mark.parametrize(
    "change", [{"expression": "a !"}, {"topic": "../x"}, {"bornTime": "x"}, {"bloomFilterData": 1}]
)
def test_nonsense_in_the_file_is_skipped(change: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    body = table(sql("t", "a = 1", 5), sql("u", "b = 1", 5)).to_body()
    body["filterDataByTopic"]["t"]["groupFilterData"]["g"].update(change)
    filters = ConsumerFilters(BLOOM)
    filters.load(body, now=2000)
    assert [known.topic for known in filters.of_group("g")] == ["u"]
    assert "left out" in caplog.text


@pytest.mark.parametrize("body", [None, [], {}, {"filterDataByTopic": 3}, {"filterDataByTopic": {"t": {}}}])
def test_an_empty_or_unrelated_file_is_ignored(body: Any) -> None:
    filters = ConsumerFilters(BLOOM)
    filters.load(body, now=1)
    assert len(filters) == 0


def test_bit_maps_match_those_of_a_java_broker(vectors: Path, tmp_path: Path) -> None:
    """Every unit of the recorded extension files, recomputed from the log and the table of filters."""
    case = vectors / "stores" / "ext"
    unpack("ext", tmp_path)
    log = (tmp_path / "store" / "commitlog" / "00000000000000000000").read_bytes()
    filters = ConsumerFilters(BLOOM)
    filters.load(fastjson.loads((tmp_path / "store" / "config" / "consumerFilter.json").read_bytes()), now=0)
    queues = json.loads((case / "expected.json").read_text())["queues"]
    seen = 0
    for name, queue in queues.items():
        for (log_offset, _, _), unit in zip(queue["units"], queue["ext"], strict=True):
            record = decode(log, log_offset)
            assert filters.bit_map(name.split("/")[0], record.properties).hex() == unit["bitMap"]
            seen += 1
    assert seen == 120


def test_repr() -> None:
    assert repr(table(sql("t", "a = 1"))) == "<ConsumerFilters: 1 of 1 topics>"
