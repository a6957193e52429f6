"""Blocking clients, in threads, while the broker's process is killed under load and restarted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rocketlet.client import (
    ClientError,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from tests.support.ports import free_broker_port
from tests.support.programs import broker, name_server

EACH = 1500


@pytest.mark.slow
def test_acknowledged_messages_are_consumed(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    consumed: set[str] = set()
    failed: list[ClientError] = []
    half_way = threading.Event()

    def produce(producer: Producer, soon: bool) -> None:
        for n in range(EACH):
            message = Message("T", b"%d" % n)
            try:
                result = producer.send_soon(message).result() if soon else producer.send(message)
            except ClientError as error:
                failed.append(error)
                threading.Event().wait(0.05)  # the broker is another process, in real time
                continue
            acknowledged.add(result.message_id)
            if len(acknowledged) > EACH:
                half_way.set()

    def listener(message: ReceivedMessage) -> None:
        consumed.add(message.message_id)

    with name_server(tmp_path) as (_, namesrv):
        port = free_broker_port()
        settings = {"listenPort": port, "namesrvAddr": namesrv}
        with broker(tmp_path, **settings) as (first, _), Producer("p", namesrv=namesrv) as producer:
            producer.create_topic("T", 4)
            with PushConsumer(
                "g", listener, topics={"T": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
            ) as consumer:
                threads = [threading.Thread(target=produce, args=(producer, n % 2 == 0)) for n in range(4)]
                for thread in threads:
                    thread.start()
                assert half_way.wait(300)
                first.kill()
                with broker(tmp_path, **settings):
                    for thread in threads:
                        thread.join()
                    for _ in range(600):
                        if acknowledged <= consumed:
                            break
                        threading.Event().wait(0.1)
                    assert acknowledged <= consumed
                    assert len(acknowledged) + len(failed) == 4 * EACH
                    assert len(acknowledged) > 2 * EACH
                    consumer.shutdown()
                    with LitePullConsumer("g", topics={"T": "*"}, namesrv=namesrv) as rest:
                        assert not {message.message_id for message in rest.poll(1)} - consumed
