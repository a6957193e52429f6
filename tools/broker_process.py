"""One broker in a separate process, as started by `rocketlet up --processes`, to use several cores of one host.

It is `mqbroker` with flags. It ends with the stack; if it ends earlier, the stack ends too, and reports how.

Java: bin/mqbroker
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

import trio

from rocketlet.common.errors import RocketletError

_ADVERTISED = re.compile(r"clients are told ([^\s,;]+)")
_LONGEST_LINE = 64 << 10


class BrokerEnded(RocketletError):
    """A broker's process has ended on its own. Its lines on stderr say why."""


async def serve(
    name: str,
    flags: Mapping[str, str],
    file: str | None,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run it until cancelled; reports the address for clients as started. Raises BrokerEnded."""
    words = [sys.executable, "-m", "rocketlet.broker", *(["-c", file] if file else [])]
    for key, text in flags.items():
        words += [f"--{key}", text]
    # In its own session: Ctrl-C is for the stack, which stops its brokers in order.
    process = await trio.lowlevel.open_process(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        line = await _first_line(process)
        match = _ADVERTISED.search(line)
        if match is not None:
            task_status.started(match[1])
        code = await process.wait()
        raise BrokerEnded(f"{name}, process {process.pid}, has ended with {code}")
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _first_line(process: trio.Process) -> str:
    """Its line once it serves; empty if it ended instead."""
    assert process.stdout is not None
    line = b""
    while b"\n" not in line and len(line) < _LONGEST_LINE and (chunk := await process.stdout.receive_some()):
        line += chunk
    return line.partition(b"\n")[0].decode(errors="replace")
