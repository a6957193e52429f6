from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rocketlet.client.consuming.consume_results import Later
from rocketlet.client.consuming.idempotence import InProgress, Keys, MemoryKeys, SqliteKeys, business_key, once
from rocketlet.common.message import MessageQueue, ReceivedMessage


@pytest.fixture(params=["memory", "sqlite"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keys]:
    if request.param == "memory":
        yield MemoryKeys()
    else:
        with SqliteKeys(str(tmp_path / "keys.db")) as sqlite:
            yield sqlite


MESSAGE = ReceivedMessage(
    topic="T",
    body=b"x",
    queue=MessageQueue("T", "a", 0),
    queue_offset=0,
    log_offset=0,
    message_id="id",
    offset_message_id="",
    born_timestamp=0,
    born_host="",
    store_timestamp=0,
    store_host="",
    reconsume_times=0,
    tags=None,
    keys=("order-1", "other"),
    flag=0,
    sys_flag=0,
    properties={},
    prepared_transaction_offset=0,
)


def test_a_listener_runs_once_per_key(keys: Keys) -> None:
    calls: list[str] = []
    listener = once(keys)(lambda message: calls.append(message.message_id))
    listener(MESSAGE)
    listener(replace(MESSAGE, message_id="resent by the producer"))
    listener(replace(MESSAGE, message_id="other order", keys=("order-2",)))
    assert calls == ["id", "other order"]


def test_without_keys_the_message_id_is_used() -> None:
    assert business_key(MESSAGE) == "T#order-1"
    assert business_key(replace(MESSAGE, keys=())) == "T#id"


def test_a_failed_message_runs_again(keys: Keys) -> None:
    answers: list[object] = [ValueError("no"), Later(), None, None]

    @once(keys)
    def listener(message: ReceivedMessage) -> Later | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert answer is None or isinstance(answer, Later)
        return answer

    with pytest.raises(ValueError, match="no"):
        listener(MESSAGE)
    assert listener(MESSAGE) == Later()
    assert listener(MESSAGE) is None
    assert listener(MESSAGE) is None
    assert len(answers) == 1


def test_a_second_delivery_waits_for_the_first_to_finish(keys: Keys) -> None:
    @once(keys)
    def listener(message: ReceivedMessage) -> None:
        with pytest.raises(InProgress):
            listener(message)

    listener(MESSAGE)


async def test_an_async_listener_runs_once_too(keys: Keys) -> None:
    calls = []

    @once(keys)
    async def listener(message: ReceivedMessage) -> None:
        calls.append(message.message_id)
        if len(calls) == 1:
            raise ValueError

    with pytest.raises(ValueError):
        await listener(MESSAGE)
    await listener(MESSAGE)
    answer = listener(MESSAGE)
    assert answer is not None
    await answer
    assert len(calls) == 2


def test_sqlite_remembers_across_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.db")
    with SqliteKeys(path) as first:
        assert first.begin("k")
        first.done("k")
        assert first.begin("in work at the crash")
    with SqliteKeys(path) as second:
        assert second.begin("k") is False
        assert second.begin("in work at the crash") is True


def test_only_the_newest_keys_are_kept(tmp_path: Path) -> None:
    memory = MemoryKeys(most=2)
    sqlite = SqliteKeys(str(tmp_path / "keys.db"), keep=2)
    with sqlite:
        for n in range(1000):
            for kept in (memory, sqlite):
                kept.begin(str(n))
                kept.done(str(n))
        for kept in (memory, sqlite):
            assert [kept.begin(str(n)) for n in (0, 997, 998, 999)] == [True, True, False, False]
