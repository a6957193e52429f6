"""Alike sends as columns say what each of them says when it is read alone."""

from __future__ import annotations

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.java_numbers import INT32_MAX, utf8_hash
from rocketlet.common.property_places import property_places
from rocketlet.remoting.alike_sends import MOST, AlikeSends, Shape, read_alike, shape_of
from rocketlet.remoting.command import Command, HeaderType
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import FrameError
from rocketlet.remoting.frame_codec import cut, encode
from rocketlet.remoting.handler import FEW, Frames, Request
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.request_reader import RequestReader, UnreadableRequest

READER = RequestReader({310: SendMessageHeaderV2})
NOBODY = cast(Connection, None)
TYPES = st.sampled_from([HeaderType.JSON, HeaderType.ROCKETMQ])
PROPERTIES = "KEYS\x01{key}\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02TAGS\x01{tag}"


def a_send(number: int, kind: HeaderType = HeaderType.ROCKETMQ, body: bytes = b"body", **changes: str) -> bytes:
    """A send whose fields are as long for each number."""
    properties = PROPERTIES.format(key=f"k{number:04}", unique=f"{number:08X}", tag="A")
    ext = {
        "a": "PG", "b": "TopicTest", "c": "TBW102", "d": "8", "e": str(number % 8), "f": "0",
        "g": str(1_700_000_000_000 + number), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return encode(Command(310, 1000 + number, ext=ext | changes, body=body, header_type=kind))


def alike(data: bytes, like: bytes | None = None) -> tuple[Shape, AlikeSends] | None:
    """The sends at the begin of `data` that are like the first one, or like another one."""
    first = one_by_one(like or data)[0]
    shape = shape_of(first, {b"WAIT"}) if isinstance(first, Request) else None
    sends = read_alike(shape, Frames(data, cut(data).frames)) if shape is not None else None
    return None if shape is None or sends is None else (shape, sends)


def one_by_one(data: bytes) -> list[Request | Command | None]:
    requests: list[Request | Command | None] = []
    for header_type, header, body, end in cut(data).frames:
        try:
            requests.append(READER.read(header_type, data[header:body], data[body:end], NOBODY, 0.0))
        except (UnreadableRequest, FrameError):
            requests.append(None)
    return requests


def assert_same(shape: Shape, found: AlikeSends, data: bytes, like: bytes | None = None) -> None:
    """Every row says what its frame says, and what the one that the shape is of said for all."""
    first = cast(Request, one_by_one(like or data)[0]).header
    for row, request in enumerate(one_by_one(data)[: found.count]):
        assert isinstance(request, Request)
        header = request.header
        assert request.opaque == found.opaques[row]
        assert header.queueId == found.queue_ids[row]
        assert header.bornTimestamp == found.born_timestamps[row]
        assert bytes(found.bodies[row]) == request.body
        for name in header.__struct_fields__:
            if name not in ("queueId", "bornTimestamp", "properties"):
                assert getattr(header, name) == getattr(first, name)
        raw, properties = found.rows[row].tobytes(), header.properties.encode()
        places = property_places(properties)
        assert {name: raw[place] for name, place in shape.properties.named.items()} == {
            name: properties[place] for name, place in places.named.items()
        }
        keys = [header.topic.encode() + b"#" + properties[place] for place in places.keys]
        assert found.key_hashes[row].tolist() == [abs(utf8_hash(key)) & INT32_MAX for key in keys]
        assert found.tags_codes[row] == (0 if places.tags is None else utf8_hash(properties[places.tags]))
        assert properties.count(b"WAIT\x01true") == first.properties.count("WAIT\x01true")


@given(TYPES, st.integers(FEW, 40), st.lists(st.binary(max_size=9), min_size=1, max_size=5))
def test_sends_of_a_producer_are_alike_whatever_their_bodies(kind: HeaderType, count: int, bodies: list[bytes]) -> None:
    data = b"".join(a_send(number, kind, bodies[number % len(bodies)]) for number in range(count))
    found = alike(data)
    assert found is not None
    assert found[1].count == count
    assert_same(*found, data)


ODD = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from(["PH", "P\x00", "\x00\x01e\x00\x00\x00\x017\x00\x01f", '"e":"7"']),
        "b": st.sampled_from(["TopicTesu", "TopicTes\u00e9"]),
        "e": st.sampled_from(["0", "7", "-", "\u0661", "10", "07"]),
        "g": st.sampled_from(["170000000000x", "0700000000000", "17"]),
        "h": st.sampled_from(["1", "-1"]),
        "i": st.sampled_from(
            [
                "KEYS\x01k0000\x02UNIQ_KEY\x010000000A\x02WAIT\x01fals\x02TAGS\x01A",
                "KEYS\x01k0 00\x02UNIQ_KEY\x010000000A\x02WAIT\x01true\x02TAGS\x01A",
                "KEYS\x01k0\x0200\x02UNIQ_KEY\x010000000A\x02WAIT\x01true\x02TAGS\x01A",
                'KEYS\x01k"\\00\x02UNIQ_KEY\x010000000A\x02WAIT\x01true\x02TAGS\x01A',
                "KEYS\x01k\u00e900\x02UNIQ_KEY\x010000000A\x02WAIT\x01true\x02TAGS\x01B",
                "KEYS\x01k0000\x02KEYS\x01k0001\x02WAIT\x01true\x02TAGS\x01B",
                "",
            ]
        ),
        "m": st.sampled_from(["true!", "False"]),
        "z": st.just("1"),
    },
)


@given(TYPES, st.lists(ODD, min_size=1, max_size=4), st.integers(0, 3), st.integers(FEW, 3 * FEW))
def test_odd_sends_are_read_as_they_are_alone_or_not_at_all(
    kind: HeaderType, odd: list[dict[str, str]], step: int, count: int
) -> None:
    data = b"".join(
        a_send(number, kind, **(odd[number % len(odd)] if step and number % step == 0 else {}))
        for number in range(count)
    )
    found = alike(data)
    if found is not None:
        assert found[1].count >= FEW
        assert_same(*found, data)


@given(TYPES, st.integers(FEW, 2 * FEW), st.data())
def test_flipped_bytes_do_not_change_what_is_read(kind: HeaderType, count: int, draw: st.DataObject) -> None:
    data = bytearray(b"".join(a_send(number, kind) for number in range(count)))
    size = len(data) // count
    for _ in range(draw.draw(st.integers(1, 3))):
        row, at = draw.draw(st.integers(0, count - 1)), draw.draw(st.integers(8, size - 5))
        data[row * size + at] = draw.draw(st.integers(0, 255) | st.sampled_from(list(b'"\\\x00\x01\x0209 ')))
    found = alike(bytes(data))
    if found is not None:
        assert_same(*found, bytes(data))


@pytest.mark.parametrize("kind", [HeaderType.JSON, HeaderType.ROCKETMQ])
def test_those_before_one_that_differs_are_taken(kind: HeaderType) -> None:
    numbers = range(3 * FEW)
    data = b"".join(a_send(n, kind, b="TopicTesu" if n == FEW + 3 else "TopicTest") for n in numbers)
    found = alike(data)
    assert found is not None
    assert found[1].count == FEW + 3
    assert alike(b"".join(a_send(n, kind, b="TopicTesu" if n == FEW - 1 else "TopicTest") for n in numbers)) is None


@given(TYPES, ODD, ODD)
def test_a_shape_is_known_again_in_later_sends(kind: HeaderType, one: dict[str, str], other: dict[str, str]) -> None:
    first, later = a_send(0, kind, **one), b"".join(a_send(number, kind, **other) for number in range(FEW))
    found = alike(later, first)
    if found is not None:
        assert_same(*found, later, first)
    elif one == other and not one:
        raise AssertionError("plain sends are alike")


SAME_SIZE = {
    HeaderType.ROCKETMQ: [b"k0\x0220", b"k0\x0120", b"k0 20", b"k\xc3\xa920", b"k0\x0020"],
    HeaderType.JSON: [b'k\\"20', b"k0 20", b"k\xc3\xa920", b'k0","'],
}


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in SAME_SIZE.items() for value in values])
def test_a_value_with_a_byte_that_may_end_it_is_not_alike(kind: HeaderType, value: bytes) -> None:
    frames = [a_send(number, kind) for number in range(30)]
    assert alike(b"".join(frames)) is not None
    frames[20] = frames[20].replace(b"k0020", value)
    assert alike(b"".join(frames)) is None


def json_sends(header: str) -> bytes:
    """Sends with this header, whose own `%d` is as long in each: what reads it as a number of the request is mistaken,
    unless it is that number."""
    fields = json.dumps(json.loads(a_send(0, HeaderType.JSON, b"")[8:])["extFields"])
    raw = [(header % number).replace("FIELDS", fields).encode() for number in range(10)] * 2
    return b"".join((len(one) + 4).to_bytes(4, "big") + len(one).to_bytes(4, "big") + one for one in raw)


@pytest.mark.parametrize(
    ("header", "is_read"),
    [
        ('{"code":310,"extFields":FIELDS,"opaque":%d}', True),
        ('{"code":310,"opaque": %d , "extFields": FIELDS,"remark":null}', True),
        ('{"code":310,"extFields":FIELDS,"opaque":%de2}', False),
        ('{"code":310,"extFields":FIELDS,"opaque":%d.0}', False),
        ('{"code":310,"extFields":FIELDS,"opaque":%d,"\\u006fpaque":0}', False),
        ('{"code":310,"extFields":FIELDS,"inner":{"opaque":%d}}', False),
        ('{"code":310,"extFields":FIELDS,"\\u0065xtFields":FIELDS,"opaque":%d}', False),
        ("{\"code\":310,\"extFields\":FIELDS,'opaque':0,'remark':'\"opaque\":%d,'}", False),
    ],
)
def test_the_number_of_a_request_is_where_a_reader_finds_it(header: str, is_read: bool) -> None:
    data = json_sends(header)
    found = alike(data)
    assert (found is not None) == is_read
    if found is not None:
        assert_same(*found, data)


@pytest.mark.parametrize("kind", [HeaderType.JSON, HeaderType.ROCKETMQ])
def test_words_end_where_those_of_the_first_end(kind: HeaderType) -> None:
    texts = [f"KEYS\x01a{number} b{number}" for number in range(10, 40)]
    found = alike(b"".join(a_send(number, kind, i=text) for number, text in enumerate(texts)))
    assert found is not None
    assert found[1].count == 30
    texts[20] = texts[20].replace(" ", "-")
    found = alike(b"".join(a_send(number, kind, i=text) for number, text in enumerate(texts)))
    assert found is not None
    assert found[1].count == 20


def test_with_very_many_keys_each_is_read_alone() -> None:
    def sends(words: int) -> bytes:
        return b"".join(a_send(number, i="KEYS\x01" + " ".join(["k"] * words)) for number in range(FEW))

    assert alike(sends(16)) is not None
    assert alike(sends(17)) is None


def test_few_sends_oneway_sends_and_msgpack_are_read_alone() -> None:
    assert alike(b"".join(map(a_send, range(FEW - 1)))) is None
    assert alike(b"".join(a_send(number, HeaderType.MSGPACK) for number in range(20))) is None
    oneway = encode(Command(310, 1, 2, ext={"e": "1", "g": "1", "i": ""}, header_type=HeaderType.JSON))
    assert alike(oneway * 20) is None


def test_a_turn_takes_no_more_than_most() -> None:
    found = alike(b"".join(a_send(number, body=b"") for number in range(1000, MOST + 1100)))
    assert found is not None
    assert found[1].count == MOST
