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
def test_the_lenient_reader_reads_plain_json_too(value: Any) -> None:
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


def test_every_table_java_wrote_is_read() -> None:
    files = sorted(path for path in VECTORS.glob("config/*/*.json*"))
    assert len(files) > 30
    for path in files:
        assert isinstance(loads(path.read_bytes()), dict), path
    offsets = loads((VECTORS / "config/frames-broker/consumerOffset.json").read_bytes())["offsetTable"]
    assert all(isinstance(offset, int) for queues in offsets.values() for offset in queues.values())


def test_every_body_java_sent_is_read() -> None:
    seen = 0
    for path in sorted(VECTORS.glob("frames/*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            body = json.loads(line)["body"]
            if isinstance(body, str) and body.startswith("{"):
                loads(body)
                seen += 1
    assert seen > 250


@pytest.mark.parametrize("escape", ["\\u-001", "\\u+123", "\\u1_23", "\\u 12a", "\\x-1", "\\ud800\\u-001", "\\u12"])
def test_an_invalid_escape_is_an_error(escape: str) -> None:
    with pytest.raises(InvalidJson, match="escape"):
        loads(f'{{a:"{escape}"}}')


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '"\\udc00"', "'\\ud800x'", '"\\ud800\\u0041"', '{a:"\\ud83d"}', '"\ud800"', "{'\\udfff':1}"]
)
def test_whatever_is_read_can_be_written_again(text: str) -> None:
    value = loads(text)
    assert loads(dumps(value)) == value


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert loads("{topic:'x\\ud800y'}") == {"topic": "x\ufffdy"}


@given(st.text("\\\"'ud8c0xf{}[]:,$re.a", max_size=40))
def test_the_lenient_reader_reads_only_what_can_be_written(text: str) -> None:
    for candidate in (text, f'"{text}"', f"{{a:'{text}'}}"):
        try:
            value = loads(candidate, max_values=1000)
        except InvalidJson:
            continue
        dumps(value)


def test_a_budget_counts_values_that_are_not_plain_json() -> None:
    assert loads("[1,2,3,]", max_values=4) == [1, 2, 3]
    with pytest.raises(InvalidJson, match="more than 4 values"):
        loads("[1,2,3,4,]", max_values=4)
    assert loads("[1,2,3,4]", max_values=4) == [1, 2, 3, 4]


def test_a_budget_counts_escapes() -> None:
    assert loads("'" + "\\n" * 12 + "'", max_values=10) == "\n" * 12
    with pytest.raises(InvalidJson, match="more than 10 values"):
        loads("'" + "\\n" * 13 + "'", max_values=10)


@pytest.mark.parametrize(
    "beginning",
    [
        "[",
        "[[",
        "[" + "1," * 20_000,
        "[" + "[]," * 20_000,
        "[" + "{}:," * 5,
        "{" + "1:1," * 20_000,
        "'" + "\\n" * 80_000,
    ],
)
def test_a_budget_holds_whatever_the_values_are(beginning: str) -> None:
    with pytest.raises(InvalidJson):
        loads(beginning, max_values=8000)


def test_an_object_key_cannot_hold_an_object_key() -> None:
    # Each level doubled the length of the inner one: 40 levels took all memory.
    with pytest.raises(InvalidJson, match="an object key inside an object key"):
        loads("{" * 40 + "}:1" * 39 + "}")
    assert loads("{{a:1}:{{b:1}:2}}") == {'{"a":1}': {'{"b":1}': 2}}


def test_references_are_charged_for_their_target() -> None:
    many = ",".join(['{"$ref":"$.a"}'] * 100)
    text = f'{{"a":[{",".join(map(str, range(100)))}],"b":[{many}]}}'
    assert len(loads(text, max_values=20_000)["b"]) == 100
    with pytest.raises(InvalidJson, match="stand for too many values"):
        loads(text, max_values=2_000)


def test_references_to_long_text_are_charged_for_its_length() -> None:
    text = '{"a":"' + "x" * 1_000_000 + '","b":[' + ",".join(['{"$ref":"$.a"}'] * 100) + "]}"
    with pytest.raises(InvalidJson, match="stand for too many values"):
        loads(text, max_values=8_000)


def test_references_in_a_file_have_a_budget_too() -> None:
    numbers, references = ",".join(["1"] * 10_000), ",".join(['{"$ref":"$.a"}'] * 200)
    with pytest.raises(InvalidJson, match="stand for too many values"):
        loads(f'{{"a":[{numbers}],"b":[{references}]}}')


def test_without_references_ref_is_an_ordinary_key() -> None:
    assert loads('{"a":{"$ref":"$.b"},"b":1,}', references=False) == {"a": {"$ref": "$.b"}, "b": 1}


def test_texts_of_another_type_are_written_as_text() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "never asked"

    assert dumps({Name("a"): [Name("b")]}) == b'{"a":["b"]}'
    with pytest.raises(TypeError, match="a object cannot be written"):
        dumps({"a": object()})


@pytest.mark.parametrize(
    "text", [b"{'a':'" + b"\xff" * 1100 + b"'}", b"{" + b" " * 1100 + b"'a':1}", b"{'a':0." + b"9" * 1100 + b"}"]
)
def test_a_budget_limits_the_length_of_odd_json_too(text: bytes) -> None:
    with pytest.raises(InvalidJson, match="longer than 1056 bytes"):
        loads(text, max_values=8)
    assert loads(text) == loads(text, max_values=9)


def test_long_plain_json_needs_no_budget_for_its_length() -> None:
    text = b'{"a":"%b"}' % (b"x" * 5000)
    assert loads(text, max_values=8) == {"a": "x" * 5000}
