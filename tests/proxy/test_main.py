"""`mqproxy` and `rocketlet up --grpc-port` as processes."""

from __future__ import annotations

import socket
import time

import pytest
import trio

from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.transport import TcpNetwork
from tests.proxy.test_proxy import message, send
from tests.support.grpc_client import grpc_client
from tests.support.ports import free_port
from tests.support.programs import program

pytestmark = pytest.mark.process


def sent(endpoint: str, topic: str) -> int:
    """The code of the answer to a send."""

    async def main() -> int:
        async with grpc_client(TcpNetwork(), endpoint) as client:
            return int((await send(client, message(topic))).status.code)

    return trio.run(main)


def test_the_endpoint_inside_up_is_printed_and_stops_with_it() -> None:
    arguments = ["up", "--memory", "--port", "0", "--broker-port", "0", "--metrics-port", "-1", "--grpc-port", "0"]
    with program("tools", *arguments) as stack:
        endpoint = stack.line_with("gRPC").split("endpoints=")[1].split()[0]
        assert sent(endpoint, "BenchmarkTest") == Code.ILLEGAL_TOPIC
        assert sent(endpoint, "nowhere") == Code.TOPIC_NOT_FOUND
        assert stack.stop() == 0


def test_mqproxy_serves_brokers_found_by_a_name_server() -> None:
    with program("tools", "up", "--memory", "--port", "0", "--broker-port", "0", "--print-addr") as stack:
        namesrv = stack.line_with("127.0.0.1:").strip()
        with program("proxy", "-n", namesrv, "--grpc-port", "0") as proxy:
            endpoint = proxy.line_with("boot success").split(" at ")[1].split(",")[0]
            assert sent(endpoint, "nowhere") == Code.TOPIC_NOT_FOUND
            with program("tools.admin", "updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", "T") as admin:
                assert admin.ended() == 0
            assert sent(endpoint, "T") == Code.OK
            assert proxy.stop() == 0


def test_mqproxy_waits_for_missing_name_servers() -> None:
    address = f"127.0.0.1:{free_port()}"
    with program("proxy", "-n", address, "--grpc-port", "0") as proxy:
        endpoint = proxy.line_with("boot success").split(" at ")[1].split(",")[0]
        assert sent(endpoint, "T") == Code.INTERNAL_SERVER_ERROR
        with program("tools", "up", "--memory", "--port", address.rpartition(":")[2], "--broker-port", "0") as stack:
            stack.line_with("ready")
            deadline = time.monotonic() + 120
            while sent(endpoint, "nowhere") != Code.TOPIC_NOT_FOUND:
                assert time.monotonic() < deadline


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with program("proxy", "--grpc-port", port) as proxy:
            proxy.line_with(f"mqproxy: cannot listen on 127.0.0.1:{port}")
            assert proxy.ended() == 1
