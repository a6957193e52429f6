"""Vocabularies of a frame's header: versions by name, languages by name or number."""

from __future__ import annotations

import pytest

from rocketlet.remoting.command import Command, Language, language_of, request, version_name
from rocketlet.remoting.protocol.offsets import QueueHeader
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.remoting.response_codes import ResponseCode, response_name


@pytest.mark.parametrize(
    ("version", "name"),
    [(409, "V4_9_8"), (408, "V4_9_8_SNAPSHOT"), (213, "V4_0_0"), (253, "V4_2_0"), (317, "V4_5_2"), (413, "V5_0_0"),
     (441, "V5_1_4"), (479, "V5_3_3"), (232, "V4_1_0_SNAPSHOT"), (121, "V3_121"), (9999, version_name(612))],
)  # fmt: skip
def test_version_names(version: int, name: str) -> None:
    assert version_name(version) == name


@pytest.mark.parametrize(
    ("announced", "language"),
    [(None, Language.JAVA), ("JAVA", Language.JAVA), ("go", Language.GO), (1, Language.CPP), (12, Language.RUST),
     ("KLINGON", Language.OTHER), (99, Language.OTHER), (-1, Language.OTHER)],
)  # fmt: skip
def test_languages(announced: str | int | None, language: Language) -> None:
    assert language_of(announced) is language


def test_code_names() -> None:
    assert request_name(310) == "SEND_MESSAGE_V2"
    assert request_name(9999) == "request 9999"
    assert response_name(17) == "TOPIC_NOT_EXIST"
    assert response_name(9999) == "response 9999"
    assert RequestCode.LITE_PULL_MESSAGE == 361
    assert ResponseCode.PULL_OFFSET_MOVED == 21


def test_a_request_carries_its_header_as_text() -> None:
    command = request(RequestCode.GET_MAX_OFFSET, QueueHeader(3, "T"), b"body", remark="r")
    assert command == Command(30, remark="r", ext={"queueId": "3", "topic": "T"}, body=b"body")
    assert not command.is_response
    assert not command.is_oneway
    assert Command(0, flag=1).is_response
    assert Command(15, flag=2).is_oneway
    assert request(34).ext is None
