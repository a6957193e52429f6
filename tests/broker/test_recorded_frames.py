"""Our broker answers recorded requests as a Java 4.9.8 broker did: recordings are replayed in order.

One broker serves all of them, in virtual time that follows the recording's clock: delays expire, retries return, parked
pulls wait. Code, header fields and their values, and the shape of JSON bodies are compared. In the first recordings
everything is equal, including log offsets; after the transactions, whose commits raced with sends, log offsets differ.
Differences that are intended, or due to frames missing from the recording, are listed with their reasons.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from rocketlet.common import fastjson
from tests.support.memory_broker import memory_broker
from tests.support.recorded_broker import Pair, Player, differences, frames_of

# When each recording began, ms; the broker had been started twenty seconds before the first.
BOOT = 1795005517519
STORY = [
    (1795005537283, "producer-sync"),
    (1795005538239, "producer-async-oneway"),
    (1795005539028, "producer-batch"),
    (1795005539609, "producer-compressed"),
    (1795005540060, "producer-delay"),
    (1795005540639, "producer-order"),
    (1795005541244, "consumer-push"),
    (1795005551185, "consumer-broadcast"),
    (1795005554033, "consumer-from-last-and-timestamp"),
    (1795005557466, "consumer-orderly"),
    (1795005562732, "consumer-retry-dlq"),
    (1795005569621, "transaction"),
    (1795005579595, "request-reply"),
    (1795005585833, "consumer-rebalance-two"),
    (1795005590680, "consumer-pull-api"),
    (1795005595517, "consumer-lite-pull"),
    (1795005599007, "consumer-sql-filter"),
    (1795005602311, "producer-stream-and-namespace"),
    (1795005602707, "producer-trace"),
    (1795005604673, "producer-acl-signed"),
    (1795005605767, "producer-v1-code10"),
    (1795005772544, "errors-send"),
    (1795005773803, "errors-pull"),
    (1795005775486, "errors-other"),
    (1795005791811, "admin-codes"),
]
EXACT = [name for _, name in STORY[:11]]
SETTINGS = {
    "broker_ip1": "10.0.0.5",
    "trace_topic_enable": True,
    "transaction_time_out": 1500,
    "transaction_check_interval": 3000,
}

CUT = "the recording lacks a frame that this rests on"
RACE = "in the recording a later heartbeat was faster"
CHOICE = "RocketMQ chose a queue at random"
READABLE = "Java's answer is a null pointer or a parser's accident"
LATER = "29 and 32 look at times of messages whose store time is ours"
EXPECTED: dict[str, dict[int, str]] = {
    "consumer-push": {32: CUT},
    "request-reply": {42: CUT},
    "consumer-pull-api": {19: LATER, 21: LATER},
    "consumer-sql-filter": {32: RACE},
    "errors-send": {3: CHOICE, 52: READABLE, 54: READABLE},
    "errors-pull": {30: READABLE},
    "errors-other": {32: LATER, 44: LATER},
    "admin-codes": {
        103: "its message id is a place in the log of the recording",
        147: "1 for a queue that is not there; Java makes one when its offset is asked for, as happens before",
        149: "Java puts any message into the half topic; ours only one that was there",
        182: "access control is not served: 3",
        184: "access control is not served: 3",
        186: "access control is not served: 3",
        188: "the version of the settings is a time",
        192: "a setting that nobody knows is an error",
    },
}
# Values that depend on how much was stored before, once that differs.
PLACES = frozenset({"msgId", "queueOffset", "nextBeginOffset", "minOffset", "maxOffset", "offset"})
INDEX = frozenset({"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"})
# 28 and 26 list each implementation's own keys; 25's and 17's bodies are empty.
OTHER_BODIES = {26, 28}


async def test_the_recorded_life_of_a_broker(autojump_clock: MockClock, vectors: Path) -> None:
    start = trio.current_time()
    problems: list[str] = []
    async with memory_broker(start_ms=BOOT, **SETTINGS) as one, trio.open_nursery() as nursery:
        for begin, name in STORY:
            await trio.sleep_until(start + (begin - BOOT) / 1000)
            player = Player(one.network, one.bound, nursery)
            await player.play(list(frames_of(vectors / "frames" / f"{name}.jsonl")))
            assert player.pairs, name
            ignored = INDEX if name in EXACT else INDEX | PLACES
            expected = EXPECTED.get(name, {})
            for pair in player.pairs:
                if pair.request.seq not in expected:
                    found = differences(pair, ignored) + different_shapes(pair)
                    problems += [f"{name}: {problem}" for problem in found]
        nursery.cancel_scope.cancel()
    assert problems == []


def different_shapes(pair: Pair) -> list[str]:
    """Differences between the fields of a JSON body and Java's."""
    code = pair.request.command.code
    theirs, ours = bytes(pair.java.body), bytes(pair.ours.body)
    if code in OTHER_BODIES or not theirs.startswith(b"{") or not ours:
        return []
    expected, found = shape(fastjson.loads(theirs)), shape(fastjson.loads(ours))
    if expected == found:
        return []
    return [f"seq {pair.request.seq} ({code}): a body like {found} instead of {expected}"]


def shape(value: Any, depth: int = 0) -> Any:
    """The names of a body's fields; for maps and lists inside it, those of their values."""
    if depth == 0 and isinstance(value, dict):
        return {name: shape(inner, 1) for name, inner in value.items()}
    if isinstance(value, dict) and depth == 1 and value and all(isinstance(inner, dict) for inner in value.values()):
        return shape(next(iter(value.values())), 2)
    if isinstance(value, list) and value:
        return shape(value[0], 2)
    if isinstance(value, dict) and depth == 2:
        return sorted(name for name in value if name.isidentifier())
    return type(value).__name__
