"""Routes written in parts: the same text as of the whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.namesrv import route_text
from rocketlet.namesrv.route_text import RouteText
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.protocol.routing import BrokerData, QueueData, TopicRouteData

NAMES = st.text(alphabet='a"\\é中\n')


@given(
    st.lists(st.builds(BrokerData, st.dictionaries(st.integers(0, 9), NAMES), NAMES, NAMES)),
    st.dictionaries(NAMES, st.lists(NAMES)),
    st.none() | NAMES,
    st.lists(st.builds(QueueData, NAMES, st.integers(0, 7), st.integers(0, 9))),
    st.integers(1, 3),
)
def test_a_route_in_parts_is_the_whole_route(
    brokers: list[BrokerData],
    filters: dict[str, list[str]],
    order: str | None,
    queues: list[QueueData],
    size: int,
) -> None:
    route = TopicRouteData(brokers, filters, order, queues)
    texts = {}
    for standard in (True, False):
        text = RouteText(standard=standard)
        rows = list(filters.items())
        for at in range(0, max(len(brokers), len(rows), len(queues)), size):
            part = slice(at, at + size)
            text.add(TopicRouteData(brokers[part], dict(rows[part]), None, queues[part]))
        texts[standard] = text.whole(order)
    assert texts[True] == json.dumps(json.loads(route.to_json()), separators=(",", ":")).encode()
    assert texts[True].isascii()
    assert TopicRouteData.from_json(texts[False]) == route


def test_broker_ids_of_older_clients_have_no_quotes() -> None:
    text = RouteText(standard=False)
    text.add(TopicRouteData([BrokerData({0: "a:1", 1: "b:1"}, "broker-a", "C")]))
    assert b'{"brokerAddrs":{0:"a:1",1:"b:1"},"brokerName":"broker-a","cluster":"C"}' in text.whole(None)


def test_a_route_that_no_frame_can_hold_is_refused_before_all_of_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_text, "FRAME_LIMIT", 100)
    text = RouteText(standard=True)
    text.add(TopicRouteData([BrokerData({0: "a:1"}, "a", "C")]))
    with pytest.raises(Refused, match="more than the 100 bytes"):
        text.add(TopicRouteData([BrokerData({0: "b:1"}, "b", "C")]))
