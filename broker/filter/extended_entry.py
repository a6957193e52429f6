"""A queue entry as 321 shows it: with what its extension holds, and whether a group's filter passes that.

An entry without an extension (`enableConsumeQueueExt=false`) never has `eval`, as in RocketMQ: its field says what the
bit map of the extension decides, not whether a message would be delivered. Pure.

Java: broker/processor/AdminBrokerProcessor.java (queryConsumeQueue), filter/util/BitsArray.java (toString)
"""

from __future__ import annotations

from base64 import b64encode
from typing import Protocol

from rocketlet.broker.filter.message_filter import MessageFilter
from rocketlet.common import fastjson
from rocketlet.remoting.protocol.inspection import QueueEntry
from rocketlet.store.layout.queue_ext_layout import ExtUnit, is_address

_BYTES_A_LINE = 8


class Units(Protocol):
    """The extension of a queue."""

    def read(self, address: int) -> ExtUnit | None: ...


def shown(entry: tuple[int, int, int], units: Units | None, passes: MessageFilter | None) -> QueueEntry:
    """`entry` is (log offset, size, tags code); `passes` the filter of the group that was asked for, if any."""
    found = QueueEntry(*entry, eval=False)
    address = entry[2]
    if units is None or not is_address(address):
        return found
    unit = units.read(address)
    if unit is None:
        found.msg = f"Cq extend not exist!addr: {address}"
        return found
    found.extendDataJson = _unit_text(unit)
    if unit.bit_map:
        found.bitMap = _bits_text(unit.bit_map)
    if passes is not None:
        by_code, by_unit = passes.by_code, passes.by_unit
        found.eval = (by_code is None or by_code(unit.tags_code)) and (by_unit is None or by_unit(unit))
    return found


def _unit_text(unit: ExtUnit) -> str:
    bits = {"filterBitMap": b64encode(unit.bit_map).decode()} if unit.bit_map else {}
    fields = {**bits, "msgStoreTime": unit.store_timestamp, "size": unit.size, "tagsCode": unit.tags_code}
    return fastjson.dumps(fields).decode()


def _bits_text(bits: bytes) -> str:
    """The highest bit first, eight bytes a line, of which the first line has what the others leave."""
    whole = [f"{byte:08b}" + ("" if at % _BYTES_A_LINE else "\n") for at, byte in enumerate(bits)]
    return "".join(reversed(whole))
