"""200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 207 DELETE_SUBSCRIPTIONGROUP,
352 GET_SUBSCRIPTIONGROUP_CONFIG.

Changes acknowledged by 200 or 207 are on disk. 207 also removes the group's offsets on request (`removeOffset`,
or `cleanOffset` of 5.x).

Not served: 225, 353 of 5.x.

Java: broker/processor/AdminBrokerProcessor.java
"""

from __future__ import annotations

from rocketlet.broker.handlers.acknowledged import acknowledged, refuse_on_slave
from rocketlet.broker.identity import Identity
from rocketlet.broker.statistics import Statistics
from rocketlet.broker.tables import Tables
from rocketlet.broker.tombstones import GROUP, OFFSETS
from rocketlet.broker.topic_table import TableFull
from rocketlet.common import topic as names
from rocketlet.remoting.access import subscribe
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import collect, one_at_a_time, run_all
from rocketlet.remoting.protocol.configuration import (
    LONGEST_ENTRY,
    DeleteSubscriptionGroupHeader,
    GetSubscriptionGroupConfigHeader,
    SubscriptionGroupConfig,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode


class GroupAdmin:
    """The group table, as administrators see and change it."""

    def __init__(self, identity: Identity, tables: Tables, statistics: Statistics) -> None:
        self._identity = identity
        self._tables = tables
        self._groups = tables.groups
        self._statistics = statistics

    def table(self) -> HandlerTable:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Handler(self.update, longest_body=LONGEST_ENTRY),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: Handler(self.delete, DeleteSubscriptionGroupHeader),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Handler(self.all),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Handler(
                self.one, GetSubscriptionGroupConfigHeader, access=subscribe(group="group")
            ),
        }

    async def update(self, request: Request) -> Reply:
        refuse_on_slave(self._identity)
        group = SubscriptionGroupConfig.from_json(request.body)
        try:
            names.check_group_name(group.groupName)
            self._groups.update(group)
        except (names.InvalidName, TableFull) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        await acknowledged(self._tables.groups_file)
        return Reply()

    async def delete(self, request: Request) -> Reply:
        refuse_on_slave(self._identity)
        header: DeleteSubscriptionGroupHeader = request.header
        self._groups.delete(header.groupName)
        self._tables.add_tombstone(GROUP, header.groupName, 0)
        await run_all(self._statistics.forgetting(group=header.groupName))
        if header.removeOffset or header.cleanOffset:
            await run_all(self._tables.offsets.forgetting(group=header.groupName))
            self._tables.offsets_file.changed()
            self._tables.add_tombstone(OFFSETS, header.groupName, 0)
        tables = self._tables
        await acknowledged(tables.groups_file, tables.offsets_file, tables.tombstones_file)
        return Reply()

    def one(self, request: Request) -> Reply:
        header: GetSubscriptionGroupConfigHeader = request.header
        group = self._groups.find(header.group)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.group}] does not exist; create it, or set "
                "autoCreateSubscriptionGroup=true",
            )
        return Reply(body=group.to_json())

    @one_at_a_time
    async def all(self, request: Request) -> Reply:
        return Reply(body=await collect(self._groups.pieces()))
