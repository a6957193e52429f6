"""The name server: routes, by the administrator's raw requests and by our producer."""

from __future__ import annotations

from collections.abc import Mapping

from rocketlet import Message
from rocketlet.common.java_properties import as_dict, decode
from rocketlet.remoting.protocol.configuration import DeleteTopicHeader, TopicConfig
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.kv import (
    KVConfigAnswerHeader,
    KVConfigHeader,
    KVNamespaceHeader,
    KVTable,
    PutKVConfigHeader,
)
from rocketlet.remoting.protocol.routing import (
    AddWritePermAnswerHeader,
    DeleteTopicInNamesrvHeader,
    GetTopicsByClusterHeader,
    TopicList,
    WipeWritePermAnswerHeader,
    WritePermHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from tests.interop.python_scenarios.catalogue import scenario
from tests.interop.python_scenarios.lab import (
    GhostBroker,
    Inbox,
    Lab,
    check,
    ok,
    refused,
    same,
    until,
)
from tests.support.ports import free_port

GROUP = "routes"
NO_TOPIC, NO_KEY, NOT_PERMITTED, ERROR = 17, 22, 16, 1


def topics_of(lab: Lab, code: RequestCode, header: GetTopicsByClusterHeader | None = None) -> list[str]:
    return TopicList.from_json(lab.admin.ask(lab.name_servers[0], code, header).body).topicList


def one_topic(name: str, queues: int = 4, perm: int = 6) -> TopicConfig:
    return TopicConfig(topicName=name, readQueueNums=queues, writeQueueNums=queues, perm=perm)


@scenario(GROUP, "route", 20)
def route(lab: Lab) -> None:
    """route of a topic, its change, and code 17 where there is none"""
    topic = lab.topic
    refused(NO_TOPIC, "route of an unknown topic", lambda: lab.route(topic))
    lab.create_topic(topic, 3)
    found = lab.route(topic)
    brokers = lab.brokers()
    same(len(found.queueDatas), len(brokers), "one queue data for each broker")
    for queues in found.queueDatas:
        same(
            (queues.readQueueNums, queues.writeQueueNums, queues.perm, queues.topicSysFlag),
            (3, 3, 6, 0),
            f"queues on {queues.brokerName}",
        )
    same({data.cluster for data in found.brokerDatas}, {lab.cluster}, "cluster")
    same(sorted((data.brokerName, data.brokerAddrs[0]) for data in found.brokerDatas), brokers, "brokers of the route")
    same(found.filterServerTable, {}, "no filter servers")
    check(found.orderTopicConf is None, "no order configuration")
    for _, address in brokers:
        lab.put_topic(address, topic, 5, 2, 4)
    until(
        10,
        "the changed route",
        lambda: all(
            (queues.readQueueNums, queues.writeQueueNums, queues.perm) == (5, 2, 4)
            for queues in lab.route(topic).queueDatas
        ),
    )


@scenario(GROUP, "cluster-info", 20)
def cluster_info(lab: Lab) -> None:
    """brokers, clusters and their addresses"""
    info = lab.cluster_info()
    check(info.clusterAddrTable and lab.brokers(), "a cluster with a master")
    same({name for names in info.clusterAddrTable.values() for name in names}, set(info.brokerAddrTable), "brokers")
    for name, data in info.brokerAddrTable.items():
        same(data.brokerName, name, "name in broker data")
        check(name in info.clusterAddrTable[data.cluster], f"{name} is in its cluster")


@scenario(GROUP, "topic-lists", 30)
def topic_lists(lab: Lab) -> None:
    """topic lists (all, by cluster, system), and a deleted topic leaves the route"""
    topic = lab.create_topic(lab.topic, 2)
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    check(topic in topics_of(lab, everything), "in the list of all topics")
    mine, other = GetTopicsByClusterHeader(cluster=lab.cluster), GetTopicsByClusterHeader(cluster="no-such-cluster")
    check(topic in topics_of(lab, RequestCode.GET_TOPICS_BY_CLUSTER, mine), "in the list of its cluster")
    check(topic not in topics_of(lab, RequestCode.GET_TOPICS_BY_CLUSTER, other), "not in the list of another cluster")
    system = set(topics_of(lab, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
    for address in lab.broker_addresses:
        answer = lab.admin.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        system |= set(TopicList.from_json(answer.body).topicList)
    want = {lab.cluster, "TBW102", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest"}
    want |= {name for name, _ in lab.brokers()}
    check(want <= system and topic not in system, f"system topics {system} hold {want}")
    delete_topic(lab, topic)
    until(10, "the topic leaves the lists", lambda: topic not in topics_of(lab, everything))
    refused(NO_TOPIC, "route of a deleted topic", lambda: lab.route(topic))


def delete_topic(lab: Lab, topic: str) -> None:
    for address in lab.broker_addresses:
        lab.admin.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader(topic=topic))
    for server in lab.name_servers:
        lab.admin.ask(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvHeader(topic=topic))


@scenario(GROUP, "unit-topics", 30)
def unit_topics(lab: Lab) -> None:
    """unit topics and unit subscriptions are listed as such"""
    topic = lab.topic
    for address in lab.broker_addresses:
        lab.put_topic(address, topic, 1, 1, sys_flag=1)
    lab.await_route(topic, len(lab.brokers()))
    consumer = lab.collect(lab.group, topic, "*", Inbox(), unit_mode=True, unit_name="unit1")
    check(consumer.client_id.endswith("@unit1"), f"client id {consumer.client_id}")
    retry = f"%RETRY%{lab.group}"
    until(
        15, "the unit consumer's retry topic", lambda: retry in topics_of(lab, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
    )
    units = topics_of(lab, RequestCode.GET_UNIT_TOPIC_LIST)
    check(topic in units and retry not in units, f"unit topics {units}")
    check(retry in topics_of(lab, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST), "a subscription, not a unit topic")


@scenario(GROUP, "register-broker", 30)
def register_broker(lab: Lab) -> None:
    """registration plain and compressed, data version, unregistration"""
    cluster, topic = lab.name("cluster"), lab.topic
    ghost = GhostBroker(lab, cluster, lab.name("b"))
    ghost.register(TopicConfig(topicName=topic, readQueueNums=7, writeQueueNums=6))
    queues = lab.route(topic).queueDatas[0]
    same((queues.brokerName, queues.readQueueNums, queues.writeQueueNums), (ghost.name, 7, 6), "plain registration")
    same(lab.route(topic).brokerDatas[0].brokerAddrs, {0: ghost.address}, "address")
    same(lab.cluster_info().clusterAddrTable[cluster], [ghost.name], "cluster")
    check(not ghost.changed(later=False), "the version just registered is no news")
    check(ghost.changed(later=True), "a later version is news")
    ghost.register(*(one_topic(f"{topic}-{n}", 1 + n % 8) for n in range(200)), compressed=True)
    for n in (0, 99, 199):
        same(lab.route(f"{topic}-{n}").queueDatas[0].readQueueNums, 1 + n % 8, f"compressed registration, topic {n}")
    same(len(lab.route(topic).queueDatas), 1, "a topic that a later registration omits stays")
    ghost.unregister()
    refused(NO_TOPIC, "route after unregistration", lambda: lab.route(topic))
    check(cluster not in lab.cluster_info().clusterAddrTable, "an empty cluster disappears")


@scenario(GROUP, "register-crc", 20)
def register_crc(lab: Lab) -> None:
    """a registration whose crc is wrong is refused and leaves no trace"""
    ghost = GhostBroker(lab, lab.name("cluster"), lab.name("b"))
    refused(ERROR, "registration with a wrong crc", lambda: ghost.register(crc=12345))
    check(ghost.name not in lab.cluster_info().brokerAddrTable, "it left no trace")


@scenario(GROUP, "register-slave", 20)
def register_slave(lab: Lab) -> None:
    """a slave learns its master's address"""
    cluster, name = lab.name("cluster"), lab.name("b")
    topic = one_topic(lab.topic, 1)
    slave = GhostBroker(lab, cluster, name, 1)
    alone = slave.register(topic)
    check(not alone.masterAddr and not alone.haServerAddr, f"no master yet: {alone}")
    master = GhostBroker(lab, cluster, name, 0)
    master.register(topic)
    led = slave.register(topic)
    same((led.masterAddr, led.haServerAddr), (master.address, master.address + "9"), "master and HA address")
    same(set(lab.route(lab.topic).brokerDatas[0].brokerAddrs), {0, 1}, "broker ids in the route")


@scenario(GROUP, "broker-dies", 30)
def broker_dies(lab: Lab) -> None:
    """a broker whose connection closes leaves the routes at once"""
    ghost = GhostBroker(lab, lab.name("cluster"), lab.name("b"))
    ghost.register(one_topic(lab.topic, 1))
    lab.route(lab.topic)
    ghost.die()
    until(10, "the dead broker leaves", lambda: ghost.name not in lab.cluster_info().brokerAddrTable)
    refused(NO_TOPIC, "route of a dead broker's topic", lambda: lab.route(lab.topic))


@scenario(GROUP, "write-permission", 30)
def write_permission(lab: Lab) -> None:
    """wiping a broker's write permission and giving it back"""
    ghost = GhostBroker(lab, lab.name("cluster"), lab.name("b"))
    ghost.register(one_topic(lab.topic), one_topic(f"{lab.topic}-2"))

    def wiped(server: str, name: str) -> int:
        answer = lab.admin.ask(server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, WritePermHeader(brokerName=name))
        return from_ext(WipeWritePermAnswerHeader, answer.ext).wipeTopicCount

    for server in lab.name_servers:
        same(wiped(server, ghost.name), 2, "topics wiped")
    same(lab.route(lab.topic).queueDatas[0].perm, 4, "permission after the wipe")
    for server in lab.name_servers:
        answer = lab.admin.ask(server, RequestCode.ADD_WRITE_PERM_OF_BROKER, WritePermHeader(brokerName=ghost.name))
        same(from_ext(AddWritePermAnswerHeader, answer.ext).addTopicCount, 2, "topics given back")
    same(lab.route(lab.topic).queueDatas[0].perm, 6, "permission given back")
    for server in lab.name_servers:
        same(wiped(server, "no-such-broker"), 0, "topics of an unknown broker")


def put_kv(lab: Lab, namespace: str, key: str, value: str) -> None:
    for server in lab.name_servers:
        header = PutKVConfigHeader(namespace=namespace, key=key, value=value)
        lab.admin.ask(server, RequestCode.PUT_KV_CONFIG, header)


def delete_kv(lab: Lab, namespace: str, key: str) -> None:
    for server in lab.name_servers:
        lab.admin.ask(server, RequestCode.DELETE_KV_CONFIG, KVConfigHeader(namespace=namespace, key=key))


@scenario(GROUP, "kv-config", 20)
def kv_config(lab: Lab) -> None:
    """put, get, list and delete of KV configuration"""
    namespace = lab.name("ns")
    server = lab.name_servers[0]

    def get(key: str) -> str | None:
        answer = lab.admin.ask(server, RequestCode.GET_KV_CONFIG, KVConfigHeader(namespace=namespace, key=key))
        return from_ext(KVConfigAnswerHeader, answer.ext).value

    def listed() -> Mapping[str, str]:
        answer = lab.admin.ask(server, RequestCode.GET_KVLIST_BY_NAMESPACE, KVNamespaceHeader(namespace=namespace))
        return KVTable.from_json(answer.body).table

    refused(NO_KEY, "a key of an unknown namespace", lambda: get("k"))
    refused(NO_KEY, "list of an unknown namespace", listed)
    put_kv(lab, namespace, "k", "first")
    put_kv(lab, namespace, "k", "v=1;x:2 你好")
    put_kv(lab, namespace, "other", "o")
    same(get("k"), "v=1;x:2 你好", "value")
    same(listed(), {"k": "v=1;x:2 你好", "other": "o"}, "namespace")
    delete_kv(lab, namespace, "k")
    delete_kv(lab, namespace, "k")
    refused(NO_KEY, "a deleted key", lambda: get("k"))
    same(set(listed()), {"other"}, "what is left")
    delete_kv(lab, namespace, "other")


def namesrv_config(lab: Lab) -> dict[str, str]:
    return as_dict(decode(bytes(lab.admin.ask(lab.name_servers[0], RequestCode.GET_NAMESRV_CONFIG).body)))


def set_namesrv(lab: Lab, key: str, value: str) -> None:
    for server in lab.name_servers:
        lab.admin.ask(server, RequestCode.UPDATE_NAMESRV_CONFIG, None, f"{key}={value}\n".encode())


@scenario(GROUP, "order-config", 30)
def order_config(lab: Lab) -> None:
    """order configuration of a topic goes out with its route when orderMessageEnable is on"""
    topic = lab.create_topic(lab.topic, 4)
    before = namesrv_config(lab)["orderMessageEnable"]
    first = lab.brokers()[0][0]
    put_kv(lab, "ORDER_TOPIC_CONFIG", topic, f"{first}:2")
    try:
        set_namesrv(lab, "orderMessageEnable", "true")
        same(lab.route(topic).orderTopicConf, f"{first}:2", "order configuration in the route")
        producer = lab.producer()
        same(len(producer.publish_queues(topic)), 2, "the producer sees exactly the configured queues")
        for n in range(4):
            check(ok(producer.send(Message(topic, b"o%d" % n))).queue.queue_id < 2, "sends go there only")
    finally:
        set_namesrv(lab, "orderMessageEnable", before)
        delete_kv(lab, "ORDER_TOPIC_CONFIG", topic)
    same(lab.route(topic).orderTopicConf, None, "none when the setting is off")


@scenario(GROUP, "namesrv-config", 20)
def namesrv_configuration(lab: Lab) -> None:
    """configuration of the name server: get, update, refuse to move its files"""
    config = namesrv_config(lab)
    keys = ["listenPort", "kvConfigPath", "configStorePath", "productEnvName", "clusterTest", "orderMessageEnable"]
    for key in keys:
        check(key in config, f"name server configuration has {key}: {sorted(config)}")
    check(lab.name_servers[0].endswith(f":{config['listenPort']}"), f"listenPort {config['listenPort']}")
    refused(
        NOT_PERMITTED, "moving the KV file at run time", lambda: set_namesrv(lab, "kvConfigPath", "/tmp/elsewhere.json")
    )
    same(namesrv_config(lab)["kvConfigPath"], config["kvConfigPath"], "kvConfigPath")


@scenario(GROUP, "namesrv-rotation", 30)
def rotation(lab: Lab) -> None:
    """a client that finds the first name server dead goes to the next"""
    topic = lab.create_topic(lab.topic, 1)
    dead = free_port()
    # The client shuffles its list, so some of these start with the dead one.
    for n in range(4):
        producer = lab.producer(lab.name(f"p{n}"), namesrv=f"127.0.0.1:{dead};{lab.namesrv}")
        ok(producer.send(Message(topic, b"x")))
