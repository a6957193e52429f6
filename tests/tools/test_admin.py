"""mqadmin against a stack in this process: every command, as typed by RocketMQ's users."""

from __future__ import annotations

import importlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketlet.client import ConsumeFrom, LitePullConsumer, Message, Producer, PushConsumer, SendResult, SimpleConsumer
from rocketlet.remoting.protocol.configuration import DeleteTopicHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin import trace
from rocketlet.tools.admin.__main__ import COMMANDS, mqadmin
from rocketlet.tools.admin.calls import admin as calls_to
from rocketlet.tools.late_group import EXIT_FAILED, EXIT_USAGE, run
from rocketlet.tools.thread_stack import ThreadStack


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def lines(self) -> list[str]:
        assert self.code == 0, self.err
        return self.out.splitlines()


Admin = Callable[..., Ran]


@pytest.fixture
def admin(rocketmq_session: ThreadStack, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Runs `mqadmin ...` with NAMESRV_ADDR set to the stack."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_session.namesrv)

    def call(*arguments: object) -> Ran:
        capfd.readouterr()
        code = run(mqadmin, "mqadmin", [str(one) for one in arguments])
        said = capfd.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture
def broker(rocketmq_session: ThreadStack) -> str:
    return rocketmq_session.addresses.brokers["broker-a"]


def sent(stack: ThreadStack, topic: str, count: int = 4) -> list[SendResult]:
    """Messages with bodies 0, 1, ..., keys k0, k1, ... and tags A and B in turn, all in one queue."""
    with Producer("admin-tests", namesrv=stack.namesrv) as producer:
        return [
            producer.send(
                Message(topic, b"%d" % number, tags="AB"[number % 2], keys=[f"k{number}"], sharding_key="same")
            )
            for number in range(count)
        ]


def consumed(stack: ThreadStack, group: str, topic: str, count: int) -> None:
    """A group consumes that many, commits, and leaves."""
    with LitePullConsumer(
        group, topics={topic: "*"}, namesrv=stack.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        for number, _ in enumerate(consumer, 1):
            if number == count:
                break
        consumer.commit()


@pytest.fixture(scope="module")
def online(rocketmq_of_module: ThreadStack) -> Iterator[PushConsumer]:
    """A member of group `admin-online` on topic `admin-online`, which has consumed everything."""
    done = threading.Semaphore(0)
    sent(rocketmq_of_module, "admin-online")
    with PushConsumer(
        "admin-online",
        lambda message: done.release(),
        topics={"admin-online": "*"},
        namesrv=rocketmq_of_module.namesrv,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ) as consumer:
        for _ in range(4):
            assert done.acquire(timeout=120)
        consumer.commit()
        yield consumer


@pytest.fixture(scope="module")
def rocketmq_of_module(_rocketmq_of_the_session: ThreadStack) -> ThreadStack:
    return _rocketmq_of_the_session


# ---- the command line as a whole


def options_of_rocketmq() -> dict[str, list[str]]:
    lines = (Path(__file__).parent / "mqadmin_options.txt").read_text().splitlines()
    pairs = (line.partition(":") for line in lines if not line.startswith("#"))
    return {name: [one.strip() for one in rest.split(",") if one.strip()] for name, _, rest in pairs}


OURS = {
    "promoteSlave", "demoteMaster", "switchMaster", "resignMaster", "addInSync", "removeInSync", "setConsumeMode",
    "inFlight", "delayedMessages",
}  # fmt: skip


def test_every_rocketmq_command_exists_and_few_others() -> None:
    assert set(COMMANDS) - OURS == set(options_of_rocketmq())


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (module, _, _) in COMMANDS.items()
        if module != "rocketlet.tools.admin.access" and name not in OURS
    ],
)
def test_options_are_rocketmqs(name: str) -> None:
    module, attribute, _ = COMMANDS[name]
    command = getattr(importlib.import_module(module), attribute)
    ours = {option: one for one in command.params for option in one.opts}
    for text in options_of_rocketmq()[name]:
        short, long, takes, must = re.fullmatch(r"(-\w) --(\w+)(=?)(!?)", text).groups()  # type: ignore[union-attr]
        assert short in ours, text
        assert f"--{long}" in ours or f"--{long.replace('_', ' ')}" in ours, text
        assert ours[short].is_flag == (not takes), text
        assert ours[short].required == bool(must), text
    assert {"-n", "--namesrvAddr", "--json"} <= set(ours)


def test_help_has_every_command_and_so_has_each_command(admin: Admin) -> None:
    listed = admin("--help").out
    assert all(name in listed for name in COMMANDS)
    assert "--topic" in admin("help", "topicRoute").out
    assert admin("help").out == listed
    for name in COMMANDS:
        assert admin(name, "-h").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["topicLst"], EXIT_USAGE, "did you mean topicList?"),
        (["topicStatus", "-t", "admin-nowhere"], EXIT_FAILED, "no broker serves topic admin-nowhere"),
        (["updateTopic", "-t", "T"], EXIT_USAGE, "-b"),
        (["updateTopic", "-t", "a b", "-c", "DefaultCluster"], EXIT_FAILED, "illegal characters"),
        (["updateTopic", "-t", "T", "-c", "Elsewhere"], EXIT_FAILED, "there are DefaultCluster"),
        (["updateAclConfig", "-a", "x", "-s", "y", "-c", "DefaultCluster"], EXIT_FAILED, "aclEnable=false"),
        (["clusterAclConfigVersion", "-c", "DefaultCluster"], EXIT_FAILED, "aclEnable=false"),
        (["getAclConfig", "-c", "DefaultCluster"], EXIT_FAILED, "not served"),
        (["resetOffsetByTime", "-g", "g", "-t", "t", "-s", "tomorrow"], EXIT_USAGE, "yyyy"),
        (["queryMsgById", "-i", "nonsense"], EXIT_FAILED, "queryMsgByUniqueKey"),
        (["queryMsgById", "-i", "7F000001000000010000000000000000"], EXIT_FAILED, "no broker is at 127.0.0.1:1"),
        (["queryMsgTraceById", "-i", "1"], EXIT_FAILED, "no client has recorded a trace"),
        (["consumerConnection", "-g", "admin-nobody"], EXIT_FAILED, "admin-nobody"),
        (["consumeMessage", "-t", "TBW102", "-i", "0"], EXIT_USAGE, "needs -b"),
        (["sendMessage", "-t", "TBW102", "-p", "x", "-i", "0"], EXIT_USAGE, "needs -b"),
        (["topicList", "-n", "127.0.0.1:1"], EXIT_FAILED, "127.0.0.1:1"),
        (["addWritePerm", "-b", "\udc80"], EXIT_FAILED, "no valid text"),
        (["deleteKvConfig", "-s", "n", "-k", "\udc80"], EXIT_FAILED, "no valid text"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(admin: Admin, arguments: list[str], code: int, says: str) -> None:
    ran = admin(*arguments)
    assert ran.code == code
    assert says in ran.err.replace("2026-01-31", "yyyy")
    assert "Traceback" not in ran.err


# ---- topics


def test_a_topic_from_creation_to_deletion(admin: Admin) -> None:
    made = admin("updateTopic", "-c", "DefaultCluster", "-t", "admin-topic", "-r", 3, "-w", 2)
    assert re.match(r"create topic to 127\.0\.0\.1:\d+ success\.", made.lines[0])
    assert "TopicConfig [topicName=admin-topic, readQueueNums=3, writeQueueNums=2, perm=RW-" in made.out
    (route,) = admin("topicRoute", "-t", "admin-topic", "--json").rows
    assert route["queueDatas"][0]["readQueueNums"] == 3
    heads, row, total = admin("topicRoute", "-t", "admin-topic", "-l").lines
    assert heads.split() == ["#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"]
    assert row.split()[0:2] == ["DefaultCluster", "broker-a"]
    assert row.split()[-3:] == ["3", "2", "6"]
    assert total.startswith("Total: 1 brokers")
    assert "from 6 to 4" in admin("updateTopicPerm", "-c", "DefaultCluster", "-t", "admin-topic", "-p", 4).out
    assert "equals to the old one" in admin("updateTopicPerm", "-c", "DefaultCluster", "-t", "admin-topic", "-p", 4).out
    assert admin("topicRoute", "-t", "admin-topic", "--json").rows[0]["queueDatas"][0]["perm"] == 4
    assert admin("topicClusterList", "-t", "admin-topic").lines == ["DefaultCluster"]
    assert {"topic": "admin-topic"} in admin("topicList", "--json").rows
    assert {"cluster": "DefaultCluster", "topic": "admin-topic", "group": ""} in admin("topicList", "-c", "--json").rows
    assert admin("deleteTopic", "-c", "DefaultCluster", "-t", "admin-topic").code == 0
    assert admin("topicRoute", "-t", "admin-topic").code == EXIT_FAILED


def test_an_ordered_topic_and_its_configuration(admin: Admin, broker: str) -> None:
    assert (
        "orderConf=[broker-a:5]" in admin("updateTopic", "-b", broker, "-t", "admin-order", "-w", 5, "-o", "true").out
    )
    assert "[broker-a:5]" in admin("updateOrderConf", "-t", "admin-order", "-m", "get").out
    assert admin("updateOrderConf", "-t", "admin-order", "-m", "put", "-v", "broker-a:4").code == 0
    admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert admin("topicRoute", "-t", "admin-order", "--json").rows[0]["orderTopicConf"] == "broker-a:4"
    admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    assert admin("updateOrderConf", "-t", "admin-order", "-m", "delete").code == 0
    assert admin("updateOrderConf", "-t", "admin-order", "-m", "get").code == EXIT_FAILED
    assert admin("updateOrderConf", "-t", "admin-order", "-m", "put").code == EXIT_USAGE


def test_queues_are_allocated_as_consumers_do(admin: Admin) -> None:
    admin("updateTopic", "-c", "DefaultCluster", "-t", "admin-shares", "-r", 3)
    (found,) = admin("allocateMQ", "-t", "admin-shares", "-i", "10.0.0.2, 10.0.0.1", "--json").rows
    ids = {member: [queue["queueId"] for queue in queues] for member, queues in found["result"].items()}
    assert ids == {"10.0.0.1": [0, 1], "10.0.0.2": [2]}


def test_status_shows_what_each_queue_holds(admin: Admin, rocketmq_session: ThreadStack) -> None:
    results = sent(rocketmq_session, "admin-status")
    rows = admin("topicStatus", "-t", "admin-status", "--json").rows
    assert len(rows) == 4
    assert rows[results[0].queue.queue_id]["max"] == 4
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}$", rows[results[0].queue.queue_id]["updated"])
    assert admin("topicStatus", "-t", "admin-status").lines[0].startswith("#Broker Name  #QID  #Min Offset")


# ---- groups and offsets


def test_a_group_from_creation_to_deletion(admin: Admin, broker: str) -> None:
    made = admin("updateSubGroup", "-b", broker, "-g", "admin-group", "-r", 3, "-d", "true")
    assert (
        "groupName=admin-group, consumeEnable=true, consumeFromMinEnable=false, consumeBroadcastEnable=true" in made.out
    )
    (row,) = admin("getConsumerConfig", "-g", "admin-group", "--json").rows
    assert (row["retryMaxTimes"], row["consumeBroadcastEnable"], row["broker"]) == (3, True, "broker-a")
    assert "retryMaxTimes" in admin("getConsumerConfig", "-g", "admin-group").out
    ended = admin("deleteSubGroup", "-c", "DefaultCluster", "-g", "admin-group", "-r", "true")
    assert "delete subscription group [admin-group] from broker" in ended.lines[0]
    assert "delete topic [%RETRY%admin-group] from NameServer success." in ended.lines
    assert admin("getConsumerConfig", "-g", "admin-group").code == EXIT_FAILED
    assert admin("updateSubGroup", "-b", broker, "-g", "a group").code == EXIT_USAGE


def test_progress_of_one_group_and_of_all(admin: Admin, rocketmq_session: ThreadStack, broker: str) -> None:
    sent(rocketmq_session, "admin-lag", 5)
    consumed(rocketmq_session, "admin-lagging", "admin-lag", 2)
    rows = [
        row for row in admin("consumerProgress", "-g", "admin-lagging", "--json").rows if row["topic"] == "admin-lag"
    ]
    assert sum(row["diff"] for row in rows) == 3
    assert admin("consumerProgress", "-g", "admin-lagging").lines[-1] == "Diff Total: 3"
    (row,) = [row for row in admin("consumerProgress", "--json").rows if row["group"] == "admin-lagging"]
    assert (row["count"], row["version"], row["diff"]) == (0, "OFFLINE", 3)
    listed = admin("brokerConsumeStats", "-b", broker, "-l", 1, "--json").rows
    assert [row["diff"] for row in listed if row["group"] == "admin-lagging"] == [3]
    assert admin("consumerProgress", "-g", "admin-no-such").code == EXIT_FAILED
    troubles = admin("startMonitoring", "--once", "--messages", 2, "--json").rows
    assert {"trouble": "undone", "group": "admin-lagging", "topic": "admin-lag"}.items() <= next(
        one for one in troubles if one["group"] == "admin-lagging"
    ).items()


def test_a_group_whose_retry_topic_cannot_exist_stops_no_table(admin: Admin, rocketmq_session: ThreadStack) -> None:
    group = "g" * 250
    sent(rocketmq_session, "admin-long", 5)
    consumed(rocketmq_session, group, "admin-long", 2)
    assert lag_of(admin, group, "admin-long") == 3
    assert [row["diff"] for row in admin("consumerProgress", "--json").rows if row["group"] == group] == [3]
    troubles = admin("startMonitoring", "--once", "--messages", 2, "--json").rows
    assert group in [one["group"] for one in troubles]
    assert admin("deleteSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "true").code == 0
    assert group not in [row["group"] for row in admin("consumerProgress", "--json").rows]


def lag_of(admin: Admin, group: str, topic: str) -> int:
    rows = admin("consumerProgress", "-g", group, "--json").rows
    return sum(row["diff"] for row in rows if row["topic"] == topic)


def test_a_group_without_members_is_reset_directly(admin: Admin, rocketmq_session: ThreadStack) -> None:
    sent(rocketmq_session, "admin-reset", 4)
    consumed(rocketmq_session, "admin-resetting", "admin-reset", 4)
    back = admin("resetOffsetByTime", "-g", "admin-resetting", "-t", "admin-reset", "-s", 0)
    assert "#rollbackOffset" in back.lines[0]
    assert lag_of(admin, "admin-resetting", "admin-reset") == 4
    admin("resetOffsetByTime", "-g", "admin-resetting", "-t", "admin-reset", "-s", "now", "-f", "false")
    assert lag_of(admin, "admin-resetting", "admin-reset") == 4, "not forward unless forced"
    assert admin("skipAccumulatedMessage", "-g", "admin-resetting", "-t", "admin-reset").code == 0
    assert lag_of(admin, "admin-resetting", "admin-reset") == 0
    said = admin("cloneGroupOffset", "-s", "admin-resetting", "-d", "admin-cloned", "-t", "admin-reset")
    assert said.lines == [
        "clone group offset success. srcGroup[admin-resetting], destGroup=[admin-cloned], topic[admin-reset]"
    ]
    assert admin("cloneGroupOffset", "-s", "admin-none", "-d", "x", "-t", "admin-reset").code == EXIT_FAILED


# ---- clients


def test_consumer_connections(admin: Admin, online: PushConsumer) -> None:
    (found,) = admin("consumerConnection", "-g", "admin-online", "--json").rows
    assert [one["clientId"] for one in found["connectionSet"]] == [online.client_id]
    assert found["subscriptionTable"]["admin-online"]["subString"] == "*"
    assert f"{online.client_id}  127.0.0.1:" in admin("consumerConnection", "-g", "admin-online").out
    (row,) = [row for row in admin("consumerProgress", "--json").rows if row["group"] == "admin-online"]
    assert (row["count"], row["version"], row["type"], row["model"]) == (1, "V4_9_8", "PUSH", "CLUSTERING")
    shown = admin("consumerProgress", "-g", "admin-online", "-s", "true", "--json").rows
    assert {row["client"] for row in shown if row["topic"] == "admin-online"} == {online.client_id.partition("@")[0]}


def test_consumer_running_info(admin: Admin, online: PushConsumer) -> None:
    status = admin("consumerStatus", "-g", "admin-online")
    assert "Same subscription in the same group of consumer" in status.lines
    (one,) = admin("consumerStatus", "-g", "admin-online", "-i", online.client_id, "--json").rows
    assert one["clientId"] == online.client_id
    assert {queue["topic"] for queue in one["queues"]} >= {"admin-online"}
    assert "#Consumer Properties#" in admin("consumerStatus", "-g", "admin-online", "-i", online.client_id).lines
    assert admin("consumerStatus", "-g", "admin-online", "-i", "nobody").code == EXIT_FAILED


def test_producer_connections(admin: Admin, rocketmq_session: ThreadStack, broker: str) -> None:
    with Producer("admin-producers", namesrv=rocketmq_session.namesrv) as producer:
        producer.send(Message("admin-produced", b"1"))
        rows = admin("producerConnection", "-g", "admin-producers", "-t", "admin-produced", "--json").rows
        assert [row["client"] for row in rows] == [producer.client_id]
        everybody = admin("producer", "-b", broker, "--json").rows
        assert producer.client_id in {row["clientId"] for row in everybody if row["group"] == "admin-producers"}
        assert "producer group (admin-producers) instance : clientId=" in admin("producer", "-b", broker).out
    assert admin("producerConnection", "-g", "admin-nobody", "-t", "admin-produced").code == EXIT_FAILED


def test_a_group_with_members_is_reset_by_the_broker(admin: Admin, online: PushConsumer) -> None:
    rows = admin("resetOffsetByTime", "-g", "admin-online", "-t", "admin-online", "-s", "now", "--json").rows
    assert sum(row["offset"] for row in rows) == 4


# ---- messages


def test_a_message_is_found_by_each_id_and_key(admin: Admin, rocketmq_session: ThreadStack) -> None:
    one = sent(rocketmq_session, "admin-find")[1]
    by_id = admin("queryMsgById", "-i", one.offset_message_id, "--json").rows
    by_unique = admin("queryMsgByUniqueKey", "-t", "admin-find", "-i", one.message_id, "--json").rows
    place = ["-b", "broker-a", "-i", one.queue.queue_id, "-o", one.queue_offset]
    by_offset = admin("queryMsgByOffset", "-t", "admin-find", *place, "--json").rows
    by_key = admin("queryMsgByKey", "-t", "admin-find", "-k", "k1", "--json").rows
    for (row,) in (by_id, by_unique, by_offset, by_key):
        assert (row["body"], row["msgId"], row["tags"], row["keys"]) == ("1", one.message_id, "B", ["k1"])
    assert admin("queryMsgByKey", "-t", "admin-find", "-k", "k1").lines[1].split()[0] == one.message_id
    shown = admin("queryMsgById", "-i", one.offset_message_id).out
    assert re.search(r"^Queue Offset: +1$", shown, re.M)
    assert re.search(r"^Message Body: +1$", shown, re.M)
    assert admin("queryMsgByUniqueKey", "-t", "admin-find", "-i", "0" * 32).code == EXIT_FAILED
    beyond = admin("queryMsgByOffset", "-t", "admin-find", *place[:4], "-o", 99)
    assert (beyond.code, "has no message at 99" in beyond.err) == (EXIT_FAILED, True)


def test_the_track_of_a_message(admin: Admin, rocketmq_session: ThreadStack, online: PushConsumer) -> None:
    (row,) = admin("queryMsgByKey", "-t", "admin-online", "-k", "k2", "--json").rows
    (found,) = admin("queryMsgById", "-i", row["offsetMsgId"], "--json").rows
    assert found["tracks"] == [{"consumerGroup": "admin-online", "trackType": "CONSUMED"}]
    directly = admin("queryMsgById", "-i", row["offsetMsgId"], "-g", "admin-online", "-d", online.client_id, "--json")
    assert directly.rows[0]["consumeResult"] == "CR_SUCCESS"
    again = admin("queryMsgById", "-i", row["offsetMsgId"], "-s", "true", "--json").rows
    assert again[0]["status"] == "SEND_OK"


def test_messages_are_printed_and_counted(admin: Admin, rocketmq_session: ThreadStack) -> None:
    queue = sent(rocketmq_session, "admin-print", 5)[0].queue.queue_id
    assert [row["body"] for row in admin("printMsg", "-t", "admin-print", "--json").rows] == list("01234")
    printed = admin("printMsg", "-t", "admin-print", "-s", "A", "-d", "true").out
    assert printed.count("MSGID: ") == 3
    assert "BODY: 4" in printed
    assert "minOffset=0, maxOffset=5, MessageQueue [topic=admin-print, brokerName=broker-a" in printed
    assert admin("printMsg", "-t", "admin-print", "-b", "2999-01-01#00:00:00:000").out.count("MSGID") == 0
    assert admin("printMsg", "-t", "admin-print", "-e", "1000").out.count("MSGID") == 0
    place = ["-t", "admin-print", "-a", "broker-a", "-i", queue]
    assert admin("printMsgByQueue", *place, "-f", "true", "--json").rows == [
        {"tag": "A", "count": 3},
        {"tag": "B", "count": 2},
    ]
    assert admin("printMsgByQueue", *place, "-p", "true").out.count("MSGID: ") == 5
    assert admin("printMsgByQueue", "-t", "admin-print", "-a", "broker-z", "-i", 0).code == EXIT_FAILED


def test_send_and_consume(admin: Admin) -> None:
    assert admin("updateTopic", "-c", "DefaultCluster", "-t", "admin-send").code == 0
    sending = ["sendMessage", "-t", "admin-send", "-p", "hé", "-k", "a b", "-c", "T"]
    (row,) = admin(*sending, "-b", "broker-a", "-i", 3, "--json").rows
    assert (row["status"], row["queue"]) == ("SEND_OK", 3)
    assert admin(*sending).lines[0].split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#MsgId"]
    (found,) = admin("consumeMessage", "-t", "admin-send", "-b", "broker-a", "-i", 3, "-o", 0, "-c", 1, "--json").rows
    assert (found["body"], found["keys"], found["tags"]) == ("hé", ["a", "b"], "T")
    assert len(admin("consumeMessage", "-t", "admin-send", "--json").rows) == 2


def test_entries_of_a_queue(admin: Admin, rocketmq_session: ThreadStack, broker: str) -> None:
    queue = sent(rocketmq_session, "admin-cq")[0].queue.queue_id
    (found,) = admin("queryCq", "-t", "admin-cq", "-q", queue, "-i", 1, "-c", 2, "--json").rows
    assert (found["max"], found["min"], [one["index"] for one in found["entries"]]) == (4, 0, [1, 2])
    assert [one["tagsCode"] for one in found["entries"]] == [66, 65]
    assert (
        "ConsumeQueueData{physicOffset=" in admin("queryCq", "-t", "admin-cq", "-q", queue, "-i", 0, "-b", broker).out
    )
    assert admin("queryCq", "-t", "admin-cq", "-q", queue, "-i", 99).code == EXIT_FAILED


def test_round_trips(admin: Admin, rocketmq_session: ThreadStack) -> None:
    sent(rocketmq_session, "admin-rt")
    times = admin("checkMsgSendRT", "-t", "admin-rt", "-a", 6, "--json").rows
    assert [row["queue"] for row in times] == [0, 1, 2, 3, 0, 1]
    assert all(row["good"] and row["rt"] > 0 for row in times)
    assert admin("checkMsgSendRT", "-t", "admin-rt", "-a", 2).lines[-1].startswith("Avg RT: ")
    assert len(admin("sendMsgStatus", "-b", "broker-a", "-c", 3).lines) == 3
    (row,) = admin("clusterRT", "--once", "-a", 3, "--json").rows
    assert (row["cluster"], row["broker"], row["good"], row["bad"]) == ("DefaultCluster", "broker-a", 3, 0)
    assert "|here|DefaultCluster|broker-a|" in admin("clusterRT", "--once", "-a", 1, "-p", "true", "-m", "here").out


# ---- brokers and settings


def test_clusters_and_brokers(admin: Admin, broker: str) -> None:
    (row,) = admin("clusterList", "--json").rows
    assert (row["cluster"], row["broker"], row["id"], row["address"]) == ("DefaultCluster", "broker-a", 0, broker)
    assert row["version"] == "V4_9_8"
    heads = admin("clusterList").lines[0]
    assert heads.startswith("#Cluster Name   #Broker Name  #BID  #Addr")
    assert "#InTotalToday" in admin("clusterList", "-m").lines[0]
    (told,) = admin("brokerStatus", "-b", broker, "--json").rows
    assert told["brokerVersionDesc"] == "V4_9_8"
    assert re.search(r"^brokerVersion +: 409$", admin("brokerStatus", "-b", broker).out, re.M)
    assert "bootTimestamp" in admin("brokerStatus", "-c", "DefaultCluster").out


def test_statistics_by_topic(admin: Admin, rocketmq_session: ThreadStack) -> None:
    sent(rocketmq_session, "admin-stats")
    consumed(rocketmq_session, "admin-counting", "admin-stats", 1)
    (row,) = admin("statsAll", "-t", "admin-stats", "--json").rows
    assert (row["topic"], row["group"], row["diff"]) == ("admin-stats", "admin-counting", 3)
    assert "NO_CONSUMER" in admin("statsAll").out
    assert admin("statsAll", "-a").code == 0


def test_write_permission_is_removed_and_restored(admin: Admin, rocketmq_session: ThreadStack) -> None:
    sent(rocketmq_session, "admin-wipe")
    assert "wipe write perm of broker[broker-a]" in admin("wipeWritePerm", "-b", "broker-a").out
    try:
        assert admin("topicRoute", "-t", "admin-wipe", "--json").rows[0]["queueDatas"][0]["perm"] == 4
    finally:
        (row,) = admin("addWritePerm", "-b", "broker-a", "--json").rows
    assert row["topics"] > 0
    assert admin("topicRoute", "-t", "admin-wipe", "--json").rows[0]["queueDatas"][0]["perm"] == 6


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"])
def test_cleaning(admin: Admin, broker: str, command: str) -> None:
    assert admin(command, "-b", broker).lines == ["success"]
    assert admin(command, "-c", "DefaultCluster").lines == ["success"]
    assert admin(command).lines == ["success"]


def test_settings_are_shown_and_changed(admin: Admin, broker: str) -> None:
    before = admin("getBrokerConfig", "-b", broker, "--json").rows[0]["settings"]
    assert before["brokerName"] == "broker-a"
    assert admin("updateBrokerConfig", "-b", broker, "-k", "fileReservedTime", "-v", 48).code == 0
    assert re.search(r"^fileReservedTime +=  48$", admin("getBrokerConfig", "-c", "DefaultCluster").out, re.M)
    admin("updateBrokerConfig", "-c", "DefaultCluster", "-k", "fileReservedTime", "-v", before["fileReservedTime"])
    refused = admin("updateBrokerConfig", "-b", broker, "-k", "storePathRootDir", "-v", "/elsewhere")
    assert (refused.code, "NO_PERMISSION" in refused.err) == (EXIT_FAILED, True)
    assert admin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false").code == 0
    assert re.search(r"^orderMessageEnable +=  false$", admin("getNamesrvConfig").out, re.M)


def test_a_broker_named_by_its_address_is_asked_without_a_name_server(
    admin: Admin, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert admin("getBrokerConfig", "-b", broker, "--json").rows[0]["settings"]["brokerName"] == "broker-a"
    assert admin("updateBrokerConfig", "-b", broker, "-k", "fileReservedTime", "-v", 72).code == 0


def test_keys_and_values(admin: Admin) -> None:
    assert admin("updateKvConfig", "-s", "space", "-k", "key", "-v", "value").code == 0
    assert admin("deleteKvConfig", "-s", "space", "-k", "key").lines == ["delete kv config from namespace success."]
    assert admin("deleteKvConfig", "-s", "space", "-k", "key").code == EXIT_FAILED


def test_exports(admin: Admin, rocketmq_session: ThreadStack, broker: str, tmp_path: Path) -> None:
    sent(rocketmq_session, "admin-export")
    consumed(rocketmq_session, "admin-exporting", "admin-export", 1)
    into = ["-f", tmp_path]
    assert admin("exportMetadata", "-c", "DefaultCluster", *into).lines == [f"export {tmp_path}/metadata.json success"]
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["topicConfigTable"]["admin-export"]["writeQueueNums"] == 4
    assert "admin-exporting" in metadata["subscriptionGroupTable"]
    assert not {"TBW102", "%RETRY%admin-exporting"} & set(metadata["topicConfigTable"])
    admin("exportMetadata", "-b", broker, "-t", "-s", *into)
    topics = json.loads((tmp_path / "topic.json").read_text())
    assert "%RETRY%admin-exporting" in topics["topicConfigTable"]
    assert "subscriptionGroupTable" not in topics
    admin("exportMetadata", "-b", broker, "-g", *into)
    assert set(json.loads((tmp_path / "subscriptionGroup.json").read_text())) == {
        "exportTime",
        "subscriptionGroupTable",
    }
    admin("exportConfigs", "-c", "DefaultCluster", *into)
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert configs["brokerConfigs"]["broker-a"]["flushDiskType"] == "ASYNC_FLUSH"
    admin("exportMetrics", "-c", "DefaultCluster", *into)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["evaluateReport"]["broker-a"]["runtimeVersion"]["rocketmqVersion"] == "V4_9_8"
    assert set(metrics["totalData"]) == {"totalTps", "totalOneDayNum"}


# ---- traces


def test_java_clients_traces_are_read() -> None:
    pub = "\x01".join(
        ["Pub", "1700", "region", "pg", "T", "ID1", "tag", "key", "1.2.3.4:10911", "7", "12", "0", "OID", "true"]
    )
    before = "\x01".join(["SubBefore", "1800", "region", "cg", "req1", "ID1", "0", "key"])
    after = "\x01".join(["SubAfter", "req1", "ID1", "3", "false", "key", "2"])
    open_one = "\x01".join(["SubBefore", "1900", "region", "cg2", "req2", "ID1", "1", "key"])
    broken = "\x01".join(["Pub", "x"])
    views = trace.decode("\x02".join([pub, before, after, open_one, broken, ""]))
    assert [(one["type"], one["group"], one["timestamp"], one["costTime"], one["status"]) for one in views] == [
        ("Pub", "pg", 1700, 12, "success"),
        ("Sub", "cg", 1800, 3, "exception"),
        ("Sub", "cg2", 1900, 0, "not finished"),
    ]


def test_our_own_clients_traces_are_found(admin: Admin, rocketmq_session: ThreadStack) -> None:
    consumed_one = threading.Event()
    settings: dict[str, Any] = {"namesrv": rocketmq_session.namesrv, "trace": True}
    with Producer("admin-tracing", **settings) as producer:
        result = producer.send(Message("admin-traced", b"1"))
    topics = {"admin-traced": "*"}
    first = ConsumeFrom.FIRST_OFFSET
    with PushConsumer("admin-tracers", lambda _: consumed_one.set(), topics=topics, consume_from=first, **settings):
        assert consumed_one.wait(120)
    rows = admin("queryMsgTraceById", "-i", result.message_id, "--json").rows
    assert [(row["type"], row["group"], row["status"]) for row in rows] == [
        ("Pub", "admin-tracing", "success"),
        ("Sub", "admin-tracers", "success"),
    ]


def test_a_trace_is_found_by_the_id_of_its_message(admin: Admin, rocketmq_session: ThreadStack) -> None:
    body = "\x01".join(["Pub", "1700", "r", "pg", "T", "IDX", "", "", "h", "7", "12", "0", "OID", "true"]) + "\x02"
    with Producer("admin-tests", namesrv=rocketmq_session.namesrv) as producer:
        producer.send(Message("admin-trace", body.encode(), keys=["IDX"]))
    (row,) = admin("queryMsgTraceById", "-t", "admin-trace", "-i", "IDX", "--json").rows
    assert (row["type"], row["group"], row["status"]) == ("Pub", "pg", "success")
    assert "no trace of IDY" in admin("queryMsgTraceById", "-t", "admin-trace", "-i", "IDY").err


def test_messages_in_flight_and_delayed(rocketmq_session: ThreadStack, admin: Admin, broker: str) -> None:
    assert admin("updateTopic", "-b", broker, "-t", "popped", "-w", 2, "-r", 2, "-a", "+message.type=NORMAL").code == 0
    sent(rocketmq_session, "popped")
    group = "popping"
    with SimpleConsumer(
        group, topics={"popped": "*"}, namesrv=rocketmq_session.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        got = consumer.receive(wait=5.0)
        consumer.ack(got[0])
        rows = admin("inFlight", "-b", broker, "-t", "popped", "--json").rows
        assert [(row["group"], row["invisible"], row["next"]) for row in rows if row["invisible"]] == [(group, 3, 4)]
    with Producer("admin-tests", namesrv=rocketmq_session.namesrv) as producer:
        producer.send(Message("popped", b"later", properties={"TIMER_DELAY_SEC": "3600"}))
    (row,) = admin("delayedMessages", "-b", broker, "--json").rows
    assert (row["broker"], row["pending"]) == ("broker-a", 1)
    assert admin("setConsumeMode", "-b", broker, "-t", "popped", "-g", group, "-m", "POP").code == 0
    assert admin("setConsumeMode", "-b", broker, "-t", "nosuch", "-g", group, "-m", "POP").code == EXIT_FAILED
    assert admin("updateTopic", "-b", broker, "-t", "popped", "-a", "+message.type=ODD").code == EXIT_USAGE


UNKNOWN_NAMES = [
    "deleteTopic -c DefaultCluster -t nowhere",
    "deleteSubGroup -c DefaultCluster -g nobody",
    "deleteSubGroup -b BROKER -g nobody -r true",
    "setConsumeMode -c DefaultCluster -t known-topic -g nobody -m POP",
    "setConsumeMode -b BROKER -t nowhere -g nobody -m PULL",
    "updateOrderConf -t known-topic -m delete",
    "inFlight -b BROKER -t nowhere",
    "inFlight -c DefaultCluster -g nobody",
]


@pytest.mark.parametrize("words", UNKNOWN_NAMES)
def test_a_name_that_nobody_knows_ends_a_change_with_1(
    admin: Admin, rocketmq_session: ThreadStack, broker: str, words: str
) -> None:
    sent(rocketmq_session, "known-topic", 1)
    ended = admin(*words.replace("BROKER", broker).split())
    assert (ended.code, ended.out) == (EXIT_FAILED, "")
    assert "nowhere" in ended.err or "nobody" in ended.err or "known-topic" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_deletion_that_was_done_at_one_server_is_repeated_at_the_others(
    admin: Admin, rocketmq_session: ThreadStack, broker: str
) -> None:
    sent(rocketmq_session, "half-deleted", 2)
    consumed(rocketmq_session, "half-deleted-group", "half-deleted", 2)
    assert admin("deleteSubGroup", "-b", broker, "-g", "half-deleted-group").code == 0
    assert admin("deleteSubGroup", "-b", broker, "-g", "half-deleted-group").code == EXIT_FAILED
    assert admin("deleteSubGroup", "-b", broker, "-g", "half-deleted-group", "-r", "true").code == 0, "its positions"

    async def delete_at_the_broker() -> None:
        async with calls_to(rocketmq_session.namesrv) as calls:
            await calls.ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(topic="half-deleted"))

    trio.run(delete_at_the_broker)
    assert admin("deleteTopic", "-c", "DefaultCluster", "-t", "half-deleted").code == 0
    assert admin("deleteTopic", "-c", "DefaultCluster", "-t", "half-deleted").code == EXIT_FAILED
