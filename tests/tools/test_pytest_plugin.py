"""The fixtures as users see them: in their own test suite, run by pytest inside this one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from queue import Queue

import pytest

from rocketlet import PushConsumer, ReceivedMessage
from rocketlet.client import Message, Producer, PullConsumer, Refused, SendFailed, TimedOut
from rocketlet.client.facades import engine_thread
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.tools import pytest_plugin
from rocketlet.tools.thread_stack import ThreadStack

pytest_plugins = ["pytester"]

HEAD = """
from rocketlet.client import Message, Producer
from rocketlet.remoting.request_codes import RequestCode
"""


def run_suite(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + text)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


def test_each_test_has_its_own_stack(rocketmq: ThreadStack) -> None:
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        assert producer.send(Message("plugin", b"1"), queue=None).queue_offset == 0


def test_the_next_test_has_its_own_stack(rocketmq: ThreadStack) -> None:
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        assert producer.send(Message("plugin", b"1")).offset_message_id.endswith("0" * 16)


def test_rocketmq_5_clients_get_an_endpoint_on_request(rocketmq: ThreadStack) -> None:
    with socket.create_connection(("127.0.0.1", int(rocketmq.endpoints.rpartition(":")[2])), 10) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
        assert client.recv(9)[3] == 4  # its SETTINGS
    assert rocketmq.endpoints == rocketmq.endpoints


def test_a_scripted_answer_applies_a_given_number_of_times(rocketmq: ThreadStack) -> None:
    fault = rocketmq.on(RequestCode.SEND_MESSAGE_V2, reply=ResponseCode.SYSTEM_BUSY, times=2)
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        for _ in range(2):
            with pytest.raises((Refused, SendFailed), match="SYSTEM_BUSY"):
                producer.send(Message("plugin", b"1"))
        assert producer.send(Message("plugin", b"1")).queue_offset == 0
    assert fault.met == 2
    assert fault.is_over


def test_a_dropped_request_times_out(rocketmq: ThreadStack) -> None:
    with Producer("g", namesrv=rocketmq.namesrv, retries=0) as producer:
        producer.send(Message("plugin", b"0"))
        fault = rocketmq.on(RequestCode.SEND_MESSAGE_V2, drop=True, times=None)
        with pytest.raises((TimedOut, SendFailed)):
            producer.send(Message("plugin", b"1"), timeout=0.2)
        assert fault.met >= 1
        rocketmq.clear_faults()
        producer.send(Message("plugin", b"2"))


def test_a_broken_connection_is_replaced_by_the_next_attempt(rocketmq: ThreadStack) -> None:
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message("plugin", b"0"))
        fault = rocketmq.on(RequestCode.SEND_MESSAGE_V2, disconnect=True)
        assert producer.send(Message("plugin", b"1")).status.name == "SEND_OK"
    assert fault.met == 1


def test_a_delayed_request_is_served_after_all(rocketmq: ThreadStack) -> None:
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message("plugin", b"0"))
        rocketmq.on(RequestCode.SEND_MESSAGE_V2, delay=0.3)
        began = time.monotonic()
        assert producer.send(Message("plugin", b"1")).status.name == "SEND_OK"
        assert time.monotonic() - began >= 0.3


def test_a_fault_may_choose_its_requests(rocketmq: ThreadStack) -> None:
    rocketmq.on(
        RequestCode.SEND_MESSAGE_V2,
        reply=ResponseCode.MESSAGE_ILLEGAL,
        times=None,
        when=lambda request: request.header.topic == "refused",
    )
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message("taken", b"1"))
        with pytest.raises((Refused, SendFailed), match="MESSAGE_ILLEGAL"):
            producer.send(Message("refused", b"1"))


def test_a_cluster_spreads_a_topic_over_its_brokers(rocketmq_cluster: Callable[..., ThreadStack]) -> None:
    stack = rocketmq_cluster(brokers=2, namesrvs=2)
    assert len(stack.addresses.namesrvs) == 2
    assert sorted(stack.addresses.brokers) == ["broker-a", "broker-b"]
    with Producer("g", namesrv=stack.namesrv) as producer:
        used = {producer.send(Message("DefaultCluster", b"1")).queue.broker_name for _ in range(32)}
    assert used == {"broker-a", "broker-b"}


@pytest.mark.rocketmq(autoCreateTopicEnable=False)
def test_a_marker_sets_the_settings(rocketmq: ThreadStack) -> None:
    with Producer("g", namesrv=rocketmq.namesrv) as producer, pytest.raises(Exception, match="no broker serves"):
        producer.send(Message("not-there", b"1"))


@pytest.mark.slow
@pytest.mark.rocketmq(fast_retries=True)
def test_retries_come_after_a_second(rocketmq: ThreadStack) -> None:
    tries: Queue[int] = Queue()

    def listener(message: ReceivedMessage) -> None:
        tries.put(message.reconsume_times)
        if message.reconsume_times < 2:
            raise ValueError("not yet")

    with (
        Producer("g", namesrv=rocketmq.namesrv) as producer,
        PushConsumer("c", listener, topics={"T": "*"}, namesrv=rocketmq.namesrv),
    ):
        producer.send(Message("T", b"1"))
        assert [tries.get(timeout=120) for _ in range(3)] == [0, 1, 2]


def test_sent_messages_can_be_found_at_once(rocketmq: ThreadStack) -> None:
    with Producer("g", namesrv=rocketmq.namesrv) as producer, PullConsumer("h", namesrv=rocketmq.namesrv) as consumer:
        for number in range(5):
            sent = producer.send(Message(f"new-{number}", b"1"))
            assert sent.queue in consumer.queues(f"new-{number}")


def test_a_client_left_open_is_an_error_with_advice(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest_plugin, "LEAK_GRACE_SECONDS", 0.1)
    result = run_suite(
        pytester,
        """
kept = []

def test_forgets(rocketmq):
    producer = Producer("g", namesrv=rocketmq.namesrv)
    producer.start()
    producer.send(Message("T", b"1"))
    kept.append(producer)

def test_end():
    kept.pop().shutdown()
""",
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*connection(s) of clients are still open after the test*close each*"])
    result.stdout.fnmatch_lines(["*producer 'g*' made at *.py:*"])


def test_a_client_that_nobody_refers_to_any_more_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest_plugin, "LEAK_GRACE_SECONDS", 0.1)
    result = run_suite(
        pytester,
        """
import gc

def test_forgets(rocketmq):
    producer = Producer("g", namesrv=[rocketmq.namesrv])
    producer.start()
    producer.send(Message("T", b"1"))
    del producer
    gc.collect()
""",
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*producer 'g' made at *.py:*"])
    for run in list(engine_thread._open_runs):
        run.stop()
        run._engine.release()


def test_a_closed_client_is_not_an_error(pytester: pytest.Pytester) -> None:
    result = run_suite(
        pytester,
        """
def test_closes(rocketmq):
    with Producer("g", namesrv=rocketmq.namesrv) as producer:
        producer.send(Message("T", b"1"))

def test_shares(rocketmq_session):
    rocketmq_session.on(RequestCode.HEART_BEAT, drop=True, times=None)

def test_shares_without_the_fault(rocketmq_session):
    assert not rocketmq_session._stack.faults._by_code
""",
    )
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize("wrong", [{}, {"times": 0, "drop": True}, {"drop": True, "at": "moon"}])
def test_an_invalid_fault_is_refused(rocketmq_session: ThreadStack, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"fault|times|at="):
        rocketmq_session.on(RequestCode.HEART_BEAT, **wrong)  # type: ignore[arg-type]
