"""Transactions: ending one (37), the broker's check (39), resuming checks (323).

Java: common/protocol/header/EndTransactionRequestHeader.java, CheckTransactionStateRequestHeader.java,
ResumeCheckHalfMessageRequestHeader.java
"""

from __future__ import annotations

from rocketlet.remoting.protocol.header import Header, Int, Long

# commitOrRollback is the transaction part of a message's sysFlag; a client in doubt sends 0.
UNKNOWN = 0
COMMIT = 8
ROLLBACK = 12


class EndTransactionHeader(Header):
    """37; one-way from Java, a plain request from Go. The command's remark may say what failed at the client."""

    commitLogOffset: Long
    commitOrRollback: Int
    tranStateTableOffset: Long = 0
    producerGroup: str = ""
    fromTransactionCheck: bool = False
    msgId: str = ""
    transactionId: str | None = None
    bname: str | None = None


class CheckTransactionStateHeader(Header):
    """39, broker to client, one-way; the body is the half message with its real topic and queue."""

    tranStateTableOffset: Long
    commitLogOffset: Long
    msgId: str | None = None
    transactionId: str | None = None
    offsetMsgId: str | None = None
    bname: str | None = None


class ResumeCheckHalfMessageHeader(Header):
    """323, admin: check this half message once more."""

    msgId: str = ""
