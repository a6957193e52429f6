"""Answers to pops and acks wait here until their facts are in the log: one record for all of a turn.

The answer to a pop is sent when the pop is written, with the others of its turn; the one to an ack when the log is as
safe as for a send, which is at once unless sends wait. If the log accepts nothing, all of them are refused.

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
        self._of_turn: _Answers = []
        self._when_written: _Answers = []
        self._when_safe: _Answers = []

    def of_this_turn(self, request: Request, answer: Answer) -> None:
        """For deliveries, which a power cut may repeat, to a request of this turn. Its handler returns None."""
        self._of_turn.append((request, answer))

    def when_written(self, request: Request, answer: Answer) -> Deferred:
        """The same for requests that were parked."""
        self._when_written.append((request, answer))
        return DEFERRED

    def when_safe(self, request: Request, answer: Answer) -> Deferred | None:
        """For acknowledgements of this turn, which must not be forgotten. Their handler returns the result."""
        if not self._durability.is_waited_for:
            self._of_turn.append((request, answer))
            return None
        self._when_safe.append((request, answer))
        return DEFERRED

    def write(self) -> None:
        """Write what this turn has noted, and add its answers to the others of the turn."""
        refusal: Reply | None = None
        try:
            self._pops.write()
        except Refused as refused:
            refusal = Reply(refused.code, remark=refused.remark)
        if self._of_turn:
            waiting, self._of_turn = self._of_turn, []
            for request, answer in waiting:
                request.connection.answer(request, answer if refusal is None else refusal)
        if refusal is not None:
            unanswered = self._when_written + self._when_safe
            self._when_written, self._when_safe = [], []
            _send([(request, refusal) for request, _ in unanswered])

    def finish(self) -> None:
        """Answer parked requests, and acknowledgements that wait for the disk or a slave, now or when the log is safe.
        Facts noted since `write` are written first."""
        if not (self._of_turn or self._when_written or self._when_safe):
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
        _send(waiting)


def _send(waiting: _Answers) -> None:
    by_connection: dict[Connection, _Answers] = {}
    for answer in waiting:
        by_connection.setdefault(answer[0].connection, []).append(answer)
    for connection, answers in by_connection.items():
        connection.answer_together(answers)
