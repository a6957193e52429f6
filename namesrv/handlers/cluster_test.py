"""105 under `clusterTest`: a route missing here is requested from the product environment.

A route held here is answered at once, with its order configuration whatever orderMessageEnable says, as in RocketMQ.

Java: namesrv/processor/ClusterTestRequestProcessor.java
"""

from __future__ import annotations

from rocketlet.namesrv.handlers.routes import RouteHandlers, no_route
from rocketlet.namesrv.product_environment import ProductEnvironment
from rocketlet.remoting.access import ANYONE
from rocketlet.remoting.handler import Handler, HandlerTable, Reply, Request
from rocketlet.remoting.protocol.routing import GetRouteInfoHeader
from rocketlet.remoting.request_codes import RequestCode


class ClusterTestHandlers:
    """The usual route requests, except for 105."""

    def __init__(self, routes: RouteHandlers, product: ProductEnvironment) -> None:
        self._routes = routes
        self._product = product

    def table(self) -> HandlerTable:
        return {
            **self._routes.table(),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: Handler(self.route, GetRouteInfoHeader, access=ANYONE),
        }

    async def route(self, request: Request) -> Reply:
        """105."""
        body = await self._routes.find_route(request) or await self._product.route(request.header.topic)
        if body is None:
            raise no_route(request.header.topic)
        return Reply(body=body)
