"""Subscription groups: created when first seen, changed by administrators, saved in a file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker import subscription_groups
from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.subscription_groups import SubscriptionGroups, read_group
from rocketlet.broker.topic_table import TableFull
from rocketlet.common import fastjson
from rocketlet.remoting.protocol.configuration import SubscriptionGroupConfig


class Groups(SubscriptionGroups):
    def __init__(self, **settings: object) -> None:
        self.changes = 0
        super().__init__(Settings(BrokerConfig(**settings)), lambda: 1_700_000_000_000, self._count)  # type: ignore[arg-type]

    def _count(self) -> None:
        self.changes += 1


def test_a_group_is_created_when_first_seen() -> None:
    groups = Groups()
    assert groups.get("CG") is None
    group = groups.find("CG")
    assert group is not None
    assert group.builtins() == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": "CG",
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert groups.find("CG") is group
    assert groups.get("CG") is group
    assert groups.changes == 1


def test_a_group_is_not_created_when_settings_forbid_it() -> None:
    groups = Groups(auto_create_subscription_group=False)
    assert groups.find("CG") is None
    assert groups.find("TOOLS_CONSUMER") is not None
    assert groups.find("CID_RMQ_SYS_TRANS") is not None


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 256])
def test_an_invalid_name_creates_nothing(name: str) -> None:
    assert Groups().find(name) is None


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    monkeypatch.setattr(subscription_groups, "MAX_GROUPS", len(groups) + 1)
    assert groups.find("a") is not None
    assert groups.find("b") is None
    with pytest.raises(TableFull, match="delete some first"):
        groups.update(SubscriptionGroupConfig(groupName="b"))
    groups.update(SubscriptionGroupConfig(groupName="a", retryMaxTimes=3))


def test_a_group_is_bounded() -> None:
    groups = Groups()
    with pytest.raises(TableFull, match="may have 2048"):
        groups.update(SubscriptionGroupConfig(groupName="a", attributes={"key": "x" * 2048}))
    assert groups.get("a") is None


def test_update_disable_delete() -> None:
    groups = Groups()
    groups.update(read_group({"groupName": "CG", "retryMaxTimes": "3", "consumeBroadcastEnable": False, "future": 1}))
    group = groups.get("CG")
    assert group == SubscriptionGroupConfig(groupName="CG", retryMaxTimes=3, consumeBroadcastEnable=False)
    groups.disable_consume("CG")
    groups.disable_consume("CG")
    disabled = groups.get("CG")
    assert disabled is not None
    assert not disabled.consumeEnable
    assert groups.delete("CG")
    assert not groups.delete("CG")
    assert groups.changes == 3
    assert groups.version.counter == 3


def test_reads_javas_file_except_the_nameless_group(vectors: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = fastjson.loads((vectors / "config/frames-broker/subscriptionGroup.json").read_bytes())
    groups = Groups()
    with caplog.at_level(logging.WARNING):
        groups.load(body)
    del body["subscriptionGroupTable"][""]
    assert fastjson.loads(groups.to_body().to_json()) == body
    assert len(caplog.records) == 1


def test_what_only_rocketmq_5_uses_stays_in_the_file() -> None:
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5, "max": 50, "multiplier": 3}}
    known = SubscriptionGroupConfig(groupName="CG").builtins()
    of_5 = {
        "attributes": {"a": "b"}, "consumeMessageOrderly": True, "consumeTimeoutMinute": 20, "groupRetryPolicy": policy,
        "groupSysFlag": 1, "subscriptionDataSet": [{"topic": "T", "expressionType": "TAG", "expression": "*"}],
    }  # fmt: skip
    groups = Groups()
    groups.load({"subscriptionGroupTable": {"CG": {**known, **of_5}}, "forbiddenTable": {"CG": {"T": 2}}})
    groups.find("another")
    written = fastjson.loads(b"".join(groups.pieces()))
    assert written["subscriptionGroupTable"]["CG"] == {**known, **of_5}
    assert written["forbiddenTable"] == {"CG": {"T": 2}}
    assert written == fastjson.loads(groups.to_body().to_json())


def test_nonsense_is_tolerated(caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups()
    before = groups.to_body()
    with caplog.at_level(logging.WARNING):
        groups.load({"subscriptionGroupTable": {"a": None, "b": {"groupName": "b", "retryMaxTimes": "x"}, "c": []}})
    groups.load(None)
    groups.load({"subscriptionGroupTable": 5})
    assert groups.to_body() == before
    assert len(caplog.records) == 3


@given(
    st.dictionaries(
        st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True),
        st.tuples(st.booleans(), st.booleans(), st.integers(-1, 99), st.integers(0, 9)),
        max_size=8,
    )
)
def test_survives_a_round_trip_through_the_file(settings: dict[str, tuple[bool, bool, int, int]]) -> None:
    groups = Groups()
    for name, (consume, broadcast, times, queues) in settings.items():
        groups.update(
            SubscriptionGroupConfig(
                groupName=name,
                consumeEnable=consume,
                consumeBroadcastEnable=broadcast,
                retryMaxTimes=times,
                retryQueueNums=queues,
            )
        )
    again = Groups()
    again.load(fastjson.loads(groups.to_body().to_json()))
    assert again.to_body() == groups.to_body()
