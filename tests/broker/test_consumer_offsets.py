"""Consumer offsets: the last commit counts, on disk too."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker import consumer_offsets
from rocketlet.broker.consumer_offsets import ConsumerOffsets, OffsetRefused
from rocketlet.common import fastjson

NAMES = st.sampled_from(["a", "%RETRY%b", "C_1"])
COMMITS = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 3), st.integers(-2, 1 << 62)))


def test_the_last_commit_counts_even_if_smaller() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, 9)
    offsets.commit("g", "t", 0, 4)
    assert offsets.get("g", "t", 0) == 4
    assert offsets.get("g", "t", 1) is None
    assert offsets.get("h", "t", 0) is None


def test_a_negative_offset_reads_as_none_but_stays_in_the_table() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, -1)
    assert offsets.get("g", "t", 0) is None
    assert offsets.of("g", "t") == {0: -1}


def test_topics_and_groups() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, 1)
    offsets.commit("g", "%RETRY%g", 0, 2)
    offsets.commit("h", "t", 0, 3)
    assert offsets.topics_of("g") == ["t", "%RETRY%g"]
    assert offsets.groups_of("t") == ["g", "h"]
    offsets.forget_topic("t")
    assert offsets.groups_of("t") == []
    assert len(offsets) == 1
    assert list(offsets.forgetting(group="g"))
    assert len(offsets) == 0
    assert "0 offsets" in repr(offsets)


@pytest.mark.parametrize(
    ("group", "topic", "queue_id"), [("a@b", "t", 0), ("g", "../t", 0), ("", "t", 0), ("g", "t", -1)]
)
def test_names_that_could_not_be_read_back_are_refused(group: str, topic: str, queue_id: int) -> None:
    with pytest.raises(OffsetRefused):
        ConsumerOffsets().commit(group, topic, queue_id, 0)


def test_the_table_of_offsets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_offsets, "MAX_ENTRIES", 2)
    offsets = ConsumerOffsets()
    offsets.commit("g", "t", 0, 1)
    offsets.commit("g", "t", 1, 1)
    offsets.commit("g", "t", 1, 2)
    with pytest.raises(OffsetRefused, match="full"):
        offsets.commit("g", "t", 2, 1)


def test_every_change_increments_the_version() -> None:
    offsets = ConsumerOffsets()
    versions = [offsets.version]
    offsets.commit("g", "t", 0, 1)
    versions.append(offsets.version)
    offsets.commit("g", "t", 0, 1)
    versions.append(offsets.version)
    assert list(offsets.forgetting(group="g"))
    versions.append(offsets.version)
    assert sorted(set(versions)) == versions
    assert not list(offsets.forgetting(group="g"))
    assert offsets.version == versions[-1]


def test_reads_javas_file(vectors: Path) -> None:
    offsets = ConsumerOffsets()
    offsets.load(fastjson.loads((vectors / "config/frames-broker/consumerOffset.json").read_bytes()))
    assert offsets.of("CG_retry", "TopicR") == {0: 1, 1: 1, 2: 0, 3: 0}
    assert offsets.get("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 4


@pytest.mark.parametrize("body", [None, [], {}, {"offsetTable": None}, {"offsetTable": []}])
def test_an_empty_table_is_read(body: object) -> None:
    offsets = ConsumerOffsets()
    offsets.load(body)
    assert len(offsets) == 0


def test_reports_and_skips_nonsense(caplog: pytest.LogCaptureFixture) -> None:
    offsets = ConsumerOffsets()
    with caplog.at_level(logging.WARNING):
        offsets.load({"offsetTable": {"t@g": {"0": 5, "x": 1, "1": None}, "no group": {"0": 1}, "u@g": 3}})
    assert offsets.to_body() == {"offsetTable": {"t@g": {0: 5}}}
    assert len(caplog.records) == 4


@given(COMMITS)
def test_survives_a_round_trip_through_the_file(commits: list[tuple[str, str, int, int]]) -> None:
    """A table read back from its own JSON has the same offsets, those committed last."""
    offsets = ConsumerOffsets()
    for commit in commits:
        offsets.commit(*commit)
    again = ConsumerOffsets()
    again.load(fastjson.loads(fastjson.dumps(offsets.to_body())))
    last = {commit[:3]: commit[3] for commit in commits}
    assert len(again) == len(last)
    for (group, topic, queue_id), offset in last.items():
        assert again.get(group, topic, queue_id) == (offset if offset >= 0 else None)
    assert again.to_body() == offsets.to_body()
