"""A connection closed while frames are due: its writer ends instead of spinning."""

from __future__ import annotations

import pytest

from rocketlet.client.facades.producers import Producer
from rocketlet.common.message import Message
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack


@pytest.mark.parametrize("attempt", range(5))
def test_a_stack_stops_after_connections_were_cut(attempt: int) -> None:
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        stack.on(RequestCode.SEND_MESSAGE_V2, disconnect=True, times=1)
        with Producer("p", namesrv=stack.namesrv) as producer:
            producer.send(Message("T", b"tried again"))
