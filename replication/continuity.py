"""Whether a slave's log is a prefix of its master's: checked on every connection, before the first byte is accepted.

The stream itself cannot tell: a master that lost its disk and started over sends whatever it has at the offset that the
slave reports, and the slave's log would become two halves of different logs. So the slave asks the master's ordinary
port, which every RocketMQ master has, for the record at the offset of its own last one (33), and for the begin and end
of the master's log (28). Equal bytes there mean equal logs up to there: a record holds its own offset, its timestamps
and its queue offset.

Java: nothing of the kind
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.common.errors import RocketletError
from rocketlet.remoting.command import request
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import BodyError, RemotingError
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.pulling import ViewMessageHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode, response_name

_CALL_SECONDS = 5.0


class MasterAway(RocketletError):
    """The master's ordinary port does not answer, so the state of its log is unknown."""


class Diverged(RocketletError):
    """This slave's log is not a prefix of the master's. The text says how they differ and what to do."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    begin: int
    end: int


async def ends_of(pool: ConnectionPool, address: str) -> LogEnds:
    """Where the log of the master at this address begins and ends. Raises MasterAway."""
    try:
        answer = await pool.call(address, request(RequestCode.GET_BROKER_RUNTIME_INFO), _CALL_SECONDS)
        if answer.code != ResponseCode.SUCCESS:
            raise MasterAway(f"master {address} answers {response_name(answer.code)}: {answer.remark or 'no remark'}")
        table = KVTable.from_json(answer.body).table
        return LogEnds(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
    except (RemotingError, BodyError, KeyError, ValueError) as error:
        raise MasterAway(f"master {address} does not report its log: {error}") from error


async def check(pool: ConnectionPool, address: str, offset: int, record: bytes, root: str) -> None:
    """Compare the last record of our log, at this offset, with the master's. Raises Diverged or MasterAway."""
    end = offset + len(record)
    reseed = f"To follow it, stop this broker and empty it with `rocketlet store reseed {root}`; nothing was touched"
    ends = await ends_of(pool, address)
    if end > ends.end:
        raise Diverged(
            f"this slave's log ends at {end}, {end - ends.end} bytes past the end of master {address} at {ends.end}:"
            f" the master has lost them, or never had them. To keep them, promote this slave. {reseed}"
        )
    if end < ends.begin:
        raise Diverged(
            f"this slave's log ends at {end}, and that of master {address} begins at {ends.begin}: what lies between is"
            f" deleted there. {reseed}"
        )
    if offset < ends.begin:
        return  # the master has deleted that record's file, but holds what follows it
    try:
        answer = await pool.call(
            address, request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset)), _CALL_SECONDS
        )
    except RemotingError as error:
        raise MasterAway(f"master {address} does not report its log: {error}") from error
    if answer.code == ResponseCode.SYSTEM_BUSY:
        raise MasterAway(f"master {address} is busy: {answer.remark or 'no remark'}")
    if answer.code != ResponseCode.SUCCESS or bytes(answer.body) != record:
        raise Diverged(
            f"at log offset {offset} master {address} has another message than this slave: these are the logs of two"
            f" brokers, or the master has lost its disk. {reseed}"
        )
