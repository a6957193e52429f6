"""907 GET_BROKER_HA_STATUS (of 5.x), 30001 FOLLOW_TABLES, 30002 PROMOTE_SLAVE, 30003 HAND_OVER, 30004 DEMOTE_MASTER.

907 shows who follows whom and how closely. 30001 is a slave's request for changes of the tables, parked until there are
some; it carries the offsets committed at the slave.

30002 makes a slave the master. If planned, the old master is asked first (30003): it refuses sends and answers with the
end of its log; when the slave has all of that, the master is told to become a slave, durably, and only then does the
slave become the master. So nothing acknowledged is lost, and there are never two masters; a failed step leaves the old
master, or, if its last answer is lost, none, and reports so. If forced, no other broker is asked, and the answer has
the last known end of the old master's log.

30004 makes a master a slave.

Java: nothing of the kind in 4.9; 907 is broker/processor/AdminBrokerProcessor.java (getBrokerHaStatus) of 5.x
"""

from __future__ import annotations

import logging

import msgspec
import trio

from rocketlet.broker.consumer_offsets import OffsetChange, OffsetRefused
from rocketlet.broker.duties import Duties
from rocketlet.broker.followed_tables import OFFSETS_AT_ONCE
from rocketlet.broker.parts import Parts
from rocketlet.broker.role import MASTER_ID, Standing, Superseded
from rocketlet.remoting.command import request as command
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import collect_joined
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.replication import (
    DEMOTE,
    RESUME,
    STOP,
    DemoteHeader,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HandOverAnswerHeader,
    HandOverHeader,
    HARuntimeInfo,
    PromoteAnswerHeader,
    PromoteHeader,
    TablesNews,
    TablesSeen,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode, response_name
from rocketlet.remoting.transport import is_address
from rocketlet.replication.follow import Followed
from rocketlet.store.config import BrokerRole

log = logging.getLogger("rocketlet.broker.handlers.replicas")

LONGEST_HOLD_MS = 30_000
HAND_OVER_SECONDS = 10.0  # how long a slave may take to catch up; then the old master resumes
STOPPED_SECONDS = 15.0  # how long a master refuses sends for a slave that has fallen silent
_AT_ONCE = 1000


class Replicas:
    """See the module."""

    def __init__(self, parts: Parts, duties: Duties, nursery: trio.Nursery) -> None:
        self._identity, self._role, self._group = parts.identity, parts.role, parts.group
        self._tables, self._store, self._locks = parts.tables, parts.store, parts.locks
        self._pool, self._clock = parts.pool, parts.clock
        self._serve_sends = parts.serve_sends
        self._registered = parts.registration.wait_registered_briefly
        self._duties = duties
        self._nursery = nursery
        self._run = f"{parts.identity.name}-{parts.clock()}-{id(self):x}"
        self._stopped: trio.CancelScope | None = None
        self._changing = False

    def table(self) -> HandlerTable:
        return {
            RequestCode.GET_BROKER_HA_STATUS: Handler(self.status),
            RequestCode.FOLLOW_TABLES: Handler(self.news, None, "replica", parks=True),
            RequestCode.PROMOTE_SLAVE: Handler(self.promote, PromoteHeader),
            RequestCode.HAND_OVER: Handler(self.hand_over, HandOverHeader),
            RequestCode.DEMOTE_MASTER: Handler(self.demote, DemoteHeader),
        }

    # ---- state

    def status(self, request: Request) -> Reply:
        follower, end = self._duties.follower, self._store.log.end
        info = HARuntimeInfo(follower is None, end)
        for slave in self._duties.feed.statuses():
            info.inSyncSlaveNums += slave.in_sync
            info.haConnectionInfo.append(
                HAConnectionRuntimeInfo(
                    slave.address, slave.acked, slave.behind, slave.in_sync, slave.bytes_per_second, slave.sent
                )
            )
        group = self._group
        if group is not None:
            info.failover = group.table()
            info.haConnectionInfo += group.connections()
            info.inSyncSlaveNums += sum(connection.inSync for connection in group.connections())
        if follower is not None:
            tables = self._duties.followed_tables
            ago = int((trio.current_time() - follower.heard_at) * 1000) if follower.heard_at else 0
            heard = self._clock() - ago if follower.heard_at else 0
            info.haClientRuntimeInfo = HAClientRuntimeInfo(
                follower.following.ha_address if follower.following else "",
                follower.bytes_per_second(),
                end,
                heard,
                heard,
                tables.master_end if tables is not None else -1,
                follower.following is not None,
                follower.trouble,
            )
        return Reply(body=info.to_json())

    async def news(self, request: Request) -> Reply:
        if self._identity.slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a slave itself; ask its master")
        seen = TablesSeen.from_json(request.body)
        await self._merge(seen)
        with trio.move_on_after(min(max(seen.holdMillis, 0), LONGEST_HOLD_MS) / 1000):
            while not self._has_changed(seen):
                await self._tables.changes.wait()
        news = await self._changes(seen)
        await trio.lowlevel.checkpoint()
        return Reply(body=news.to_json())

    async def _merge(self, seen: TablesSeen) -> None:
        for number, row in enumerate(seen.offsets[:OFFSETS_AT_ONCE]):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            try:
                self._tables.offsets.merge(OffsetChange(*row))
            except OffsetRefused as refused:
                log.warning("an offset of a slave is left out: %s", refused)

    def _has_changed(self, seen: TablesSeen) -> bool:
        tables = self._tables
        return (
            seen.run != self._run
            or (seen.topics, seen.groups) != (tables.topics.version.counter, tables.groups.version.counter)
            or (seen.filters, seen.delays) != (tables.filters.version, tables.delays.version)
            or (seen.offsetsSeen, seen.tombstones) != (tables.offsets.version, tables.tombstones.last)
            or seen.locks != self._locks.version
        )

    async def _changes(self, seen: TablesSeen) -> TablesNews:
        """What is told of a table is as new as its version at least: who gets it asks for the rest."""
        tables, locks = self._tables, self._locks
        if seen.run != self._run:
            seen = TablesSeen()
        changes, upto = tables.offsets.changed_since(seen.offsetsSeen, OFFSETS_AT_ONCE)
        news = TablesNews(
            self._run,
            tables.topics.version.counter,
            tables.groups.version.counter,
            tables.filters.version,
            tables.delays.version,
            upto,
            tables.tombstones.last,
            upto != tables.offsets.version,
            [(change.group, change.topic, change.queue_id, change.offset, change.stamp) for change in changes],
            [
                (stone.number, stone.kind, stone.name, stone.log_offset)
                for stone in tables.tombstones.after(seen.tombstones)
            ],
            None,
            tables.delays.to_body()["offsetTable"] if seen.delays != tables.delays.version else None,
            self._store.log.end,
            self._store.config.broker_role is BrokerRole.SYNC_MASTER,
            locks.version,
        )
        if seen.locks != locks.version:
            await trio.lowlevel.checkpoint()
            entries = locks.entries()
            await trio.lowlevel.checkpoint()
            news.lockTable = [(group, one.topic, one.brokerName, one.queueId, client) for group, one, client in entries]
        if seen.filters != tables.filters.version:
            news.filterTable = msgspec.Raw(await collect_joined(tables.filters.pieces()))
        return news

    # ---- changes

    def _refuse_where_replicas_elect(self) -> None:
        if self._group is not None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "the replicas of this broker elect their master (failoverEnable); use mqadmin switchMaster",
            )

    async def promote(self, request: Request) -> Reply:
        header: PromoteHeader = request.header
        self._refuse_where_replicas_elect()
        follower, tables = self._duties.follower, self._duties.followed_tables
        if follower is None or tables is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a master already")
        if self._changing:
            raise Refused(ResponseCode.SYSTEM_BUSY, "the role of this broker is being changed already")
        self._changing = True
        try:
            heard = -1
            if header.force:
                heard = int((trio.current_time() - tables.asked_at) * 1000) if tables.master_end >= 0 else -1
                master_end = max(tables.master_end, self._store.log.end) if tables.master_end >= 0 else -1
                missing = "unknown" if master_end < 0 else str(max(master_end - self._store.log.end, 0))
                log.warning(
                    "%s forces this slave to be the master; bytes missing: %s", request.connection.peer, missing
                )
            else:
                master_end = await self._take_over(follower)
            role = BrokerRole.SYNC_MASTER if header.syncMaster or tables.master_is_sync else BrokerRole.ASYNC_MASTER
            await self._become(Standing(role, MASTER_ID))
        finally:
            self._changing = False
        return Reply(header=PromoteAnswerHeader(self._store.log.end, master_end, heard))

    async def _take_over(self, follower: Followed) -> int:
        """Have the master stop, catch up with it, and have it become a slave. Raises Refused."""
        master = follower.following
        if master is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this slave does not follow its master now ({follower.trouble}), so it may lack messages; --force"
                " promotes it all the same",
            )
        end = await self._ask_master(master.address, STOP)
        try:
            with trio.move_on_after(HAND_OVER_SECONDS) as waited:
                await self._store.dispatched.reach(end)
            if waited.cancelled_caught:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"this slave has the log up to {self._store.log.end} and its master up to {end}; after"
                    f" {HAND_OVER_SECONDS:g} s they still differ, so nothing was changed",
                )
        except BaseException:
            with trio.CancelScope(shield=True), trio.move_on_after(HAND_OVER_SECONDS):
                await self._ask_master(master.address, RESUME)
            raise
        await self._ask_master(master.address, DEMOTE)
        return end

    async def _ask_master(self, address: str, step: str) -> int:
        """One step of the hand-over. Returns the end of the master's log. Raises Refused."""
        own_address = self._identity.ha_address
        # A port chosen when it is opened is known from the name servers.
        header = HandOverHeader(step, self._identity.broker_id, "" if own_address.endswith(":0") else own_address)
        try:
            answer = await self._pool.call(address, command(RequestCode.HAND_OVER, header), HAND_OVER_SECONDS)
        except RemotingError as error:
            advice = "; look whether it became a slave (mqadmin haStatus) before you force anything" * (step == DEMOTE)
            raise Refused(ResponseCode.SYSTEM_ERROR, f"master {address} does not hand over: {error}{advice}") from None
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"master {address} cannot hand over: stop its producers, wait until haStatus shows that no bytes are"
                " missing, stop it, and promote this slave with --force",
            )
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"master {address} does not hand over: {response_name(answer.code)} {answer.remark or ''}",
            )
        return from_ext(HandOverAnswerHeader, answer.ext).logEnd

    async def hand_over(self, request: Request) -> Reply:
        header: HandOverHeader = request.header
        self._refuse_where_replicas_elect()
        if self._identity.slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is no master")
        log.warning("%s wants to take over: %s", request.connection.peer, header.step)
        if header.step == STOP:
            self._stop_sends()
            await self._store.flush()
        elif self._stopped is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the sends of this master are not stopped, or no longer")
        elif header.step == RESUME:
            self._stopped.cancel()
        elif header.step == DEMOTE:
            standing = _slave(header.brokerId, header.haAddress)
            self._stopped = None
            await self._become(standing)
        else:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{header.step!r} is no step of handing over")
        return Reply(header=HandOverAnswerHeader(self._store.log.end))

    def _stop_sends(self) -> None:
        """For a moment only: the slave may never come back."""
        self._serve_sends(False)
        if self._stopped is not None:
            self._stopped.deadline = trio.current_time() + STOPPED_SECONDS
            return
        self._stopped = scope = trio.CancelScope(deadline=trio.current_time() + STOPPED_SECONDS)
        self._nursery.start_soon(self._resume_after, scope)

    async def _resume_after(self, scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep_forever()
        if self._stopped is scope:
            self._stopped = None
            log.warning("this master accepts sends again: nobody has taken over")
            self._serve_sends(True)

    async def demote(self, request: Request) -> Reply:
        header: DemoteHeader = request.header
        self._refuse_where_replicas_elect()
        if self._identity.slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is a slave already")
        await self._become(_slave(header.brokerId, header.masterHaAddress))
        return Reply(header=HandOverAnswerHeader(self._store.log.end))

    async def _become(self, standing: Standing) -> None:
        try:
            await self._role.become(standing)
            await self._registered()  # so that clients find it as soon as the answer is sent
        except Superseded as error:
            raise Refused(ResponseCode.SYSTEM_BUSY, str(error)) from None
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the role cannot be kept, so it stays: {error}") from None


def _slave(broker_id: int, master: str) -> Standing:
    """Raises Refused for an impossible slave, which would be saved and fail the next start."""
    if broker_id <= MASTER_ID:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"brokerId {broker_id}: a slave's is 1 or more")
    if master and not is_address(master):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{master[:100]!r} is no address of the form host:port")
    return Standing(BrokerRole.SLAVE, broker_id, master)
