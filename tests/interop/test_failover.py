"""RocketMQ's producer, consumer and slave with our electing replicas, while the master is killed.

The producer continues at the next master on its own. The slave, a reader that cannot be elected, gets only confirmed
bytes: it follows the next master from its own end, and its log is that master's, byte for byte.
"""

from __future__ import annotations

import json
import subprocess
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
from tests.support.etcd import etcd_cluster, needs_etcd
from tests.support.java_programs import JavaBroker, JavaPrograms, Missing, free_broker_port
from tests.support.ports import free_port
from tests.support.programs import name_server

pytestmark = [pytest.mark.slow, pytest.mark.interop, needs_etcd]


def runtime_info(one: Ours) -> dict[str, str]:
    """A replica's runtime info; empty if it does not answer."""

    async def ask() -> bytes:
        async with ConnectionPool(TcpNetwork()) as pool:
            return bytes((await pool.call(one.address, request(RequestCode.GET_BROKER_RUNTIME_INFO), 5.0)).body)

    try:
        found: dict[str, str] = json.loads(trio.run(ask))["table"]
    except (RemotingError, ValueError):
        return {}
    return found


def leader_of(replicas: list[Ours], in_sync: int) -> Ours:
    """The leader, once that many are in sync."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for one in replicas:
            table = runtime_info(one)
            if table.get("failoverState") == "leading" and table["inSyncReplicas"].count("/") == in_sync:
                return one
        time.sleep(0.2)
    raise AssertionError(f"no leader with {in_sync} in sync")


@contextmanager
def java_producer(programs: JavaPrograms, namesrv: str) -> Iterator[None]:
    """RocketMQ's benchmark producer; it sends as fast as it can by one thread, small messages."""
    command = [str(programs.stack), "bench", "producer", "-n", namesrv, "-t", TOPIC, "-w", "1", "-s", "16"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "RocketMQ's producer ended"
    finally:
        process.kill()
        process.wait()


def takes_messages(leader: Ours) -> None:
    """Returns when it took enough more to fill a file of its log.

    The producer's one thread waits for each message's acknowledgement, so all but the last were acknowledged too.
    """
    before, now = -1, 0
    deadline = time.monotonic() + WAIT_SECONDS
    while before < 0 or now < before + 5000:
        assert time.monotonic() < deadline, "RocketMQ's producer sends nothing"
        time.sleep(0.2)
        now = int(runtime_info(leader).get("msgPutTotalTodayNow", -1))
        before = now if before < 0 else before


def test_a_java_producer_and_a_java_slave_continue_at_the_next_master(tmp_path: Path) -> None:
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
                "replicaListenPort": free_port(),
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
            with java_producer(programs, namesrv):
                takes_messages(old)
                old.kill()
                new = leader_of(replicas, 1)
                assert new is not old
                takes_messages(new)
                old.start()
            new = leader_of(replicas, 2)
            deadline = time.monotonic() + WAIT_SECONDS
            while not (same_log(new.folder, reader.folder) and same_log(new.folder, old.folder)):
                assert time.monotonic() < deadline, "the logs do not become one"
                time.sleep(0.5)
            consumes_with_java(namesrv, new.address)
        finally:
            reader.kill()  # nobody reads its store any more, and it takes seconds to stop
            for one in replicas:
                one.stop()
