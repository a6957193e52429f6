"""The queues of a topic at all brokers, for allocation: requested from the name servers, cached for a moment.

Java: broker/topic/TopicRouteInfoManager.java
"""

from __future__ import annotations

import logging

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.identity import Identity
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.topic import PERM_READ
from rocketlet.remoting.command import request
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import BodyError, RemotingError
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.protocol.routing import GetRouteInfoHeader, TopicRouteData
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.broker.topic_routes")

REMEMBERED_SECONDS = 5.0
MAX_REMEMBERED = 1_000
ASK_SECONDS = 1.0


class TopicRoutes:
    """Routes of topics for which clients request assignments."""

    def __init__(self, identity: Identity, settings: Settings, topics: TopicTable, pool: ConnectionPool) -> None:
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self._pool = pool
        self._cached: dict[str, tuple[float, list[WireQueue]]] = {}

    async def queues(self, topic: str) -> list[WireQueue]:
        """The readable queues, in an order that all brokers agree on; only our own if no name server answers."""
        cached = self._cached.get(topic)
        if cached is not None and trio.current_time() - cached[0] < REMEMBERED_SECONDS:
            return cached[1]
        queues = await self._queues_by_name_server(topic)
        if queues is None:
            own = self._topics.get(topic)
            return [WireQueue(self._identity.name, queue, topic) for queue in range(own.read if own else 0)]
        if len(self._cached) >= MAX_REMEMBERED:
            self._cached.clear()
        self._cached[topic] = (trio.current_time(), queues)
        return queues

    async def _queues_by_name_server(self, topic: str) -> list[WireQueue] | None:
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic))
        for address in self._settings.now.namesrv_addr:
            try:
                answer = await self._pool.call(address, command, ASK_SECONDS)
                if answer.code == ResponseCode.SUCCESS:
                    route = TopicRouteData.from_json(answer.body)
                    return sorted(
                        WireQueue(queue_data.brokerName, queue, topic)
                        for queue_data in route.queueDatas
                        if queue_data.perm & PERM_READ
                        for queue in range(min(queue_data.readQueueNums, 65_535))
                    )
            except (RemotingError, BodyError) as error:
                log.info("name server %s does not tell the route of %s: %s", address, topic, error)
        return None
