from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.fastjson import InvalidJson, dumps, dumps_object_keys, loads

VECTORS = pathlib.Path(__file__).parent.parent / "vectors"

texts = st.text(st.characters(exclude_categories=["Cs"]))
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
plain = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_plain_json_both_ways(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("$ref", None)
    assert loads(dumps(value)) == value


@given(plain.filter(lambda value: isinstance(value, list | dict)))
def test_the_tolerant_reader_reads_plain_json_too(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=True)
    # A trailing comma sends it through our own reader.
    tolerant = text[:-1] + "," + text[-1]
    assert loads(tolerant) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"x{3:4",-1:[1,2,],}', {"0": "x{3:4", "-1": [1, 2]}),
        ("{'a':'it\\'s', b : 1L}", {"a": "it's", "b": 1}),
        ('{"a":"\\ud83d\\ude00\\x41",}', {"a": "\U0001f600A"}),
        ('{"t":{{"queueId":0,"topic":"t"}:5}}', {"t": {'{"queueId":0,"topic":"t"}': 5}}),
        ('{"statsDay":{"sum":1},"statsHour":{"$ref":"$.statsDay"}}', {"statsDay": {"sum": 1}, "statsHour": {"sum": 1}}),
        ('[{"a":[1,{"b":2}]},{"$ref":"$[0].a[1]"}]', [{"a": [1, {"b": 2}]}, None]),
        ('{"a":[1,{"b":2}],"c":{"$ref":"$.a[1]"}}', {"a": [1, {"b": 2}], "c": {"b": 2}}),
        ('{"a":{"$ref":"$"},"b":{"$ref":"$.missing.x"}}', {"a": None, "b": None}),
        ("{a:true,b:null,c:-1.5e3,d:NaN}", {"a": True, "b": None, "c": -1500.0, "d": None}),
    ],
)  # fmt: skip
def test_oddities(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "text", ["", "{", "[1", '{"a"}', '{"a":}', "{:1}", "1 2", '"x', '"\\u00zz"', "nope", "[" * 1000, "[" * 100_000]
)
def test_broken(text: str) -> None:
    with pytest.raises(InvalidJson, match="not JSON at character"):
        loads(text)


def test_java_table() -> None:
    text = '{\n\t"offsetTable":{\n\t\t"TopicTest@GroupA":{0:5,1:7,10:9\n\t\t}\n\t}\n}'
    assert loads(text) == {"offsetTable": {"TopicTest@GroupA": {"0": 5, "1": 7, "10": 9}}}


def test_object_keys() -> None:
    queue = {"brokerName": "b", "queueId": 0, "topic": "t"}
    raw = dumps({"offsetTable": dumps_object_keys([(queue, 5), ({**queue, "queueId": 1}, 7)])})
    assert raw == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5,{"brokerName":"b","queueId":1,"topic":"t"}:7}}'
    )
    assert {loads(key)["queueId"]: value for key, value in loads(raw)["offsetTable"].items()} == {0: 5, 1: 7}


def test_integer_keys_are_quoted() -> None:
    assert dumps({0: "x", 1: [None, True]}) == b'{"0":"x","1":[null,true]}'


def test_every_table_java_wrote() -> None:
    files = sorted(path for path in VECTORS.glob("config/*/*.json*"))
    assert len(files) > 30
    for path in files:
        assert isinstance(loads(path.read_bytes()), dict), path
    offsets = loads((VECTORS / "config/frames-broker/consumerOffset.json").read_bytes())["offsetTable"]
    assert all(isinstance(offset, int) for queues in offsets.values() for offset in queues.values())


def test_every_body_java_sent() -> None:
    seen = 0
    for path in sorted(VECTORS.glob("frames/*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            body = json.loads(line)["body"]
            if isinstance(body, str) and body.startswith("{"):
                loads(body)
                seen += 1
    assert seen > 250


@pytest.mark.parametrize("escape", ["\\u-001", "\\u+123", "\\u1_23", "\\u 12a", "\\x-1", "\\ud800\\u-001", "\\u12"])
def test_an_escape_that_is_none_is_told(escape: str) -> None:
    with pytest.raises(InvalidJson, match="escape"):
        loads(f'{{a:"{escape}"}}')
