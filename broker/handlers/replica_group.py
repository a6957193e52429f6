"""30005 RESIGN_MASTER, 30006 CHANGE_IN_SYNC: administrators' requests to replicas that elect their master.

30005, to the leader: hand over to a replica that is in sync, or to any of them. It refuses sends, waits until
everything it accepted is confirmed, and gives up its lease; answered when the coordinator has recorded that.

30006, to the leader: take a replica out of the in-sync set, which it would otherwise leave by itself after
`inSyncTimeout`. To any replica, with `force`, if no leader can be elected because the coordinator has lost its data, or
because all replicas that were in sync are lost for good: from then on only this replica is in sync, and what it lacks
is lost.

Java: nothing of the kind; ElectMaster of 5.x's controller (1002) is the nearest
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.replication import ChangeInSyncHeader, ResignMasterHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

if TYPE_CHECKING:
    from rocketlet.failover.driver import Driver

log = logging.getLogger("rocketlet.broker.handlers.replica_group")


class GroupAdmin:
    """See the module. `driver` is None if this broker's replicas do not elect."""

    def __init__(self, driver: Callable[[], Driver | None]) -> None:
        self._driver = driver

    def table(self) -> HandlerTable:
        return {
            RequestCode.RESIGN_MASTER: Handler(self.resign, ResignMasterHeader),
            RequestCode.CHANGE_IN_SYNC: Handler(self.change, ChangeInSyncHeader),
        }

    async def resign(self, request: Request) -> Reply:
        header: ResignMasterHeader = request.header
        log.warning("%s asks this replica to hand over to %s", request.connection.peer, header.heir or "another one")
        await self._done(lambda driver: driver.resign(header.heir))
        return Reply()

    async def change(self, request: Request) -> Reply:
        header: ChangeInSyncHeader = request.header
        peer = request.connection.peer
        if header.force:
            log.warning("%s makes this replica lead, whatever it lacks", peer)
            await self._done(lambda driver: driver.claim())
        else:
            log.warning("%s asks to %s replica %s", peer, "add" if header.add else "remove", header.replica)
            await self._done(lambda driver: driver.change_set(header.replica, add=header.add))
        return Reply()

    async def _done(self, step: Callable[[Driver], object]) -> None:
        driver = self._driver()
        if driver is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "the replicas of this broker do not elect their master (failoverEnable); use promoteSlave",
            )
        from rocketlet.failover.leader import NotNow  # there already, where replicas elect; 15 ms where they do not

        try:
            waiting = step(driver)
            assert isinstance(waiting, Awaitable)
            await waiting
        except NotNow as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
