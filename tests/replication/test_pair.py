"""A master of ours and slaves of ours, in virtual time."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from rocketlet.remoting.response_codes import ResponseCode
from tests.support.pair import pair


async def test_a_slave_has_the_whole_log_and_serves_it(autojump_clock: MockClock) -> None:
    async with pair(slaves=0) as them:
        for number in range(30):
            assert (await them.master.send("T", b"%d " % number * 300, number % 4)).code == 0
        slave = await them.start("slave-1")
        await them.caught_up()
        for number in range(30, 40):
            await them.master.send("T", b"%d" % number, number % 4)
        await them.caught_up()
        them.same_log()
        assert sum(slave.store.get("T", queue, 0, 32).count for queue in range(4)) == 40


async def test_a_sync_master_acknowledges_what_a_slave_has(autojump_clock: MockClock) -> None:
    async with pair(broker_role="SYNC_MASTER") as them:
        await trio.sleep(5)
        assert (await them.master.send("T", b"first")).code == 0
        for _ in range(5):
            before = trio.current_time()
            assert (await them.master.send("T", b"second")).code == 0
            assert trio.current_time() - before < 0.1
            them.same_log()
        await them.kill("slave-1")
        assert (await them.master.send("T", b"alone")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert (await them.master.send("T", b"alone", WAIT="false")).code == 0
        await them.start("slave-1")
        await them.caught_up()
        await trio.sleep(1)
        assert (await them.master.send("T", b"together again")).code == 0
        them.same_log()
