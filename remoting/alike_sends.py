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

from rocketlet.common.byte_sums import WIDEST_DECIMAL, ByteSums, decimal_sum, hash_sum
from rocketlet.common.java_numbers import INT32_MAX
from rocketlet.common.property_places import PropertyPlaces, property_places
from rocketlet.remoting import header_json
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
_DIGITS = b"0123456789"

_JSON_FIELDS = re.compile(rb'"extFields":\s*\{(?:\s*"[^"\\]*":\s*"(?:[^"\\]|\\.)*+",?)*+\s*\}')
_JSON_OPAQUE = re.compile(rb'"opaque":\s*(\d+)\s*[,}]')
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
    fixed bytes are. The bytes at `texts`, of values and the signature, have to be `allowed` ones, those at `digits`
    digits, and those at `firsts`, the first ones of longer numbers, no zeros. `numbers` are queue id, time, opaque if
    it is written in digits, the hash of the tags if there are any, and those of the keys.
    """

    header_type: int
    row: NDArray[Any]
    fixed: NDArray[Any]
    common: bytes
    texts: NDArray[Any]
    allowed: bytes
    digits: NDArray[Any]
    firsts: NDArray[Any]
    numbers: ByteSums
    opaque: slice
    queue: slice
    properties: PropertyPlaces

    @property
    def has_written_opaque(self) -> bool:
        """Whether the number of the request is in digits."""
        return self.header_type == 0


@dataclass(frozen=True, slots=True)
class AlikeSends:
    """Sends of one shape: `rows` are their headers. Of no tags the code is 0; of its keys each has a row of hashes, as
    the index files them."""

    shape: Shape
    rows: NDArray[Any]
    bodies: list[memoryview]
    opaques: NDArray[Any]
    queue_ids: NDArray[Any]
    born_timestamps: NDArray[Any]
    tags_codes: NDArray[Any]
    key_hashes: NDArray[Any]

    @property
    def count(self) -> int:
        return len(self.bodies)

    @property
    def written_opaques(self) -> NDArray[Any]:
        """The bytes of each opaque, as they stand in the header."""
        return self.rows[:, self.shape.opaque]

    @property
    def written_queue_ids(self) -> NDArray[Any]:
        """The digits of each queue id."""
        return self.rows[:, self.shape.queue]


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
    if (
        rows.take(shape.texts, axis=1).tobytes().translate(None, shape.allowed)
        or rows.take(shape.digits, axis=1).tobytes().translate(None, _DIGITS)
        or b"0" in rows.take(shape.firsts, axis=1).tobytes()
    ):
        return None
    numbers = shape.numbers.of(rows)
    queue_ids, times, hashes = numbers[:, 0], numbers[:, 1], numbers[:, 2:]
    if shape.has_written_opaque:
        opaques, hashes = hashes[:, 0], hashes[:, 1:]
        if int(opaques.max()) > INT32_MAX:
            return None
    else:
        opaques = numpy.frombuffer(rows[:, shape.opaque].tobytes(), ">i4")
    hashes = hashes.astype(numpy.int32)
    if shape.properties.tags is not None:
        tags_codes, hashes = hashes[:, 0], hashes[:, 1:]
    else:
        tags_codes = numpy.zeros(len(rows), numpy.int32)
    # As int64 the one number without absolute value has one too, and the mask makes it 0.
    key_hashes = numpy.abs(hashes, dtype=numpy.int64) & INT32_MAX
    return AlikeSends(shape, rows, bodies, opaques, queue_ids, times, tags_codes, key_hashes)


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
        and max(queue.stop - queue.start, time.stop - time.start) <= WIDEST_DECIMAL
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
    fixed[signature] = 0
    values = (fixed == 0).nonzero()[0]
    written = [queue, time, opaque] if is_json else [queue, time]
    digits = numpy.concatenate([numpy.arange(place.start, place.stop) for place in written])
    firsts = numpy.array([place.start for place in written if place.stop - place.start > 1], numpy.int64)
    fixed[opaque] = fixed[digits] = 0
    numbers = [decimal_sum(place) for place in written]
    numbers += [hash_sum(texts.tags)] if texts.tags is not None else []
    numbers += [hash_sum(place, header.topic.encode() + b"#") for place in texts.keys]
    common = (row & fixed).tobytes()
    return Shape(
        first.header_type, row, fixed, common, values, allowed, digits, firsts, ByteSums(numbers), opaque, queue, texts
    )


def _places_in_json(raw: bytes) -> _Places | None:
    fields = _JSON_FIELDS.search(raw)
    if fields is None or raw.count(b'"extFields"') != 1 or header_json.decode_ext(raw) is None:
        return None
    begin, end = fields.span()
    around = raw[:begin] + raw[end:]
    if b"\\" in around or around.count(b"{") != 1:
        return None  # what is read by an escaped name, or seems to be read and is in an inner object
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
