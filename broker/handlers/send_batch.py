"""Batches: many messages in one body, stored together or not at all, and answered with an id for each.

What a batch's messages share (topic, queue, sender, time, the properties of the request) is computed once for all of
them; the rest costs 3 µs per message, and half a microsecond if they have equal length and layout
(common/alike_batch.py), as those of one producer mostly have.

One that is large and not of this kind is taken apart in turns, 1 µs a message, and then stored at once. How many
messages and keys a batch may have is limited by what that takes: 8 ms, and 12 for queue and index.

Transactions and effective delay levels are not allowed; filter bits and IPv6 hosts take the slower path, message by
message, which writes the same bytes.

Java: broker/processor/SendMessageProcessor.java (sendBatchMessage), common/message/MessageDecoder.java (decodeMessages)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketlet.broker.handlers.send_answers import Stored
from rocketlet.broker.handlers.send_targets import SendHeader, born_host_of
from rocketlet.broker.put_again import FilterBits
from rocketlet.broker.send_terms import CurrentTerms
from rocketlet.common.alike_batch import read_alike
from rocketlet.common.message_flags import TRANSACTION_MASK
from rocketlet.common.message_properties import tags_and_keys
from rocketlet.common.message_record import BATCH_ITEM, HEAD_SIZE, RecordError, split_batch
from rocketlet.common.subscription import tags_code
from rocketlet.remoting.handler import Later, Refused, Request
from rocketlet.remoting.in_turns import Turns
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.alike_run import AlikeRun
from rocketlet.store.message_run import LONGEST_TOPIC, MixedRun, Run, Shared
from rocketlet.store.message_store import MessageStore

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_MESSAGES = 16_384
"""Of one batch. Of those that RocketMQ takes, with records of 4 MiB in all, few have more."""
MAX_KEYS = 2 * MAX_MESSAGES
MAX_ONE_BY_ONE = 4_096
"""Of one that is stored message by message."""
LARGE = 128 << 10
"""Bytes of a batch, from which on it is taken apart in turns."""
MAX_APART = 32 << 20
"""Bytes of all batches that are being taken apart; their messages take two or three times as much."""
_AT_ONCE = 500  # messages


class SendBatch:
    """Stores the messages of a batch. Raises Refused if the body is not a batch, StoreError if the store refuses."""

    def __init__(self, store: MessageStore, terms: CurrentTerms, filter_bits: FilterBits | None) -> None:
        self._store = store
        self._terms = terms
        self._filter_bits = filter_bits
        self._apart_size = 0

    def put(
        self,
        request: Request,
        topic: str,
        queue_id: int,
        flags: int,
        shared_properties: bytes,
        named: Mapping[bytes, bytes],
    ) -> tuple[Stored, int, int]:
        """Returns the answer, the number of messages, and their bytes in the log. Raises Later for a large one.

        `shared_properties` are the request's properties, which follow each message's own; `named` the same by name.
        """
        header: SendHeader = request.header
        if isinstance(request.ready, MixedRun):
            return self._put_run(request, request.ready)
        if isinstance(request.ready, Refused):
            raise request.ready
        self._check(request, header, named)
        raw = bytes(request.body)
        shared = Shared(
            topic,
            queue_id,
            flags,
            header.bornTimestamp,
            born_host_of(request.connection),
            self._terms.now.store_host,
            header.reconsumeTimes,
        )
        alike = alike_run(raw, shared, shared_properties) if shared.fits() and self._filter_bits is None else None
        if alike is not None:
            count = len(alike.batch.table)
            self._check_numbers(alike, count, count * len(alike.batch.key_places), len(raw), shared_properties)
            return self._put_run(request, alike)
        if len(raw) <= LARGE:
            mixed = mixed_run(raw, shared, shared_properties)
            self._check_numbers(mixed, len(mixed.bodies), len(mixed.keys), len(raw), shared_properties)
            return self._put_run(request, mixed)
        if self._apart_size + len(raw) > MAX_APART:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, start flow control for a while: batches of {self._apart_size} bytes are being"
                f" read; at most {MAX_APART} are",
            )
        raise Later(partial(self._take_apart, raw, shared, shared_properties))

    def _put_run(self, request: Request, run: AlikeRun | MixedRun) -> tuple[Stored, int, int]:
        shared = run.shared
        if isinstance(run, MixedRun) and (self._filter_bits is not None or not shared.fits()):
            return self._put_one_by_one(request, run, self._filter_bits)
        appended = self._store.put_run(run)
        ids = message_ids(shared.store_host, appended.log_offsets)
        begin = int(appended.log_offsets[0])
        stored = Stored(request, begin, shared.queue_id, appended.queue_offset, appended.end, ids)
        return stored, len(appended.log_offsets), appended.size

    async def _take_apart(self, raw: bytes, shared: Shared, shared_properties: bytes) -> MixedRun | Refused:
        """The messages, or why they are not stored."""
        self._apart_size += len(raw)
        turns, run = Turns(), MixedRun(shared, [], [], [], [], [], [])
        try:
            for part in cut_batch(raw, _AT_ONCE):
                await turns.pause()
                run.extend(mixed_run(part, shared, shared_properties))
                self._check_numbers(run, len(run.bodies), len(run.keys), len(raw), shared_properties)
        except Refused as refused:
            return refused
        finally:
            self._apart_size -= len(raw)
        return run

    def _check_numbers(self, run: Run, messages: int, keys: int, size: int, shared_properties: bytes) -> None:
        """Refuse more than can be stored in one go. Each message is stored with `shared_properties` and a head."""
        max_messages = MAX_ONE_BY_ONE if self._filter_bits is not None or not run.shared.fits() else MAX_MESSAGES
        if messages > max_messages or keys > MAX_KEYS:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch has at most {max_messages} messages and {MAX_KEYS} keys, unique keys included; send several",
            )
        stored, limit = size + messages * (HEAD_SIZE + len(shared_properties)), 2 * self._store.config.max_message_size
        if stored > limit:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {messages} messages would take {stored} bytes; the limit is {limit}, twice maxMessageSize",
            )

    def _check(self, request: Request, header: SendHeader, named: Mapping[bytes, bytes]) -> None:
        if len(header.topic) > LONGEST_TOPIC:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
        try:
            level = int(named.get(b"DELAY", b"0"))
        except ValueError:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the property DELAY of the batch is {named[b'DELAY']!r}"
            ) from None
        if header.sysFlag & TRANSACTION_MASK or level > 0:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "a batch can be neither delayed nor transactional")
        limit = self._store.config.max_message_size
        if len(request.body) > limit:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"a batch of {len(request.body)} bytes; the limit is {limit}")
        if not request.body:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the batch is empty")

    def _put_one_by_one(
        self, request: Request, run: MixedRun, filter_bits: FilterBits | None
    ) -> tuple[Stored, int, int]:
        import numpy

        puts = run.puts()
        if filter_bits is not None:
            for put in puts:
                put.filter_bits = filter_bits(put.topic, put.properties)
        appended = self._store.put_batch(puts)
        log_offsets = numpy.array([result.log_offset for result in appended])
        ids = message_ids(run.shared.store_host, log_offsets)
        first = appended[0]
        stored = Stored(request, first.log_offset, run.shared.queue_id, first.queue_offset, appended[-1].end, ids)
        return stored, len(appended), sum(result.size for result in appended)


def cut_batch(raw: bytes, max_messages: int) -> Iterator[bytes]:
    """A batch as several of at most so many messages each. What is no batch is in the last."""
    begin = at = count = 0
    while at + BATCH_ITEM.size <= len(raw):
        size = int.from_bytes(raw[at : at + 4], "big", signed=True)
        if size <= 0:
            break
        at, count = at + size, count + 1
        if count == max_messages:
            yield raw[begin:at]
            begin, count = at, 0
    if begin < len(raw):
        yield raw[begin:]


def alike_run(raw: bytes, shared: Shared, shared_properties: bytes) -> AlikeRun | None:
    """The batch as a table, if it is uniform."""
    batch = read_alike(raw, shared_properties)
    if batch is None:
        return None
    separated = shared_properties if not batch.properties or batch.properties[-1] == 2 else b"\x02" + shared_properties
    return AlikeRun(shared, batch, separated, tags_code(batch.tags) if batch.tags else 0)


def mixed_run(raw: bytes, shared: Shared, shared_properties: bytes) -> MixedRun:
    """The batch message by message. Raises Refused if it is not a batch."""
    try:
        flags, bodies, own_properties = split_batch(raw)
    except RecordError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the body is no batch: {error}") from None
    separated = b"\x02" + shared_properties
    all_properties = [
        properties + shared_properties if not properties or properties[-1] == 2 else properties + separated
        for properties in own_properties
    ]
    codes: list[int] = []
    all_keys: list[bytes] = []
    keys_each: list[int] = []
    for properties in all_properties:
        tags, keys = tags_and_keys(properties)
        codes.append(tags_code(tags) if tags else 0)
        all_keys += keys
        keys_each.append(len(keys))
    return MixedRun(shared, bodies, all_properties, flags, codes, all_keys, keys_each)


def message_ids(store_host: bytes, log_offsets: NDArray[Any]) -> str:
    """The offset ids joined by commas, for the answer to a batch: 0.04 µs each as a table of bytes, 0.1 formatted."""
    import numpy

    host = store_host.hex().upper().encode()
    digits = log_offsets.astype(">i8").tobytes().hex().upper().encode()
    rows = numpy.empty((len(log_offsets), len(host) + 17), numpy.uint8)
    rows[:] = numpy.frombuffer(b"%b%b," % (host, bytes(16)), numpy.uint8)
    rows[:, len(host) : -1] = numpy.frombuffer(digits, numpy.uint8).reshape(-1, 16)
    return rows.tobytes()[:-1].decode()
