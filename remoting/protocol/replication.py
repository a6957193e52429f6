"""Our masters and slaves on the ordinary port: replicated tables (30001), hand-over (30002 to 30004), and 907 of
RocketMQ 5: who follows whom, and how closely.

30001 is a slave's request for changes: it states what the slave has, and is answered as soon as there is more, or after
`holdMillis`. A RocketMQ master answers 3, and is then asked for complete tables (21, 43, 45, 201).

Java: common/protocol/body/HARuntimeInfo.java (5.x); the rest has no counterpart
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.header import Header, Long

# group, topic, queue id, offset, stamp (see broker/consumer_offsets.py)
OffsetChange = tuple[str, str, int, int, int]
# group, topic, broker name, queue id, client id of the holder
QueueLock = tuple[str, str, str, int, str]


class TablesSeen(Body):
    """A slave's versions of its master's tables. `run` identifies the run of the master that the versions belong to.

    `offsets` were committed at the slave itself; the master takes them if they are newer.
    """

    run: str = ""
    topics: int = -1
    groups: int = -1
    filters: int = -1
    delays: int = -1
    offsetsSeen: int = 0
    tombstones: int = 0
    holdMillis: int = 0
    offsets: list[OffsetChange] = field(default_factory=list)
    locks: int = -1


class TablesNews(Body):
    """Changes. `topics` and `groups` are versions: the tables themselves are read by 21 and 201."""

    run: str = ""
    topics: int = 0
    groups: int = 0
    filters: int = 0
    delays: int = 0
    offsetsSeen: int = 0
    tombstones: int = 0
    more: bool = False
    offsets: list[OffsetChange] = field(default_factory=list)
    gone: list[tuple[int, str, str, int]] = field(default_factory=list)
    filterTable: Any = None
    delayTable: dict[int, int] | None = None
    logEnd: int = 0
    syncMaster: bool = False
    locks: int = 0
    lockTable: list[QueueLock] | None = None


class HandOverHeader(Header):
    """30003, slave to master. `step` STOP: refuse sends for a moment; the answer has the log's end. DEMOTE: become a
    slave of the sender, with its former id. RESUME: continue as if nothing had happened."""

    step: str = ""
    brokerId: Long = 1
    haAddress: str = ""


class HandOverAnswerHeader(Header):
    """Where the master's log ends."""

    logEnd: Long = 0


STOP, DEMOTE, RESUME = "stop", "demote", "resume"


class PromoteHeader(Header):
    """30002, to a slave: become the master. Planned, unless `force`: then the old master is not involved. `syncMaster`:
    become a SYNC_MASTER; so it does if the old one is known to be one."""

    force: bool = False
    syncMaster: bool = False


class PromoteAnswerHeader(Header):
    """The end of the new master's log, and the last known end of the old one's with its time; -1: unknown."""

    logEnd: Long = 0
    masterLogEnd: Long = -1
    heardMillisAgo: Long = -1


class DemoteHeader(Header):
    """30004, to a master: become a slave with that id, of the broker at that slave port, or of the master the name
    servers return."""

    brokerId: Long = 1
    masterHaAddress: str = ""


class ResignMasterHeader(Header):
    """30005, to a leader among replicas that elect: hand over to `heir`, a `replicaId`; empty: to any in sync."""

    heir: str = ""


class ChangeInSyncHeader(Header):
    """30006: take a replica into the in-sync set of this leader or out of it. With `force`, to a replica: become the
    only one in sync."""

    replica: str = ""
    add: bool = False
    force: bool = False


class HAConnectionRuntimeInfo(Body):
    """One slave of a master, in the answer to 907."""

    addr: str = ""
    slaveAckOffset: int = 0
    diff: int = 0
    inSync: bool = False
    transferredByteInSecond: int = 0
    transferFromWhere: int = 0


class HAClientRuntimeInfo(Body):
    """A slave's view of its master, in the answer to 907."""

    masterAddr: str = ""
    transferredByteInSecond: int = 0
    maxOffset: int = 0
    lastReadTimestamp: int = 0
    lastWriteTimestamp: int = 0
    masterFlushOffset: int = 0
    isActivated: bool = False
    trouble: str = ""


class HARuntimeInfo(Body):
    """The answer to 907."""

    master: bool = False
    masterCommitLogMaxOffset: int = 0
    inSyncSlaveNums: int = 0
    haConnectionInfo: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    haClientRuntimeInfo: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    failover: dict[str, str] = field(default_factory=dict)
    """Ours: where replicas elect their master, the same as in the broker's runtime info."""
