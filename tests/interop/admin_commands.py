"""The commands that RocketMQ's mqadmin runs against two stacks in the same state, and the allowed differences in their
output.

Words in capitals are replaced by each stack's own values: BROKER, FOLDER, UNIQUE and OFFSET_ID of its first message,
SINGLE_ID of the one in golden-single, MOMENT before the first send, LIVE_CLIENT that consumes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TOPIC, READERS, LIVE, PRODUCERS = "golden", "golden-readers", "golden-live", "golden-senders"

BEFORE = [
    "updateTopic -c DefaultCluster -t golden -r 4 -w 4",
    "updateTopic -b BROKER -t golden-order -r 2 -w 2 -o true",
    "updateTopic -b BROKER -t golden-single -r 1 -w 1",
    "updateSubGroup -c DefaultCluster -g golden-readers -r 3 -q 2",
]
"""How the state is made, before any message is sent."""

STATISTICS = [
    # It runs until stopped, which gives a broker time for a sample.
    "clusterRT -a 2 -s 16 -i 60 -c DefaultCluster",
    "statsAll",
    "statsAll -a",
    "statsAll -t golden",
]
"""Asked as soon as messages were sent and consumed: a minute later they no longer count."""

AFTER = [
    # topics
    "topicList",
    "topicList -c",
    "topicRoute -t golden",
    "topicRoute -t golden -l",
    "topicRoute -t golden-nowhere",
    "topicStatus -t golden",
    "topicStatus -t golden-nowhere",
    "topicClusterList -t golden",
    "updateTopic -b BROKER -t golden-made -r 3 -w 3 -p 4",
    "updateTopic -b BROKER -t golden/bad",
    "updateTopic -b BROKER -t TBW102",
    "updateTopicPerm -b BROKER -t golden-made -p 6",
    "updateTopicPerm -c DefaultCluster -t golden-made -p 6",
    # of a topic that does not exist: a broker learns of it with its next registration, whenever that is
    "updateOrderConf -t golden-sorted -m put -v broker-a:3",
    "updateOrderConf -t golden-sorted -m get",
    "updateOrderConf -t golden-sorted -m delete",
    "updateOrderConf -t golden-nowhere -m get",
    "allocateMQ -t golden -i 10.0.0.1,10.0.0.2,10.0.0.3",
    # messages
    "queryMsgByKey -t golden -k key-1",
    "queryMsgByKey -t golden -k nothing",
    "queryMsgById -i OFFSET_ID",
    "queryMsgById -i OFFSET_ID -g golden-live -d LIVE_CLIENT",
    "queryMsgById -i OFFSET_ID -g golden-nobody -d nobody",
    "queryMsgById -i SINGLE_ID -s true",
    "queryMsgByUniqueKey -t golden -i UNIQUE",
    "queryMsgByUniqueKey -t golden -i UNIQUE -a",
    "queryMsgByUniqueKey -t golden -i UNIQUE -g golden-live -d LIVE_CLIENT",
    "queryMsgByOffset -t golden -b broker-a -i 0 -o 0",
    "queryMsgByOffset -t golden -b broker-a -i 0 -o 99",
    "queryMsgTraceById -i UNIQUE",
    "queryCq -b BROKER -t golden -q 0 -i 0 -c 3",
    "queryCq -b BROKER -t golden -q 0 -i 0 -c 3 -g golden-live",
    "queryCq -b BROKER -t golden -q 9 -i 0",
    "printMsg -t golden -d true",
    "printMsg -t golden -d true -s one",
    "printMsgByQueue -t golden -a broker-a -i 0 -p true -d true",
    "printMsgByQueue -t golden -a broker-a -i 0 -f true",
    "consumeMessage -t golden -b broker-a -i 0 -o 0 -c 2 -g golden-once",
    "sendMessage -t golden-made -p hello -b broker-a -i 1 -k key -c tag",
    "sendMessage -t golden-made -p hello -b broker-a -i 9",
    "checkMsgSendRT -t golden-made -a 3 -s 16",
    "sendMsgStatus -b broker-a -s 16 -c 2",
    # groups
    "getConsumerConfig -g golden-readers",
    "getConsumerConfig -g golden-nobody",
    "updateSubGroup -b BROKER -g golden-made",
    "consumerProgress",
    "consumerProgress -g golden-readers",
    "consumerProgress -g golden-live -s true",
    "consumerProgress -g golden-nobody",
    "brokerConsumeStats -b BROKER",
    "brokerConsumeStats -b BROKER -o true -l 1",
    "consumerConnection -g golden-live",
    "consumerConnection -g golden-live -b BROKER",
    "consumerConnection -g golden-readers",
    "producerConnection -g golden-senders -t golden",
    "producerConnection -g golden-nobody -t golden",
    "producer -b BROKER",
    "consumerStatus -g golden-live",
    "consumerStatus -g golden-live -i LIVE_CLIENT",
    "consumerStatus -g golden-live -i nobody",
    "cloneGroupOffset -s golden-readers -d golden-made -t golden",
    "consumerProgress -g golden-made",
    "resetOffsetByTime -g golden-readers -t golden -s MOMENT",
    "resetOffsetByTime -g golden-live -t golden -s now",
    "resetOffsetByTime -g golden-readers -t golden-nowhere -s now",
    "skipAccumulatedMessage -g golden-readers -t golden",
    "deleteSubGroup -b BROKER -g golden-made",
    "deleteSubGroup -b BROKER -g golden-nobody -r true",
    # the broker
    "clusterList",
    "clusterList -m",
    "brokerStatus -b BROKER",
    "brokerStatus -c DefaultCluster",
    "getBrokerConfig -b BROKER",
    "getBrokerConfig -c DefaultCluster",
    "updateBrokerConfig -b BROKER -k deleteWhen -v 05",
    "updateBrokerConfig -b BROKER -k brokerPermission -v 6",
    "cleanExpiredCQ -b BROKER",
    "cleanUnusedTopic -b BROKER",
    "deleteExpiredCommitLog -b BROKER",
    "wipeWritePerm -b broker-a",
    "topicRoute -t golden-single",
    "addWritePerm -b broker-a",
    "wipeWritePerm -b nobody",
    # the name server
    "getNamesrvConfig",
    "updateNamesrvConfig -k orderMessageEnable -v true",
    "updateKvConfig -s golden -k a -v b",
    "deleteKvConfig -s golden -k a",
    "deleteKvConfig -s golden -k nothing",
    # accounts, without access control in either broker
    "updateAclConfig -b BROKER -a newcomer -s battery-staple",
    "deleteAclConfig -b BROKER -a newcomer",
    "clusterAclConfigVersion -b BROKER",
    "updateGlobalWhiteAddr -b BROKER -g 10.0.0.1",
    "getAclConfig -b BROKER",
    # files
    "exportMetadata -c DefaultCluster -f FOLDER",
    "exportMetadata -b BROKER -t -s -f FOLDER",
    "exportConfigs -c DefaultCluster -f FOLDER",
    "exportMetrics -c DefaultCluster -f FOLDER",
    "updateSubGroup -b BROKER -g golden/bad",
    # and deleting a topic
    "deleteTopic -c DefaultCluster -t golden-made",
    "topicStatus -t golden-made",
    "deleteTopic -c DefaultCluster -t golden-nowhere",
]

CONFIGURATIONS = ("getBrokerConfig", "getNamesrvConfig")
"""Ours show everything that RocketMQ's show, and settings of their own."""

# They are addresses too: each stack has its own, and one that is not set is derived from another.
PLACES = (r"^(\w*Path\w*|rocketmqHome|listenPort|haListenPort|brokerIP[12]) *=.*", r"\1 ADDRESS")
MASKS = {
    "": (
        (r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b", "ID"),
        (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(?:[,:.]\d{3})?", "TIME"),
        (r"\b1[7-9]\d{11}\b", "MILLISECONDS"),
        (r"127\.0\.0\.1@\S+?(?=[,\s\]]|$)", "CLIENT"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"V4_9_\d", "VERSION"),
        (r"\d+\(ms\)", "TIME"),
    ),
    "queryMsgById": ((r"spentTimeMills=\d+", ""),),
    "queryMsgByUniqueKey": ((r"spentTimeMills=\d+", ""),),
    "checkMsgSendRT": ((r"\b\d+$|\d+\.\d+", "TIME"),),
    "sendMsgStatus": ((r"rt=\d+ms", ""),),
    "clusterRT": ((r"\d+\.\d+", "TIME"),),
    "consumerProgress": ((r"TPS: \d+\.\d+", ""), (r"\b\d+( +-?\d+ *)$", r"RATE\1")),
    "consumerStatus": ((r"\d+\.\d\d", "RATE"), (r"\b\d{17}\b", "TIME")),
    "clusterList": ((r"\d+\.\d+\(", "RATE("), (r"\S+ \d\.\d{4}$", "HOURS DISK")),
    "brokerStatus": (
        (r"(brokerVersion +:).*", r"\1 VERSION"),  # the jars of the stack beside may be 4.9.7's
        (r"(runtime +:|\w+(?:Tps|Latency\d+|DistributeTime|TimeMax) +:).*", r"\1 TIME"),
        (r"(\w+(?:MaxOffset|SizeTotal|AverageSize|DataToFlush) +:).*", r"\1 SIZE"),  # addresses have lengths
        (r"(\w+DiskRatio\S* *:).*|(Free :).*", r"\1\2 NOW"),  # others use the disk too
        # RocketMQ does not know it in a log of less than twice maxMessageSize: see docs/compatibility.md.
        (r"(earliestMessageTimeStamp +:) (?:-1|MILLISECONDS)$", r"\1 TIME"),
    ),
    "producer": ((r".*CLIENT_INNER_PRODUCER.*", ""),),  # of an earlier command, if the broker still knows it
    "statsAll": ((r"\d+\.\d+", "RATE"), (r"^(DefaultCluster|broker-a) .*", r"\1")),
    "getBrokerConfig": (PLACES,),
    "getNamesrvConfig": (PLACES,),
    "export": ((r'"counter":\d+', ""),),
    "exportMetrics": ((r"[\d.]+", "NUMBER"),),
}
"""Times, rates and addresses, by command; "" is all of them."""


class Known(NamedTuple):
    """A difference documented in docs/compatibility.md: matching lines, RocketMQ's and ours, and why ours remain."""

    theirs: str
    ours: str
    why: str


KNOWN = {
    "updateSubGroup -b BROKER -g golden/bad": Known(
        r"create subscription group|SubscriptionGroupConfig",
        r"SubCommandException|the group name 'golden/bad'|For more",
        "Its retry topic would have an illegal name, so that nothing could be sent back: refused where it is made.",
    ),
}


class Said(NamedTuple):
    """mqadmin's output for one stack, and the placeholders for its values."""

    out: str
    err: str
    own: dict[str, str]


def lines(command: str, said: Said) -> list[str]:
    """Sorted, because tables have no order; blanks collapsed; without stack traces, times and addresses."""
    name = command.split()[0]
    trace = re.compile(r"\s*(at |\.\.\. \d+ more)")
    text = "\n".join(
        [*said.out.splitlines(), *(f"ERROR {line}" for line in said.err.splitlines() if not trace.match(line))]
    )
    for word, own in sorted(said.own.items(), key=lambda item: -len(item[1])):
        text = text.replace(own, word)
    for pattern, mask in (*MASKS[""], *MASKS.get(name, ())):
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    text = text.replace("MessageTrack [", "\nMessageTrack [")  # a set, printed in one line
    stripped = (re.sub(r"[\s=]+", " ", line).strip() for line in text.splitlines())
    return sorted(line for line in stripped if line)
