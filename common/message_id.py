"""The two ids of a message.

The offset id says where the record is: store host and log offset, in hex. The unique id is made by the producer
before the first send and stays the same over retries: address, process, start of the process, milliseconds since the
month began, a counter.

Java: common/message/MessageDecoder.java#createMessageId, common/message/MessageClientIDSetter.java
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from rocketlet.common.errors import RocketletError
from rocketlet.common.host import V4_SIZE, V6_SIZE, unpack_host
from rocketlet.common.moment import moment_of

OFFSET_ID_LENGTHS = (32, 56)
_BYTES = [f"{number:02X}" for number in range(256)]


class InvalidMessageId(RocketletError):
    """The text is not a message id; look the message up by key or by the other kind of id."""


def offset_message_id(store_host: bytes, log_offset: int) -> str:
    """`7F00000100002A9F0000000000000400` for 127.0.0.1:10911 and offset 1024."""
    return f"{store_host.hex().upper()}{log_offset:016X}"


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """(ip, port, log offset). Raises InvalidMessageId."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in (V4_SIZE + 8, V6_SIZE + 8) or len(text) not in OFFSET_ID_LENGTHS:
        raise InvalidMessageId(f"{text!r} is no offset message id: 32 hex digits, or 56 for an IPv6 store host")
    ip, port = unpack_host(raw[:-8])
    return ip, port, int.from_bytes(raw[-8:], "big", signed=True)


class UniqueIds:
    """Makes unique ids; safe to call from any thread, since a step of `count` is atomic.

    `loader` takes the place of Java's class loader hash: any 32 bits that differ between starts of one process id.
    """

    def __init__(self, ip: bytes, pid: int, loader: int, now: Callable[[], int]) -> None:
        self._prefix = (ip + (pid & 0xFFFF).to_bytes(2, "big") + (loader & 0xFFFFFFFF).to_bytes(4, "big")).hex().upper()
        self._now = now
        self._counter = count()
        self._month = (0, 0)
        self._head = (-1, 0, "")  # of up to 256 ids of one millisecond

    def __call__(self) -> str:
        return self.at(self._now())

    def at(self, now: int) -> str:
        """The id of a message that is made at this time."""
        number = next(self._counter) & 0xFFFF
        time_of_head, high, head = self._head
        if time_of_head != now or high != number >> 8:
            begin, end = self._month
            if not begin <= now < end:
                self._month = begin, end = _month_of(now)
            high = number >> 8
            head = f"{self._prefix}{now - begin:08X}{high:02X}"
            self._head = now, high, head
        return head + _BYTES[number & 0xFF]


def time_of_unique_id(unique_id: str, now: int) -> int:
    """When the id was made, in ms: of this month, or of the last one where that would lie in the future."""
    if len(unique_id) not in (32, 56):
        raise InvalidMessageId(f"{unique_id!r} is no unique id: 32 hex digits, or 56 for an IPv6 client")
    try:
        since_begin = int(unique_id[-12:-4], 16)
    except ValueError:
        raise InvalidMessageId(f"{unique_id!r} is no unique id: not all of it is hex") from None
    begin = _month_of(now)[0]
    if begin + since_begin > now:
        begin = _month_of(begin - 1)[0]
    return begin + since_begin


def _month_of(ms: int) -> tuple[int, int]:
    """First millisecond of the month and of the next one, in local time as Java has it."""
    first = moment_of(ms).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(first.year * 12 + first.month, 12)
    following = first.replace(year=year, month=month + 1)
    return int(first.timestamp() * 1000), int(following.timestamp() * 1000)
