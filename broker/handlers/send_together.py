"""Sends of one chunk that are alike (`remoting/alike_sends.py`) are stored and answered as columns: 2 µs each of 64,
where one alone takes 8.

Only the plainest are: to a known topic, without transaction, delay or anything else that redirects, and to queues that
are there already. All others are declined before anything has changed, and `SendMessage` serves them one by one; so
this changes what sends cost and nothing else: the same bytes are stored, the same answers sent.

Java: broker/processor/SendMessageProcessor.java
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketlet.broker.handlers.send_answers import SendAnswers
from rocketlet.broker.handlers.send_message import REDIRECTING, stored_properties
from rocketlet.broker.handlers.send_targets import SendHeader, SendTargets, born_host_of
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.topic_table import Topic
from rocketlet.common.java_hashes import hash_of_rows, index_hashes
from rocketlet.common.message_flags import HOST_FLAGS, TRANSACTION_MASK
from rocketlet.common.property_places import property_places
from rocketlet.remoting.alike_sends import AlikeSends, read_alike
from rocketlet.remoting.handler import Frames, Request, Together
from rocketlet.store.column_run import AppendedColumns, ColumnRun
from rocketlet.store.message_run import Shared
from rocketlet.store.message_store import MessageStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MUST_BE_SHARED = frozenset({b"WAIT", b"CLUSTER"})


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

    def serve(self, first: Request, frames: Frames) -> Together | None:
        """See `Handler.together`."""
        header: SendHeader = first.header
        topic = self._targets.find(header.topic)
        if (
            topic is None
            or not topic.plain
            or header.batch
            or self._keeps_filter_bits
            or not self._terms.now.is_open
            or self._terms.now.ready is None
            or self._targets.overload.waited_ms
            or not self._store.may_use_numpy
        ):
            return None
        sends = read_alike(first, frames)
        if sends is None or int(sends.queue_ids.max()) >= topic.queues:
            return None
        run, wait = self._run(sends, topic)
        appended = self._store.put_columns(run) if run is not None else None
        if appended is None:
            return None
        self._count(topic, appended)
        return Together(sends.count, self._answers.answer_together(sends, appended, wait=wait))

    def _run(self, sends: AlikeSends, topic: Topic) -> tuple[ColumnRun | None, bool]:
        """What is to be stored, None where it is not plain enough; and whether the sender waits."""
        first, header = sends.first, sends.first.header
        stored, _, code, wait, named = stored_properties(header.properties, self._cluster)
        shared = Shared(
            topic.name,
            header.queueId,
            header.sysFlag & ~HOST_FLAGS | topic.message_flags,
            header.bornTimestamp,
            born_host_of(first.connection),
            self._terms.now.store_host,
            header.reconsumeTimes,
        )
        if (
            not shared.fits()
            or header.sysFlag & TRANSACTION_MASK
            or not REDIRECTING.isdisjoint(named)
            or not _MUST_BE_SHARED.isdisjoint(sends.varying)
            or not stored.isascii()
            or 0 in stored
        ):
            return None, wait
        import numpy

        properties = numpy.empty((sends.count, len(stored)), numpy.uint8)
        properties[:] = numpy.frombuffer(stored, numpy.uint8)
        places = property_places(stored)
        for name in sends.varying:
            properties[:, places.named[name]] = sends.rows[:, sends.properties.named[name]]
        tags_codes: NDArray[Any] = numpy.full(sends.count, code)
        if b"TAGS" in sends.varying:
            tags_codes = hash_of_rows(b"", properties[:, places.named[b"TAGS"]]).astype(numpy.int64)
        hashes = index_hashes(topic.name.encode() + b"#", properties, places.keys)
        run = ColumnRun(
            shared, header.flag, sends.queue_ids, sends.born_timestamps, sends.bodies, properties, tags_codes, hashes
        )
        return run, wait

    def _count(self, topic: Topic, appended: AppendedColumns) -> None:
        for queue_id, count, size in appended.queues:
            flow = topic.flow_into(queue_id, self._statistics)
            flow.calls += count
            flow.bytes += size
        total = self._statistics.put
        total.calls += len(appended.sizes)
        total.bytes += int(appended.sizes.sum())
