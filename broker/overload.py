"""Requests that waited too long are refused at once instead of served: their clients are about to give up.

Requests queue only in the sockets, while the process is busy or blocked by the disk or for lack of CPU. A request read
after one pass of the event loop may have waited as long as the previous pass took. If that is longer than its family
allows (`waitTimeMillsIn…Queue`), it is answered SYSTEM_BUSY (2), with RocketMQ's text and the reason.
`brokerFastFailureEnable=false` disables this.

Java: broker/latency/BrokerFastFailure.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import cast

import trio

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.common.clock import stopwatch
from rocketlet.remoting.handler import Answer, Deferred, HandlerTable, PlainFunction, Refused, Request
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.broker.overload")

# Shorter passes are normal: a turn over a full buffer, a garbage collection. Slow ones are logged.
LONG_PASS_SECONDS = 0.05
SLOW_PASS_SECONDS = 0.5
# How long requests of a family may have waited. Sends and pulls check themselves.
LIMITS: Mapping[str, Callable[[BrokerConfig], int]] = {
    "heartbeat": lambda config: config.wait_time_mills_in_heartbeat_queue,
    "transaction": lambda config: config.wait_time_mills_in_transaction_queue,
}


class Overload(trio.abc.Instrument):
    """Measures the passes of the event loop, once it is installed."""

    def __init__(self, settings: Settings, now: Callable[[], float] = stopwatch) -> None:
        # Not trio's clock: with a test's clock every wait passes at once and would look like a stall.
        self._now = now
        self._settings = settings
        self._woke = now()
        self.waited_ms = 0  # how long requests read now may have waited

    def install(self) -> None:
        """Measure from here to the end of the run."""
        self._woke = self._now()
        trio.lowlevel.add_instrument(self)

    def remove(self) -> None:
        trio.lowlevel.remove_instrument(self)

    def after_io_wait(self, timeout: float) -> None:
        self._woke = self._now()

    def before_io_wait(self, timeout: float) -> None:
        took = self._now() - self._woke
        self.waited_ms = int(took * 1000) if took > LONG_PASS_SECONDS else 0
        if took > SLOW_PASS_SECONDS:
            log.warning("the broker was busy or blocked for %.1f s: a slow disk, too little CPU?", took)

    def pass_ms(self) -> float:
        """How long this pass has taken so far."""
        return (self._now() - self._woke) * 1000

    def check(self, limit_ms: int) -> None:
        """Raises Refused if requests read now may have waited longer than that."""
        if self.waited_ms > limit_ms and self._settings.now.broker_fast_failure_enable:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
                f"{self.waited_ms}ms, size of queue: 0; the broker stalled, and {limit_ms} ms are allowed",
            )

    def wrap(self, table: HandlerTable) -> HandlerTable:
        """The table, in which the families of LIMITS refuse stale requests."""
        return {
            code: handler.wrapped(self._guarded(cast(PlainFunction, handler.function), limit))
            if (limit := LIMITS.get(handler.family))
            else handler
            for code, handler in table.items()
        }

    def _guarded(self, function: PlainFunction, limit_ms: Callable[[BrokerConfig], int]) -> PlainFunction:
        def guarded(request: Request) -> Answer | Deferred:
            if self.waited_ms:
                self.check(limit_ms(self._settings.now))
            return function(request)

        return guarded
