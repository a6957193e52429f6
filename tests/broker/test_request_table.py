"""The handlers' tables of codes: rules that hold for all of them."""

from __future__ import annotations

import msgspec
import pytest
import trio

from rocketlet.broker.broker import Broker
from rocketlet.remoting.access import ADMIN, ANYONE
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.handler import HandlerTable
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import loaded_settings
from tests.support.name_server_desk import Desk


class Seen(Faults):
    """Keeps the table it wraps."""

    table: HandlerTable = {}  # noqa: RUF012

    def wrap(self, table: HandlerTable) -> HandlerTable:
        self.table = table
        return super().wrap(table)


@pytest.fixture
async def broker_table() -> HandlerTable:
    seen = Seen()
    broker = Broker(loaded_settings(), MemoryNetwork(), MemoryDisk(), faults=seen)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        nursery.cancel_scope.cancel()
    return seen.table


def fields_not_there(table: HandlerTable) -> list[str]:
    """Fields named by an entry that its typed header does not have."""
    found = []
    for code, handler in table.items():
        fields = {field.name for field in msgspec.structs.fields(handler.header)} if handler.header else set()
        for need in handler.access.needs:
            if isinstance(need.named, str) and need.named not in fields:
                found.append(f"{RequestCode(code).name}: {need.named}")
    return found


async def test_access_rules_name_existing_header_fields(broker_table: HandlerTable) -> None:
    assert fields_not_there(broker_table) == []
    assert fields_not_there(Desk().handlers) == []


async def test_broker_wide_requests_are_for_administrators(
    broker_table: HandlerTable,
) -> None:
    open_to_accounts = {RequestCode(code).name for code, handler in broker_table.items() if handler.access != ADMIN}
    assert open_to_accounts == {
        "SEND_MESSAGE",
        "SEND_MESSAGE_V2",
        "SEND_BATCH_MESSAGE",
        "SEND_REPLY_MESSAGE",
        "SEND_REPLY_MESSAGE_V2",
        "CONSUMER_SEND_MSG_BACK",
        "END_TRANSACTION",
        "PULL_MESSAGE",
        "LITE_PULL_MESSAGE",
        "QUERY_MESSAGE",
        "VIEW_MESSAGE_BY_ID",
        "QUERY_CONSUMER_OFFSET",
        "UPDATE_CONSUMER_OFFSET",
        "SEARCH_OFFSET_BY_TIMESTAMP",
        "GET_MAX_OFFSET",
        "GET_MIN_OFFSET",
        "GET_EARLIEST_MSG_STORETIME",
        "HEART_BEAT",
        "UNREGISTER_CLIENT",
        "GET_CONSUMER_LIST_BY_GROUP",
        "CHECK_CLIENT_CONFIG",
        "LOCK_BATCH_MQ",
        "UNLOCK_BATCH_MQ",
        "GET_TOPIC_CONFIG",
        "POP_MESSAGE",
        "NOTIFICATION",
        "PEEK_MESSAGE",
        "POLLING_INFO",
        "ACK_MESSAGE",
        "BATCH_ACK_MESSAGE",
        "CHANGE_MESSAGE_INVISIBLETIME",
        "QUERY_ASSIGNMENT",
        "RECALL_MESSAGE",
        "GET_SUBSCRIPTIONGROUP_CONFIG",
    }
    assert not [code for code, handler in broker_table.items() if handler.access == ANYONE]


async def test_anyone_reads_a_name_server_and_administrators_change_it() -> None:
    assert {RequestCode(code).name for code, handler in Desk().handlers.items() if handler.access != ANYONE} == {
        "PUT_KV_CONFIG",
        "DELETE_KV_CONFIG",
        "REGISTER_BROKER",
        "UNREGISTER_BROKER",
        "QUERY_DATA_VERSION",
        "WIPE_WRITE_PERM_OF_BROKER",
        "ADD_WRITE_PERM_OF_BROKER",
        "DELETE_TOPIC_IN_NAMESRV",
        "UPDATE_NAMESRV_CONFIG",
        "GET_NAMESRV_CONFIG",
    }
