"""The topic table: what is created when, from which template, and what survives in the file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker import topic_table
from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.topic_table import TableFull, Topic, TopicTable
from rocketlet.common import fastjson
from rocketlet.remoting.protocol.configuration import MULTI_TAG, SINGLE_TAG, UNIT


class Table(TopicTable):
    """A table whose clock ticks at each change, with a count of changes."""

    def __init__(self, **settings: object) -> None:
        self.changes = 0
        self.time = 1_700_000_000_000
        super().__init__(Settings(BrokerConfig(**settings)), lambda: self.time, self._count)  # type: ignore[arg-type]

    def _count(self) -> None:
        self.changes += 1
        self.time += 1


def test_a_broker_has_its_own_topics_from_the_start() -> None:
    table = Table()
    table.create_own("broker-a")
    shapes = {topic.name: (topic.read, topic.write, topic.perm) for topic in table}
    assert shapes == {
        "TBW102": (8, 8, 7),
        "SELF_TEST_TOPIC": (1, 1, 6),
        "BenchmarkTest": (1024, 1024, 6),
        "DefaultCluster": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
    }


def test_settings_decide_which_system_topics_exist() -> None:
    table = Table(
        auto_create_topic_enable=False, trace_topic_enable=True, cluster_topic_enable=False, broker_topic_enable=False
    )
    table.create_own("b")
    assert table.get("TBW102") is None
    trace, cluster, broker = (table.get(name) for name in ("RMQ_SYS_TRACE_TOPIC", "DefaultCluster", "b"))
    assert trace is not None
    assert (trace.read, trace.perm) == (1, 6)
    assert cluster is not None
    assert broker is not None
    assert (cluster.perm, broker.perm) == (1, 1)


def test_an_existing_topic_is_not_created_again() -> None:
    table = Table()
    table.update(Topic("TBW102", 3, 3, 7))
    table.create_own("b")
    found = table.get("TBW102")
    assert found is not None
    assert found.write == 3


def test_a_send_creates_its_topic_from_the_template() -> None:
    table = Table()
    table.create_own("b")
    changes, version = table.changes, table.version
    topic = table.create_on_send("T", "TBW102", 4, unit=False, peer="here")
    assert topic is not None
    assert (topic.read, topic.write, topic.perm, topic.sys_flag) == (4, 4, 6, 0)
    assert table.get("T") is topic
    assert table.changes == changes + 1
    assert table.version.counter == version.counter + 1
    assert table.version.timestamp > version.timestamp
    many = table.create_on_send("U", "TBW102", 100, unit=True, peer="here")
    assert many is not None
    assert (many.write, many.sys_flag) == (8, UNIT)


@pytest.mark.parametrize(
    ("template", "queues"), [("unknown", 4), ("SELF_TEST_TOPIC", 4), ("TBW102", 0), ("TBW102", -1)]
)
def test_a_template_that_does_not_allow_creation(template: str, queues: int) -> None:
    table = Table()
    table.create_own("b")
    assert table.create_on_send("T", template, queues, unit=False, peer="here") is None
    assert table.get("T") is None


def test_auto_creation_can_be_disabled_at_run_time() -> None:
    settings = Settings(BrokerConfig())
    table = TopicTable(settings, lambda: 0, lambda: None)
    table.create_own("b")
    settings.now = BrokerConfig(auto_create_topic_enable=False)
    assert table.create_on_send("T", "TBW102", 4, unit=False, peer="here") is None


def test_invalid_names_never_enter_the_table() -> None:
    table = Table()
    table.create_own("b")
    assert table.create_on_send("../x", "TBW102", 4, unit=False, peer="here") is None
    assert table.create("a b", 1, reason="test") is None
    assert table.get("../x") is None


def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_table, "MAX_TOPICS", 10)
    table = Table()
    table.create_own("b")
    assert table.create("T0", 1, reason="test") is not None
    assert table.create("T1", 1, reason="test") is None
    assert table.create("T0", 1, reason="test") is not None
    with pytest.raises(TableFull, match="delete some first"):
        table.update(Topic("T1", 1, 1))
    table.update(Topic("T0", 2, 2))


def test_an_update_keeps_counters_and_order() -> None:
    table = Table()
    table.update(Topic("T", 4, 4))
    table.follow_order(["T"])
    first = table.get("T")
    assert first is not None
    first.flows[0] = topic_table.Flow()
    table.update(Topic("T", 8, 2, 4))
    second = table.get("T")
    assert second is not None
    assert (second.read, second.write, second.queues, second.readable, second.writable) == (8, 2, 8, True, False)
    assert second.flows is first.flows
    assert second.order


def test_delete() -> None:
    table = Table()
    table.update(Topic("T", 4, 4))
    assert table.delete("T")
    assert not table.delete("T")
    assert table.changes == 2


def test_the_order_mark_changes_once() -> None:
    table = Table()
    table.update(Topic("T", 4, 4))
    changes = table.changes
    table.follow_order(["T", "unknown"])
    table.follow_order(["T"])
    assert table.changes == changes + 1
    found = table.get("T")
    assert found is not None
    assert found.order
    table.follow_order([])
    assert not found.order


def test_topics_whose_sends_need_checks() -> None:
    assert Topic("T", 1, 1).plain
    assert not Topic("%RETRY%g", 1, 1).plain
    assert not Topic("SCHEDULE_TOPIC_XXXX", 18, 18).plain
    assert Topic("T", 1, 1, filter_type=MULTI_TAG).plain


def test_system_topics() -> None:
    assert set(Table().system_topics("b")) == {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "DefaultCluster",
        "b",
        "DefaultCluster_REPLY_TOPIC",
    }


def test_reads_javas_file(vectors: Path) -> None:
    body = fastjson.loads((vectors / "config/frames-broker/topics.json").read_bytes())
    table = Table()
    table.load(body)
    assert fastjson.loads(table.to_body().to_json()) == body
    assert fastjson.loads(b"".join(table.pieces())) == body


def test_an_empty_table_has_a_text() -> None:
    assert fastjson.loads(b"".join(Table().pieces()))["topicConfigTable"] == {}


def test_reports_and_skips_nonsense(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    with caplog.at_level(logging.WARNING):
        table.load(
            {"topicConfigTable": {"a/b": {}, "T": {"perm": "x"}, "U": None, "V": {"readQueueNums": -1}, "W": {}}}
        )
    assert [topic.name for topic in table] == ["W"]
    assert len(caplog.records) == 4
    table.load(None)
    table.load({"topicConfigTable": []})
    assert len(table) == 1


@given(
    st.dictionaries(
        st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True),
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 7), st.booleans(), st.booleans()),
        max_size=8,
    )
)
def test_survives_a_round_trip_through_the_file(topics: dict[str, tuple[int, int, int, bool, bool]]) -> None:
    table = Table()
    for name, (read, write, perm, order, many) in topics.items():
        filter_type = MULTI_TAG if many else SINGLE_TAG
        table.update(Topic(name, read, write, perm, order=order, filter_type=filter_type))
    again = Table()
    again.load(fastjson.loads(table.to_body().to_json()))
    assert again.to_body() == table.to_body()
    assert len(again) == len(topics)


def test_a_masked_permission_is_only_reported() -> None:
    table = Table()
    table.update(Topic("T", 4, 4, 7))
    assert table.to_body(mask=4).topicConfigTable["T"].perm == 4
    assert table.to_body().topicConfigTable["T"].perm == 7
