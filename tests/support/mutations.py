"""Frames that went wrong on their way, or were made by somebody who means no good."""

from __future__ import annotations

from random import Random


def mutated(frame: bytes, chance: Random) -> bytes:
    """One to four changes: flipped bits, bytes as they lie at borders, pieces cut out or doubled, wrong lengths."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        if not data:
            return frame
        at = chance.randrange(len(data))
        match chance.randrange(6):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice(b'\x00\x01\x02\x7f\x80\xff{}[]",:0-9')
            case 2:
                del data[at : at + chance.randint(1, 8)]
            case 3:
                data[at:at] = data[at : at + chance.randint(1, 40)]
            case 4:
                begin = chance.choice([0, 4, 5, 8])
                length = chance.choice([0, 1, 3, 4, 0x7FFFFFFF, 0xFFFFFFFF, len(data)])
                data[begin : begin + 4] = length.to_bytes(4, "big")
            case _:
                number = chance.choice([b"-1", b"0", b"9223372036854775807", b"2147483648", b"null", b'"x"', b"1e9"])
                data[at : at + len(number)] = number
    return bytes(data)


def mended(frame: bytes) -> bytes:
    """The same with a first length that is right, so that what is wrong inside is met as well."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:] if len(frame) >= 8 else frame
