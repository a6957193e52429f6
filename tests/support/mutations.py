"""Frames that were corrupted in transit, or made by a hostile peer; and a connection that sends them."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from pathlib import Path
from random import Random

import trio

from rocketlet.remoting.memory_network import MemoryNetwork

_LENGTHS = [0, 1, 3, 4, 5, 20, 21, (1 << 24) - 4, 0x7FFFFFFF, 0xFFFFFFFF]
_NUMBERS = [
    b"-1",
    b"0",
    b"9223372036854775807",
    b"2147483648",
    b"null",
    b'"x"',
    b"1e9",
    b'"":{',
    b"\xff" * 4,
    b"\0" * 4,
]


def mutated(frame: bytes, rng: Random) -> bytes:
    """One to four changes: flipped bits, boundary bytes, pieces removed, duplicated or inserted, wrong lengths
    and header types, numbers out of range."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        if not data:
            return frame
        at = rng.randrange(len(data))
        match rng.randrange(8):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice(b'\x00\x01\x02\x7f\x80\xff{}[]",:0-9')
            case 2:
                del data[at : at + rng.randint(1, 20)]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 40)]
            case 4:
                data[at:at] = rng.randbytes(rng.randint(1, 20))
            case 5:
                begin = rng.choice([0, 4, 5, 8])
                length = rng.choice([*_LENGTHS, len(data) - 4, len(data) - 3, len(data)])
                data[begin : begin + 4] = (length & 0xFFFFFFFF).to_bytes(4, "big")
            case 6:
                header_length = rng.choice([0, 1, 20, 21, len(data), 0xFFFFFF])
                data[4:8] = (rng.randrange(4) << 24 | header_length).to_bytes(4, "big")
            case _:
                number = rng.choice(_NUMBERS)
                data[at : at + len(number)] = number
    return bytes(data)


def with_fixed_length(frame: bytes) -> bytes:
    """The same with a correct first length, so that errors inside are reached as well."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:] if len(frame) >= 8 else frame


@lru_cache
def frames_to(receiver: str, vectors: Path, longest: int) -> list[bytes]:
    """Recorded frames to a `broker` or a `namesrv`, in both header types, up to a length."""
    frames = set()
    for path in sorted((vectors / "frames").rglob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            frame = json.loads(line)
            if frame["to"] == receiver:
                frames.add(base64.b64decode(frame["b64"]))
    return sorted(frame for frame in frames if len(frame) <= longest)


async def feed(network: MemoryNetwork, address: str, data: bytes) -> None:
    """Send on a separate connection, which is then closed."""
    stream = await network.dial(address)
    try:
        await stream.send_all(data)
        with trio.move_on_after(0.001):
            await stream.receive_some()
    except trio.BrokenResourceError:
        pass  # closed before everything was sent: right for an invalid frame
    finally:
        await stream.aclose()
