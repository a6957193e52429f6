"""Long objects in parts: what is found in them, how much is looked at for it, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.fastjson import InvalidJson
from rocketlet.common.json_members import ROWS, LongObject

# What may mislead a search for the end of an object.
TEXTS = st.text(alphabet='a"\\{},:[] é\n')
LEAVES = st.none() | st.integers() | TEXTS | st.lists(TEXTS)
MEMBERS = st.dictionaries(TEXTS, LEAVES | st.dictionaries(TEXTS, LEAVES | st.dictionaries(TEXTS, LEAVES)))


@given(st.dictionaries(TEXTS, MEMBERS), st.sampled_from([None, 1]), st.booleans(), TEXTS)
def test_an_object_is_its_parts_together(
    table: dict[str, object], indent: int | None, escaped: bool, behind: str
) -> None:
    text = json.dumps(table, indent=indent, ensure_ascii=escaped).encode()
    longest = max((len(json.dumps({key: value}, indent=2).encode()) for key, value in table.items()), default=0)
    whole = LongObject(text + behind.encode(), 1, 2 * longest + 10)
    assert {key: value for part in whole for key, value in json.loads(part).items()} == table
    assert whole.at == len(text)


def test_a_part_has_a_thousand_members_at_most() -> None:
    text = json.dumps({str(number): {} for number in range(2 * ROWS + 1)}).encode()
    assert [len(json.loads(part)) for part in LongObject(text, 1, 1 << 20)] == [ROWS, ROWS, 1]


def test_no_more_is_read_than_what_a_part_needs() -> None:
    parts = iter(LongObject(b'{"a":{"b":1},"c":' + b"x" * 1_000, 1, 100))
    assert next(parts) == b'{"a":{"b":1}}'
    with pytest.raises(InvalidJson, match=r"at byte 13: expected an object of at most 100 bytes"):
        next(parts)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'"a":{}',
        b'"a":{} "b":{}}',
        b'"a":{},,"b":{}}',
        b'"a":null}',
        b'"a":{"b":{"c":{"d":{}}}}}',
        b'"a":{"b":"' + b"c" * 200 + b'"}}',
        b'"a":{"b":"c}}',
        b'"a":{"b":"c\\"}}',
        b" " * 200 + b"}",
        b"'a':{}}",
        b"a:{}}",
        b'"a":{}]',
    ],
)
def test_what_is_no_object_of_short_objects_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidJson):
        list(LongObject(text, 0, 100))
