"""Who may send which request: every served code, classified by hand for our strict mode and for RocketMQ 4.9.8.

A row is a request code, and for each of the two modes the letters of the callers admitted:

    N  an account without permissions      P  T=PUB       S  T=SUB       G  group CG=SUB
    C  T=SUB and CG=SUB                    A  an administrator

Anonymous requests, unknown accounts and wrong signatures are admitted in neither mode, except for what anyone may ask
of a name server. `same` marks a code that RocketMQ 4.9.8 does not serve: both modes use our rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketlet.remoting.command import VERSION, Command
from rocketlet.remoting.protocol.membership import (
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    SubscriptionData,
)
from rocketlet.remoting.protocol.popping import BatchAck, BatchAckBody, QueryAssignmentBody
from rocketlet.remoting.protocol.queue import WireQueue
from rocketlet.remoting.request_codes import RequestCode as R
from rocketlet.remoting.signing import Signer
from tests.support.memory_folder import account, accounts

TOPIC, GROUP, SECRET = "T", "CG", "correct-horse"
KEYS = {letter: f"account-{letter}" for letter in "NPSGCA"}
ALL = "NPSGCA"
SAME = "same"

ACCOUNTS = accounts(
    account(KEYS["N"]),
    account(KEYS["P"], topics=(f"{TOPIC}=PUB",)),
    account(KEYS["S"], topics=(f"{TOPIC}=SUB",)),
    account(KEYS["G"], groups=(f"{GROUP}=SUB",)),
    account(KEYS["C"], topics=(f"{TOPIC}=SUB",), groups=(f"{GROUP}=SUB",)),
    account(KEYS["A"], admin=True),
)

# Code: who is admitted in strict mode, and by RocketMQ.
BROKER: Mapping[int, tuple[str, str]] = {
    # messages
    R.SEND_MESSAGE: ("PA", "PA"),
    R.SEND_MESSAGE_V2: ("PA", "PA"),
    R.SEND_BATCH_MESSAGE: ("PA", ALL),
    R.SEND_REPLY_MESSAGE: ("PA", ALL),
    R.SEND_REPLY_MESSAGE_V2: ("PA", ALL),
    R.END_TRANSACTION: ("PA", ALL),
    R.PULL_MESSAGE: ("CA", "CA"),
    R.LITE_PULL_MESSAGE: ("CA", SAME),
    R.CONSUMER_SEND_MSG_BACK: ("CA", "GCA"),
    R.QUERY_MESSAGE: ("SCA", "SCA"),
    R.VIEW_MESSAGE_BY_ID: ("SCA", ALL),
    # offsets
    R.QUERY_CONSUMER_OFFSET: ("CA", ALL),
    R.UPDATE_CONSUMER_OFFSET: ("CA", "CA"),
    R.SEARCH_OFFSET_BY_TIMESTAMP: ("SCA", ALL),
    R.GET_MAX_OFFSET: ("SCA", ALL),
    R.GET_MIN_OFFSET: ("SCA", ALL),
    R.GET_EARLIEST_MSG_STORETIME: ("SCA", ALL),
    # membership
    R.HEART_BEAT: ("CA", "CA"),
    R.UNREGISTER_CLIENT: ("GCA", "GCA"),
    R.GET_CONSUMER_LIST_BY_GROUP: ("GCA", "GCA"),
    R.CHECK_CLIENT_CONFIG: ("CA", ALL),
    R.LOCK_BATCH_MQ: ("CA", ALL),
    R.UNLOCK_BATCH_MQ: ("CA", ALL),
    # administrators' requests
    R.UPDATE_AND_CREATE_TOPIC: ("A", "A"),
    R.DELETE_TOPIC_IN_BROKER: ("A", "A"),
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: ("A", "A"),
    R.DELETE_SUBSCRIPTIONGROUP: ("A", "A"),
    R.UPDATE_BROKER_CONFIG: ("A", "A"),
    R.GET_BROKER_CONFIG: ("A", ALL),
    R.GET_BROKER_RUNTIME_INFO: ("A", ALL),
    R.GET_ALL_TOPIC_CONFIG: ("A", ALL),
    R.GET_ALL_CONSUMER_OFFSET: ("A", ALL),
    R.GET_ALL_DELAY_OFFSET: ("A", ALL),
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ("A", ALL),
    R.GET_TOPIC_STATS_INFO: ("A", ALL),
    R.GET_CONSUMER_CONNECTION_LIST: ("A", ALL),
    R.GET_PRODUCER_CONNECTION_LIST: ("A", ALL),
    R.GET_ALL_PRODUCER_INFO: ("A", ALL),
    R.GET_CONSUME_STATS: ("A", ALL),
    R.INVOKE_BROKER_TO_RESET_OFFSET: ("A", ALL),
    R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("A", ALL),
    R.QUERY_TOPIC_CONSUME_BY_WHO: ("A", ALL),
    R.QUERY_CONSUME_TIME_SPAN: ("A", ALL),
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: ("A", ALL),
    R.CLEAN_EXPIRED_CONSUMEQUEUE: ("A", ALL),
    R.GET_CONSUMER_RUNNING_INFO: ("A", ALL),
    R.QUERY_CORRECTION_OFFSET: ("A", ALL),
    R.CONSUME_MESSAGE_DIRECTLY: ("A", ALL),
    R.CLONE_GROUP_OFFSET: ("A", ALL),
    R.VIEW_BROKER_STATS_DATA: ("A", ALL),
    R.CLEAN_UNUSED_TOPIC: ("A", ALL),
    R.GET_BROKER_CONSUME_STATS: ("A", ALL),
    R.QUERY_CONSUME_QUEUE: ("A", ALL),
    R.RESUME_CHECK_HALF_MESSAGE: ("A", ALL),
    R.DELETE_EXPIRED_COMMITLOG: ("A", ALL),
    # accounts
    R.UPDATE_AND_CREATE_ACL_CONFIG: ("A", ALL),
    R.DELETE_ACL_CONFIG: ("A", ALL),
    R.GET_BROKER_CLUSTER_ACL_INFO: ("A", ALL),
    R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ("A", ALL),
    # codes that 4.9.8 does not have
    R.GET_TOPIC_CONFIG: (ALL, SAME),
    R.GET_SUBSCRIPTIONGROUP_CONFIG: ("GCA", SAME),
    R.RECALL_MESSAGE: ("PA", SAME),
    R.POP_MESSAGE: ("CA", SAME),
    R.PEEK_MESSAGE: ("CA", SAME),
    R.NOTIFICATION: ("CA", SAME),
    R.POLLING_INFO: ("CA", SAME),
    R.ACK_MESSAGE: ("CA", SAME),
    R.BATCH_ACK_MESSAGE: ("CA", SAME),
    R.CHANGE_MESSAGE_INVISIBLETIME: ("CA", SAME),
    R.QUERY_ASSIGNMENT: ("CA", SAME),
    R.SET_MESSAGE_REQUEST_MODE: ("A", SAME),
    R.GET_ALL_MESSAGE_REQUEST_MODE: ("A", SAME),
    R.GET_BROKER_HA_STATUS: ("A", SAME),
    R.FOLLOW_TABLES: ("A", SAME),
    R.PROMOTE_SLAVE: ("A", SAME),
    R.HAND_OVER: ("A", SAME),
    R.DEMOTE_MASTER: ("A", SAME),
    R.SHOW_IN_FLIGHT: ("A", SAME),
    R.RESIGN_MASTER: ("A", SAME),
    R.CHANGE_IN_SYNC: ("A", SAME),
}

ANYONE = "anyone"
NAME_SERVER: Mapping[int, str] = {
    R.GET_ROUTEINFO_BY_TOPIC: ANYONE,
    R.GET_BROKER_CLUSTER_INFO: ANYONE,
    R.GET_BROKER_MEMBER_GROUP: ANYONE,
    R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ANYONE,
    R.GET_TOPICS_BY_CLUSTER: ANYONE,
    R.GET_SYSTEM_TOPIC_LIST_FROM_NS: ANYONE,
    R.GET_UNIT_TOPIC_LIST: ANYONE,
    R.GET_HAS_UNIT_SUB_TOPIC_LIST: ANYONE,
    R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ANYONE,
    R.GET_KV_CONFIG: ANYONE,
    R.GET_KVLIST_BY_NAMESPACE: ANYONE,
    R.PUT_KV_CONFIG: "A",
    R.DELETE_KV_CONFIG: "A",
    R.REGISTER_BROKER: "A",
    R.UNREGISTER_BROKER: "A",
    R.QUERY_DATA_VERSION: "A",
    R.WIPE_WRITE_PERM_OF_BROKER: "A",
    R.ADD_WRITE_PERM_OF_BROKER: "A",
    R.DELETE_TOPIC_IN_NAMESRV: "A",
    R.UPDATE_NAMESRV_CONFIG: "A",
    R.GET_NAMESRV_CONFIG: "A",
}


@dataclass(frozen=True)
class Places:
    """The log offsets of a message of the topic and of a half message."""

    message: int = 0
    half: int = 0


# Every field that some request needs; requests ignore fields they do not know.
_FIELDS = {
    "topic": TOPIC,
    "group": GROUP,
    "consumerGroup": GROUP,
    "groupName": GROUP,
    "producerGroup": "PG",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "maxNum": "1",
    "key": "K",
    "beginTimestamp": "0",
    "endTimestamp": "1",
    "timestamp": "0",
    "sysFlag": "0",
    "flag": "0",
    "bornTimestamp": "0",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "properties": "",
    "commitOffset": "0",
    "invisibleTime": "1000",
    "commitOrRollback": "8",
    "delayLevel": "0",
    "accessKey": "new-account",
    "index": "0",
    "count": "1",
    "statsName": "X",
    "statsKey": "X",
    "compareGroup": GROUP,
    "namespace": "N",
    "value": "V",
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "C",
    "cluster": "C",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
    "masterAddress": "10.0.0.1:10911",
    "epoch": "1",
    "step": "stop",
}
_LETTERS = {"a": "PG", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "", "j": "0"}


def body_of(code: int) -> bytes:
    """The body of a request, if its code has names in the body."""
    if code == R.HEART_BEAT:
        subscription = SubscriptionData(TOPIC, "*")
        return HeartbeatData("client", [], [ConsumerData(GROUP, subscriptionDataSet=[subscription])]).to_json()
    if code in (R.LOCK_BATCH_MQ, R.UNLOCK_BATCH_MQ):
        return LockBatchBody("client", GROUP, [WireQueue(topic=TOPIC, brokerName="broker-a", queueId=0)]).to_json()
    if code == R.CHECK_CLIENT_CONFIG:
        return CheckClientBody("client", GROUP, subscriptionData=SubscriptionData(TOPIC, "*")).to_json()
    if code == R.BATCH_ACK_MESSAGE:
        return BatchAckBody("broker-a", [BatchAck(GROUP, TOPIC, bits="AA==")]).to_json()
    if code == R.QUERY_ASSIGNMENT:
        return QueryAssignmentBody(TOPIC, GROUP, "client").to_json()
    return b""


def request_of(code: int, places: Places) -> Command:
    """A request of that code about topic T and group CG."""
    own = {"offset": str(places.message), "commitLogOffset": str(places.half)}
    fields = {**_FIELDS, **own, **_LETTERS} if code != R.SEND_MESSAGE else {**_FIELDS, **own}
    if code in (R.SEND_MESSAGE, R.SEND_REPLY_MESSAGE):
        fields.pop("group")
    return Command(int(code), version=VERSION, ext=fields, body=body_of(code))


@dataclass(frozen=True)
class Case:
    """One request of one caller, and whether each mode admits it."""

    code: int
    caller: str
    command: Command = field(repr=False)
    strictly: bool
    by_java: bool


def cases(places: Places) -> list[Case]:
    """Every row with every caller."""
    found = []
    for code, (strictly, by_java) in BROKER.items():
        java = strictly if by_java == SAME else by_java
        for letter in ALL:
            found.append(_case(code, letter, places, letter in strictly, letter in java))
        found += [_case(code, caller, places, False, False) for caller in ("anonymous", "unknown", "wrong signature")]
    return found


def _case(code: int, caller: str, places: Places, strictly: bool, by_java: bool) -> Case:
    command = request_of(code, places)
    sign(command, caller)
    return Case(code, caller, command, strictly, by_java)


def sign(command: Command, caller: str) -> None:
    """Sign as this caller does."""
    if caller == "anonymous":
        return
    if caller == "unknown":
        Signer("account-X", SECRET).before("", command)
    elif caller == "wrong signature":
        Signer(KEYS["A"], "another-secret").before("", command)
    else:
        Signer(KEYS[caller], SECRET).before("", command)
