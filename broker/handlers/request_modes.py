"""400 QUERY_ASSIGNMENT, 401 SET_MESSAGE_REQUEST_MODE, 402 GET_ALL_MESSAGE_REQUEST_MODE, of 5.x: the broker says which
queues a client takes messages from, and whether it pulls or pops.

When pulling, the queues are allocated to the group's members as clients do it themselves. When popping, every member
pops from all queues of each broker (queue id -1), or with `popShareQueueNum` from its own share and that many others. A
mode is on disk before it is acknowledged.

Java: broker/processor/QueryAssignmentProcessor.java, broker/loadbalance/MessageRequestModeManager.java
"""

from __future__ import annotations

from itertools import groupby

from rocketlet.broker.clients import Clients
from rocketlet.broker.handlers.acknowledged import acknowledged, refuse_on_slave
from rocketlet.broker.identity import Identity
from rocketlet.broker.json_file import JsonFile
from rocketlet.broker.popping.modes import RequestModes, allocate_queues
from rocketlet.broker.topic_routes import TopicRoutes
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common import topic as names
from rocketlet.remoting.access import Access, Need, Permission, Resource
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.configuration import LONGEST_ENTRY
from rocketlet.remoting.protocol.popping import (
    ANY_QUEUE,
    MODES,
    POP_MODE,
    Assignment,
    AssignmentsBody,
    QueryAssignmentBody,
    RequestMode,
)
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode


def _topic(body: bytes | memoryview) -> list[str]:
    return [QueryAssignmentBody.from_json(body).topic]


def _group(body: bytes | memoryview) -> list[str]:
    return [QueryAssignmentBody.from_json(body).consumerGroup]


class RequestModesAdmin:
    """Modes, and the assignments that follow from them."""

    def __init__(
        self,
        identity: Identity,
        topics: TopicTable,
        clients: Clients,
        modes: RequestModes,
        file: JsonFile,
        routes: TopicRoutes,
    ) -> None:
        self._identity = identity
        self._topics = topics
        self._members = clients.consumers.get
        self._modes = modes
        self._file = file
        self._routes = routes

    def table(self) -> HandlerTable:
        consume = Access((
            Need(Permission.SUBSCRIBE, Resource.TOPIC, _topic),
            Need(Permission.SUBSCRIBE, Resource.GROUP, _group),
        ))  # fmt: skip
        return {
            RequestCode.QUERY_ASSIGNMENT: Handler(
                self.assignment, None, "client", access=consume, longest_body=LONGEST_ENTRY
            ),
            RequestCode.SET_MESSAGE_REQUEST_MODE: Handler(self.set_mode, longest_body=LONGEST_ENTRY),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Handler(self.all),
        }

    async def assignment(self, request: Request) -> Reply:
        query = QueryAssignmentBody.from_json(request.body)
        if self._topics.get(query.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{query.topic[:80]}] not exist, apply first please!")
        mode = self._modes.get(query.topic, query.consumerGroup)
        queues = await self._routes.queues(query.topic)
        members = self._members(query.consumerGroup)
        clients = sorted(members.client_ids()) if members is not None else []
        if query.messageModel == "BROADCASTING":
            pass
        elif mode.mode == POP_MODE and mode.popShareQueueNum <= 0:
            queues = [
                WireQueue(name, ANY_QUEUE, query.topic) for name, _ in groupby(queues, lambda entry: entry.brokerName)
            ]
        else:
            share = mode.popShareQueueNum if mode.mode == POP_MODE else 0
            queues = allocate_queues(queues, clients, query.clientId, share)
        return Reply(body=AssignmentsBody([Assignment(queue, mode.mode) for queue in queues]).to_json())

    async def set_mode(self, request: Request) -> Reply:
        refuse_on_slave(self._identity)
        mode = RequestMode.from_json(request.body)
        if mode.mode not in MODES:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the mode is {mode.mode[:40]!r}; it is one of {', '.join(MODES)}")
        if names.is_retry_topic(mode.topic):
            raise Refused(ResponseCode.NO_PERMISSION, f"retry topic [{mode.topic[:80]}] has no mode of its own")
        if self._topics.get(mode.topic) is None or not names.is_group_name(mode.consumerGroup):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{mode.topic[:80]}] not exist, or no group is named")
        if not self._modes.set(mode):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the table of request modes is full; delete topics not in use")
        self._file.changed()
        await acknowledged(self._file)
        return Reply()

    def all(self, request: Request) -> Reply:
        return Reply(body=self._modes.to_body().to_json())
