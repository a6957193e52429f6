from __future__ import annotations

import pytest

from rocketlet.client import errors
from rocketlet.client.talking.broker_calls import refusal, translated
from rocketlet.common.errors import RocketletError
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import CallTimeout, ConnectFailed, ConnectionLost


def test_an_error_names_cause_address_duration_and_remedy() -> None:
    error = errors.TimedOut("the send was not answered", topic="T", broker="a", advice="look at the broker")
    assert str(error) == "the send was not answered (topic T, broker a); look at the broker"
    assert str(error.after(3004.4, 3)) == (
        "the send was not answered (topic T, broker a, after 3004 ms, 3 tries); look at the broker"
    )
    assert str(errors.ClientError("plain")) == "plain"


def test_all_errors_are_rocketlet_errors() -> None:
    for name in dir(errors):
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert issubclass(found, RocketletError)
            assert found.__doc__


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CallTimeout("x"), errors.TimedOut),
        (ConnectFailed("x"), errors.Unreachable),
        (ConnectionLost("x"), errors.Unreachable),
    ],
)
def test_connection_failures_are_translated(error: Exception, kind: type[errors.ClientError]) -> None:
    assert type(translated(error, "PULL", "a:1", "T")) is kind  # type: ignore[arg-type]


def test_a_refusal_names_the_code_and_gives_advice() -> None:
    error = refusal(Command(17, remark="no such topic"), "SEND", "a:1", "T")
    assert (error.code, error.remark) == (17, "no such topic")
    assert "TOPIC_NOT_EXIST (17): no such topic" in str(error)
    assert "autoCreateTopicEnable" in str(error)
