"""The kind of a message's body: JSON, text, MessagePack or bytes; found by trying, and always shown as text.

Java: (none; rocketmq-dashboard shows every body as a string)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

SHOWN = 65_536
_HEX_SHOWN = 4096
_HEX_LINE = 16


@dataclass(frozen=True, slots=True)
class Shown:
    """`kind`: json, text, msgpack, hex or empty. `cut`: how many bytes are not shown."""

    kind: str
    text: str
    cut: int = 0


def shown(body: bytes, requested: str = "") -> Shown:
    """The body in the most readable form, or in the requested one."""
    if not body:
        return Shown("empty", "")
    kinds = [requested] if requested else ["json", "text", "msgpack"]
    for kind in kinds:
        result = _MAKERS[kind](body) if kind in _MAKERS else None
        if result is not None:
            return result
    return _hex(body)


def _json(body: bytes) -> Shown | None:
    if body.lstrip()[:1] not in (b"{", b"[", b'"') or len(body) > 16 * SHOWN:
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _cut("json", json.dumps(value, ensure_ascii=False, indent=2))


def _text(body: bytes) -> Shown | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    unprintable = sum(not (sign.isprintable() or sign in "\n\r\t") for sign in text[:SHOWN])
    return _cut("text", text) if unprintable == 0 else None


def _msgpack(body: bytes) -> Shown | None:
    # A single byte is a number to MessagePack, whatever it is.
    if body[0] < 0x80 or len(body) > 16 * SHOWN:
        return None
    try:
        value: Any = msgspec.msgpack.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict | list):
        return None
    return _cut("msgpack", json.dumps(value, ensure_ascii=False, indent=2, default=repr))


def _hex(body: bytes) -> Shown:
    lines = []
    for offset in range(0, min(len(body), _HEX_SHOWN), _HEX_LINE):
        piece = body[offset : offset + _HEX_LINE]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{offset:08x}  {piece.hex(' '):<47}  {signs}")
    return Shown("hex", "\n".join(lines), max(len(body) - _HEX_SHOWN, 0))


def _cut(kind: str, text: str) -> Shown:
    return Shown(kind, text[:SHOWN], max(len(text) - SHOWN, 0))


_MAKERS = {"json": _json, "text": _text, "msgpack": _msgpack, "hex": _hex}
