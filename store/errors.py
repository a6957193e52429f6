"""The errors of the store, by what the caller should do.

`PutRefused` and its kin: nothing was written; the broker answers with the status named in each docstring. The flush
errors: the message is in the log, but whether the disk has it is unknown. The rest end the start of a broker: they name
the path and what to do.

Java: common/message/../store/PutMessageStatus.java, AppendMessageStatus.java
"""

from __future__ import annotations

from rocketlet.common.errors import RocketletError


class StoreError(RocketletError):
    """Root of the store's errors."""


class PutRefused(StoreError):
    """Nothing was written. One of the subclasses is raised."""


class MessageIllegal(PutRefused):
    """The message exceeds a limit and can never be stored: MESSAGE_ILLEGAL (13). The sender must change it."""


class PropertiesTooLarge(MessageIllegal):
    """More than 32767 bytes of properties: PROPERTIES_SIZE_EXCEEDED, answered as 13."""


class NotWritable(PutRefused):
    """The store accepts nothing now: SERVICE_NOT_AVAILABLE (14). The sender should try another broker."""


class DiskFull(NotWritable):
    """The disk is (nearly) full; the text names path, ratio and setting. Reads continue."""


class SystemRefuses(NotWritable):
    """A file could not be made, mapped or written, though the disk has room; the text names the limit that was met."""


class Following(NotWritable):
    """The store follows another broker's log and takes no messages of its own."""


class FlushTimeout(StoreError):
    """Written, but the disk did not confirm in time: FLUSH_DISK_TIMEOUT (10). It may still become durable."""


class FlushFailed(StoreError):
    """The disk refused a flush. Nothing at or after that place counts as durable, now or later in this process.

    Linux marks the pages of a failed flush clean, so that the next flush succeeds without having written them: after
    one failure no success can be believed, and the process has to end and recover from what is on the disk.
    """


class StoreLocked(StoreError):
    """Another process has this directory open."""


class CorruptStore(StoreError):
    """The directory cannot be opened without losing data, or its settings do not fit its files."""


class Closed(StoreError):
    """The store was called after it was closed."""
