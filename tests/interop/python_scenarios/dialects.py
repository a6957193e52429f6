"""Protocol variants that not every client uses."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from rocketlet import Message
from rocketlet.remoting.protocol.inspection import ConsumerConnection, ConsumerGroupHeader
from rocketlet.remoting.request_codes import RequestCode
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.lab import Inbox, Lab, RefusedByServer, Skip, check, ok, same, send, text, until

GROUP = "dialects"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
BASIC = [
    "route",
    "register-broker",
    "kv-config",
    "send-sync",
    "send-batch",
    "tag-filter",
    "orderly",
    "long-poll",
    "retry-chosen-level",
    "transactions",
    "request-reply",
    "lite-pull-subscribe",
    "query-message",
    "consumer-progress",
]


@scenario(GROUP, "namespace", 30)
def namespace(lab: Lab) -> None:
    """topics and groups of a namespace are prefixed on the broker and bare in the client"""
    space = f"NS{lab.name('ns')}"
    lab.create_topic(f"{space}%orders", 2)
    producer = lab.producer("producers", namespace=space)
    result = ok(producer.send(Message("orders", b"x")))
    same(result.queue.topic, "orders", "topic of the result")
    ok(producer.send(Message("orders", b"y"), queue=producer.publish_queues("orders")[0]))
    inbox = Inbox()
    lab.collect("consumers", "orders", "*", inbox, namespace=space)
    inbox.await_distinct(2, 20)
    for message in inbox.all():
        same((message.topic, message.queue.topic), ("orders", "orders"), "topic that the listener sees")
    header = ConsumerGroupHeader(consumerGroup=f"{space}%consumers")
    answer = lab.admin.ask(lab.broker_addresses[0], RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    check(f"{space}%orders" in ConsumerConnection.from_json(answer.body).subscriptionTable, "prefixed on the broker")


@scenario(GROUP, "vip-channel", 30)
def vip_channel(lab: Lab) -> None:
    """producer and consumer that use the port two below the broker's"""
    topic = lab.create_topic(lab.topic, 2)
    producer = lab.producer(vip_channel=True)
    send(producer, topic, "m", 10)
    for one in [producer.send_soon(Message(topic, b"soon")) for _ in range(10)]:
        ok(one.result())
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox, vip_channel=True)
    inbox.await_distinct(20, 20)


@scenario(GROUP, "binary-headers", 120)
def binary_headers(lab: Lab) -> None:
    """the basic scenarios again, by a client that sends ROCKETMQ headers"""
    program = [sys.executable, "-m", "tests.interop.python_scenarios", "--namesrv", lab.namesrv, "--header", "1"]
    root = Path(__file__).parents[3]
    child = subprocess.run([*program, *BASIC], cwd=root, capture_output=True, text=True, check=False)
    failed = [line for line in child.stdout.splitlines() if line.startswith("FAIL")]
    same((child.returncode, failed), (0, []), f"the other process ends well {child.stderr}")


@scenario(GROUP, "message-trace", 40)
def trace(lab: Lab) -> None:
    """a traced message leaves its trace (needs traceTopicEnable=true, else skipped)"""
    try:
        lab.route(TRACE_TOPIC)
    except RefusedByServer:
        raise Skip(f"the broker has no {TRACE_TOPIC}; start it with traceTopicEnable=true") from None
    topic = lab.create_topic(lab.topic, 1)
    sent = ok(lab.producer(trace=True).send(Message(topic, b"x", tags="T", keys=["traced"])))
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox, trace=True)
    inbox.await_distinct(1, 20)
    reader = lab.producer(lab.name("reader"))
    begin = int(time.time() * 1000) - 600_000

    def traced() -> bool:
        found = reader.query(TRACE_TOPIC, sent.message_id, 32, begin, begin + 1_200_000)
        told = "".join(text(message) for message in found)
        return all(kind in told for kind in ("Pub", "SubBefore", "SubAfter"))

    until(20, f"traces of {sent.message_id}", traced)
