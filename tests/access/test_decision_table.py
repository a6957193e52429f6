"""Every request code × every caller × both modes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from rocketlet.access.verdicts import JUDGED_BY_JAVA
from rocketlet.common.topic import HALF_TOPIC
from rocketlet.remoting.access import ANYONE as OPEN_TO_ANYONE
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.handler import HandlerTable
from rocketlet.remoting.protocol.transactions import COMMIT
from rocketlet.remoting.request_codes import RequestCode, request_name
from tests.access.asking import Desk, FakeConnection, rules_of
from tests.access.decision_table import (
    ACCOUNTS,
    ALL,
    ANYONE,
    BROKER,
    NAME_SERVER,
    SAME,
    TOPIC,
    Places,
    cases,
    request_of,
    sign,
)
from tests.support.memory_broker import memory_broker
from tests.support.name_server_desk import Desk as NameServerDesk

CALLERS = [*ALL, "anonymous", "unknown", "wrong signature"]


class Seen(Faults):
    """Keeps the table it wraps."""

    table: HandlerTable = {}  # noqa: RUF012

    def wrap(self, table: HandlerTable) -> HandlerTable:
        self.table = table
        return super().wrap(table)


@pytest.fixture
async def broker(autojump_clock: trio.testing.MockClock) -> AsyncIterator[tuple[HandlerTable, Places]]:
    """The table of a running broker, with a message of the topic and a transaction about it."""
    seen = Seen()
    async with memory_broker(faults=seen) as one:
        await one.send(TOPIC, b"message")
        await one.send(TOPIC, b"half", PGROUP="PG", TRAN_MSG="true", fields={"sysFlag": 4})
        queue = one.broker.store.queue(HALF_TOPIC, 0)
        assert queue is not None
        entry = queue.entry(0)
        assert entry is not None
        yield seen.table, Places(0, entry[0])


async def test_the_gate_decides_as_the_table_says(broker: tuple[HandlerTable, Places]) -> None:
    table, places = broker
    rules = rules_of(ACCOUNTS)
    desks = {"strict": Desk(rules, table), "java": Desk(rules, table, strict=False)}
    wrong = []
    for case in cases(places):
        for way, let_in in (("strict", case.strictly), ("java", case.by_java)):
            refusal = desks[way].refusal(case.command)
            if (refusal is None) != let_in:
                wrong.append(f"{way}: {request_name(case.code)} of {case.caller}: {refusal or 'is let in'}")
    assert not wrong, "\n".join(wrong)


async def test_every_served_code_is_in_the_table(broker: tuple[HandlerTable, Places]) -> None:
    """A new request has to be classified here by hand; until then it is for administrators."""
    table, _ = broker
    missing = {request_name(code) for code in table.keys() - BROKER.keys()}
    assert missing == set(), "classify them in tests/access/decision_table.py, and in their entry in the table"
    assert BROKER.keys() - table.keys() == set()
    handlers = NameServerDesk().handlers
    assert {int(code) for code in handlers} == {int(code) for code in NAME_SERVER}


def test_java_decides_on_every_code_of_4_9_8() -> None:
    assert {code for code, (_, java) in BROKER.items() if java != SAME} <= JUDGED_BY_JAVA
    assert {code for code, (_, java) in BROKER.items() if java == SAME}.isdisjoint(JUDGED_BY_JAVA)


@pytest.mark.parametrize("strict", [True, False])
def test_a_name_server_authenticates_writers(strict: bool) -> None:
    desk = Desk(rules_of(ACCOUNTS), NameServerDesk().handlers, strict=strict)
    wrong = []
    for code, let_in in NAME_SERVER.items():
        for caller in CALLERS:
            command = request_of(code, Places())
            sign(command, caller)
            expected = let_in == ANYONE or caller == let_in
            if (desk.refusal(command) is None) != expected:
                wrong.append(f"{request_name(code)} of {caller}")
    assert wrong == []


async def test_java_admits_white_addresses_and_we_do_not(broker: tuple[HandlerTable, Places]) -> None:
    table, places = broker
    everywhere = rules_of(
        ACCOUNTS.replace("globalWhiteRemoteAddresses:\n", "globalWhiteRemoteAddresses:\n- 10.0.*.*\n")
    )
    inside, outside = FakeConnection("10.0.0.7"), FakeConnection("192.168.0.7")
    strict, java = Desk(everywhere, table), Desk(everywhere, table, strict=False)
    for code, (_, by_java) in BROKER.items():
        command = request_of(code, places)
        assert strict.refusal(command, inside) is not None, request_name(code)
        assert (java.refusal(command, inside) is None) == (by_java != SAME), request_name(code)
        assert java.refusal(command, outside) is not None, request_name(code)


async def test_unlisted_codes_are_for_administrators(broker: tuple[HandlerTable, Places]) -> None:
    table, _ = broker
    assert RequestCode.GET_BROKER_CONFIG in table
    assert not [code for code, handler in table.items() if handler.access == OPEN_TO_ANYONE]
    assert COMMIT == 8
