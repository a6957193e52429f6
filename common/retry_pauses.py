"""How long to wait between tries to reach a server: each second at first, then ever slower. Pure.

What is waited for (a name server, a broker, a topic) mostly appears within seconds: both sides were started together,
or one restarts. It is then found within a second. One that stays away for long costs little.

Java: none; RocketMQ asks again every 10 to 30 s
"""

from __future__ import annotations

from collections.abc import Iterator

FIRST = 1.0
_AT_FIRST = 10  # tries


def retry_pauses(longest: float, first: float = FIRST) -> Iterator[float]:
    """The seconds to wait before each further try: `first` ten times, then half as much again, up to `longest`."""
    pause = min(first, longest)
    for _ in range(_AT_FIRST):
        yield pause
    while True:
        pause = min(1.5 * pause, longest)
        yield pause
