"""QueryRoute and QueryAssignment: where a topic's queues are, and which of them a push consumer receives from.

Java: proxy/grpc/v2/route/RouteActivity.java
"""

from __future__ import annotations

from rocketlet.proxy.call import Call, Refusal
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.service.brokers import Brokers
from rocketlet.proxy.service.outgoing import check_group, check_topic
from rocketlet.proxy.service.routes import assignments, message_queues, reachable
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.transport import split_address


class Routes:
    """See the module."""

    def __init__(self, config: ProxyConfig, brokers: Brokers) -> None:
        self._config = config
        self._brokers = brokers

    async def route(self, call: Call, request: m.QueryRouteRequest) -> m.QueryRouteResponse:
        check_topic(request.topic.name)
        topic = await self._brokers.topic(request.topic.name)
        endpoints = self._reachable(call, request.endpoints)
        queues = list(message_queues(topic, request.topic, endpoints))
        if not queues:
            raise Refusal(Code.TOPIC_NOT_FOUND, f"no master of topic {topic.name} is up")
        return m.QueryRouteResponse(status=m.Status(code=Code.OK, message="OK"), message_queues=queues)

    async def assignment(self, call: Call, request: m.QueryAssignmentRequest) -> m.QueryAssignmentResponse:
        check_topic(request.topic.name)
        check_group(request.group.name)
        topic = await self._brokers.topic(request.topic.name)
        group = await self._brokers.group(request.group.name)
        endpoints = self._reachable(call, request.endpoints)
        assigned = list(assignments(topic, request.topic, endpoints, orderly=group.is_orderly))
        if not assigned:
            raise Refusal(Code.FORBIDDEN, f"topic {topic.name} has no queue that may be read")
        return m.QueryAssignmentResponse(status=m.Status(code=Code.OK, message="OK"), assignments=assigned)

    def _reachable(self, call: Call, requested: m.Endpoints) -> m.Endpoints:
        return reachable(requested, split_address(call.owner.local), self._config.local_serve_addr)
