"""10 SEND_MESSAGE, 310 SEND_MESSAGE_V2, 320 SEND_BATCH_MESSAGE: a message, or several, are stored.

Whether the body is a batch is told by the header's `batch`, not by the code. Refused, in this order:

0. what waited too long (2, `broker/overload.py`);
1. before `startAcceptSendRequestTimeStamp` (1); while the broker starts, stops or is a slave (14);
2. an ordered topic while the broker may not be written to (16);
3. a topic name that is none (1), or is one that clients may not send to (16);
4. an unknown topic whose template does not let it be created (17); a %RETRY% topic creates itself;
5. a queue that the topic does not have (1); below zero the broker chooses one;
6. what the store refuses: too long (13), not writable or disk full (14), any other (1).

Stored are the properties as they came, without WAIT and with CLUSTER. DELAY sends a message through the schedule topic,
TRAN_MSG makes it a half message; a message for a %RETRY% topic that was tried too often goes to the dead letters. Every
answer, also a refusal, names region and trace switch; what else it says: `send_answers.py`.

A send of the common kind is stored in the turn that read it, in one pass; whatever is special about it goes the longer
way through `send_targets.py`.

Java: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from rocketlet.broker.config import Settings
from rocketlet.broker.handlers.send_answers import SendAnswers, Stored
from rocketlet.broker.handlers.send_batch import SendBatch
from rocketlet.broker.handlers.send_targets import BORN_HOST_V4, SendHeader, SendTargets, born_host_of
from rocketlet.broker.identity import Identity
from rocketlet.broker.overload import Overload
from rocketlet.broker.put_again import FilterBits
from rocketlet.broker.send_terms import CurrentTerms, SendTerms
from rocketlet.broker.statistics import Flow, Statistics
from rocketlet.broker.topic_table import Topic, TopicTable
from rocketlet.common.host import V6_SIZE
from rocketlet.common.message_flags import BORN_V6, COMMIT, MULTI_TAGS, NOT_TRANSACTION, STORE_V6, TRANSACTION_MASK
from rocketlet.common.message_properties import append, remove
from rocketlet.common.subscription import tags_code
from rocketlet.remoting.access import publish
from rocketlet.remoting.command import HeaderType
from rocketlet.remoting.handler import Answer, Deferred, Handler, HandlerTable, Refused, Request
from rocketlet.remoting.protocol.configuration import MULTI_TAG
from rocketlet.remoting.protocol.sending import SendMessageHeader, SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.errors import Closed, MessageIllegal, NotWritable, StoreError
from rocketlet.store.message import Put
from rocketlet.store.message_run import Shared
from rocketlet.store.message_store import MessageStore

# RocketMQ keeps one byte for the length of a batch's topic.
LONGEST_BATCH_TOPIC = 127
_HOST_FLAGS = BORN_V6 | STORE_V6
# What a send of the common kind has not.
_SPECIAL = frozenset({b"DELAY", b"TRAN_MSG", b"CLUSTER"})
_WAIT = b"\x02WAIT\x01true\x02"
_ROCKETMQ = int(HeaderType.ROCKETMQ)


class Rewrites(Protocol):
    """What becomes of a delayed or a transactional message before it is stored."""

    def delayed(self, put: Put) -> Put:
        """A message with DELAY, on its way through the schedule topic."""

    def half(self, put: Put) -> Put:
        """A message with TRAN_MSG, on its way through the half topic."""


class SendMessage:
    """Stores what clients send."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        topics: TopicTable,
        targets: SendTargets,
        terms: CurrentTerms,
        answers: SendAnswers,
        store: MessageStore,
        rewrites: Rewrites,
        statistics: Statistics,
        overload: Overload,
        filter_bits: FilterBits | None,
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._targets = targets
        self._terms = terms
        self._answers = answers
        self._store = store
        self._rewrites = rewrites
        self._statistics = statistics
        self._overload = overload
        self._filter_bits = filter_bits
        self._batches = SendBatch(store, filter_bits)
        self._total = statistics.put
        self._find = topics.get
        self._put = store.put
        self._cluster = b"CLUSTER\x01" + identity.cluster.encode()
        self._then_cluster = b"\x02" + self._cluster

    def table(self) -> HandlerTable:
        return {
            RequestCode.SEND_MESSAGE: Handler(self.handle, SendMessageHeader, "send", access=publish("topic")),
            RequestCode.SEND_MESSAGE_V2: Handler(self.handle, SendMessageHeaderV2, "send", access=publish("topic")),
            RequestCode.SEND_BATCH_MESSAGE: Handler(self.handle, SendMessageHeaderV2, "send", access=publish("topic")),
        }

    def handle(self, request: Request) -> Answer | Deferred:
        header: SendHeader = request.header
        topic, terms = self._find(header.topic), self._terms.now
        if topic is None or not topic.plain or terms.common is None:
            topic = None  # or why not is told the long way
        elif not header.batch and not self._overload.waited_ms:
            answer = self._store_common(request, header, topic, terms)
            if answer is not None:
                return answer
        return self._handle_special(request, header, topic)

    def _store_common(self, request: Request, header: SendHeader, topic: Topic, terms: SendTerms) -> Answer | Deferred:
        """The common send in one pass; None, with nothing done, where it is none after all.

        Each line here runs 50,000 times a second. All of it together does what `_store_one` does.
        """
        queue_id = header.queueId
        born_host = request.connection.attributes.get(BORN_HOST_V4)
        try:
            raw = header.properties.encode()
        except UnicodeEncodeError:
            return None
        named = {}
        for piece in raw.split(b"\x02"):
            name, _, value = piece.partition(b"\x01")
            if value:
                named[name] = value
        if (
            born_host is None
            or not 0 <= queue_id < topic.queues
            or not _SPECIAL.isdisjoint(named)
            or request.header_type > _ROCKETMQ
        ):
            return None
        wait = True
        if b"WAIT" in named:
            wait = named[b"WAIT"] != b"false"
            # Java writes it as `true`, in the middle of the others.
            raw = raw.replace(_WAIT, b"\x02", 1) if _WAIT in raw else remove(raw, b"WAIT")
        unique, words, tags = named.get(b"UNIQ_KEY"), named.get(b"KEYS"), named.get(b"TAGS")
        keys = [unique] if unique else []
        if words:
            keys += [word for word in words.split(b" ") if word] if b" " in words else [words]
        put = Put(
            header.topic,
            queue_id,
            request.body,
            raw + (self._cluster if not raw or raw[-1] == 2 else self._then_cluster),
            tags_code(tags) if tags else 0,
            keys,
            header.flag,
            header.sysFlag & ~_HOST_FLAGS,
            header.bornTimestamp,
            born_host,
            terms.store_host,
            header.reconsumeTimes,
        )
        try:
            appended = self._put(put)
        except StoreError:
            return None  # the long way meets it again, and says why
        flow, total = topic.flows.get(queue_id) or self._flow(topic, queue_id), self._total
        flow.calls += 1
        flow.bytes += appended.size
        total.calls += 1
        total.bytes += appended.size
        log_offset, queue_offset = appended.log_offset, appended.queue_offset
        if terms.waits:
            stored = Stored(request, log_offset, queue_id, queue_offset, appended.end)
            return self._answers.answer(stored, topic, wait=wait)
        assert terms.common is not None
        return terms.common.frame(request.header_type, request.opaque, log_offset, queue_id, queue_offset)

    def _handle_special(self, request: Request, header: SendHeader, plain: Topic | None) -> Answer | Deferred:
        """`plain`: the topic, where nothing stands against a send to it."""
        try:
            self._overload.check(self._settings.now.wait_time_mills_in_send_queue)
            topic = plain or self._targets.topic(request, header)
            queue_id = self._targets.queue(request, header, topic)
            if header.batch:
                return self._store_batch(request, header, topic, queue_id)
            return self._store_one(request, header, topic, queue_id)
        except Refused as refused:
            if refused.header is None:
                refused.header = self._answers.refused_header()
            self._statistics.put_failed += 1
            raise

    def _store_one(self, request: Request, header: SendHeader, topic: Topic, queue_id: int) -> Answer | Deferred:
        raw = header.properties.encode("utf-8", "surrogatepass")
        named = read_properties(raw)
        put = self._put_of(request, header, topic, queue_id, raw, named)
        put.body = request.body
        wait = named.get(b"WAIT") != b"false"
        if topic.name.startswith("%RETRY%"):
            put = self._to_dead_letters(request, header, put)
        put = self._rewrite(request, header, put, named)
        if put.topic == topic.name and b"WAIT" in named:
            put.properties = remove(put.properties, b"WAIT")
        if self._filter_bits is not None:
            put.filter_bits = self._filter_bits(put.topic, put.properties)
        try:
            appended = self._store.put(put)
        except StoreError as error:
            raise self._refusal(error) from error
        self._count(topic, queue_id, 1, appended.size)
        stored = Stored(request, appended.log_offset, queue_id, appended.queue_offset, appended.end)
        return self._answers.answer(stored, topic, wait=wait)

    def _store_batch(self, request: Request, header: SendHeader, topic: Topic, queue_id: int) -> Answer | Deferred:
        more, is_delayed, wait = _for_each_of_batch(header.properties, self._cluster[8:])
        self._check_batch(request, header, is_delayed)
        born_host, store_host = born_host_of(request.connection), self._identity.store_host
        flags = self._flags(header, topic, born_host)
        shared = Shared(
            topic.name, queue_id, flags, header.bornTimestamp, born_host, store_host, header.reconsumeTimes
        )  # fmt: skip
        try:
            stored, messages, size = self._batches.put(request, shared, more)
        except StoreError as error:
            raise self._refusal(error) from error
        self._count(topic, queue_id, messages, size)
        return self._answers.answer(stored, topic, wait=wait)

    def _check_batch(self, request: Request, header: SendHeader, is_delayed: bool) -> None:
        if len(header.topic) > LONGEST_BATCH_TOPIC:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
        if header.sysFlag & TRANSACTION_MASK or is_delayed:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch can be neither delayed nor transactional")
        limit = self._store.config.max_message_size
        if len(request.body) > limit:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"a batch of {len(request.body)} bytes; the limit is {limit}")
        if not request.body:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the batch is empty")

    def _put_of(
        self,
        request: Request,
        header: SendHeader,
        topic: Topic,
        queue_id: int,
        raw: bytes,
        named: dict[bytes, bytes],
    ) -> Put:
        """All of a message but its body."""
        born_host = born_host_of(request.connection)
        tags = named.get(b"TAGS")
        return Put(
            topic=topic.name,
            queue_id=queue_id,
            body=b"",
            properties=append(remove(raw, b"CLUSTER").rstrip(b"\x02"), b"CLUSTER", self._cluster[8:]),
            tags_code=tags_code(tags) if tags else 0,
            keys=keys_of(named),
            flag=header.flag,
            sys_flag=self._flags(header, topic, born_host),
            born_timestamp=header.bornTimestamp,
            born_host=born_host,
            store_host=self._identity.store_host,
            reconsume_times=header.reconsumeTimes,
        )

    def _flags(self, header: SendHeader, topic: Topic, born_host: bytes) -> int:
        flags = header.sysFlag & ~_HOST_FLAGS
        flags |= BORN_V6 if len(born_host) == V6_SIZE else 0
        flags |= STORE_V6 if len(self._identity.store_host) == V6_SIZE else 0
        return flags | (MULTI_TAGS if topic.filter_type == MULTI_TAG else 0)

    def _to_dead_letters(self, request: Request, header: SendHeader, put: Put) -> Put:
        topic = self._targets.dead_letters(request, header)
        if topic is not None:
            put.topic, put.queue_id = topic.name, 0
        return put

    def _rewrite(self, request: Request, header: SendHeader, put: Put, named: dict[bytes, bytes]) -> Put:
        level = delay_level(named)
        transactional = named.get(b"TRAN_MSG", b"").lower() == b"true"
        if transactional and not (header.reconsumeTimes > 0 and level > 0):
            if self._settings.now.reject_transaction_message:
                raise Refused(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._identity.address}] sending transaction message is forbidden",
                )
            return self._rewrites.half(put)
        if level > 0 and put.sys_flag & TRANSACTION_MASK in (NOT_TRANSACTION, COMMIT):
            return self._rewrites.delayed(put)
        return put

    def _count(self, topic: Topic, queue_id: int, messages: int, size: int) -> None:
        (topic.flows.get(queue_id) or self._flow(topic, queue_id)).add(messages, size)
        self._total.add(messages, size)

    def _flow(self, topic: Topic, queue_id: int) -> Flow:
        flow = topic.flows[queue_id] = self._statistics.put_flow(topic.name, queue_id)
        return flow

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


@lru_cache(64)
def _for_each_of_batch(properties: str, cluster: bytes) -> tuple[bytes, bool, bool]:
    """Of a batch's own properties: what follows those of each message, whether it is delayed, whether it waits.

    A producer sends the same ones again and again. Raises Refused.
    """
    raw = properties.encode("utf-8", "surrogatepass")
    named = read_properties(raw)
    more = append(remove(raw, b"CLUSTER").rstrip(b"\x02"), b"CLUSTER", cluster)
    return more, delay_level(named) > 0, named.get(b"WAIT") != b"false"


def read_properties(raw: bytes) -> dict[bytes, bytes]:
    """The properties of a send, as bytes; by the rules of `common.message_properties`. 0.5 µs for four."""
    named = {}
    for piece in raw.split(b"\x02"):
        name, _, value = piece.partition(b"\x01")
        if value and name:
            named[name] = value
    return named


def keys_of(named: dict[bytes, bytes]) -> list[bytes]:
    """What the index files: the unique key first, then the words of KEYS."""
    unique, words = named.get(b"UNIQ_KEY"), named.get(b"KEYS")
    keys = [unique] if unique is not None else []
    if words is not None:
        keys += [word for word in words.split(b" ") if word]
    return keys


def delay_level(named: dict[bytes, bytes]) -> int:
    """The level in DELAY; 0 where there is none. Raises Refused where it is no number."""
    text = named.get(b"DELAY")
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the property DELAY is {text!r}, which is no delay level") from None
