"""Every response code. The numbers are the protocol: DO NOT CHANGE.

Three numbers mean two things: 209, 210 and 211 are failures of ACL administration up to 4.9 (and 5.3.2), and polling
and broker states in 5.x. The enum has 4.9's names; `POLLING_FULL` and `POLLING_TIMEOUT` answer pops.

How a 4.9 client treats the important ones: a producer tries the next broker on 1, 14, 16, 17, 204 and 205 and stops
on 2 and 13; a consumer takes 19 and 20 as "pull again", 21 as "your offset is wrong", anything else as "wait a second".

Java: common/protocol/ResponseCode.java, remoting/protocol/RemotingSysResponseCode.java
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ResponseCode(IntEnum):
    """How a request ended."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    # Of a send: stored, but not yet as safely as requested.
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    # Of a send: not stored.
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    # Of a pull.
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29  # 5.3.2
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    # Of administration.
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212  # 5.x
    BROADCAST_CONSUMPTION = 213  # 5.x
    FLOW_CONTROL = 215  # 4.9.5: a push consumer pulls again after 20 ms
    NOT_LEADER_FOR_QUEUE = 501  # 5.x
    ILLEGAL_OPERATION = 604  # 5.1.4
    GO_AWAY = 1500  # 5.2: the server shuts down, connect again
    USER_NOT_EXIST = 3001  # 5.3
    POLICY_NOT_EXIST = 3002  # 5.3


POLLING_FULL: Final = 209
POLLING_TIMEOUT: Final = 210


# The end of remarks about missing topics, groups and subscriptions, which tools print verbatim.
SEE_FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


def response_name(code: int) -> str:
    """`TOPIC_NOT_EXIST`, or `response 2015` for a number without a name."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return f"response {code}"
