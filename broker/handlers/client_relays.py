"""222 INVOKE_BROKER_TO_RESET_OFFSET (sends 220), 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS (asks 221),
307 GET_CONSUMER_RUNNING_INFO, 309 CONSUME_MESSAGE_DIRECTLY: requests that only a connected client can serve.

307 and 309 are forwarded to the named client with all header fields, and its answer is returned unchanged; 1 if that
client is absent, too old, or fails, 207 if it does not answer within 10 s. For 309 the broker adds its name and the
message. 223 asks one client or all, 64 at once, for 5 s each and 10 in all; those that do not answer are omitted, and
so are those beyond a megabyte of answers.

222 looks up the offset of a time in each write queue, in which the group must have committed something (else 1), keeps
the present offset if it is lower and force is not set, and notifies all members; a group without members is 206. C++
clients need the offsets as a list.

Java: broker/processor/AdminBrokerProcessor.java, broker/client/net/Broker2Client.java
"""

from __future__ import annotations

import logging
from functools import partial

import trio

from rocketlet.broker.clients import Clients
from rocketlet.broker.consumer_groups import ConsumerGroup, Member
from rocketlet.broker.consumer_offsets import ConsumerOffsets
from rocketlet.broker.identity import Identity
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.json_pieces import in_pieces
from rocketlet.common.message import MessageQueue
from rocketlet.common.message_id import InvalidMessageId, parse_offset_message_id
from rocketlet.remoting.command import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, Command, Language
from rocketlet.remoting.command import request as command_of
from rocketlet.remoting.errors import BodyError, CallTimeout, RemotingError
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import Turns, collect_joined, encode_in_turns, one_at_a_time
from rocketlet.remoting.protocol.inspection import ConsumeMessageDirectlyHeader, GetConsumerRunningInfoHeader
from rocketlet.remoting.protocol.offsets import (
    ConsumerStatusBody,
    ConsumerStatusHeader,
    ResetOffsetBody,
    ResetOffsetHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.message_store import MessageStore

log = logging.getLogger("rocketlet.broker.handlers.client_relays")

RELAY_SECONDS = 10.0
STATUS_SECONDS = 5.0
ASKED_AT_ONCE = 64
MAX_STATUS = 1 << 20
"""Bytes of what the members of a group tell, all together: 17,000 queues."""
END_OF_QUEUE = -1


class ClientRelays:
    """Requests that are forwarded to connected consumers."""

    def __init__(
        self,
        identity: Identity,
        clients: Clients,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        store: MessageStore,
    ) -> None:
        self._identity = identity
        self._clients = clients
        self._topics = topics
        self._offsets = offsets
        self._store = store

    def table(self) -> HandlerTable:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Handler(self.reset_offset, ResetOffsetHeader),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Handler(self.consumer_status, ConsumerStatusHeader),
            RequestCode.GET_CONSUMER_RUNNING_INFO: Handler(self.running_info, GetConsumerRunningInfoHeader),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: Handler(self.consume_directly, ConsumeMessageDirectlyHeader),
        }

    async def running_info(self, request: Request) -> Reply:
        header: GetConsumerRunningInfoHeader = request.header
        return await self._relay(request, header.consumerGroup, header.clientId, request.ext, bytes(request.body))

    async def consume_directly(self, request: Request) -> Reply:
        header: ConsumeMessageDirectlyHeader = request.header
        self._member(header.consumerGroup, header.clientId or "")
        try:
            _, _, log_offset = parse_offset_message_id(header.msgId or "")
        except InvalidMessageId as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        record = await self._store.with_cold_reads(partial(self._store.record_at, log_offset))
        if record is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message {header.msgId} in this broker")
        ext = {**request.ext, "brokerName": self._identity.name}
        return await self._relay(request, header.consumerGroup, header.clientId or "", ext, bytes(record))

    async def consumer_status(self, request: Request) -> Reply:
        header: ConsumerStatusHeader = request.header
        group = self._clients.consumers.get(header.group)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the consumer group[{header.group}] not online")
        youngest = {member.client_id: member for member in group.members.values()}
        members = [member for name, member in youngest.items() if header.clientAddr in (None, "", name)]
        _refuse_old(members, V3_0_7_SNAPSHOT)
        tables: dict[str, dict[MessageQueue, int]] = {}
        size = 0

        async def ask(member: Member) -> None:
            question = command_of(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
            try:
                answer = await member.connection.call(question, STATUS_SECONDS)
                nonlocal size
                if answer.code == ResponseCode.SUCCESS and size + len(answer.body) <= MAX_STATUS:
                    size += len(answer.body)
                    tables[member.client_id] = ConsumerStatusBody.from_json(answer.body).messageQueueTable
            except (RemotingError, BodyError) as error:
                log.warning("client %s does not tell how far it has consumed: %s", member.client_id, error)

        remaining = iter(members)

        async def ask_some() -> None:
            for member in remaining:
                await ask(member)

        with trio.move_on_after(2 * STATUS_SECONDS):
            async with trio.open_nursery() as nursery:
                for _ in range(min(ASKED_AT_ONCE, len(members))):
                    nursery.start_soon(ask_some)
        return Reply(body=ConsumerStatusBody(consumerTable=tables).to_json())

    @one_at_a_time
    async def reset_offset(self, request: Request) -> Reply:
        header: ResetOffsetHeader = request.header
        places = ResetOffsetBody(await encode_in_turns(await self._reset_places(header)))
        group = self._clients.consumers.get(header.group)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        _refuse_old(list(group.members.values()), V3_0_7_SNAPSHOT)
        body = places.to_json()
        await self._send_reset(group, header, places, body)
        return Reply(body=body)

    async def _reset_places(self, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        places, turns = {}, Turns()
        for queue_id in range(topic.write):
            await turns.pause()
            present = self._offsets.get(header.group, header.topic, queue_id)
            if present is None:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            if header.timestamp == END_OF_QUEUE:
                target = self._store.queue_end(header.topic, queue_id)
            else:
                look_up = partial(self._store.nearest_offset, header.topic, queue_id, header.timestamp)
                target = max(await self._store.with_cold_reads(look_up), 0)
            queue = MessageQueue(header.topic, self._identity.name, queue_id)
            places[queue] = target if header.isForce or target < present else present
        return places

    async def _send_reset(
        self, group: ConsumerGroup, header: ResetOffsetHeader, places: ResetOffsetBody, as_map: bytes
    ) -> None:
        # Force has already taken effect, so the clients do not get the flag.
        reset_header = ResetOffsetHeader(header.timestamp, header.topic, header.group, False)
        turns, as_list = Turns(), b""
        for member in list(group.members.values()):
            await turns.pause()
            cpp = member.language == Language.CPP.name
            if cpp and not as_list:
                as_list = await collect_joined(places.list_json(in_pieces(places.offsetTable.items())))
            body = as_list if cpp else as_map
            try:
                member.connection.send_oneway(command_of(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset_header, body))
            except RemotingError as error:
                log.warning("cannot tell %s to reset its offsets: %s", member.client_id, error)
            else:
                log.info("told %s of group %s to reset its offsets of %s", member.client_id, group.name, header.topic)

    async def _relay(self, request: Request, group: str, client_id: str, ext: dict[str, str], body: bytes) -> Reply:
        member = self._member(group, client_id)
        _refuse_old([member], V3_1_8_SNAPSHOT)
        question = Command(request.code, ext=ext, body=body)
        try:
            answer = await member.connection.call(question, RELAY_SECONDS)
        except CallTimeout:
            raise Refused(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> did not answer within {RELAY_SECONDS:g} s",
            ) from None
        except RemotingError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> failed: {error}"
            ) from None
        return Reply(answer.code, answer.ext, answer.body, answer.remark)

    def _member(self, group: str, client_id: str) -> Member:
        consumers = self._clients.consumers.get(group)
        member = consumers.member(client_id) if consumers is not None else None
        if member is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        return member


def _refuse_old(members: list[Member], version: int) -> None:
    for member in members:
        if member.version < version:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{member.client_id}> Version <{member.version}> too low to finish, please upgrade it",
            )
