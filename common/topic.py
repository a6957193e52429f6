"""Names of topics and groups: rules, limits, and the names RocketMQ keeps for itself.

Every name is checked before it becomes part of a path, so nothing but `%`, `|`, letters, digits, `_` and `-` reaches
the disk.

Java: common/topic/TopicValidator.java, common/MixAll.java, common/message/MessageConst.java
"""

from __future__ import annotations

import re
from typing import Final

from rocketlet.common.errors import RocketletError

TOPIC_MAX_LENGTH: Final = 127
RETRY_TOPIC_MAX_LENGTH: Final = 255  # %RETRY% and %DLQ% topics carry a group's name after a prefix
GROUP_MAX_LENGTH: Final = 255

DEFAULT_TOPIC: Final = "TBW102"  # the template of topics created by a first send
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"  # of 5.x: messages for a later moment
STATE_TOPIC: Final = "rmq_sys_rocketlet_state"  # ours: what happened to popped and to delayed messages

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_PREFIX: Final = "rmq_sys_"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

SYSTEM_TOPICS: Final = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)

# What a client may not send to; the broker answers NO_PERMISSION.
NOT_SENDABLE: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        TIMER_TOPIC,
        STATE_TOPIC,
    }
)

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"

# Groups that every broker knows from its start.
SYSTEM_GROUPS: Final = frozenset(
    {
        TOOLS_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)

_legal = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


class InvalidName(RocketletError):
    """A topic or group name that no broker accepts; change the name."""


def check_topic_name(name: str) -> None:
    """Raises InvalidName. A name that stands for a system topic passes: whether it may be used is up to the broker."""
    limit = RETRY_TOPIC_MAX_LENGTH if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_MAX_LENGTH
    _check(name, "topic", limit)


def check_group_name(name: str) -> None:
    """Raises InvalidName."""
    _check(name, "group", GROUP_MAX_LENGTH)


def _check(name: str, kind: str, limit: int) -> None:
    if not name or name.isspace():
        raise InvalidName(f"the {kind} name is blank; give it a name of 1 to {limit} characters")
    if not _legal(name):
        raise InvalidName(f"the {kind} name {name!r} has characters other than letters, digits, '%', '|', '_', '-'")
    if len(name) > limit:
        raise InvalidName(f"the {kind} name {name[:40]}... has {len(name)} characters; at most {limit} are allowed")


def refusal_of(name: str) -> str:
    """Why a topic may not have this name, in RocketMQ's words; empty where it may."""
    try:
        check_topic_name(name)
    except InvalidName:
        if not name.strip():
            return "The specified topic is blank."
        if not _legal(name):
            return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        return "The specified topic is longer than topic max length."
    return ""


def is_topic_name(name: str) -> bool:
    """Whether a message may be stored under this topic."""
    try:
        check_topic_name(name)
    except InvalidName:
        return False
    return True


def is_group_name(name: str) -> bool:
    """Whether a group may have this name."""
    return len(name) <= GROUP_MAX_LENGTH and is_legal_name(name)


def is_legal_name(name: str) -> bool:
    """Only the characters a name may have, so that it is safe as a part of a path."""
    return _legal(name) is not None


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    return cluster + REPLY_SUFFIX


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_system_topic(topic: str, cluster: str = "", broker: str = "") -> bool:
    """Topics a broker makes for itself: the fixed ones, rmq_sys_*, and those named after cluster and broker."""
    return (
        topic in SYSTEM_TOPICS
        or topic.startswith(SYSTEM_PREFIX)
        or (bool(cluster) and topic in (cluster, cluster + REPLY_SUFFIX))
        or (bool(broker) and topic == broker)
    )


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def permission_text(perm: int) -> str:
    """RW- and its like."""
    return "".join(
        letter if perm & bit else "-" for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
