"""The JSON header: what fastjson accepts and real clients send; what is refused; what is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.remoting import header_json
from rocketlet.remoting.command import Command, Language
from rocketlet.remoting.errors import FrameError
from rocketlet.remoting.protocol.offsets import QueryConsumerOffsetHeader


def read(text: str | bytes) -> Command:
    return header_json.decode(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Command(0, language=Language.JAVA, version=0)),
        ('{"code":105}', Command(105, language=Language.JAVA, version=0)),
        ('{"code":"105","version":"409","flag":"2"}', Command(105, 0, 2, Language.JAVA, 409)),
        ('{"code":105.0,"opaque":7.0}', Command(105, 7, 0, Language.JAVA, 0)),
        ('{"code":true}', Command(1, language=Language.JAVA, version=0)),
        ('{"code":1,"language":"go"}', Command(1, language=Language.GO, version=0)),
        ('{"code":1,"language":9}', Command(1, language=Language.GO, version=0)),
        ('{"code":1,"language":"KLINGON"}', Command(1, language=Language.OTHER, version=0)),
        ('{"code":1,"language":99}', Command(1, language=Language.OTHER, version=0)),
        ('{"code":1,"language":null}', Command(1, language=Language.JAVA, version=0)),
        ('{"code":1,"remark":null}', Command(1, language=Language.JAVA, version=0)),
        ('{"code":1,"remark":""}', Command(1, language=Language.JAVA, version=0, remark="")),
        ('{"code":1,"extFields":null}', Command(1, language=Language.JAVA, version=0)),
        ('{"code":1,"extFields":{}}', Command(1, language=Language.JAVA, version=0, ext={})),
        ('{"code":1,"foo":[1,{"a":2}]}', Command(1, language=Language.JAVA, version=0)),
        ('{"code":1}\n', Command(1, language=Language.JAVA, version=0)),
        ('{"code":1} \t\r\n', Command(1, language=Language.JAVA, version=0)),
        ("{code:1,remark:'x'}", Command(1, language=Language.JAVA, version=0, remark="x")),
        ('{"version":409,"code":1}', Command(1, language=Language.JAVA, version=409)),
    ],
)
def test_what_fastjson_accepts_is_accepted(text: str, expected: Command) -> None:
    assert read(text) == expected


def test_values_of_ext_fields_become_text() -> None:
    """C++ and Node clients rely on it."""
    text = '{"code":10,"extFields":{"a":0,"b":false,"c":{"q":1},"d":[1,"x"],"e":null,"f":"t","g":1.5,"h":true}}'
    ext = {"a": "0", "b": "false", "c": '{"q":1}', "d": '[1,"x"]', "f": "t", "g": "1.5", "h": "true"}
    assert read(text).ext == ext


def test_a_lone_surrogate_is_replaced() -> None:
    command = read(b'{"code":10,"extFields":{"a":"\\ud800x","n":1}}')
    assert command.ext is not None
    command.ext["a"].encode()


def test_invalid_utf_8_does_not_end_the_connection() -> None:
    assert read(b'{"code":10,"extFields":{"a":"\xff"}}').ext == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "text",
    ["", " ", "[]", "5", '"x"', "null", "{", '{"code":1', '{"code":1}x', '{"code":4294967296}', '{"code":"abc"}',
     '{"opaque":-2147483649}', '{"code":[]}', '{"code":1,"extFields":[]}', '{"code":1e400}', "\x00" * 20,
     '{"a":' * 3000],
)  # fmt: skip
def test_what_ends_a_connection_in_java_ends_it_here(text: str) -> None:
    with pytest.raises(FrameError):
        read(text)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.none() | st.text(max_size=8))
def test_written_headers_are_compact_and_complete(ext: dict[str, str], remark: str | None) -> None:
    command = Command(310, 5, 0, Language.PYTHON, 409, remark, ext)
    written = header_json.encode(command)
    parsed = json.loads(written)
    assert parsed.pop("remark", None) == remark
    assert parsed == {
        "code": 310,
        "opaque": 5,
        "flag": 0,
        "language": "PYTHON",
        "version": 409,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": ext,
    }
    assert written == json.dumps(json.loads(written), separators=(",", ":"), ensure_ascii=False).encode()
    assert header_json.decode(written) == command


def test_an_answer_has_what_all_clients_need() -> None:
    assert json.loads(header_json.encode_answer(0, 7, 409, None, {"offset": "5"})) == {
        "code": 0,
        "flag": 1,
        "language": "JAVA",
        "opaque": 7,
        "version": 409,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": {"offset": "5"},
    }
    assert b"extFields" not in header_json.encode_answer(0, 7, 409, None, None)


def test_typed_decoders_read_the_whole_header() -> None:
    decode = header_json.typed_decoder(QueryConsumerOffsetHeader).decode
    raw = b'{"code":14,"extFields":{"queueId":"3","topic":"T","consumerGroup":"G"},"opaque":9,"language":"CPP"}\n'
    found = decode(raw)
    assert (found.code, found.opaque, found.language) == (14, 9, "CPP")
    assert found.header == QueryConsumerOffsetHeader(3, "T", "G")
    assert header_json.typed_decoder(None).decode(raw).header is None


def test_a_reference_in_a_header_is_not_followed() -> None:
    # 929 KB became 5.8 GB: each field referred to the text of all the others.
    raw = b'{"code":10,"extFields":{"a":[1,2],"b":{"$ref":"$.extFields.a"},"c":5}}'
    assert read(raw).ext == {"a": "[1,2]", "b": '{"$ref":"$.extFields.a"}', "c": "5"}


def test_the_lenient_reader_gives_up_early() -> None:
    with pytest.raises(FrameError, match="more than 2000 values"):
        read(b'{"code":10,"extFields":{"a":[' + b"1," * 3000 + b"]}}")
