"""Sends that follow each other on a connection and are alike: their headers are the rows of a table.

The sends of one producer differ in the number of the request, the queue, the time, and in values of properties such as
the unique key; those are mostly as long as each other. Then one comparison of all headers with the first shows which
bytes differ, and if these are in the places of such values, what the first header says of all else holds for all: 0.4
µs a send, where reading each costs 3 with what the broker does with its properties.

Invariant: each row says exactly what `RequestReader` would have read. A place is found in the first header, whose
decoded fields must confirm it; the others have the same bytes around it, and inside it digits, or letters that neither
end a value nor are an escape. Whatever else differs, the sends are read one by one.

Java: (none)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketlet.common.decimal_columns import numbers_of
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.property_places import PropertyPlaces, property_places
from rocketlet.remoting.frame_codec import Buffer
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

_LOWEST, _HIGHEST = 33, 126  # of the bytes that may differ in a property: no separator, no blank, nothing but ASCII
_QUOTE, _BACKSLASH = b'"\\'

_JSON_FIELDS = re.compile(rb'"extFields":\s*\{(?:\s*"[^"\\]*":\s*"(?:[^"\\]|\\.)*+",?)*+\s*\}')
_JSON_OPAQUE = re.compile(rb'"opaque":\s*(\d+)')
_JSON_QUEUE = re.compile(rb'"e":\s*"(\d+)"')
_JSON_TIME = re.compile(rb'"g":\s*"(\d+)"')
_JSON_PROPERTIES = re.compile(rb'"i":\s*"((?:[^"\\]|\\.)*+)"')
_JSON_NAME_END, _JSON_VALUE_END = rb"\u0001", rb"\u0002"
_OPAQUE_IN_BINARY = slice(5, 9)
_MAP_AT = 21
_BINARY_QUEUE = re.compile(rb"\0\x01e\0\0\0.(\d+)\0\x01f", re.DOTALL)
_BINARY_TIME = re.compile(rb"\0\x01g\0\0\0.(\d+)\0\x01h", re.DOTALL)
_BINARY_PROPERTIES = re.compile(rb"\0\x01i(....)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AlikeSends:
    """`first` is read; `rows` are all headers. `properties` are places in a row, of which those in `varying` differ;
    the others are as in the first."""

    first: Request
    rows: NDArray[Any]
    bodies: list[Buffer]
    opaques: NDArray[Any]
    queue_ids: NDArray[Any]
    born_timestamps: NDArray[Any]
    properties: PropertyPlaces
    varying: frozenset[bytes]

    @property
    def count(self) -> int:
        return len(self.bodies)


class _Places(NamedTuple):
    opaque: slice
    queue: slice
    time: slice
    properties: PropertyPlaces


def read_alike(first: Request, frames: Frames) -> AlikeSends | None:
    """The sends from the first frame on that are alike; None where they are too few. `first` is the request in the
    first frame, a send by letters."""
    data, view, size = frames.data, memoryview(frames.data), len(first.raw_header)
    headers, bodies = list[bytes](), list[Buffer]()
    for header_type, header, body, end in frames.frames[:MOST]:
        if body - header != size or header_type != first.header_type:
            break
        headers.append(data[header:body])
        bodies.append(view[body:end])
    places = _places(first) if len(headers) >= FEW else None
    if places is None:
        return None
    import numpy

    rows = numpy.frombuffer(b"".join(headers), numpy.uint8).reshape(-1, size)
    may_differ, texts = _may_differ(size, places)
    difference = rows ^ rows[0]
    differs = numpy.bitwise_or.reduce(difference, axis=0) != 0
    if bool((differs & ~may_differ).any()):
        count = int((difference[:, ~may_differ].any(axis=1)).argmax())  # the first row that is not alike
        if count < FEW:
            return None
        rows, bodies = rows[:count], bodies[:count]
        differs = numpy.bitwise_or.reduce(difference[:count], axis=0) != 0
    opaques, queue_ids = _opaques(rows, places.opaque, first.header_type), numbers_of(rows[:, places.queue])
    times = numbers_of(rows[:, places.time])
    is_plain = _is_plain(rows[:, differs & texts], first.header_type)
    if opaques is None or queue_ids is None or times is None or not is_plain:
        return None
    varying = frozenset(name for name, place in places.properties.named.items() if differs[place].any())
    return AlikeSends(first, rows, bodies, opaques, queue_ids, times, places.properties, varying)


def _may_differ(size: int, places: _Places) -> tuple[NDArray[Any], NDArray[Any]]:
    """Which bytes of a header may differ, and which of these are text."""
    import numpy

    texts = numpy.zeros(size, bool)
    for place in places.properties.named.values():
        texts[place] = True
    may_differ = texts.copy()
    may_differ[places.opaque] = may_differ[places.queue] = may_differ[places.time] = True
    return may_differ, texts


def _opaques(rows: NDArray[Any], place: slice, header_type: int) -> NDArray[Any] | None:
    if header_type == 0:
        numbers = numbers_of(rows[:, place])
        return None if numbers is None or bool((numbers > INT32_MAX).any()) else numbers
    import numpy

    opaques: NDArray[Any] = numpy.ascontiguousarray(rows[:, place]).view(">i4").ravel()
    return opaques


def _is_plain(texts: NDArray[Any], header_type: int) -> bool:
    """Whether no byte ends a value or is part of an escape."""
    is_odd = texts - _LOWEST > _HIGHEST - _LOWEST
    if header_type == 0:
        is_odd |= (texts == _QUOTE) | (texts == _BACKSLASH)
    return not is_odd.any()


def _places(first: Request) -> _Places | None:
    """Where the values are in the first header; None where that is not certain."""
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
    properties = header.properties.encode("utf-8", "replace")
    opaque = raw[places.opaque]
    read = property_places(properties)
    is_confirmed = (
        first.opaque == (int(opaque) if is_json else int.from_bytes(opaque, "big", signed=True))
        and header.queueId == int(raw[places.queue])
        and header.bornTimestamp == int(raw[places.time])
        and len(read.values) == len(read.named) == len(places.properties.values) <= _MOST_PROPERTIES
        and len(read.keys) <= _MOST_KEYS
        and {name: properties[place] for name, place in read.named.items()}
        == {name: raw[place] for name, place in places.properties.named.items()}
    )
    return places if is_confirmed else None


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
    return _Places(opaque, queue, time, text)


def _places_in_map(raw: bytes) -> _Places | None:
    if read_send(raw, _MAP_AT) is None:  # in another order a value could pass for a field
        return None
    queue, time, size = _only(_BINARY_QUEUE, raw), _only(_BINARY_TIME, raw), _only(_BINARY_PROPERTIES, raw)
    if queue is None or time is None or size is None:
        return None
    end = size.stop + int.from_bytes(raw[size], "big")
    return _Places(_OPAQUE_IN_BINARY, queue, time, property_places(raw, size.stop, end))


def _only(pattern: re.Pattern[bytes], raw: bytes, begin: int = 0, end: int = 1 << 20) -> slice | None:
    """The place of the pattern's group, if it occurs once."""
    found = pattern.search(raw, begin, end)
    if found is None or pattern.search(raw, found.start() + 1, end) is not None:
        return None
    return slice(*found.span(1))
