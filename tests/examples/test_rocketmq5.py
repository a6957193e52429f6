"""The example with RocketMQ 5's official client, which is not installed everywhere."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.examples import output

pytestmark = pytest.mark.process


@pytest.mark.skipif(find_spec("rocketmq") is None, reason="rocketmq-python-client is not installed (extra rocketmq5)")
def test_orders() -> None:
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0, grpc_port=0)) as stack:
        lines = output(stack.namesrv, "examples/rocketmq5/orders.py", stack.endpoints)
    assert lines == ["sent to offset 0", "received 3 apples delivery 1"]
