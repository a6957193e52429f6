"""105 under `clusterTest`: a route that is missing here is asked of the product environment.

What is here answers at once and carries its order configuration whatever orderMessageEnable says, as with RocketMQ.

Java: namesrv/processor/ClusterTestRequestProcessor.java
"""

from __future__ import annotations

from rocketlet.namesrv.handlers.routes import RouteHandlers, no_route
from rocketlet.namesrv.product_environment import ProductEnvironment
from rocketlet.remoting.handler import Reply, Request


class ClusterTestHandlers:
    """105 alone; everything else is as ever."""

    def __init__(self, routes: RouteHandlers, product: ProductEnvironment) -> None:
        self._routes = routes
        self._product = product

    async def route(self, request: Request) -> Reply:
        """105."""
        body = self._routes.route_body(request) or await self._product.route(request.header.topic)
        if body is None:
            raise no_route(request.header.topic)
        return Reply(body=body)
