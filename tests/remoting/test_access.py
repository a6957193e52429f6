"""What an entry in a table of handlers declares about who may send its request."""

from __future__ import annotations

import pytest

from rocketlet.remoting.access import (
    ADMIN,
    ANY_ACCOUNT,
    ANYONE,
    Access,
    Found,
    IfNamed,
    NotNamed,
    Permission,
    Resource,
    publish,
    subscribe,
)
from rocketlet.remoting.handler import Handler, HandlerTable, Reply, handler_table
from rocketlet.remoting.protocol.offsets import QueryConsumerOffsetHeader


def names_of(access: Access, header: object, body: bytes = b"") -> list[tuple[Permission, Resource, list[str]]]:
    return [(need.permission, need.resource, need.names(header, body)) for need in access.needs]


def test_names_are_read_from_the_fields_of_the_typed_header() -> None:
    header = QueryConsumerOffsetHeader(queueId=1, topic="T", consumerGroup="G")
    assert names_of(subscribe(topic="topic", group="consumerGroup"), header) == [
        (Permission.SUBSCRIBE, Resource.TOPIC, ["T"]),
        (Permission.SUBSCRIBE, Resource.GROUP, ["G"]),
    ]
    assert names_of(publish("topic"), header) == [(Permission.PUBLISH, Resource.TOPIC, ["T"])]


def test_names_are_read_from_the_body_if_present() -> None:
    access = subscribe(topic=lambda body: bytes(body).decode().split(","))
    assert names_of(access, None, b"A,B") == [(Permission.SUBSCRIBE, Resource.TOPIC, ["A", "B"])]


def test_a_missing_field_does_not_mean_nothing_is_required() -> None:
    with pytest.raises(NotNamed, match="topic"):
        names_of(publish("topic"), QueryConsumerOffsetHeader(queueId=1))
    assert names_of(publish(IfNamed("topic")), QueryConsumerOffsetHeader(queueId=1)) == [
        (Permission.PUBLISH, Resource.TOPIC, [])
    ]


def test_names_are_found_by_what_the_header_says() -> None:
    access = publish(Found(lambda header: [f"topic of queue {header.queueId}"]))
    assert names_of(access, QueryConsumerOffsetHeader(queueId=7)) == [
        (Permission.PUBLISH, Resource.TOPIC, ["topic of queue 7"])
    ]


def test_a_handler_without_a_rule_is_for_administrators() -> None:
    assert Handler(lambda request: None).access is ADMIN
    assert len({ADMIN, ANY_ACCOUNT, ANYONE}) == 3


class Part:
    """Serves the given codes."""

    def __init__(self, *codes: int) -> None:
        self.codes = codes

    def table(self) -> HandlerTable:
        return {code: Handler(lambda request: Reply()) for code in self.codes}


def test_a_server_serves_the_codes_of_its_parts() -> None:
    assert sorted(handler_table([Part(10, 11), Part(), Part(34)])) == [10, 11, 34]


def test_two_parts_may_not_claim_one_code() -> None:
    with pytest.raises(ValueError, match=r"Part serves what another part serves already: \[11\]"):
        handler_table([Part(10, 11), Part(11, 12)])
