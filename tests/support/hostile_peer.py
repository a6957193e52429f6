"""A hostile peer: every request code that a server serves, with malicious header fields and bodies.

Requests are derived from the server's own table of handlers, so a new entry is attacked without a change here: fields
of its typed header are filled by name and type, and its body is one of the protocol's bodies. Values are drawn from few
names, so that requests interact: one registers what the next one deletes.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import pkgutil
import struct
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from rocketlet.common import message_properties, rocketmq_keys
from rocketlet.common.message_record import BatchItem, encode_batch
from rocketlet.common.settings import Setting
from rocketlet.remoting import protocol
from rocketlet.remoting.command import Command, HeaderType
from rocketlet.remoting.frame_codec import encode
from rocketlet.remoting.handler import FEW, Handler, HandlerTable
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.request_codes import RequestCode
from tests.support.mutations import mutated, with_fixed_length
from tests.support.virtual_time import START_MS

TOPICS = (
    "T", "U", "Ordered", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TBW102", "OFFSET_MOVED_EVENT", "%RETRY%" + "g" * 250, "x" * 127, "x" * 255,
)  # fmt: skip
GROUPS = ("g", "h", "CG", "PG", "CID_RMQ_SYS_TRANS", "g" * 120, "g" * 250, "g" * 255, "TOOLS_CONSUMER")
NAMES = (
    "",
    "-",
    "..",
    "../../x",
    "a b",
    "\0",
    "\n",
    "é",
    "\ud800",
    "g\ud800",
    "*",
    "%",
    "|",
    "a@b",
    "x" * 5000,
    "null",
)
CLIENTS = ("c1", "c2", "10.0.0.9@1", "c\ud800", "c\nERROR forged", "c" * 3000)
ADDRESSES = ("10.0.0.1:10911", "127.0.0.1:1", ":", "x", "1.2.3.4:99999", "[::1]:9", "h" * 300 + ":1")
EXPRESSIONS = (
    "*", "", "TagA", "TagA || TagB", "a = 1", "a = '\ud800'", "a IN ('x', 'y')",
    "a BETWEEN 1 AND 9" + " AND 1 = 1" * 40, "NOT " * 300 + "TRUE",
    "(" * 300 + "TRUE" + ")" * 300, "a LIKE '%%%%%%%'", "1 / 0 = 1", "a = " + "9" * 400, "'",
)  # fmt: skip
NUMBERS = (
    -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 18, 32, 100, 1000, 65_535, 1 << 31, -(1 << 31), (1 << 31) - 1, (1 << 63) - 1,
    -(1 << 63), 1 << 63, START_MS, START_MS + 5000, START_MS - 86_400_000, 10**18,
)  # fmt: skip
ODD_NUMBERS = (
    "9" * 400,
    "-" + "9" * 30,
    "1e400",
    "1e3",
    "NaN",
    "0x10",
    "",
    " 7",
    "+5",
    "007",
    "٣",
    "x",
    "true",
    "\ud800",
)
PROPERTIES = (
    *sorted(message_properties.RESERVED), "a", "b", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "TRAN_PREPARED_QUEUE_OFFSET", "__STARTDELIVERTIME", "INNER_MULTI_DISPATCH", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS", "REAL_TOPIC", "REAL_QID", "DELAY", "TRAN_MSG", "PGROUP",
)  # fmt: skip

# The body that each of these codes reads; the others get any body.
_SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK}
_SETTINGS = {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG}
_BODIES = {
    RequestCode.HEART_BEAT: ("HeartbeatData",),
    RequestCode.CHECK_CLIENT_CONFIG: ("CheckClientBody",),
    RequestCode.LOCK_BATCH_MQ: ("LockBatchBody",),
    RequestCode.UNLOCK_BATCH_MQ: ("LockBatchBody",),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ("SubscriptionGroupConfig",),
    RequestCode.REGISTER_BROKER: ("RegisterBrokerBody", "TopicConfigTable"),
    RequestCode.QUERY_DATA_VERSION: ("DataVersion",),
}


def all_bodies() -> dict[str, type[Body]]:
    """Every class of body of the protocol, by name."""
    for module in pkgutil.iter_modules(protocol.__path__):
        importlib.import_module(f"{protocol.__name__}.{module.name}")
    bodies: dict[str, type[Body]] = {}
    pending: list[type[Body]] = [Body]
    while pending:
        for body_class in pending.pop().__subclasses__():
            bodies[body_class.__name__] = body_class
            pending.append(body_class)
    return bodies


class HostilePeer:
    """Makes frames. `settings` are those of the server; `log_offsets` gets the offsets of messages."""

    def __init__(self, table: HandlerTable, settings: list[Setting], rng: Random, recorded: list[bytes]) -> None:
        self._table = table
        self._codes = sorted(table)
        self._settings = settings
        self._rng = rng
        self._recorded = recorded
        self._bodies = all_bodies()
        self.log_offsets: Callable[[], int] = lambda: 0

    def frame(self) -> tuple[int, bytes]:
        """(request code, a frame): mostly intact, sometimes with bytes changed."""
        rng = self._rng
        if self._recorded and rng.random() < 0.1:
            frame = mutated(rng.choice(self._recorded), rng)
            return -1, with_fixed_length(frame) if rng.random() < 0.7 else frame
        code = rng.choice(self._codes)
        frame = self._request(code, self._table[code])
        if self._table[code].together is not None and rng.random() < 0.3:
            return code, self._alike(frame)
        if rng.random() < 0.05:
            frame = with_fixed_length(mutated(frame, rng))
        return code, frame

    def _alike(self, frame: bytes) -> bytes:
        """Many of it at once, some of which differ in a byte."""
        frames = [bytearray(frame) for _ in range(self._rng.choice((FEW - 1, FEW, 3 * FEW)))]
        for _ in range(self._rng.choice((0, 1, 5))):
            self._rng.choice(frames)[self._rng.randrange(8, len(frame))] = self._rng.choice(
                b'0129AZ"\\\x00\x01\x02\xff'
            )
        return b"".join(frames)

    def _request(self, code: int, handler: Handler) -> bytes:
        rng = self._rng
        ext = self._ext(code, handler)
        body = self._body(code)
        command = Command(
            code,
            opaque=rng.choice((1, 7, 0, -1, (1 << 31) - 1)),
            flag=rng.choice((0, 0, 0, 0, 2)),
            version=rng.choice((0, 1, 401, 409, 413, 1 << 30)),
            remark=rng.choice((None, None, "\ud800", "r" * 500)),
            ext=ext,
            body=body,
        )
        if rng.random() < 0.3:
            command.header_type = HeaderType.ROCKETMQ
            try:
                return encode(command)
            except (struct.error, UnicodeEncodeError, OverflowError, ValueError):
                pass  # a surrogate can only be written as an escape
        return _json_frame(command)

    # -- header fields

    def _ext(self, code: int, handler: Handler) -> dict[str, str]:
        ext: dict[str, str] = {}
        if handler.header is not None:
            for field in msgspec.structs.fields(handler.header):
                if self._rng.random() < (0.99 if field.required else 0.7):
                    ext[field.encode_name] = self._field(field.name, field.encode_name, field.type)
        if code in _SENDS and self._rng.random() < 0.7:  # often enough of a kind that is stored
            self._make_sendable(code, ext)
        for _ in range(self._rng.choice((0, 0, 0, 1, 5))):
            ext[self._rng.choice(("bname", "x", "\ud800", "Signature", "AccessKey", "ns"))] = self._text()
        return ext

    def _make_sendable(self, code: int, ext: dict[str, str]) -> None:
        long = code != RequestCode.SEND_MESSAGE_V2
        if code == RequestCode.CONSUMER_SEND_MSG_BACK:
            ext["offset"] = str(self.log_offsets())
            return
        ext["topic" if long else "b"] = self._rng.choice(TOPICS[:5])
        ext["queueId" if long else "e"] = str(self._rng.choice((0, 0, 1, 2)))
        ext["sysFlag" if long else "f"] = str(self._rng.choice((0, 0, 4, 8, 12)))

    def _field(self, name: str, wire_name: str, kind: Any) -> str:
        rng, known = self._rng, (name + wire_name).lower()
        if _is_number(kind):
            if rng.random() < 0.1:
                return rng.choice(ODD_NUMBERS)
            if "offset" in known and rng.random() < 0.3:
                return str(self.log_offsets())
            return str(rng.choice(NUMBERS))
        if rng.random() < 0.1:
            return self._text()
        if "properties" in known or wire_name == "i":
            return self._properties()
        if "group" in known or wire_name == "a":
            return rng.choice(GROUPS)
        if "topic" in known or wire_name in ("b", "c"):
            return rng.choice(TOPICS)
        if "addr" in known:
            return rng.choice(ADDRESSES)
        if "client" in known:
            return rng.choice(CLIENTS)
        if "subscription" in known or "expression" in known or "key" in known:
            return rng.choice(EXPRESSIONS)
        if kind is bool or kind == bool | None:
            return rng.choice(("true", "false", "1", "maybe"))
        return self._text()

    def _text(self) -> str:
        return self._rng.choice((*TOPICS[:3], *GROUPS[:3], *NAMES, *ODD_NUMBERS, *CLIENTS, "SQL92", "TAG", "broker-a"))

    def _properties(self) -> str:
        rng = self._rng
        pieces = []
        for _ in range(rng.choice((0, 1, 2, 4, 8))):
            name = rng.choice(PROPERTIES)
            if name in ("REAL_TOPIC", "RETRY_TOPIC"):
                value = rng.choice(TOPICS)
            elif rng.random() < 0.6:
                value = str(rng.choice(NUMBERS))
            else:
                value = self._text()
            pieces.append(name + "\x01" + value)
        if rng.random() < 0.02:
            pieces.append("p\x01" + "x" * 32_700)
        return "\x02".join(pieces) + rng.choice(("", "\x02", "\x02\x02", "\x01"))

    # -- bodies

    def _body(self, code: int) -> bytes:
        rng = self._rng
        kind = rng.random()
        if kind < 0.03:
            return rng.randbytes(rng.choice((1, 20, 300)))
        if kind < 0.06:
            return _deep(rng)
        if code in _SETTINGS:
            return self._settings_text()
        if code == RequestCode.SEND_BATCH_MESSAGE:
            body = encode_batch(
                BatchItem(0, b"x" * rng.choice((0, 9, 200)), self._properties().encode("utf-8", "replace")[:32_767])
                for _ in range(rng.choice((1, 2, 5)))
            )
            return body if rng.random() < 0.8 else body[: rng.randrange(len(body))]
        if code in _SENDS:
            return rng.randbytes(rng.choice((0, 1, 40, 400)))
        names = _BODIES.get(RequestCode(code))
        if names is None and rng.random() < 0.5:
            return b""
        name = rng.choice(names or sorted(self._bodies))
        text = json.dumps(self.value_of(self._bodies[name], 0, name))
        if code == RequestCode.REGISTER_BROKER and rng.random() < 0.3:
            return zlib.compress(text.encode())
        return text.encode()

    def _settings_text(self) -> bytes:
        rng = self._rng
        lines = []
        for _ in range(rng.choice((1, 1, 3))):
            setting = rng.choice(self._settings)
            if rng.random() < 0.5 and setting.kind in (int, float):
                value = rng.choice((str(setting.minimum), str(setting.maximum), str(setting.default)))
            elif setting.choices and rng.random() < 0.7:
                value = rng.choice(setting.choices)
            else:
                value = rng.choice((*ODD_NUMBERS, "true", "false", *map(str, NUMBERS), *NAMES))
            key = setting.key if rng.random() < 0.9 else rng.choice(sorted(rocketmq_keys.ALL))
            lines.append(f"{key}={value}")
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def value_of(self, kind: Any, depth: int, name: str = "") -> Any:
        """A value that JSON can carry for a type; now and then one of another type."""
        rng = self._rng
        if depth > 4 or rng.random() < 0.03:
            return rng.choice((None, "", "\ud800", 0, "9" * 400, [], {}, [[]], {"a": {}}))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return {field.encode_name: self.value_of(field.type, depth + 1, field.encode_name)
                    for field in msgspec.structs.fields(kind) if rng.random() < 0.95}  # fmt: skip
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self.value_of(arguments[0], depth, name)
        if origin in (typing.Union, types.UnionType):
            return self.value_of(rng.choice(arguments), depth, name)
        if origin in (list, set, frozenset, tuple):
            inner = arguments[0] if arguments else str
            return [self.value_of(inner, depth + 1, name) for _ in range(rng.choice((0, 1, 2, 2, 20)))]
        if origin is dict or (inspect.isclass(origin) and issubclass(origin, Mapping)):
            return {str(self.value_of(arguments[0], 9 if arguments[0] is not str else depth, name)):
                    self.value_of(arguments[1], depth + 1, name)
                    for _ in range(rng.choice((0, 1, 2)))}  # fmt: skip
        if kind is int:
            return rng.choice((*NUMBERS, *NUMBERS, "9" * 400, 1e300))
        if kind is bool:
            return rng.choice((True, False, "true", 1))
        if kind is float:
            return rng.choice((0.5, -1, 1e300))
        if inspect.isclass(kind) and issubclass(kind, enum.Enum):
            return rng.choice([*(member.value for member in kind), "odd"])
        if kind is str:
            return self._field(name, name, str)
        return rng.choice((None, {}, [], "T", 5))


def _is_number(kind: Any) -> bool:
    arguments = typing.get_args(kind)
    return kind in (int, float) or any(_is_number(argument) for argument in arguments if argument is not type(None))


def _deep(rng: Random) -> bytes:
    return rng.choice((
        b"[" * 5000, b'{"a":' * 3000, b"{" + b'"a":1,' * 3000 + b"}", b'{"a":[' + b'{"$ref":"$.a"},' * 300 + b"]}",
        b'{{"a":1}:{{"b":2}:3}}', b'"' + b"\\ud800" * 50 + b'"', b"{'a':1,}", b"\0" * 60, b'{"offsetTable":{null:1}}',
    ))  # fmt: skip


def _json_frame(command: Command) -> bytes:
    """A frame whose header may contain invalid Unicode, as an escape."""
    header = {
        "code": command.code, "flag": command.flag, "language": "JAVA", "opaque": command.opaque, "version":
        command.version, "serializeTypeCurrentRPC": "JSON", "extFields": command.ext, "remark": command.remark,
    }  # fmt: skip
    text = json.dumps(header).encode()
    length = 4 + len(text) + len(command.body)
    return length.to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + command.body
