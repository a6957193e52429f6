"""30021 SHOW_IN_FLIGHT, ours: popped and unacknowledged messages, and delayed ones.

Java: (none)
"""

from __future__ import annotations

import trio

from rocketlet.broker.popping.in_flight import NEVER
from rocketlet.broker.popping.pops import Pops
from rocketlet.broker.popping.waiting import Waiting
from rocketlet.broker.timing.timers import Timers
from rocketlet.remoting.handler import Handler, HandlerTable, Reply, Request
from rocketlet.remoting.protocol.popping import DelayedMessages, InFlightHeader, InFlightQueue, InFlightTable
from rocketlet.remoting.request_codes import RequestCode

MAX_QUEUES = 10_000


class InFlightAdmin:
    """Reports on pops and delays."""

    def __init__(self, pops: Pops, waiting: Waiting, timers: Timers) -> None:
        self._pops = pops
        self._waiting = waiting
        self._timers = timers

    def table(self) -> HandlerTable:
        return {RequestCode.SHOW_IN_FLIGHT: Handler(self.show, InFlightHeader)}

    async def show(self, request: Request) -> Reply:
        header: InFlightHeader = request.header
        table = InFlightTable()
        for key, counts, following in self._pops.counts(header.group, header.topic):
            if len(table.queues) == MAX_QUEUES:
                table.more = True
                break
            await trio.lowlevel.checkpoint()
            table.queues.append(
                InFlightQueue(
                    key.topic, key.group, key.queue_id, counts.invisible, counts.due, counts.held, following,
                    self._waiting.waiting(key.group, key.topic),
                )
            )  # fmt: skip
        timers = self._timers.statistics()
        table.timers = DelayedMessages(
            timers.pending, 0 if timers.next_due == NEVER else timers.next_due, timers.delivered, timers.recalled,
            timers.skipped, timers.late_ms,
        )  # fmt: skip
        return Reply(body=table.to_json())
