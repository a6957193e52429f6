"""A process's figures from the kernel: CPU time, resident memory, listening ports. Linux only.

CPU time from the kernel's accounting is steadier than wall time on a shared machine, so the tables lead with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LISTEN = "0A"


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process; its name may contain blanks, so parsing starts after the last
    bracket."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_bytes(pid: int) -> int:
    """Resident set without the pages of mapped files: the log's pages belong to the page cache, not to the process."""
    anonymous = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            anonymous += int(line.split()[1]) * 1024
    return anonymous


def listening_pid(port: int) -> int | None:
    """The process that listens on a TCP port of this machine."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[1].endswith(f":{port:04X}"):
                inodes.add(f"socket:[{fields[9]}]")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(os.readlink(f"/proc/{pid}/fd/{fd}") in inodes for fd in os.listdir(f"/proc/{pid}/fd")):
                return int(pid)
        except OSError:
            continue  # ended meanwhile, or not accessible
    return None


@dataclass(slots=True)
class CpuMeter:
    """CPU time that a process takes between `start()` and `read()`."""

    pid: int
    start_time: float = 0.0

    def start(self) -> CpuMeter:
        """Begin to count from now."""
        self.start_time = cpu_seconds(self.pid)
        return self

    def read(self) -> float:
        """Seconds of CPU since the start."""
        return cpu_seconds(self.pid) - self.start_time
