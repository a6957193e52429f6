"""What a server's peers may use, in total and by address: connections, requests, memory, log lines.

One object for all ports of a process. Each limit has a setting in `ServerConfig`; refusals are counted here under its
name, as a metric. The bounds of a single request and of a single connection are in `dispatch.py`.

    maxConnections, maxConnectionsByAddress     one more is closed before anything is read from it
    requestsPerSecondByAddress                  one more is answered 2 (off by default)
    unfinishedFramesMax                         the frame that exceeds it ends its connection
    unreadAnswersMax                            above it a connection is not read from once 64 KiB wait for its peer
    logLinesPerSecondByAddress                  lines about one address; more are counted and suppressed

Java: none
"""

from __future__ import annotations

from collections import Counter

from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.rates import Rates

# What a connection may have unsent while all together exceed unreadAnswersMax.
UNSENT_WHEN_SHORT = 64 << 10


class Peers:
    """Counts, and the limits they are compared with."""

    def __init__(self, config: ServerConfig | None = None) -> None:
        self.config_changed(config or ServerConfig())
        self._by_host: Counter[str] = Counter()
        self._requests = Rates()
        self._lines = Rates()
        self.connections = 0
        self.unfinished = 0  # bytes of incomplete long frames
        self.unread = 0  # bytes of answers that wait to be written
        self.refused: Counter[str] = Counter()
        """By the name of the setting: connections, requests, frames, log lines."""

    def config_changed(self, config: ServerConfig) -> None:
        """New limits, which apply from the next request on."""
        self._config = config
        self.limits_requests = config.requests_per_second_by_address > 0
        """Whether `may_ask` has to be asked. Each request looks at this."""

    def __repr__(self) -> str:
        return f"<Peers {self.connections} connections from {len(self._by_host)} addresses>"

    # -- connections

    def connected(self, host: str) -> str | None:
        """Count one more. Returns the setting that forbids it, as `name=value`; nothing is counted then."""
        config = self._config
        for setting, limit, now in (
            ("maxConnections", config.max_connections, self.connections),
            ("maxConnectionsByAddress", config.max_connections_by_address, self._by_host[host]),
        ):
            if now >= limit:
                self.refused[setting] += 1
                if not self._by_host[host]:
                    del self._by_host[host]
                return f"{setting}={limit}"
        self.connections += 1
        self._by_host[host] += 1
        return None

    def disconnected(self, host: str) -> None:
        """A counted connection has ended."""
        self.connections -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    # -- requests

    def may_ask(self, host: str, now: float) -> str | None:
        """None, or the setting that forbids more requests from that address in this second, as `name=value`."""
        limit = self._config.requests_per_second_by_address
        if not limit or self._requests.take(host, limit, now):
            return None
        self.refused["requestsPerSecondByAddress"] += 1
        return f"requestsPerSecondByAddress={limit}"

    # -- memory

    def unfinished_limit_exceeded(self) -> int:
        """unfinishedFramesMax if it is exceeded, else 0."""
        limit = self._config.unfinished_frames_max
        if self.unfinished <= limit:
            return 0
        self.refused["unfinishedFramesMax"] += 1
        return limit

    @property
    def is_short_of_memory(self) -> bool:
        """Whether unread answers exceed unreadAnswersMax."""
        return self.lacks_memory_for(0)

    def lacks_memory_for(self, size: int) -> bool:
        """Whether they do with so many more bytes, which are not counted yet."""
        return self.unread + size > self._config.unread_answers_max

    # -- the log

    def may_log(self, host: str, now: float) -> bool:
        """Whether one more line about this address may be written."""
        if self._lines.take(host, self._config.log_lines_per_second_by_address, now):
            return True
        self.refused["logLinesPerSecondByAddress"] += 1
        return False
