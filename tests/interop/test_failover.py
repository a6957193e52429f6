"""RocketMQ's producer, consumer and slave at replicas of ours that elect their master, while the master is killed.

The producer goes on at the next master by itself. The slave, a reader that nobody elects, is fed what is confirmed and
no more: it follows the next master from where it is, and its log is that master's, byte for byte.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from rocketlet.client import Message, Producer
from rocketlet.remoting.command import request
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import TcpNetwork
from tests.interop.test_replication import SMALL, TOPIC, WAIT_SECONDS, Ours, consumes_with_java, same_log
from tests.support.etcd import etcd_cluster, free_ports, needs_etcd
from tests.support.java_programs import JavaBroker, JavaPrograms, Missing, free_broker_port
from tests.support.programs import name_server

pytestmark = [pytest.mark.slow, pytest.mark.interop, needs_etcd]


def told(one: Ours) -> dict[str, str]:
    """A replica's runtime info; empty while it does not answer."""

    async def ask() -> bytes:
        async with ConnectionPool(TcpNetwork()) as pool:
            return bytes((await pool.call(one.address, request(RequestCode.GET_BROKER_RUNTIME_INFO), 5.0)).body)

    try:
        found: dict[str, str] = json.loads(trio.run(ask))["table"]
    except (RemotingError, ValueError):
        return {}
    return found


def leader_of(replicas: list[Ours], in_sync: int) -> Ours:
    """Who leads, once so many are in sync."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for one in replicas:
            table = told(one)
            if table.get("failoverState") == "leading" and table["inSyncReplicas"].count("/") == in_sync:
                return one
        time.sleep(0.2)
    raise AssertionError(f"no leader with {in_sync} in sync")


class JavaLoad:
    """RocketMQ's benchmark producer; every ten seconds it says how many it sends a second."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sends(self) -> None:
        """Returns after the next ten seconds in which something was sent."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = re.search(r"Send TPS: *(\d+)", line)
            if found and int(found[1]):
                return
        raise AssertionError("RocketMQ's producer sends nothing")


@contextmanager
def java_producer(programs: JavaPrograms, namesrv: str) -> Iterator[JavaLoad]:
    """Sends as fast as it can by one thread, small messages."""
    command = [str(programs.stack), "bench", "producer", "-n", namesrv, "-t", TOPIC, "-w", "1", "-s", "16"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    timer = threading.Timer(WAIT_SECONDS * 2, process.kill)
    timer.start()
    try:
        yield JavaLoad(process)
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_java_producer_and_a_java_slave_go_on_at_the_next_master(tmp_path: Path) -> None:
    try:
        programs = JavaPrograms.prepare()
    except Missing as missing:
        pytest.skip(str(missing))
    with name_server(tmp_path) as (_, namesrv), etcd_cluster(tmp_path) as etcd:
        replicas = []
        for number in (1, 2):
            folder = tmp_path / f"replica-{number}"
            folder.mkdir()
            settings = {
                "failoverEnable": "true",
                "replicaId": number,
                "etcdEndpoints": ",".join(etcd.endpoints),
                "replicaListenPort": free_ports(1)[0],
            }
            replicas.append(Ours(folder, namesrv, free_broker_port(), settings))
        words = {key: str(value) for key, value in {**SMALL, "brokerRole": "SLAVE", "brokerId": 9}.items()}
        reader = JavaBroker(programs.stack, tmp_path / "reader", namesrv, free_broker_port(), words)
        try:
            for one in replicas:
                one.start()
            old = leader_of(replicas, 2)
            with Producer("first", namesrv=namesrv) as producer:
                producer.send(Message(TOPIC, b"makes the topic"))
            reader.start()
            with java_producer(programs, namesrv) as load:
                load.sends()
                old.kill()
                load.sends()
                load.sends()  # the first ten seconds may have begun before
                old.start()
            new = leader_of(replicas, 2)
            assert new is not old
            deadline = time.monotonic() + WAIT_SECONDS
            while not (same_log(new.folder, reader.folder) and same_log(new.folder, old.folder)):
                assert time.monotonic() < deadline, "the logs do not become one"
                time.sleep(0.5)
            consumes_with_java(namesrv, new.address)
        finally:
            reader.stop()
            for one in replicas:
                one.stop()
