"""The blocking clients, over real ports and in real threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from rocketlet.client import (
    ClientClosed,
    InvalidMessage,
    InvalidUse,
    LitePullConsumer,
    Message,
    NoRoute,
    PendingSend,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from rocketlet.client.config import ConsumeFrom
from rocketlet.client.facades import engine_thread
from rocketlet.client.facades.engine_thread import EngineThread
from rocketlet.client.facades.thread_bridge import ThreadPort
from rocketlet.client.sending.send import Send
from tests.support.local_stack import local_stack


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with local_stack() as address:
        yield address


def test_threads_share_a_producer(namesrv: str) -> None:
    places: Queue[tuple[object, int]] = Queue()

    with Producer("shared", namesrv=namesrv) as producer:

        def work() -> None:
            for n in range(50):
                sent = producer.send(Message("shared", b"%d" % n))
                places.put((sent.queue, sent.queue_offset))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(producer.max_offset(queue) for queue in producer.publish_queues("shared")) == 400
    assert len({places.get() for _ in range(400)}) == 400


def test_many_sends_are_in_flight_at_once(namesrv: str) -> None:
    called: Queue[PendingSend] = Queue()
    with Producer("soon", namesrv=namesrv, max_in_flight=64) as producer:
        pending = [producer.send_soon(Message("soon", b"x"), called.put) for _ in range(500)]
        results = [each.result(10) for each in pending]
        seen = {called.get(timeout=120).message_id for _ in range(500)}
    assert {result.message_id for result in results} == seen
    assert len({(result.queue, result.queue_offset) for result in results}) == 500


def test_a_callback_may_send_again(namesrv: str) -> None:
    answers: Queue[object] = Queue()
    with Producer("again", namesrv=namesrv) as producer:
        producer.send_soon(
            Message("again", b"1"), lambda sent: answers.put(producer.send(Message("again", b"2")).status)
        )
        assert answers.get(timeout=120)


def test_closing_waits_for_sends_in_flight(namesrv: str) -> None:
    with Producer("end", namesrv=namesrv) as producer:
        pending = [producer.send_soon(Message("end", b"x")) for _ in range(100)]
    assert all(each.done and each.exception() is None for each in pending)
    with pytest.raises(ClientClosed):
        producer.send(Message("end", b"x"))


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_thread, "_LOOK_EVERY", 0.001)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("looks_often")
def test_a_send_that_ctrl_c_cut_short_keeps_no_other_from_being_sent(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer("interrupted", namesrv=namesrv) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(EngineThread, "post", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send_soon(Message("interrupted", b"1"))
        assert producer.send_soon(Message("interrupted", b"2")).result(60).message_id


def test_what_was_handed_in_before_the_end_is_told_so(namesrv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer("handed", namesrv=namesrv) as stays:
        producer = Producer("handed-too", namesrv=namesrv)
        producer.start()
        port = producer._port
        with monkeypatch.context() as patch:
            patch.setattr(EngineThread, "post", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send_soon(Message("handed", b"1"))
        pending = producer.send_soon(Message("handed", b"2"))
        producer.close()
        with pytest.raises(ClientClosed):
            pending.result(60)
        with pytest.raises(ClientClosed):
            port.submit(pending._send)
        stays.send(Message("handed", b"3"))


def test_a_forked_process_is_told_that_nothing_would_end_its_wait(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Producer("parent", namesrv=namesrv) as producer,
        LitePullConsumer("parent", topics={"parent": "*"}, namesrv=namesrv) as consumer,
    ):
        pending = PendingSend(Send(), producer._running()[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            for call in (lambda: producer.send_soon(Message("parent", b"x")), pending.result, consumer.poll):
                with pytest.raises(InvalidUse, match="before a fork"):
                    call()


def test_closing_does_not_wait_for_lines_that_ctrl_c_took_out(namesrv: str) -> None:
    with Producer("lost", namesrv=namesrv, send_timeout=0.5) as producer:
        producer.send(Message("lost", b"1"))
        port = producer._port
        assert isinstance(port, ThreadPort)
        for line in port._direct._unused.get_nowait().values():  # the lines go, and the exception with them
            line.close()
        assert producer.send(Message("lost", b"2")).message_id


def test_a_bad_message_is_refused_before_it_is_sent(namesrv: str) -> None:
    with Producer("bad", namesrv=namesrv) as producer, pytest.raises(InvalidMessage):
        producer.send(Message("a b", b"x"))


def test_without_a_name_server_the_error_names_it() -> None:
    with Producer("nowhere", namesrv="127.0.0.1:9") as producer, pytest.raises(NoRoute, match=r"127\.0\.0\.1:9"):
        producer.send(Message("T", b"x"))


def test_a_push_consumer_calls_its_listener_in_threads(namesrv: str) -> None:
    got: Queue[ReceivedMessage] = Queue()
    with Producer("pushing", namesrv=namesrv) as producer:
        sent = {producer.send(Message("pushed", b"%d" % n)).message_id for n in range(100)}
        with PushConsumer(
            "pushed", got.put, topics={"pushed": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
        ) as consumer:
            assert {got.get(timeout=120).message_id for _ in range(100)} == sent
            assert len(consumer.queues()) >= 4
            consumer.subscribe("pushed", "a")
            consumer.suspend()
            consumer.resume()
            consumer.commit()


class Name(str):
    """As pandas and numpy have them."""


@pytest.mark.parametrize("header_type", range(3))
def test_names_may_be_texts_of_another_type(namesrv: str, header_type: int) -> None:
    got: Queue[ReceivedMessage] = Queue()
    with Producer(Name("namers"), namesrv=namesrv, header_type=header_type) as producer:
        sent = producer.send(Message(Name("named"), b"x", tags=Name("a"), keys=[Name("key")]))
        assert len(producer.publish_queues(Name("named"))) >= 4
        with PushConsumer(
            Name(f"named-{header_type}"),
            got.put,
            topics={Name("named"): Name("a")},
            namesrv=namesrv,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            header_type=header_type,
        ):
            while got.get(timeout=120).message_id != sent.message_id:
                pass


def test_a_lite_pull_consumer_is_iterated(namesrv: str) -> None:
    with Producer("pulling", namesrv=namesrv) as producer:
        sent = {producer.send(Message("pulled", b"%d" % n)).message_id for n in range(100)}
    got = set()
    with LitePullConsumer(
        "pulled", topics={"pulled": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        for message in consumer:
            got.add(message.message_id)
            if len(got) == 100:
                break
    assert got == sent
    with LitePullConsumer("pulled", topics={"pulled": "*"}, namesrv=namesrv) as consumer:
        assert consumer.poll(0.2) == []


def test_threads_can_iterate_batches(namesrv: str) -> None:
    with Producer("batching", namesrv=namesrv) as producer:
        sent = [producer.send(Message("batched", b"%d" % n)).message_id for n in range(200)]
    got: Queue[str] = Queue()
    with LitePullConsumer(
        "batched", topics={"batched": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:

        def read() -> None:
            for batch in consumer.batches():
                for message_id in batch.message_ids:
                    got.put(message_id)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert sorted(got.get(timeout=120) for _ in sent) == sorted(sent)
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "the end of the consumer ends the loops over it"


def test_leaving_a_loop_early_leaves_the_rest_for_the_next(namesrv: str) -> None:
    with Producer("early", namesrv=namesrv) as producer:
        producer.create_topic("early", 1)
        for n in range(6):
            producer.send(Message("early", b"%d" % n))
    got = []
    with LitePullConsumer(
        "early", topics={"early": "*"}, namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        for _ in range(2):
            for message in consumer:
                got.append(int(message.body))
                if len(got) % 2 == 0:
                    break
        assert got == [0, 1, 2, 3]
        while len(got) < 6:
            got += [int(message.body) for message in consumer.poll()]
    assert got == list(range(6))
