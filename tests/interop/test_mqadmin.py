"""RocketMQ's own mqadmin and ours, side by side, against our servers: the same words in the same columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from rocketlet import ConsumeFrom, LitePullConsumer, Message, Producer
from rocketlet.tools.admin.__main__ import mqadmin
from rocketlet.tools.late_group import run
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.java_admin import JavaAdmin

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def stack() -> Iterator[ThreadStack]:
    """A stack with a topic of six messages, of which a group has consumed four, and nothing left by other tests."""
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        with Producer("interop", namesrv=stack.namesrv) as producer:
            for number in range(6):
                producer.send(Message("interop", b"%d" % number, tags="A", keys=[f"k{number}"], sharding_key="same"))
        with LitePullConsumer(
            "interop-readers", topics={"interop": "*"}, namesrv=stack.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
        ) as consumer:
            for number, _ in enumerate(consumer, 1):
                if number == 4:
                    break
            consumer.commit()
        yield stack


def words(text: str) -> set[str]:
    """Its lines, with columns separated by one blank, without rules and changing lines."""
    lines = (re.sub(r"[\s=]+", " ", line).strip() for line in text.splitlines())
    return {line for line in lines if line and not re.match(r"-+$|Total", line)}


@pytest.mark.parametrize(
    "command",
    [
        "topicList",
        "topicStatus -t interop",
        "topicRoute -t interop -l",
        "topicClusterList -t interop",
        "consumerProgress",
        "consumerProgress -g interop-readers",
        "brokerConsumeStats -b BROKER",
        "queryMsgByKey -t interop -k k2",
        "getConsumerConfig -g interop-readers",
        "getBrokerConfig -b BROKER",
        "getNamesrvConfig",
        "updateTopic -b BROKER -t interop-made -r 3 -w 3",
        "updateTopicPerm -b BROKER -t BenchmarkTest -p 6",
        "updateSubGroup -b BROKER -g interop-made",
        "updateOrderConf -t interop-order -m put -v broker-a:4",
        "updateKvConfig -s interop -k a -v b",
        "deleteKvConfig -s interop -k a",
        "cleanExpiredCQ -b BROKER",
        "cloneGroupOffset -s interop-readers -d interop-others -t interop",
        "queryCq -b BROKER -t interop -q 0 -i 0 -c 3",
    ],
)
def test_both_print_the_same(
    java_admin: JavaAdmin, stack: ThreadStack, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    broker = stack.addresses.brokers["broker-a"]
    arguments = [*command.replace("BROKER", broker).split(), "-n", stack.namesrv]
    queue = _queue_with_messages(stack)
    arguments = [
        str(queue) if before == "-q" else one for before, one in zip(["", *arguments], arguments, strict=False)
    ]
    # RocketMQ's gives up after three seconds, which a busy machine may need, and still exits with 0.
    theirs = words(java_admin(*arguments)) or words(java_admin(*arguments))
    if command.startswith("deleteKvConfig"):  # RocketMQ's has deleted the key, and ours would say so
        assert run(mqadmin, "mqadmin", ["updateKvConfig", *arguments[1:], "-v", "b"]) == 0
    capfd.readouterr()
    assert run(mqadmin, "mqadmin", arguments) == 0
    assert words(capfd.readouterr().out) == theirs


def _queue_with_messages(stack: ThreadStack) -> int:
    with Producer("interop", namesrv=stack.namesrv) as producer:
        return next(one.queue_id for one in producer.publish_queues("interop") if producer.max_offset(one))
