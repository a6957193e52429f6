"""The product environment: a name server under `clusterTest` asks it for the routes that it does not have itself.

So a test cluster of a few brokers borrows every other topic from production. The production name servers are given by
`-n`, or looked up over HTTP like clients without an address do:

    GET http://jmenv.tbsite.net:8080/rocketmq/nsaddr-center?nofix=1        the answer's first line: host:port;host:port

One of them is used until it fails. Any failure is logged and means that there is no route.

Java: namesrv/processor/ClusterTestRequestProcessor.java, common/namesrv/TopAddressing.java
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

import trio

from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.remoting.command import request
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.protocol.routing import GetRouteInfoHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.remoting.transport import Network, split_address

if TYPE_CHECKING:
    from rocketlet.remoting.connection_pool import ConnectionPool

log = logging.getLogger("rocketlet.namesrv.product_environment")

CALL_TIMEOUT_S = 3.0
LOOKUP_TIMEOUT_S = 3.0
LOOKUP_EVERY_S = 120.0
MAX_LOOKUP_ANSWER = 64 << 10
DEFAULT_HTTP_PORT = 8080


class LookupFailed(Exception):
    """No addresses over HTTP; the text is what the server answered instead."""


class ProductEnvironment:
    """Asks the name servers of the product environment."""

    def __init__(self, config: NamesrvConfig, network: Network, pool: ConnectionPool) -> None:
        self._config = config
        self._network = network
        self._pool = pool
        self._addresses = list(config.namesrv_addr)
        self._looked_up_at: float | None = None

    async def route(self, topic: str) -> bytes | None:
        """The route as standard JSON, or None if there is none or no server answers."""
        for address in await self._name_servers():
            try:
                answer = await self._pool.call(
                    address,
                    request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic, True)),
                    CALL_TIMEOUT_S,
                )
            except RemotingError as error:
                log.warning("name server %s of the product environment: %s", address, error)
                self._addresses = [*(other for other in self._addresses if other != address), address]
                continue
            return bytes(answer.body) if answer.code == ResponseCode.SUCCESS else None
        return None

    async def _name_servers(self) -> list[str]:
        is_configured = bool(self._config.namesrv_addr)
        due = self._looked_up_at is None or trio.current_time() - self._looked_up_at >= LOOKUP_EVERY_S
        if not is_configured and due:
            self._looked_up_at = trio.current_time()  # also on failure: not once per request
            try:
                self._addresses = await self._look_up()
            except (LookupFailed, RemotingError, OSError, ValueError, trio.BrokenResourceError) as error:
                log.warning("cannot look up the product environment's name servers: %s; set them with -n", error)
        return list(self._addresses)

    async def _look_up(self) -> list[str]:
        domain = self._config.namesrv_domain
        address = domain if ":" in domain else f"{domain}:{DEFAULT_HTTP_PORT}"
        split_address(address)
        path = f"/rocketmq/{quote(self._config.namesrv_domain_subgroup)}-{quote(self._config.product_env_name)}?nofix=1"
        with trio.move_on_after(LOOKUP_TIMEOUT_S):
            stream = await self._network.dial(address)
            try:
                await stream.send_all(f"GET {path} HTTP/1.0\r\nHost: {domain}\r\n\r\n".encode())
                answer = bytearray()
                while len(answer) <= MAX_LOOKUP_ANSWER and (chunk := await stream.receive_some()):
                    answer += chunk
            finally:
                await stream.aclose()
            return addresses_in(bytes(answer))
        raise LookupFailed(f"http://{address}{path} does not answer within {LOOKUP_TIMEOUT_S:g} s")


def addresses_in(answer: bytes) -> list[str]:
    """The addresses in an HTTP answer. Raises LookupFailed."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    words = status.split(" ")
    if not words[0].startswith("HTTP/") or words[1:2] != ["200"]:
        raise LookupFailed(f"the answer is {status[:100]!r}")
    line = body.strip().split(b"\n", 1)[0].decode("latin-1")
    addresses = [address.strip() for address in line.split(";") if address.strip()]
    for address in addresses:
        split_address(address)
    if not addresses:
        raise LookupFailed("the answer names no address")
    return addresses
