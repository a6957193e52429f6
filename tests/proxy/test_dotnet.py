"""The dialogue of the official C# client over real sockets, in plain text and TLS, with accounts.

The client itself runs in `tests/interop/test_other_clients.py`, where it is built. Its runtime is not everywhere, and
its HTTP/2 changed with .NET 6: this is the newer one (`tests/support/dotnet_client.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from click.testing import CliRunner

from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.tools.admin.__main__ import mqadmin
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.dotnet_client import (
    FOREVER,
    LARGEST_WINDOW,
    DotnetConnection,
    DotnetStream,
    header_block,
)
from tests.support.memory_folder import account, accounts

KEY, SECRET = "billing-1", "correct-horse"
TOPICS = {"normal": "NORMAL", "fifo": "FIFO", "transaction": "TRANSACTION"}
GROUP = "readers"
CLIENT = "host@4711@1@MWNN1DRO"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadStack]:
    folder = tmp_path_factory.mktemp("accounts")
    permissions = tuple(f"{topic}=PUB|SUB" for topic in TOPICS)
    (folder / "plain_acl.yml").write_text(
        accounts(
            account(KEY, topics=permissions, groups=(f"{GROUP}=SUB",)),
            account("operator", secret="battery-staple", admin=True),
        )
    )
    (folder / "tools.yml").write_text("accessKey: operator\nsecretKey: battery-staple\n")
    settings = {"aclEnable": "true", "aclConfigDir": str(folder)}
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0, grpc_port=0, settings=settings)) as running:
        environment = {"ROCKETLET_ACCESS_KEY": "operator", "ROCKETLET_SECRET_KEY": "battery-staple"}
        for topic, kind in TOPICS.items():
            arguments = ["updateTopic", "-n", running.namesrv, "-c", "DefaultCluster", "-t", topic]
            done = CliRunner().invoke(mqadmin, [*arguments, "-a", f"+message.type={kind}"], env=environment)
            assert done.exit_code == 0, done.output
        arguments = ["updateSubGroup", "-n", running.namesrv, "-c", "DefaultCluster", "-g", GROUP]
        done = CliRunner().invoke(mqadmin, arguments, env=environment)
        assert done.exit_code == 0, done.output
        yield running


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def connection(request: pytest.FixtureRequest, stack: ThreadStack) -> Iterator[DotnetConnection]:
    one = DotnetConnection(stack.endpoints, tls=request.param, client_id=CLIENT, account=(KEY, SECRET))
    yield one
    one.close()


def endpoints(stack: ThreadStack) -> m.Endpoints:
    host, port = stack.endpoints.rsplit(":", 1)
    return m.Endpoints(scheme=m.IPv4, addresses=[m.Address(host=host, port=int(port))])


def route(connection: DotnetConnection, stack: ThreadStack, topic: str) -> list[m.MessageQueue]:
    request = m.QueryRouteRequest(topic=m.Resource(name=topic), endpoints=endpoints(stack))
    answer = connection.call("QueryRoute", request)
    assert answer.status.code == Code.OK, answer
    return list(answer.message_queues)


def agent() -> m.UA:
    return m.UA(version="5.2.1", platform="Unix 6.1.0.0", hostname="host")  # no language


def telemetry(connection: DotnetConnection, settings: m.Settings) -> tuple[DotnetStream, m.Settings]:
    stream = connection.open("Telemetry", FOREVER)
    return stream, told(connection, stream, settings)


def told(connection: DotnetConnection, stream: DotnetStream, settings: m.Settings) -> m.Settings:
    connection.send(stream, m.TelemetryCommand(settings=settings))
    answer = connection.next(stream, m.TelemetryCommand)
    assert answer.status.code == Code.OK
    assert answer.settings.HasField("metric")
    assert not answer.settings.metric.on
    return answer.settings


def publishing(stack: ThreadStack, topic: str) -> m.Settings:
    backoff = m.ExponentialBackoff(initial=m.Duration(), max=m.Duration(), multiplier=1)
    return m.Settings(
        client_type=m.PRODUCER,
        access_point=endpoints(stack),
        backoff_policy=m.RetryPolicy(max_attempts=3, exponential_backoff=backoff),
        request_timeout=m.Duration(seconds=3),
        publishing=m.Publishing(topics=[m.Resource(name=topic)], validate_message_type=True),
        user_agent=agent(),
    )


def subscribing(stack: ThreadStack, topic: str, kind: int) -> m.Settings:
    entry = m.SubscriptionEntry(topic=m.Resource(name=topic), expression=m.FilterExpression(type=m.TAG, expression="*"))
    subscription = m.Subscription(group=m.Resource(name=GROUP), subscriptions=[entry])
    if kind == m.SIMPLE_CONSUMER:
        subscription.long_polling_timeout.seconds = 5
    return m.Settings(
        client_type=kind,
        access_point=endpoints(stack),
        request_timeout=m.Duration(seconds=3),
        subscription=subscription,
        user_agent=agent(),
    )


def message(queue: m.MessageQueue, number: int, body: bytes, kind: int, **more: str) -> m.Message:
    now = time.time_ns()
    return m.Message(
        topic=queue.topic,
        system_properties=m.SystemProperties(
            message_id=f"0102FC0000000113BE0B109EE2{number:08X}",
            born_timestamp=m.Timestamp(seconds=now // 10**9, nanos=now % 10**9),
            born_host="host",
            body_encoding=m.IDENTITY,
            message_type=kind,
            queue_id=queue.id,
            **more,
        ),
        body=body,
    )  # no digest


def sent(connection: DotnetConnection, one: m.Message) -> m.SendResultEntry:
    answer = connection.call("SendMessage", m.SendMessageRequest(messages=[one]))
    assert answer.status.code == Code.OK, answer
    (entry,) = answer.entries
    assert entry.message_id == one.system_properties.message_id
    return entry


def receiving(queue: m.MessageQueue) -> m.ReceiveMessageRequest:
    return m.ReceiveMessageRequest(
        group=m.Resource(name=GROUP),
        message_queue=queue,
        filter_expression=m.FilterExpression(type=m.TAG, expression="*"),
        batch_size=16,
        invisible_duration=m.Duration(seconds=20),
        long_polling_timeout=m.Duration(seconds=5),
    )


def received(connection: DotnetConnection, request: m.ReceiveMessageRequest) -> list[m.Message]:
    """The client reads an answer whatever its order, and takes a missing status for an error."""
    answers = connection.stream("ReceiveMessage", request, m.ReceiveMessageResponse, "8S")
    assert [one.status.code for one in answers if one.HasField("status")] == [Code.OK], answers
    return [one.message for one in answers if one.HasField("message")]


def acknowledge(connection: DotnetConnection, one: m.Message) -> None:
    properties = one.system_properties
    entry = m.AckMessageEntry(message_id=properties.message_id, receipt_handle=properties.receipt_handle)
    request = m.AckMessageRequest(group=m.Resource(name=GROUP), topic=one.topic, entries=[entry])
    assert connection.call("AckMessage", request).status.code == Code.OK


def beat(connection: DotnetConnection, kind: int) -> None:
    request = m.HeartbeatRequest(client_type=kind)
    if kind != m.PRODUCER:
        request.group.name = GROUP
    assert connection.call("Heartbeat", request).status.code == Code.OK


def leave(connection: DotnetConnection, kind: int) -> None:
    request = m.NotifyClientTerminationRequest()
    if kind != m.PRODUCER:
        request.group.name = GROUP
    assert connection.call("NotifyClientTermination", request).status.code == Code.OK


RECORDED = (  # a heartbeat's, of the client's release 5.2.1 on .NET Core 3.1
    "8386010f3132372e302e302e313a3138313031042e2f6170616368652e726f636b65746d712e76322e4d6573736167696e67536572766963652f"
    "4865617274626561740f2b0b677270632d646f746e65740002746508747261696c6572730014677270632d6163636570742d656e636f64696e67"
    "0d6964656e746974792c677a6970000d782d6d712d6c616e677561676506444f544e45540013782d6d712d636c69656e742d76657273696f6e05"
    "352e322e31000f782d6d712d726571756573742d69642465343031393233382d663462302d343730332d616431382d3865373661646630653331"
    "65000e782d6d712d636c69656e742d696413766d4033313034324034404d574e4e3144524f000e782d6d712d6e616d65737061636500000e782d"
    "6d712d646174652d74696d65103230323631313139543134323130365a000b63616c6c65722d7573657204726f6f74000e63616c6c65722d6d61"
    "6368696e6502766d000963616c6c65722d6f7310556e697820362e31382e34342e363537000c677270632d74696d656f75740233530f10106170"
    "706c69636174696f6e2f67727063"
)


def test_headers_are_written_as_the_client_writes_them() -> None:
    assert header_block(
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "127.0.0.1:18101"),
            (":path", "/apache.rocketmq.v2.MessagingService/Heartbeat"),
            ("user-agent", "grpc-dotnet"),
            ("te", "trailers"),
            ("grpc-accept-encoding", "identity,gzip"),
            ("x-mq-language", "DOTNET"),
            ("x-mq-client-version", "5.2.1"),
            ("x-mq-request-id", "e4019238-f4b0-4703-ad18-8e76adf0e31e"),
            ("x-mq-client-id", "vm@31042@4@MWNN1DRO"),
            ("x-mq-namespace", ""),
            ("x-mq-date-time", "20261119T142106Z"),
            ("caller-user", "root"),
            ("caller-machine", "vm"),
            ("caller-os", "Unix 6.18.44.657"),
            ("grpc-timeout", "3S"),
            ("content-type", "application/grpc"),
        ]
    ) == bytes.fromhex(RECORDED)


@pytest.mark.slow
def test_a_message_is_sent_received_hidden_again_and_acknowledged(
    connection: DotnetConnection, stack: ThreadStack
) -> None:
    queues = route(connection, stack, "normal")
    consumer, settings = telemetry(connection, subscribing(stack, "normal", m.SIMPLE_CONSUMER))
    assert settings.subscription.receive_batch_size == 32
    assert settings.backoff_policy.WhichOneof("strategy") == "customized_backoff"
    beat(connection, m.SIMPLE_CONSUMER)
    assert all(m.NORMAL in queue.accept_message_types for queue in queues)
    sent(connection, message(queues[0], 1, b"one", m.NORMAL, tag="fruit"))
    (first,) = received(connection, receiving(queues[0]))
    assert (first.body, first.system_properties.tag) == (b"one", "fruit")
    assert first.system_properties.body_digest.checksum == "F97C5D29941BFB1B2FDAB0874906AB82"
    change = m.ChangeInvisibleDurationRequest(
        group=m.Resource(name=GROUP),
        topic=first.topic,
        receipt_handle=first.system_properties.receipt_handle,
        invisible_duration=m.Duration(seconds=1),
        message_id=first.system_properties.message_id,
    )
    assert connection.call("ChangeInvisibleDuration", change).status.code == Code.OK
    (again,) = received(connection, receiving(queues[1]))  # from any queue, as the client goes round
    assert again.system_properties.delivery_attempt == 2
    acknowledge(connection, again)
    assert not consumer.over
    leave(connection, m.SIMPLE_CONSUMER)  # and Telemetry stays open


@pytest.mark.slow
def test_a_message_of_almost_4_mib_passes_windows_that_grow(connection: DotnetConnection, stack: ThreadStack) -> None:
    queue = route(connection, stack, "normal")[0]
    telemetry(connection, publishing(stack, "normal"))
    body = bytes(range(256)) * ((4 << 12) - 4)
    for number in range(3):
        sent(connection, message(queue, 10 + number, body, m.NORMAL))
    taken: list[m.Message] = []
    while len(taken) < 3:
        taken += received(connection, receiving(queue))
    assert [one.body == body for one in taken] == [True] * 3
    for one in taken:
        acknowledge(connection, one)
    assert connection.pings_answered >= 2
    assert any(one.window == LARGEST_WINDOW or one.window > 1 << 20 for one in connection.streams())


@pytest.mark.slow
def test_a_transaction_is_ended_without_a_source(connection: DotnetConnection, stack: ThreadStack) -> None:
    queue = route(connection, stack, "transaction")[0]
    producer, settings = telemetry(connection, publishing(stack, "transaction"))
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.backoff_policy.exponential_backoff.max.seconds == 1
    beat(connection, m.PRODUCER)
    for number, resolution in ((20, m.ROLLBACK), (21, m.COMMIT)):
        entry = sent(connection, message(queue, number, b"%d" % number, m.TRANSACTION))
        end = m.EndTransactionRequest(
            topic=queue.topic,
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution=resolution,
        )
        assert connection.call("EndTransaction", end).status.code == Code.OK
    (one,) = received(connection, receiving(queue))
    assert one.body == b"21"
    acknowledge(connection, one)
    told(connection, producer, publishing(stack, "transaction"))  # as after a second, and every five minutes
    leave(connection, m.PRODUCER)


@pytest.mark.slow
def test_a_push_consumer_renews_nothing_itself_and_answers_commands_that_it_cannot_serve(
    connection: DotnetConnection, stack: ThreadStack
) -> None:
    queue = route(connection, stack, "fifo")[0]
    consumer, settings = telemetry(connection, subscribing(stack, "fifo", m.PUSH_CONSUMER))
    assert settings.subscription.long_polling_timeout.seconds == 20
    request = m.QueryAssignmentRequest(
        topic=m.Resource(name="fifo"), group=m.Resource(name=GROUP), endpoints=endpoints(stack)
    )
    assigned = connection.call("QueryAssignment", request).assignments
    assert [one.message_queue.id for one in assigned] == [-1]
    for number in (30, 31):
        sent(connection, message(queue, number, b"%d" % number, m.FIFO, message_group="group"))
    asking = receiving(assigned[0].message_queue)
    asking.ClearField("invisible_duration")
    asking.auto_renew, asking.attempt_id = True, "5f1f9d9e-6a3e-4a54-8d1c-0d6c0a3b8a11"
    asking.long_polling_timeout.seconds = 20
    taken = received(connection, asking)
    assert [one.body for one in taken] == [b"30", b"31"]
    acknowledge(connection, taken[0])
    properties = taken[1].system_properties
    forward = m.ForwardMessageToDeadLetterQueueRequest(
        group=m.Resource(name=GROUP),
        topic=taken[1].topic,
        receipt_handle=properties.receipt_handle,
        message_id=properties.message_id,
        delivery_attempt=properties.delivery_attempt,
        max_delivery_attempts=settings.backoff_policy.max_attempts,
    )
    assert connection.call("ForwardMessageToDeadLetterQueue", forward).status.code == Code.OK
    unsupported = m.Status(code=Code.UNSUPPORTED, message="C# don't support thread stack trace printing")
    connection.send(consumer, m.TelemetryCommand(status=unsupported, thread_stack_trace=m.ThreadStackTrace(nonce="1")))
    connection.send(
        consumer, m.TelemetryCommand(status=unsupported, verify_message_result=m.VerifyMessageResult(nonce="2"))
    )
    told(connection, consumer, subscribing(stack, "fifo", m.PUSH_CONSUMER))
    waiting = connection.open("ReceiveMessage", "23S")
    connection.send(waiting, asking)
    connection.cancel(waiting)
    leave(connection, m.PUSH_CONSUMER)


@pytest.mark.slow
@pytest.mark.parametrize("hours", [-11, 0, 14])
def test_local_time_signs(hours: int, stack: ThreadStack) -> None:
    """The client writes local time, and Z behind it."""
    here = datetime.now(timezone(timedelta(hours=hours)))
    one = DotnetConnection(stack.endpoints, tls=False, client_id=CLIENT, account=(KEY, SECRET), now=lambda: here)
    assert route(one, stack, "normal")
    wrong = DotnetConnection(stack.endpoints, tls=False, client_id=CLIENT, account=(KEY, "wrong-horse"))
    request = m.QueryRouteRequest(topic=m.Resource(name="normal"), endpoints=endpoints(stack))
    assert wrong.call("QueryRoute", request).status.code == Code.UNAUTHORIZED
    one.close()
    wrong.close()
