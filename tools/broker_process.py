"""One broker in a process of its own, as `rocketlet up --processes` starts each: more than one core for one host.

It is `mqbroker` with flags. It ends with the stack; where it ends before, the stack ends too, and says how it ended.

Java: bin/mqbroker
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

import trio

from rocketlet.common.errors import RocketletError

_TOLD = re.compile(r"clients are told ([^\s,;]+)")
_LONGEST_LINE = 64 << 10


class BrokerEnded(RocketletError):
    """A broker's process has ended by itself. Its own lines, on stderr, say why."""


async def serve(
    name: str,
    flags: Mapping[str, str],
    file: str | None,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run it until cancelled; starts with the address that clients are told. Raises BrokerEnded."""
    words = [sys.executable, "-m", "rocketlet.broker", *(["-c", file] if file else [])]
    for key, text in flags.items():
        words += [f"--{key}", text]
    # In a session of its own: Ctrl-C is for the stack, which stops its brokers in order.
    process = await trio.lowlevel.open_process(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        line = await _first_line(process)
        told = _TOLD.search(line)
        if told is not None:
            task_status.started(told[1])
        code = await process.wait()
        raise BrokerEnded(f"{name}, process {process.pid}, has ended with {code}")
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _first_line(process: trio.Process) -> str:
    """What it says once it serves; empty where it ended instead."""
    assert process.stdout is not None
    said = b""
    while b"\n" not in said and len(said) < _LONGEST_LINE and (more := await process.stdout.receive_some()):
        said += more
    return said.partition(b"\n")[0].decode(errors="replace")
