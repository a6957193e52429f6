"""Sends that follow each other on a connection and are alike: their headers are the rows of a table.

The sends of one producer differ in the number of the request, the queue, the time, and in values of properties such as
the unique key; those are mostly as long as each other. The first header tells where these values are (`shape_of`); the
others have only to be compared with it, and so have the next ones of that producer (`read_alike`): half a microsecond a
send, where reading each costs 3 with what the broker does with its properties.

Invariant: each row says exactly what `RequestReader` would have read. A place is found in a header whose decoded fields
confirm it; a row has the same bytes around it, and inside it digits, or letters that neither end a value nor are an
escape. Whatever else differs, the sends are read one by one.

Java: (none)
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketlet.common.decimal_columns import numbers_of
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.property_places import PropertyPlaces, property_places
from rocketlet.remoting.handler import FEW, Frames, Request
from rocketlet.remoting.header_rocketmq_typed import read_send
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 1024
"""A turn must not become too long."""
_LONGEST_HEADER = 4096  # a longer one has properties that are worth a look of their own
_MOST_PROPERTIES = 64  # each costs a microsecond or two, however many the sends
_MOST_KEYS = 16  # ... and ten

# The bytes that may differ in a property: those that neither end it, or a word in it, nor are part of an escape.
_ALLOWED = bytes(range(33, 127))
_ALLOWED_IN_JSON = _ALLOWED.translate(None, b'"\\')

_JSON_FIELDS = re.compile(rb'"extFields":\s*\{(?:\s*"[^"\\]*":\s*"(?:[^"\\]|\\.)*+",?)*+\s*\}')
_JSON_OPAQUE = re.compile(rb'"opaque":\s*(\d+)')
_JSON_QUEUE = re.compile(rb'"e":\s*"(\d+)"')
_JSON_TIME = re.compile(rb'"g":\s*"(\d+)"')
_JSON_PROPERTIES = re.compile(rb'"i":\s*"((?:[^"\\]|\\.)*+)"')
_JSON_SIGNATURE = re.compile(rb'"Signature":\s*"([^"\\]{28})"')
_JSON_NAME_END, _JSON_VALUE_END = rb"\u0001", rb"\u0002"
_OPAQUE_IN_BINARY = slice(5, 9)
_MAP_AT = 21
_BINARY_QUEUE = re.compile(rb"\0\x01e\0\0\0.(\d+)\0\x01f", re.DOTALL)
_BINARY_TIME = re.compile(rb"\0\x01g\0\0\0.(\d+)\0\x01h", re.DOTALL)
_BINARY_SIGNATURE = re.compile(rb"\0\x09Signature\0\0\0\x1c(.{28})", re.DOTALL)
_BINARY_PROPERTIES = re.compile(rb"\0\x01i(....)", re.DOTALL)

_Places = tuple[slice, slice, slice, slice, PropertyPlaces]
"""Of opaque, queue id, time and signature, and of the values of properties."""
_NONE = slice(0, 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the headers of a producer's sends have in common, and the places of the rest.

    `row` is the first header. `fixed` is 255 where a row has to be as it is, and 0 elsewhere, and `common` what the
    fixed bytes are. `texts` are the numbers of the bytes of values that may differ; those of `checked`, with the
    signature's, have to be `allowed` ones.
    """

    header_type: int
    row: NDArray[Any]
    fixed: NDArray[Any]
    common: bytes
    texts: NDArray[Any]
    checked: NDArray[Any]
    allowed: bytes
    opaque: slice
    queue: slice
    time: slice
    properties: PropertyPlaces


@dataclass(frozen=True, slots=True)
class AlikeSends:
    """Sends of one shape: `rows` are their headers."""

    rows: NDArray[Any]
    bodies: list[memoryview]
    opaques: NDArray[Any]
    queue_ids: NDArray[Any]
    born_timestamps: NDArray[Any]

    @property
    def count(self) -> int:
        return len(self.bodies)


def read_alike(shape: Shape, frames: Frames) -> AlikeSends | None:
    """The sends of that shape from the first frame on; None where they are too few."""
    data, view, size = frames.data, memoryview(frames.data), len(shape.row)
    headers, bodies = list[bytes](), list[memoryview]()
    for header_type, header, body, end in frames.frames[:MOST]:
        if body - header != size or header_type != shape.header_type:
            break
        headers.append(data[header:body])
        bodies.append(view[body:end])
    if len(headers) < FEW:
        return None
    import numpy

    rows = numpy.frombuffer(b"".join(headers), numpy.uint8).reshape(-1, size)
    if (rows & shape.fixed).tobytes() != shape.common * len(headers):
        differs = ((rows ^ shape.row) & shape.fixed).any(axis=1)
        count = int(differs.argmax())  # the first row that is not alike
        if count < FEW:
            return None
        rows, bodies = rows[:count], bodies[:count]
    if rows.take(shape.checked, axis=1).tobytes().translate(None, shape.allowed):
        return None
    opaques, queue_ids = _opaques(rows, shape), numbers_of(rows[:, shape.queue])
    times = numbers_of(rows[:, shape.time])
    if opaques is None or queue_ids is None or times is None:
        return None
    return AlikeSends(rows, bodies, opaques, queue_ids, times)


def _opaques(rows: NDArray[Any], shape: Shape) -> NDArray[Any] | None:
    if shape.header_type == 0:
        numbers = numbers_of(rows[:, shape.opaque])
        return None if numbers is None or bool((numbers > INT32_MAX).any()) else numbers
    import numpy

    opaques: NDArray[Any] = numpy.ascontiguousarray(rows[:, shape.opaque]).view(">i4").ravel()
    return opaques


def shape_of(first: Request, shared: Collection[bytes]) -> Shape | None:
    """The shape of a send by letters; None where it is not certain what is where. The properties named in `shared` have
    to have the same value in all."""
    header, raw, is_json = first.header, first.raw_header, first.header_type == 0
    if (
        not isinstance(header, SendMessageHeaderV2)
        or first.flag
        or first.header_type not in (0, 1)
        or len(raw) > _LONGEST_HEADER
    ):
        return None
    places = _places_in_json(raw) if is_json else _places_in_map(raw)
    if places is None:
        return None
    opaque, queue, time, signature, texts = places
    properties = header.properties.encode("utf-8", "replace")
    read = property_places(properties)
    is_confirmed = (
        first.opaque == (int(raw[opaque]) if is_json else int.from_bytes(raw[opaque], "big", signed=True))
        and header.queueId == int(raw[queue])
        and header.bornTimestamp == int(raw[time])
        and len(read.values) == len(read.named) == len(texts.values) <= _MOST_PROPERTIES
        and len(read.keys) <= _MOST_KEYS
        and {name: properties[place] for name, place in read.named.items()}
        == {name: raw[place] for name, place in texts.named.items()}
    )
    if not is_confirmed:
        return None
    import numpy

    row, fixed = numpy.frombuffer(raw, numpy.uint8), numpy.full(len(raw), 255, numpy.uint8)
    allowed = _ALLOWED_IN_JSON if is_json else _ALLOWED
    for name, place in texts.named.items():
        if name not in shared:
            fixed[place] = [0 if byte in allowed else 255 for byte in raw[place]]
    differing = (fixed == 0).nonzero()[0]
    fixed[signature] = 0
    checked = (fixed == 0).nonzero()[0]
    fixed[opaque] = fixed[queue] = fixed[time] = 0
    common = (row & fixed).tobytes()
    return Shape(first.header_type, row, fixed, common, differing, checked, allowed, opaque, queue, time, texts)


def _places_in_json(raw: bytes) -> _Places | None:
    fields = _JSON_FIELDS.search(raw)
    if fields is None or raw.count(b'"extFields"') != 1:
        return None
    begin, end = fields.span()
    opaque = _only(_JSON_OPAQUE, raw)
    queue, time = _only(_JSON_QUEUE, raw, begin, end), _only(_JSON_TIME, raw, begin, end)
    properties = _only(_JSON_PROPERTIES, raw, begin, end)
    if opaque is None or begin < opaque.start < end or queue is None or time is None or properties is None:
        return None
    text = property_places(raw, properties.start, properties.stop, name_end=_JSON_NAME_END, value_end=_JSON_VALUE_END)
    return opaque, queue, time, _only(_JSON_SIGNATURE, raw, begin, end) or _NONE, text


def _places_in_map(raw: bytes) -> _Places | None:
    if read_send(raw, _MAP_AT) is None:  # in another order a value could pass for a field
        return None
    queue, time, size = _only(_BINARY_QUEUE, raw), _only(_BINARY_TIME, raw), _only(_BINARY_PROPERTIES, raw)
    if queue is None or time is None or size is None:
        return None
    end = size.stop + int.from_bytes(raw[size], "big")
    signature = _only(_BINARY_SIGNATURE, raw) or _NONE
    return _OPAQUE_IN_BINARY, queue, time, signature, property_places(raw, size.stop, end)


def _only(pattern: re.Pattern[bytes], raw: bytes, begin: int = 0, end: int = 1 << 20) -> slice | None:
    """The place of the pattern's group, if it occurs once."""
    found = pattern.search(raw, begin, end)
    if found is None or pattern.search(raw, found.start() + 1, end) is not None:
        return None
    return slice(*found.span(1))
