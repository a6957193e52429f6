"""Changes acknowledged to administrators are on disk before the answer.

Java: nothing of the kind; ConfigManager.java persists without fsync
"""

from __future__ import annotations

from rocketlet.broker.identity import Identity
from rocketlet.broker.json_file import JsonFile, NotSaved
from rocketlet.remoting.handler import Refused
from rocketlet.remoting.response_codes import ResponseCode


async def acknowledged(*files: JsonFile) -> None:
    """Wait until these tables are on disk as they are in memory; otherwise refuse the request with code 1."""
    for file in files:
        try:
            await file.saved()
        except NotSaved as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error


def refuse_on_slave(identity: Identity) -> None:
    if identity.slave:
        raise Refused(ResponseCode.SYSTEM_ERROR, "can't modify topic or subscription group from slave broker, "
                      "please execute it from master broker.")  # fmt: skip
