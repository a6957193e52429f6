"""Testing an application with Rocketlet's fixtures: pytest examples/testing

No conftest, no container, no port to choose: `rocketmq` is a name server and a broker in memory, fresh for each test.
"""

from __future__ import annotations

import pytest

from rocketlet import ConsumeFrom, LitePullConsumer, Message, Producer, Refused
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.tools.thread_stack import ThreadStack


def place_order(producer: Producer, number: int) -> str:
    """The application under test."""
    return producer.send(Message("orders", b"order %d" % number, keys=[str(number)])).message_id


def test_an_order_arrives(rocketmq: ThreadStack) -> None:
    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        sent = place_order(producer, 7)
    with LitePullConsumer(
        "warehouse", topics={"orders": "*"}, namesrv=rocketmq.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        message = next(iter(consumer))
    assert (message.body, message.message_id) == (b"order 7", sent)


def test_a_busy_broker_is_reported(rocketmq: ThreadStack) -> None:
    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        place_order(producer, 1)
        rocketmq.on(RequestCode.SEND_MESSAGE_V2, reply=ResponseCode.SYSTEM_BUSY, remark="too much to do")
        with pytest.raises(Refused, match="too much to do"):
            place_order(producer, 2)
        assert place_order(producer, 3)


def test_a_broken_connection_is_survived(rocketmq: ThreadStack) -> None:
    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        place_order(producer, 1)
        fault = rocketmq.on(RequestCode.SEND_MESSAGE_V2, disconnect=True)
        assert place_order(producer, 2)
    assert fault.met == 1
