"""Answers to pops and acks wait here until what they promise is in the log: one record for all of a turn.

An answer to a pop goes out when the pop is written; one to an ack when the log is as safe as a send waits for. Where
the log takes nothing, all of them are refused.

Java: (none; each ack is a record of its own)
"""

from __future__ import annotations

from functools import partial

from rocketlet.broker.durability import Durability, Shortfall
from rocketlet.broker.popping.pops import Pops
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.handler import DEFERRED, Answer, Deferred, Refused, Reply, Request
from rocketlet.remoting.response_codes import ResponseCode

_Answers = list[tuple[Request, Answer]]


class PopAnswers:
    """One object for the whole broker."""

    def __init__(self, pops: Pops, durability: Durability) -> None:
        self._pops = pops
        self._durability = durability
        self._when_written: _Answers = []
        self._when_safe: _Answers = []

    def when_written(self, request: Request, answer: Answer) -> Deferred:
        """For what may come twice after a power cut."""
        self._when_written.append((request, answer))
        return DEFERRED

    def when_safe(self, request: Request, answer: Answer) -> Deferred:
        """For what must not be forgotten."""
        self._when_safe.append((request, answer))
        return DEFERRED

    def write(self) -> None:
        """Write what this turn has noted; before it is settled."""
        try:
            self._pops.write()
        except Refused as refused:
            waiting = self._when_written + self._when_safe
            self._when_written, self._when_safe = [], []
            _send([(request, Reply(refused.code, remark=refused.remark)) for request, _ in waiting])

    def finish(self) -> None:
        """Answer, now or when the log is safe. What was noted since `write` is written first."""
        if not self._when_written and not self._when_safe:
            return
        self.write()
        if self._when_safe:
            waiting, self._when_safe = self._when_safe, []
            self._durability.call(self._pops.log_end, partial(self._safe, waiting))
        if self._when_written:
            waiting, self._when_written = self._when_written, []
            _send(waiting)

    def _safe(self, waiting: _Answers, shortfall: Shortfall | None) -> None:
        if shortfall is not None and shortfall.code is ResponseCode.SYSTEM_ERROR:
            refusal = Reply(ResponseCode.SYSTEM_ERROR, remark=shortfall.remark)
            waiting = [(request, refusal) for request, _ in waiting]
        if self._when_written:  # together, where it is known at once
            self._when_written += waiting
        else:
            _send(waiting)


def _send(waiting: _Answers) -> None:
    if len(waiting) == 1:
        waiting[0][0].connection.answer_together(waiting)
        return
    by_connection: dict[Connection, _Answers] = {}
    for one in waiting:
        by_connection.setdefault(one[0].connection, []).append(one)
    for connection, answers in by_connection.items():
        connection.answer_together(answers)
