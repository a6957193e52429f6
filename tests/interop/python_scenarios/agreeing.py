"""Messages that two sides must agree on: transactions and request-reply."""

from __future__ import annotations

import time
from queue import Queue

from rocketlet import (
    ClientError,
    Message,
    ReceivedMessage,
    RequestTimedOut,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.lab import Inbox, Lab, between, check, ok, pause, same, text, until

GROUP = "agreeing"


@scenario(GROUP, "transactions", 30)
def transactions(lab: Lab) -> None:
    """committed messages arrive, rolled back and undecided ones do not"""
    topic = lab.create_topic(lab.topic, 4)
    states = [TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN]
    ids: list[str] = []

    def execute(transaction: Transaction) -> TransactionState:
        ids.append(transaction.transaction_id)
        return states[int(transaction.message.body) % 3]

    producer = lab.enter(
        TransactionProducer(
            lab.name("p"), lambda message: TransactionState.ROLLBACK, namesrv=lab.namesrv, header_type=lab.header_type
        )
    )
    for n in range(30):
        message = Message(topic, b"%d" % n, tags="T", keys=[f"tk{n}"], properties={"n": str(n)})
        result = ok(producer.send_in_transaction(message, execute))
        same((result.transaction_id, result.state), (result.message_id, states[n % 3]), "transaction")
        same(ids[-1], result.message_id, "transaction id that the executor sees")
    inbox = Inbox()
    lab.collect(lab.group, topic, "T", inbox)
    inbox.await_distinct(10, 20)
    pause(1)
    same(inbox.distinct(), 10, "messages that arrived")
    for message in inbox.all():
        check(int(text(message)) % 3 == 0, f"not committed: {text(message)}")
        same((message.topic, message.tags, message.properties["n"]), (topic, "T", text(message)), "fields")


@scenario(GROUP, "transaction-check", 200)
def check_back(lab: Lab) -> None:
    """undecided messages are checked back: unknown, then committed or rolled back"""
    config = lab.broker_config(lab.broker_addresses[0])
    rounds = (int(config["transactionCheckInterval"]) + int(config["transactionTimeOut"])) / 1000
    limit = min(190.0, 2 * rounds + 20)
    topic = lab.create_topic(lab.topic, 1)
    checks: list[str] = []

    def checker(message: ReceivedMessage) -> TransactionState:
        checks.append(text(message))
        same((message.topic, message.keys), (topic, ("key",)), "a check shows the real topic and keys")
        if text(message) == "no":
            return TransactionState.ROLLBACK
        if text(message) == "later" and checks.count("later") < 2:
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT

    producer = lab.enter(TransactionProducer(lab.name("p"), checker, namesrv=lab.namesrv, header_type=lab.header_type))
    for body in (b"yes", b"no", b"later"):
        ok(
            producer.send_in_transaction(
                Message(topic, body, tags="T", keys=["key"]), lambda transaction: TransactionState.UNKNOWN
            )
        )
    inbox = Inbox()
    lab.collect(lab.group, topic, "*", inbox)
    until(
        limit,
        lambda: f"two commits, have {inbox.texts()} after checks {checks}",
        lambda: inbox.has("yes") and inbox.has("later"),
    )
    pause(0.5)
    check(not inbox.has("no") and "no" in checks, "the rolled back one was asked for and does not arrive")
    check(checks.count("later") >= 2, f"an unknown one is asked for again: {checks}")


@scenario(GROUP, "request-reply", 30)
def request_reply(lab: Lab) -> None:
    """requests get their replies, synchronous and asynchronous"""
    topic = lab.create_topic(lab.topic, 2)
    replies = lab.producer(lab.name("replies"))
    lab.enter(lab.consumer(lab.group, lambda message: replies.reply(message, b"re:" + message.body), {topic: "*"}))
    producer = lab.producer()
    for n in range(5):
        same(text(producer.request(Message(topic, b"q%d" % n), 8)), f"re:q{n}", "reply")
    later: Queue[tuple[ReceivedMessage | None, ClientError | None]] = Queue()
    producer.request_soon(Message(topic, b"async"), lambda reply, error: later.put((reply, error)), 8)
    reply, error = later.get(timeout=10)
    check(error is None and reply is not None, f"no error: {error}")
    assert reply is not None
    same(text(reply), "re:async", "asynchronous reply")
    large = "long " * 2000
    same(text(producer.request(Message(topic, large.encode()), 8)), f"re:{large}", "reply that travels compressed")


@scenario(GROUP, "request-timeout", 20)
def request_timeout(lab: Lab) -> None:
    """a request that nobody answers times out"""
    topic = lab.create_topic(lab.topic, 1)
    producer = lab.producer()
    began = time.monotonic()
    try:
        producer.request(Message(topic, b"anybody?"), 1.5)
    except RequestTimedOut:
        between(time.monotonic() - began, 1.4, 4.0, "seconds until the time-out")
    else:
        raise AssertionError("somebody answered")
