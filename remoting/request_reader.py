"""From the bytes of a header to a typed request, without a generic command in between for the codes a server knows.

The table of headers yields one decoder per code and header type:

- JSON: a decoder of the whole header into one typed struct, found by the first bytes, `{"code":310,`
- ROCKETMQ: the two hot headers by `header_rocketmq_typed`, any other by its map
- msgpack: a decoder like JSON's, found by the code at the beginning of the array

A send costs 0.9, 1.1 and 1.2 µs where `json.loads` of it takes 2.9 (`benchmarks/codec.py`).

Whatever these refuse, headers that begin differently, answers, and codes without a handler take the general path,
`frame_codec.decode`. So the path never changes what a request means, only what it costs.

Java: remoting/netty/NettyDecoder.java, remoting/protocol/RemotingCommand.java (decode)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from rocketlet.remoting import header_json, header_rocketmq_typed
from rocketlet.remoting.command import RESPONSE, Command
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.errors import HeaderError
from rocketlet.remoting.frame_codec import decode
from rocketlet.remoting.handler import Request
from rocketlet.remoting.header_json import PREFIX
from rocketlet.remoting.protocol.header import UNDECODABLE, Header, from_ext
from rocketlet.remoting.protocol.pulling import PullMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2

# A ROCKETMQ header without remark: code, language, version, opaque, flag, 0, length of the map, which begins then.
_binary_head = struct.Struct(">hBhiiiI")
_unpack_binary = _binary_head.unpack_from
_MAP_AT = _binary_head.size
_HOT_BINARY: Mapping[type[Header], Callable[[bytes, int], Header | None]] = {
    SendMessageHeaderV2: header_rocketmq_typed.read_send,
    PullMessageHeader: header_rocketmq_typed.read_pull,
}


class UnreadableRequest(HeaderError):
    """A request whose typed header cannot be read; it can still be answered."""

    def __init__(self, request: Request, problem: HeaderError) -> None:
        super().__init__(str(problem))
        self.request = request


class RequestReader:
    """Reads the requests of one table of handlers. `headers`: the typed header of each code, None if it has none."""

    def __init__(self, headers: Mapping[int, type[Header] | None]) -> None:
        self._headers = headers
        self._json: dict[bytes, Callable[[bytes], Any]] = {}
        self._json_by_beginning: dict[bytes, Callable[[bytes], Any]] = {}
        for code, header in headers.items():
            decode_typed = header_json.typed_decoder(header).decode
            self._json_by_beginning.update(dict.fromkeys(header_json.beginnings(code), decode_typed))
            if 10 <= code <= 999:
                self._json[header_json.compact_prefix(code)] = decode_typed
        self._binary = {
            code: _HOT_BINARY[header]
            for code, header in headers.items()
            if header is not None and header in _HOT_BINARY
        }
        self._msgpack: _MsgpackDecoders | None = None

    def read(
        self, header_type: int, raw: bytes, body: bytes | memoryview, connection: Connection, now: float
    ) -> Request | Command:
        """A request, or an answer to a call of ours. Raises UnreadableRequest, FrameError."""
        if header_type == 0:
            decode_typed = self._json.get(raw[:PREFIX])
            if decode_typed is None:
                decode_typed = self._json_by_beginning.get(raw[: raw.find(b",", 8, 24)])
            if decode_typed is not None:
                try:
                    e = decode_typed(raw)
                except UNDECODABLE:
                    pass  # the general path reports what is wrong with it
                else:
                    if not e.flag & RESPONSE:
                        return Request(
                            e.code,
                            e.opaque,
                            e.flag,
                            e.version,
                            e.language,
                            e.remark,
                            e.header,
                            raw,
                            body,
                            0,
                            connection,
                            now,
                        )
        elif header_type == 1:
            if len(raw) > _MAP_AT:
                code, language, version, opaque, flag, remark, map_length = _unpack_binary(raw)
                read_typed = self._binary.get(code)
                plain = remark == 0 and map_length == len(raw) - _MAP_AT and not flag & RESPONSE
                if read_typed is not None and plain and (header := read_typed(raw, _MAP_AT)) is not None:
                    return Request(code, opaque, flag, version, language, None, header, raw, body, 1, connection, now)
        elif header_type == 2:
            request = self._read_msgpack(raw, body, connection, now)
            if request is not None:
                return request
        return self._read_any(header_type, raw, body, connection, now)

    def _read_any(
        self, header_type: int, raw: bytes, body: bytes | memoryview, connection: Connection, now: float
    ) -> Request | Command:
        command = decode(header_type, raw, body)
        if command.is_response:
            return command
        request = Request(
            command.code,
            command.opaque,
            command.flag,
            command.version,
            command.language,
            command.remark,
            None,
            raw,
            body,
            header_type,
            connection,
            now,
        )
        header = self._headers.get(command.code)
        if header is not None:
            try:
                request.header = from_ext(header, command.ext)
            except HeaderError as problem:
                raise UnreadableRequest(request, problem) from None
        return request

    def _read_msgpack(self, raw: bytes, body: bytes | memoryview, connection: Connection, now: float) -> Request | None:
        ways = self._msgpack
        if ways is None:
            ways = self._msgpack = _MsgpackDecoders(self._headers)
        decode_typed = ways.decoders.get(ways.code_of(raw))
        if decode_typed is None:
            return None
        try:
            e = decode_typed(raw)
        except UNDECODABLE:
            return None
        if e.flag & RESPONSE:
            return None
        ways.check(e.checksum, body)
        return Request(
            e.code, e.opaque, e.flag, e.version, e.language, e.remark, e.header, raw, body, 2, connection, now
        )


class _MsgpackDecoders:
    """Created at the first msgpack header: its module takes 28 ms to import, and only our own peers use it."""

    def __init__(self, headers: Mapping[int, type[Header] | None]) -> None:
        from rocketlet.remoting import header_msgpack

        self.code_of = header_msgpack.code_of
        self.check = header_msgpack.check
        self.decoders: dict[int, Callable[[bytes], Any]] = {
            code: header_msgpack.typed_decoder(header).decode for code, header in headers.items()
        }
