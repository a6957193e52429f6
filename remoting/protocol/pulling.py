"""Reading messages: pulls (11, and 361 of a 5.x lite pull consumer), by key (12), by place in the log (33).

Java: common/protocol/header/PullMessageRequestHeader.java, PullMessageResponseHeader.java,
QueryMessageRequestHeader.java, ViewMessageRequestHeader.java; common/sysflag/PullSysFlag.java
"""

from __future__ import annotations

from rocketlet.remoting.protocol.header import Header, Int, Long

# Bits of a pull's sysFlag.
COMMIT_OFFSET = 1  # commitOffset is valid
SUSPEND = 2  # park the request while there is nothing
SUBSCRIPTION = 4  # subscription and expressionType are in the request itself
CLASS_FILTER = 8
LITE_PULL = 16


class PullMessageHeader(Header):
    """11 and 361. `queueOffset` is the first wanted; `suspendTimeoutMillis` how long to park."""

    queueId: Int
    queueOffset: Long
    maxMsgNums: Int
    topic: str = ""
    consumerGroup: str = ""
    sysFlag: Int = 0
    commitOffset: Long = 0
    suspendTimeoutMillis: Long = 0
    subscription: str | None = None
    subVersion: Long = 0
    expressionType: str | None = None
    bname: str | None = None
    maxMsgBytes: Int | None = None


class PullMessageAnswerHeader(Header):
    """With the codes 0, 19, 20 and 21, always complete: clients fail on a missing field."""

    suggestWhichBrokerId: Long
    nextBeginOffset: Long
    minOffset: Long
    maxOffset: Long


class QueryMessageHeader(Header, rename={"uniqueKeyQuery": "_UNIQUE_KEY_QUERY"}):
    """12: by key, or by the unique key."""

    topic: str = ""
    key: str = ""
    maxNum: Int = 32
    beginTimestamp: Long = 0
    endTimestamp: Long = (1 << 63) - 1
    uniqueKeyQuery: bool | None = None


class QueryMessageAnswerHeader(Header):
    """How far the index reaches; with the codes 0 and 22."""

    indexLastUpdateTimestamp: Long
    indexLastUpdatePhyoffset: Long


class ViewMessageHeader(Header):
    """33: the message at this place in the log."""

    offset: Long
    topic: str | None = None
