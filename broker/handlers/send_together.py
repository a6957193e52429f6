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
from typing import TYPE_CHECKING, Any

from rocketlet.broker.handlers.send_answers import SendAnswers
from rocketlet.broker.handlers.send_message import REDIRECTING, stored_properties
from rocketlet.broker.handlers.send_targets import SendHeader, SendTargets, born_host_of
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.topic_table import Topic
from rocketlet.common.java_hashes import hash_of_rows, index_hashes
from rocketlet.common.message_flags import HOST_FLAGS, TRANSACTION_MASK
from rocketlet.common.property_places import property_places
from rocketlet.remoting.alike_sends import AlikeSends, Shape, read_alike, shape_of
from rocketlet.remoting.handler import Frames, Request, Together
from rocketlet.store.column_run import AppendedColumns, ColumnRun
from rocketlet.store.message_run import Shared
from rocketlet.store.message_store import MessageStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHARED = frozenset({b"WAIT", b"CLUSTER"})
_REST = 16
"""Turns in which nothing is tried on a connection whose sends were not alike: to find that out costs as much as ten."""
_KEPT_PLANS = 256  # of the connections that sent last; each has up to 40 KiB


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the sends of a shape are stored. `stored` are the properties of the first; of these, the bytes `to` are in
    each as in the bytes `source` of its header."""

    shape: Shape
    stored: NDArray[Any]
    source: NDArray[Any]
    to: NDArray[Any]
    tags: slice | None
    keys: list[slice]
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
        if int(sends.queue_ids.max()) >= topic.queues:
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
        import numpy

        places = property_places(stored)
        place_of = numpy.zeros(len(shape.row), numpy.int64)  # in what is stored, of each byte of a value
        for name, place in shape.properties.named.items():
            if name not in _SHARED:
                place_of[place] = numpy.arange(places.named[name].start, places.named[name].stop)
        row = numpy.frombuffer(stored, numpy.uint8)
        plan = _Plan(shape, row, shape.texts, place_of[shape.texts], places.tags, places.keys, wait)
        if len(self._plans) >= _KEPT_PLANS:
            self._plans.clear()
        self._plans[first.connection.id] = plan
        return plan

    def _count(self, topic: Topic, appended: AppendedColumns) -> None:
        for queue_id, count, size in appended.queues:
            flow = topic.flow_into(queue_id, self._statistics)
            flow.calls += count
            flow.bytes += size
        total = self._statistics.put
        total.calls += len(appended.sizes)
        total.bytes += int(appended.sizes.sum())


def _are_admitted(first: Request, sends: AlikeSends, frames: Frames, admits: Callable[[Request], bool]) -> bool:
    request = copy(first)
    for (_, header, body_at, _), body in zip(frames.frames, sends.bodies, strict=False):
        request.raw_header, request.body = frames.data[header:body_at], body
        if not admits(request):
            return False
    return True


def _run(plan: _Plan, sends: AlikeSends, shared: Shared, flag: int) -> ColumnRun:
    import numpy

    properties = numpy.empty((sends.count, len(plan.stored)), numpy.uint8)
    properties[:] = plan.stored
    properties[:, plan.to] = sends.rows.take(plan.source, axis=1)
    if plan.tags is not None:
        tags_codes = hash_of_rows(b"", properties[:, plan.tags]).astype(numpy.int64)
    else:
        tags_codes = numpy.zeros(sends.count, numpy.int64)
    hashes = index_hashes(shared.topic.encode() + b"#", properties, plan.keys)
    return ColumnRun(shared, flag, sends.queue_ids, sends.born_timestamps, sends.bodies, properties, tags_codes, hashes)
