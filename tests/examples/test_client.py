"""The examples of the client, each run as a user would, against one stack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.examples import output
from tests.support.local_stack import local_stack

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with local_stack(max_message_size=4 << 20, mapped_file_size_commit_log=64 << 20) as address:
        yield address


def test_many_in_flight(namesrv: str) -> None:
    text = " ".join(output(namesrv, "examples/client/many_in_flight.py"))
    assert "2000 single sends stored" in text
    assert "20000 messages stored in" in text
    assert "the callback knows too: SEND_OK" in text


def test_in_order(namesrv: str) -> None:
    assert output(namesrv, "examples/client/in_order.py") == [
        f"order-{n}: created, paid, packed, shipped" for n in range(5)
    ]


def test_once_per_key(namesrv: str) -> None:
    assert output(namesrv, "examples/client/once_per_key.py") == ["charged: payment-1, payment-2, payment-3"]


@pytest.mark.parametrize("example", ["with_trio", "with_asyncio"])
def test_event_loops(namesrv: str, example: str) -> None:
    assert output(namesrv, f"examples/client/{example}.py") == [f"consumed {list(range(10))}"]


def test_batch(namesrv: str) -> None:
    lines = output(namesrv, "examples/client/batch.py")
    assert len(lines) > 1
    assert sum(int(line.split()[1]) for line in lines) == 1000


def test_tags(namesrv: str) -> None:
    assert output(namesrv, "examples/client/tags.py") == [
        "consumed  sports: 1:0",
        "consumed  weather: rain",
        "consumed  weather: more rain",
        "consumed  sports: 2:0",
    ]


def test_broadcast(namesrv: str) -> None:
    assert sorted(output(namesrv, "examples/client/broadcast.py")) == [
        "consumed  drop user 7 by cache-1",
        "consumed  drop user 7 by cache-2",
    ]


def test_pull(namesrv: str) -> None:
    *queues, everything = output(namesrv, "examples/client/pull.py")
    assert len(queues) == 4
    assert everything == f"read      {list(range(10))}"


def test_iterate(namesrv: str) -> None:
    words = ["consumed  one", "consumed  two", "consumed  three"]
    assert output(namesrv, "examples/client/iterate.py") == [*words, "back to the begin", *words]
