"""The examples of delays, retries, transactions and replies, each run as by a user, against one stack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.examples import output
from tests.support.local_stack import local_stack

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A stack with shorter delays than usual."""
    settings = {"transaction_time_out": 500, "transaction_check_interval": 500, "message_delay_level": "1s 2s 1s 1s"}
    with local_stack(**settings) as address:
        yield address


def test_delayed(namesrv: str) -> None:
    *sent, first, second = output(namesrv, "examples/waiting/delayed.py")
    assert len(sent) == 2
    assert first.startswith("consumed  a message of level 1 after ")
    assert second.startswith("consumed  a message of level 2 after ")
    assert 1.0 <= float(first.split()[-2]) < float(second.split()[-2])


def test_dead_letters(namesrv: str) -> None:
    *tries, dead = output(namesrv, "examples/waiting/dead_letters.py")
    assert sorted(tries) == [
        "listener  got 'good', retry 0",
        "listener  got 'poison', retry 0",
        "listener  got 'poison', retry 1",
        "listener  got 'poison', retry 2",
    ]
    assert dead == "dead      'poison' of topic Retries, after 3 tries"


def test_transaction(namesrv: str) -> None:
    lines = output(namesrv, "examples/waiting/transaction.py")
    assert lines[:3] == ["sent      alice: COMMIT", "sent      mallory: ROLLBACK", "sent      bob: UNKNOWN"]
    assert "checker   is asked about bob" in lines
    assert [line for line in lines if line.startswith("consumed")] == ["consumed  alice", "consumed  bob"]


def test_request_reply(namesrv: str) -> None:
    assert output(namesrv, "examples/waiting/request_reply.py") == [
        "asked     apple, answer 3",
        "asked     pear, answer 4",
        "asked     melon, no answer",
    ]


def test_sql_filter(namesrv: str) -> None:
    *consumed, reason, shown, pointer = output(namesrv, "examples/waiting/sql_filter.py")
    assert sorted(consumed) == ["consumed  anvil for 250", "consumed  safe for 700"]
    assert "unequal is written <>" in reason
    assert shown.strip().startswith("price != 250")
    assert pointer.index("^") == shown.index("!=")
