"""How the broker's rate, CPU and memory change as things grow: in flight, topics, queues, connections, bodies, the log.

    python -m benchmarks.growth [--quick] [--store-gib 10] [in_flight topics queues connections bodies store]

Each point is measured in turn with the base point of its series, so that a slow minute of the machine does not look
like growth: `ratio` is the point's rate divided by the base's rate just before it, the median of three such pairs. What
a point needs is created before it is measured; the cost of creating it is reported beside it (`setup_cpu`,
microseconds of CPU per topic or queue).
"""

from __future__ import annotations

import argparse
import itertools
import math
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from benchmarks.support.cpu import CpuMeter, resident_bytes
from benchmarks.support.frames import batch_frame, send_frame
from benchmarks.support.pipeline import Measured, connect, exchange, pipelined
from benchmarks.support.processes import Server, stack

KIB = 1024
TOPIC = "TopicTest"
BASE_QUEUES = 8
PAIRS = 3


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a series."""

    series: str
    at: float
    rate: float
    cpu_micros: float
    memory_mb: float
    ratio: float
    setup_cpu: float = 0.0


class Spread:
    """Different requests in turn on one connection; the first round, which creates topics and queues, is reported
    separately."""

    def __init__(self) -> None:
        self._setup_cpu: dict[int, float] = {}

    def setup_cpu(self, frames: int) -> float:
        """Microseconds of CPU for the first of each of the requests."""
        return self._setup_cpu.get(frames, 0.0)

    def run(self, server: Server, frames: list[bytes], count: int, in_flight: int = 64) -> Measured:
        """`count` requests, with `in_flight` of them in flight."""
        step = max(1, in_flight // 2)
        if len(frames) not in self._setup_cpu:
            self._setup_cpu[len(frames)] = _spread(server, frames, len(frames), min(in_flight, step)).cpu_micros
        source = itertools.cycle(frames)
        rounds = max(1, math.lcm(len(frames), step) // step) if len(frames) < 2000 else len(frames) // step
        bursts = [b"".join(itertools.islice(source, step)) for _ in range(rounds)]
        return _spread(server, bursts, count, in_flight, step)


def _spread(server: Server, bursts: list[bytes], count: int, in_flight: int, burst_size: int = 1) -> Measured:
    """Send the bursts in turn, each with that many requests."""
    with connect(server.port) as connection:
        meter, start_time = CpuMeter(server.pid).start(), time.perf_counter()
        sent = answered = 0
        rest = b""
        source = itertools.cycle(bursts)
        while answered < count:
            while sent - answered <= in_flight - burst_size and sent < count:
                connection.sendall(next(source))
                sent += burst_size
            rest += connection.recv(1 << 18)
            answered, rest = _count(rest, answered)
        return Measured(answered, time.perf_counter() - start_time, meter.read(), 0)


def _count(rest: bytes, answered: int) -> tuple[int, bytes]:
    at = 0
    while len(rest) - at >= 4 and len(rest) - at - 4 >= (size := int.from_bytes(rest[at : at + 4], "big")):
        at += 4 + size
        answered += 1
    return answered, rest[at:]


def over_connections(server: Server, request: bytes, connections: int, count: int) -> Measured:
    """One request in flight on each of many connections."""
    selector = selectors.DefaultSelector()
    open_connections: list[socket.socket] = []
    try:
        for _ in range(connections):
            connection = connect(server.port)
            exchange(connection, request)
            selector.register(connection, selectors.EVENT_READ)
            open_connections.append(connection)
        meter, start_time = CpuMeter(server.pid).start(), time.perf_counter()
        answered = 0
        for connection in open_connections:
            connection.sendall(request)
        while answered < count:
            for key, _ in selector.select():
                # One request per connection: an answer this small arrives in one piece.
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.recv(1 << 16)
                answered += 1
                key.fileobj.sendall(request)
        return Measured(answered, time.perf_counter() - start_time, meter.read(), 0)
    finally:
        selector.close()
        for connection in open_connections:
            connection.close()


def series(
    name: str,
    points: list[float],
    run: Callable[[Server, float], Measured],
    base: float,
    setup_cpu: Callable[[int], float] = lambda _: 0.0,
    **settings: object,
) -> Iterator[Point]:
    """Each point compared with the base."""
    with stack(**settings) as (_, server):
        run(server, base)
        for at in points:
            run(server, at)
            pairs = [(run(server, base), run(server, at)) for _ in range(PAIRS)]
            yield Point(
                name, at, statistics.median(here.rate for _, here in pairs),
                statistics.median(here.cpu_micros for _, here in pairs), resident_bytes(server.pid) / 1e6,
                statistics.median(here.rate / first.rate for first, here in pairs), setup_cpu(int(at)),
            )  # fmt: skip


def _body(size: float = KIB) -> bytes:
    return b"x" * int(size)


def all_series(count: int, names: list[str], store_gib: float, *, quick: bool) -> Iterator[Point]:
    """Every requested series; with `quick` only their small ends."""
    request = send_frame("json", TOPIC, 2, _body())
    top = 100 if quick else 1000
    if "in_flight" in names:
        yield from series("in_flight", [1, 16, 64, 512], lambda s, n: pipelined(s.port, request, int(n), count), 64)
    if "topics" in names:
        topics = Spread()
        yield from series(
            "topics", [1, 10, 100, top], lambda s, n: topics.run(s, _topics(int(n)), count), 1, topics.setup_cpu
        )
    if "queues" in names:
        queues = Spread()
        yield from series(
            "queues", [1, BASE_QUEUES, 100, 1000, *([] if quick else [10_000])],
            lambda s, n: queues.run(s, _queues(int(n)), max(count, int(n) * 8)), BASE_QUEUES, queues.setup_cpu,
        )  # fmt: skip
    if "connections" in names:
        yield from series(
            "connections", [1, 10, 100, top], lambda s, n: over_connections(s, request, int(n), count), 10
        )
    if "bodies" in names:
        yield from series(
            "body_kib", [0.1, 1, 4, 16, 64],
            lambda s, n: pipelined(
                s.port, send_frame("json", TOPIC, 2, _body(n * KIB)), 64, int(count / max(1, n / 2))
            ),
            1,
        )  # fmt: skip
    if "store" in names:
        yield from _store_series(count, 0.5 if quick else store_gib)


def _topics(count: int) -> list[bytes]:
    return [send_frame("json", f"Growth-{number}", 0, _body()) for number in range(count)]


def _queues(count: int) -> list[bytes]:
    """BenchmarkTest has 1024 queues; more are spread over several topics of 8."""
    if count <= 1000:
        return [send_frame("json", "BenchmarkTest", number, _body()) for number in range(count)]
    return [send_frame("json", f"Queues-{number // 8}", number % 8, _body()) for number in range(count)]


def _store_series(count: int, gib: float) -> Iterator[Point]:
    """The rate into an empty store, and into one of that many GiB, in the same process."""
    request = send_frame("json", TOPIC, 2, _body())
    filler = batch_frame("json", TOPIC, 3, [b"x" * 60_000] * 16)
    with stack() as (_, server):
        pipelined(server.port, request, 64, count)
        empty = pipelined(server.port, request, 64, count)
        yield Point("store_gib", 0, empty.rate, empty.cpu_micros, resident_bytes(server.pid) / 1e6, 1.0)
        pipelined(server.port, filler, 4, int(gib * (1 << 30) / len(filler)))
        full = pipelined(server.port, request, 64, count)
        yield Point(
            "store_gib", gib, full.rate, full.cpu_micros, resident_bytes(server.pid) / 1e6, full.rate / empty.rate
        )


SERIES = ["in_flight", "topics", "queues", "connections", "bodies", "store"]


def draw(points: list[dict[str, object]], path: str) -> None:
    """Rate and memory of each series as a PNG. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(str(point["series"]) for point in points))
    figure, rows = pyplot.subplots(2, len(names), figsize=(3.2 * len(names), 5.5), squeeze=False)
    for column, name in enumerate(names):
        series_points = [point for point in points if point["series"] == name]
        for row, what in enumerate(("rate", "memory_mb")):
            axes = rows[row][column]
            axes.plot([point["at"] for point in series_points], [point[what] for point in series_points], marker="o")
            axes.set_ylim(bottom=0)
            if max(float(str(point["at"])) for point in series_points) > 20:
                axes.set_xscale("log")
            axes.set_title(name if row == 0 else "", fontsize=10)
            axes.set_ylabel({"rate": "messages/s", "memory_mb": "MB"}[what] if column == 0 else "")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", nargs="*", choices=[*SERIES, []], help="which (default: all)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--store-gib", type=float, default=10.0)
    parser.add_argument("--png", help="draw here")
    options = parser.parse_args()
    points = []
    for point in all_series(options.count, options.series or SERIES, options.store_gib, quick=options.quick):
        points.append(asdict(point))
        print(
            f"{point.series:>12} {point.at:>8g} {point.rate:>9,.0f}/s {point.cpu_micros:6.1f} µs"
            f" {point.memory_mb:6.0f} MB  {point.ratio:5.2f} x base"
            + (f"  {point.setup_cpu:6.0f} µs to make each" if point.setup_cpu else ""),
            flush=True,
        )
    if options.png:
        draw(points, options.png)


if __name__ == "__main__":
    main()
