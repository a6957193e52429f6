"""Memory of the broker with many idle connections, and whether it still answers.

python -m benchmarks.idle_connections [--count 10000]
"""

from __future__ import annotations

import argparse
import resource
import socket

from benchmarks.support.cpu import resident_bytes
from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import check_answer, connect, exchange
from benchmarks.support.processes import stack


def measure(count: int) -> tuple[int, int]:
    """Resident bytes (without mapped files) before and after `count` connections, each of which has sent once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, count + 1000)
    if wanted < count + 100:
        raise SystemExit(f"{count} connections need more files than this machine allows ({hard}); ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    request = send_frame("json", "TopicTest", 0, b"x" * 100)
    open_connections: list[socket.socket] = []
    with stack() as (_, server):
        try:
            with connect(server.port) as first:
                check_answer(exchange(first, request))
            before = resident_bytes(server.pid)
            for _ in range(count):
                connection = connect(server.port)
                open_connections.append(connection)
                exchange(connection, request)
            after = resident_bytes(server.pid)
            check_answer(exchange(open_connections[0], request))
        finally:
            for connection in open_connections:
                connection.close()
    return before, after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    before, after = measure(options.count)
    print(f"{before / 1e6:.0f} MB before, {after / 1e6:.0f} MB with {options.count:,} connections,", end=" ")
    print(f"{(after - before) / options.count:,.0f} bytes each")


if __name__ == "__main__":
    main()
