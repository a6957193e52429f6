"""Sends of one chunk that are alike (`remoting/alike_sends.py`) are stored and answered as columns: 3 µs each of 64,
where one alone takes 8.

Only the plainest are: to a known topic, without transaction, delay or anything else that redirects, and to queues that
are there already. All others are declined before anything has changed, and `SendMessage` serves them one by one; so
this changes what sends cost and nothing else: the same bytes are stored, the same answers sent.

Java: broker/processor/SendMessageProcessor.java
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from rocketlet.broker.handlers.send_answers import SendAnswers
from rocketlet.broker.handlers.send_message import REDIRECTING, stored_properties
from rocketlet.broker.handlers.send_targets import SendHeader, SendTargets, born_host_of
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.topic_table import Topic
from rocketlet.common.message_flags import HOST_FLAGS, TRANSACTION_MASK
from rocketlet.common.message_record import topic_field
from rocketlet.common.property_places import property_places
from rocketlet.remoting.alike_sends import AlikeSends, Shape, read_alike, shape_of
from rocketlet.remoting.handler import Frames, Request, Together
from rocketlet.store.column_run import AppendedColumns, ColumnRun
from rocketlet.store.message_run import Shared
from rocketlet.store.message_store import MessageStore

_SHARED = frozenset({b"WAIT", b"CLUSTER"})
_REST = 16
"""Turns in which nothing is tried on a connection whose sends were not alike: to find that out costs as much as ten."""
_KEPT_PLANS = 256  # of the connections that sent last; each has up to 40 KiB


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the sends of a shape are stored. `tail` is what follows the body in the record of the first; each has at the
    first of two `places` what is at the second in its header."""

    shape: Shape
    tail: bytes
    properties_size: int
    places: list[tuple[slice, slice]]
    wait: bool


class SendTogether:
    """`keeps_filter_bits`: each message gets a bit map of SQL92 filters, so none can be stored here."""

    def __init__(
        self,
        targets: SendTargets,
        answers: SendAnswers,
        store: MessageStore,
        statistics: Statistics,
        *,
        keeps_filter_bits: bool,
    ) -> None:
        self._targets = targets
        self._answers = answers
        self._terms = answers.terms
        self._store = store
        self._statistics = statistics
        self._cluster = b"\x02CLUSTER\x01" + statistics.cluster.encode()
        self._keeps_filter_bits = keeps_filter_bits
        self._plans: dict[int, _Plan] = {}  # by the connection's number
        self._resting: dict[int, int] = {}  # turns, likewise

    def serve(self, first: Request, frames: Frames) -> Together | None:
        """See `Handler.together`."""
        header: SendHeader = first.header
        topic = self._targets.find(header.topic)
        if (
            topic is None
            or not topic.plain
            or header.batch
            or header.sysFlag & TRANSACTION_MASK
            or self._keeps_filter_bits
            or not self._terms.now.is_open
            or self._terms.now.ready is None
            or self._targets.overload.waited_ms
            or not self._store.may_use_numpy
        ):
            return None
        number = first.connection.id
        if resting := self._resting.get(number, 0):
            self._resting[number] = resting - 1
            return None
        plan = self._plans.get(number)
        sends = read_alike(plan.shape, frames) if plan is not None else None
        if plan is None or sends is None:
            plan = self._plan(first)
            sends = read_alike(plan.shape, frames) if plan is not None else None
        if plan is None or sends is None:
            if len(self._resting) >= _KEPT_PLANS:
                self._resting.clear()
            self._resting[number] = _REST
            return None
        if max(sends.queue_ids.tolist()) >= topic.queues:  # half of what `max` of so short a column takes
            return None
        if frames.admits is not None and not _are_admitted(first, sends, frames, frames.admits):
            return None  # each is told why
        shared = Shared(
            topic.name,
            header.queueId,
            header.sysFlag & ~HOST_FLAGS | topic.message_flags,
            header.bornTimestamp,
            born_host_of(first.connection),
            self._terms.now.store_host,
            header.reconsumeTimes,
        )
        appended = self._store.put_columns(_run(plan, sends, shared, header.flag)) if shared.fits() else None
        if appended is None:
            return None
        self._count(topic, appended)
        return Together(sends.count, self._answers.answer_together(first, sends, appended, wait=plan.wait))

    def _plan(self, first: Request) -> _Plan | None:
        """How to store sends like this one; None where it is not plain enough."""
        stored, _, _, wait, named = stored_properties(first.header.properties, self._cluster)
        if not REDIRECTING.isdisjoint(named) or not stored.isascii() or 0 in stored:
            return None
        shape = shape_of(first, _SHARED)
        if shape is None:
            return None
        before = topic_field(first.header.topic) + len(stored).to_bytes(2, "big")
        to = property_places(before + stored, len(before)).named
        places = [(to[name], place) for name, place in shape.properties.named.items() if name not in _SHARED]
        plan = _Plan(shape, before + stored, len(stored), places, wait)
        if len(self._plans) >= _KEPT_PLANS:
            self._plans.clear()
        self._plans[first.connection.id] = plan
        return plan

    def _count(self, topic: Topic, appended: AppendedColumns) -> None:
        total = self._statistics.put
        for queue_id, count, size in appended.queues:
            flow = topic.flow_into(queue_id, self._statistics)
            flow.calls += count
            flow.bytes += size
            total.calls += count
            total.bytes += size


def _are_admitted(first: Request, sends: AlikeSends, frames: Frames, admits: Callable[[Request], bool]) -> bool:
    request = copy(first)
    for (_, header, body_at, _), body in zip(frames.frames, sends.bodies, strict=False):
        request.raw_header, request.body = frames.data[header:body_at], body
        if not admits(request):
            return False
    return True


def _run(plan: _Plan, sends: AlikeSends, shared: Shared, flag: int) -> ColumnRun:
    import numpy

    tails = numpy.frombuffer(bytearray(plan.tail * sends.count), numpy.uint8).reshape(sends.count, -1)
    for to, place in plan.places:
        tails[:, to] = sends.rows[:, place]
    return ColumnRun(
        shared, flag, sends.queue_ids, sends.born_timestamps, sends.bodies, tails, plan.properties_size,
        sends.tags_codes, sends.key_hashes,
    )  # fmt: skip
