"""SQL92 filters from a heartbeat to the messages of a pull, with and without bit maps, and refusals."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import trio

from rocketlet.broker.filter import selector
from rocketlet.broker.filter.expression_tree import Node
from rocketlet.common.sized_cache import SizedCache
from rocketlet.common.subscription import SQL92
from rocketlet.remoting.protocol.membership import CheckClientBody, SubscriptionData
from rocketlet.remoting.protocol.pulling import SUBSCRIPTION, SUSPEND
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from tests.support.memory_broker import RunningBroker, memory_broker
from tests.support.popping import Popper

BITS = {
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
    "mapped_file_size_consume_queue_ext": 1024,
}


def sql(expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData("T", expression, subVersion=version, expressionType=SQL92)


async def bodies(one: RunningBroker, offset: int = 0, version: int = 1) -> list[bytes]:
    found = await one.pull("T", 0, offset, sysFlag=0, subVersion=version)
    return [bytes(record.body) for record in found.records]


@pytest.mark.parametrize("settings", [{}, BITS], ids=["by properties", "by bits"])
async def test_a_group_gets_what_its_expression_matches(
    autojump_clock: trio.testing.MockClock, settings: dict[str, object]
) -> None:
    async with memory_broker(**settings) as one:
        await one.send("T", b"before", a="9")
        await trio.sleep(0.01)
        await one.heartbeat("c@1", "CG", sql("a > 5 AND (b IS NULL OR b = 'x')"))
        await trio.sleep(0.01)
        for number in range(10):
            await one.send("T", b"%d" % number, a=str(number), **({"b": "y"} if number == 8 else {}))
        await one.send("T", b"no number", a="nine")
        await one.send("T", b"nothing")
        assert await bodies(one) == [b"before", b"6", b"7", b"9"]
        await one.heartbeat("c@1", "CG", sql("a = 'nine'", 2))
        assert await bodies(one, version=2) == [b"no number"]


@pytest.mark.parametrize("held", [False, True])
async def test_a_filter_over_messages_not_in_memory(autojump_clock: trio.testing.MockClock, held: bool) -> None:
    async with memory_broker(access_message_in_memory_max_ratio=0) as one:
        for number in range(1000):
            await one.send("T", b"%d" % number, a=str(number))
        await one.heartbeat("c@1", "CG", sql("a > 997"))
        one.disk.cool()
        offset, found = 0, list[bytes]()
        while offset < 1000:
            answer = await one.pull("T", 0, offset, sysFlag=SUSPEND if held else 0, subVersion=1)
            found += [bytes(record.body) for record in answer.records]
            assert int(answer.ext["nextBeginOffset"]) > offset
            offset = int(answer.ext["nextBeginOffset"])
        assert found == [b"998", b"999"]


async def test_only_matching_messages_wake_a_long_poll(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T", b"first", a="1")
        await one.heartbeat("c@1", "CG", sql("a > 5"))
        woken: list[tuple[float, list[bytes]]] = []

        async def wait() -> None:
            found = await one.pull("T", 0, 1, sysFlag=SUSPEND, suspendTimeoutMillis=15_000, subVersion=1)
            woken.append((trio.current_time(), [bytes(record.body) for record in found.records]))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            await one.send("T", b"refused", a="3")
            await trio.sleep(1)
            assert woken == []
            await one.send("T", b"wanted", a="7")
        assert woken[0][1] == [b"wanted"]
        assert 2 <= woken[0][0] < 2.1


async def test_an_expression_may_come_with_the_pull(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        for number in range(4):
            await one.send("T", b"%d" % number, a=str(number))
        found = await one.pull("T", 0, 0, subscription="a BETWEEN 1 AND 2", expressionType=SQL92)
        assert [record.body for record in found.records] == [b"1", b"2"]
        assert found.ext["nextBeginOffset"] == "4"
        broken = await one.pull("T", 0, 0, sysFlag=SUBSCRIPTION, subscription="a !", expressionType=SQL92)
        assert broken.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "^" in (broken.remark or "")


async def test_pulls_without_a_usable_filter_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        await one.heartbeat("c@1", "CG", sql("a !", 3))
        assert (await one.pull("T", 0, 0, sysFlag=0, subVersion=3)).code == ResponseCode.FILTER_DATA_NOT_EXIST
        body = CheckClientBody("c@1", "CG", sql("a > 'x'")).to_json()
        answer = await one.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "at character 5" in (answer.remark or "")
        assert (
            await one.call(RequestCode.CHECK_CLIENT_CONFIG, None, CheckClientBody("c@1", "CG", sql("a > 1")).to_json())
        ).code == 0
    async with memory_broker(enable_property_filter=False) as one:
        await one.send("T")
        await one.heartbeat("c@1", "CG", sql("a > 1"))
        assert (await one.pull("T", 0, 0, sysFlag=0, subVersion=1)).code == ResponseCode.SYSTEM_ERROR
        body = CheckClientBody("c@1", "CG", sql("a > 1")).to_json()
        assert (await one.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)).code == ResponseCode.SYSTEM_ERROR


async def test_filters_of_retried_messages(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker(filter_support_retry=True) as one:
        retry = SubscriptionData("%RETRY%CG", "*", subVersion=1)
        await one.heartbeat("c@1", "CG", sql("a > 5"), retry)
        for number in (4, 7):
            await one.send("%RETRY%CG", b"%d" % number, a=str(number), RETRY_TOPIC="T")
        found = await one.pull("%RETRY%CG", 0, 0, sysFlag=0, subVersion=1)
        assert [bytes(record.body) for record in found.records] == [b"7"]


async def test_bit_maps_are_stored_beside_the_queue(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_broker(**BITS) as one:
        await one.heartbeat("c@1", "CG", sql("a > 5"))
        await trio.sleep(0.01)
        for number in (3, 7):
            await one.send("T", b"%d" % number, a=str(number))
        await one.send("T", b"later", a="8", DELAY="1")
        await trio.sleep(1.1)
        queue = one.broker.store.queue("T", 0)
        assert queue is not None
        assert queue.ext is not None
        units = [queue.ext.read(queue.entry(offset)[2]) for offset in range(3)]  # type: ignore[index]
        bloom = one.broker.tables.filters.bloom
        hit = bloom.map_of(bloom.positions("CG", "T"))
        assert [unit and unit.bit_map for unit in units] == [bytes(14), hit, hit]
        assert await bodies(one) == [b"7", b"later"]


class TestALongExpression:
    """It holds the loop for a while, so it is compiled in a step of its own, before the one that reads with it."""

    # Of 14,000 characters each.
    EXPRESSIONS = tuple(" OR ".join(f"a = {n}" for n in range(first, first + 1200)) for first in (2000, 2001, 2002))

    @pytest.fixture
    def compiled(self, monkeypatch: pytest.MonkeyPatch) -> list[object]:
        """The task that compiles it, for each long expression."""
        seen: list[object] = []
        monkeypatch.setattr(selector, "_compiled", SizedCache(selector.Selector, len, 256 << 10))
        parse = selector.parse

        def noting(expression: str) -> Node:
            if len(expression) > selector.AT_ONCE:
                seen.append(trio.lowlevel.current_task())
            return parse(expression)

        monkeypatch.setattr(selector, "parse", noting)
        return seen

    async def test_pulls_and_pops_get_what_it_matches(
        self, autojump_clock: trio.testing.MockClock, compiled: list[object]
    ) -> None:
        async with memory_broker() as one:
            for number in (1999, 2000, 2001, 4000):
                await one.send("T", b"%d" % number, a=str(number))
            expression = self.EXPRESSIONS[0]
            for _ in range(2):
                found = await one.pull("T", 0, 0, subscription=expression, expressionType=SQL92)
                assert [record.body for record in found.records] == [b"2000", b"2001"]
            assert len(compiled) == 1
            popper = Popper(one)
            for wanted in ([b"2001"], []):
                popped = await popper.pop(exp=self.EXPRESSIONS[1], expType="SQL92")
                assert [message.body for message in popped] == wanted
            assert len(compiled) == 2

    async def test_requests_of_one_turn_are_served_in_other_steps(
        self, autojump_clock: trio.testing.MockClock, compiled: list[object]
    ) -> None:
        steps: list[tuple[str, int]] = []

        class Steps(trio.abc.Instrument):
            def after_task_step(self, task: trio.lowlevel.Task) -> None:
                steps.append((task.name, len(compiled)))

        async with memory_broker() as one:
            await one.send("T", b"x", a="1")
            trio.lowlevel.add_instrument(Steps())
            async with trio.open_nursery() as nursery:
                for expression in self.EXPRESSIONS:
                    nursery.start_soon(partial(one.pull, "T", 0, 0, subscription=expression, expressionType=SQL92))
            assert len(compiled) == 3
            grown = [after[1] - before[1] for before, after in pairwise(steps)]
            assert max(grown) == 1

    async def test_a_broken_one_is_refused(self, autojump_clock: trio.testing.MockClock) -> None:
        async with memory_broker() as one:
            await one.send("T", b"x", a="1")
            broken = self.EXPRESSIONS[0] + " !"
            for expression in (broken, "a = 1 OR " * 2000 + "a"):
                answer = await one.pull("T", 0, 0, sysFlag=SUBSCRIPTION, subscription=expression, expressionType=SQL92)
                assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
                assert (await Popper(one).answer(exp=expression, expType="SQL92")).code == 23
            missing = await one.pull("U", 0, 0, sysFlag=SUBSCRIPTION, subscription=broken, expressionType=SQL92)
            assert missing.code == ResponseCode.TOPIC_NOT_EXIST
        async with memory_broker(enable_property_filter=False) as one:
            await one.send("T", b"x", a="1")
            answer = await one.pull("T", 0, 0, sysFlag=SUBSCRIPTION, subscription=broken, expressionType=SQL92)
            assert answer.code == ResponseCode.SYSTEM_ERROR
