"""10 SEND_MESSAGE, 310 SEND_MESSAGE_V2, 320 SEND_BATCH_MESSAGE: store a message, or several.

Whether the body is a batch is decided by the header's `batch`, not by the code. Refused, in this order:

0. a request that waited too long (2, `broker/overload.py`);
1. before `startAcceptSendRequestTimeStamp` (1); while the broker starts, stops or is a slave (14);
2. an ordered topic while the broker is read-only (16);
3. an illegal topic name (1), or a topic that clients may not send to (16);
4. an unknown topic whose template does not allow its creation (17); a %RETRY% topic is always created;
5. a queue that the topic does not have (1); for a negative id the broker chooses one;
6. the store's refusals: too long (13), not writable or disk full (14), any other (1).

The properties are stored as received, without WAIT and with CLUSTER (`stored_properties`). A message with DELAY or
TRAN_MSG, or to a %RETRY% topic, may be redirected (`broker/detours.py`). Every answer, including a refusal, has region
and trace switch; for the rest see `send_answers.py`.

Most sends are to a known topic of an open broker. A few comparisons detect these, and they are stored in the turn that
read them without the checks in `send_targets.py`.

Java: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java
"""

from __future__ import annotations

from rocketlet.broker.detours import Detours
from rocketlet.broker.handlers.send_answers import SendAnswers, Stored
from rocketlet.broker.handlers.send_batch import SendBatch
from rocketlet.broker.handlers.send_targets import BORN_HOST, SendHeader, SendTargets, born_host_of
from rocketlet.broker.put_again import FilterBits
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.timing import deliver_at
from rocketlet.broker.topic_table import Topic
from rocketlet.common.message_flags import HOST_FLAGS
from rocketlet.common.message_properties import remove
from rocketlet.common.subscription import tags_code
from rocketlet.common.topic import DLQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketlet.remoting.access import publish
from rocketlet.remoting.handler import Answer, Deferred, Handler, HandlerTable, Refused, Request, TogetherFunction
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.errors import Closed, MessageIllegal, NotWritable, StoreError
from rocketlet.store.message import Put
from rocketlet.store.message_store import MessageStore

REDIRECTING = frozenset({b"DELAY", b"TRAN_MSG", *(name.encode() for name in deliver_at.PROPERTIES)})
"""Names of properties with which a message may be stored elsewhere than it says (`broker/detours.py`)."""

_JAVAS_WAIT = b"\x02WAIT\x01true\x02"
_LAST_WAIT = b"\x02WAIT\x01true"


class SendMessage:
    """Stores what clients send. `filter_bits` is None if no SQL92 bit maps are kept; `together` serves many alike."""

    def __init__(
        self,
        targets: SendTargets,
        detours: Detours,
        answers: SendAnswers,
        store: MessageStore,
        statistics: Statistics,
        filter_bits: FilterBits | None,
        together: TogetherFunction,
    ) -> None:
        self._targets = targets
        self._overload = targets.overload
        self._find = targets.find
        self._detours = detours
        self._answers = answers
        self._terms = answers.terms
        self._store = store
        self._put = store.put
        self._statistics = statistics
        self._total = statistics.put
        self._filter_bits = filter_bits
        self._batches = SendBatch(store, answers.terms, filter_bits)
        self._together = together
        self._cluster = b"\x02CLUSTER\x01" + statistics.cluster.encode()

    def table(self) -> HandlerTable:
        return {
            RequestCode.SEND_MESSAGE: Handler(
                self.handle, SendMessageHeader, "send", access=publish("topic"), longest_body=None
            ),
            RequestCode.SEND_MESSAGE_V2: Handler(
                self.handle,
                SendMessageHeaderV2,
                "send",
                access=publish("topic"),
                longest_body=None,
                together=self._together,
            ),
            RequestCode.SEND_BATCH_MESSAGE: Handler(
                self.handle, SendMessageHeaderV2, "send", access=publish("topic"), longest_body=None
            ),
        }

    def handle(self, request: Request) -> Answer | Deferred:
        header: SendHeader = request.header
        topic, queue_id = self._find(header.topic), header.queueId
        try:
            if (
                topic is None
                or not topic.plain
                or not 0 <= queue_id < topic.queues
                or not self._terms.now.is_open
                or header.batch
                or self._overload.waited_ms
            ):
                topic, queue_id = self._targets.admit(request, header)
                if header.batch:
                    return self._store_batch(request, header, topic, queue_id)
            return self._store_one(request, header, topic, queue_id)
        except StoreError as error:
            raise self._noted(self._refusal(error)) from error
        except Refused as refused:
            self._noted(refused)
            raise

    def _store_one(self, request: Request, header: SendHeader, topic: Topic, queue_id: int) -> Answer | Deferred:
        """Each line here runs 50,000 times a second."""
        terms = self._terms.now
        properties, keys, code, wait, named = stored_properties(header.properties, self._cluster)
        put = Put(
            header.topic,
            queue_id,
            request.body,
            properties,
            code,
            keys,
            header.flag,
            header.sysFlag & ~HOST_FLAGS | topic.message_flags,
            header.bornTimestamp,
            request.connection.attributes.get(BORN_HOST) or born_host_of(request.connection),
            terms.store_host,
            header.reconsumeTimes,
        )
        recall = ""
        flow = topic.flows.get(queue_id) or topic.flow_into(queue_id, self._statistics)
        if not (topic.plain and REDIRECTING.isdisjoint(named)):
            recall = self._redirect(request, header, put)
            if put.topic == SCHEDULE_TOPIC:  # counted in its own topic when delivered
                flow = self._statistics.put_flow(put.topic, put.queue_id)
            elif put.topic.startswith(DLQ_PREFIX):
                topic = self._find(put.topic) or topic  # may have been created just now
        if self._filter_bits is not None:
            put.filter_bits = self._filter_bits(put.topic, put.properties)
        appended = self._put(put)
        total = self._total
        flow.calls += 1
        flow.bytes += appended.size
        total.calls += 1
        total.bytes += appended.size
        log_offset, queue_offset = appended.log_offset, appended.queue_offset
        if terms.ready is not None and not terms.waits and topic.saved and not recall:
            frame = terms.ready.frame(request.header_type, request.opaque, log_offset, queue_id, queue_offset)
            if frame is not None:
                return frame
        stored = Stored(request, log_offset, queue_id, queue_offset, appended.end, recall=recall)
        return self._answers.answer(stored, topic, wait=wait)

    def _redirect(self, request: Request, header: SendHeader, put: Put) -> str:
        """A redirected message keeps its WAIT, as in RocketMQ. Returns the handle to recall it, if it has one."""
        without_wait = put.properties
        put.properties = stored_properties(header.properties, self._cluster, keep_wait=True)[0]
        self._detours.take(request, header, put)
        if put.topic == header.topic:
            put.properties = without_wait
        return self._answers.recall_handle(put) if put.topic == TIMER_TOPIC else ""

    def _store_batch(self, request: Request, header: SendHeader, topic: Topic, queue_id: int) -> Answer | Deferred:
        # A producer sends the same few properties with each batch; those of its messages are in the body.
        shared_properties, _, _, wait, named = stored_properties(header.properties, self._cluster, keep_wait=True)
        flags = header.sysFlag & ~HOST_FLAGS | topic.message_flags
        stored, messages, size = self._batches.put(request, topic.name, queue_id, flags, shared_properties, named)
        (topic.flows.get(queue_id) or topic.flow_into(queue_id, self._statistics)).add(messages, size)
        self._total.add(messages, size)
        return self._answers.answer(stored, topic, wait=wait)

    def _noted(self, refused: Refused) -> Refused:
        """Count a refusal, and add the fields that every answer has."""
        if refused.header is None:
            refused.header = self._answers.refused_header()
        self._statistics.put_failed += 1
        return refused

    def _refusal(self, error: StoreError) -> Refused:
        if isinstance(error, MessageIllegal):
            return Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
                f"{self._store.config.max_message_size}B, msg properties length limit 32KB. {error}",
            )
        if isinstance(error, NotWritable | Closed):
            return Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {error}")
        return Refused(ResponseCode.SYSTEM_ERROR, str(error))


def stored_properties(
    text: str, cluster: bytes, *, keep_wait: bool = False
) -> tuple[bytes, list[bytes], int, bool, dict[bytes, bytes]]:
    """The stored properties of a send, the keys for the index, the tags code, whether the sender waits, and all
    properties by name. 1.2 µs for four of them.

    The text is stored as received, without WAIT (unless it is kept) and CLUSTER, followed by `cluster`, which begins
    with the separator. Text that is not a property stays, because no reader sees it; trailing separators are removed.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raw = text.encode("utf-8", "surrogatepass")
    named: dict[bytes, bytes] = {}
    for piece in raw.split(b"\x02"):
        name, _, value = piece.partition(b"\x01")
        if value:
            named[name] = value
    wait = True
    if b"WAIT" in named:
        wait = named[b"WAIT"] != b"false"
        if not keep_wait:
            # Where Java puts it: before TAGS, or last if there are none.
            if raw.endswith(_LAST_WAIT):
                raw = raw[: -len(_LAST_WAIT)]
            else:
                raw = raw.replace(_JAVAS_WAIT, b"\x02", 1)
            if b"WAIT" in raw:
                raw = remove(raw, b"WAIT")
    if b"CLUSTER" in named:
        raw = remove(raw, b"CLUSTER")
    if raw[-1:] == b"\x02":
        raw = raw.rstrip(b"\x02")
    unique, words, tags = named.get(b"UNIQ_KEY"), named.get(b"KEYS"), named.get(b"TAGS")
    keys = [unique] if unique else []
    if words:
        keys += [word for word in words.split(b" ") if word] if b" " in words else [words]
    return raw + cluster if raw else cluster[1:], keys, tags_code(tags) if tags else 0, wait, named
