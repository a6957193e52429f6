"""The budgets, and how each is measured: a chapter is one program of this package, its rows are named figures.

A figure with a bound is a budget: `at least` or `at most`, as a ratio of two runs in turns, or absolute for memory. A
figure without a bound is reported for comparison.

Java: (none)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Figures = dict[str, float]

OUR_CLIENT = "rocketlet"
PEER_NAMES = {OUR_CLIENT: "ours", "nats": "NATS JetStream", "redis": "Redis streams"}
# One thread that waits for each answer: Redis stores a message with a fifth of the work, and does not wait for a disk
# either.
_MAY_BE_SLOWER = {("sync", "redis")}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number's name, unit and bound."""

    what: str
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool | None:
        """Whether a value meets the budget; None if there is none."""
        if self.at_least is not None:
            return value >= self.at_least
        return value <= self.at_most if self.at_most is not None else None

    @property
    def bound(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """`measure(quick)` returns a value for each of its figures, except those that cannot be measured here."""

    about: str
    measure: Callable[[bool], Figures]
    figures: dict[str, Figure]
    needs: Callable[[], list[str]] = field(default=list)
    once: bool = False  # takes too long to be repeated


def _sends(quick: bool) -> Figures:
    from benchmarks.raw_sender import compare, median

    figures: Figures = {}
    for header in ("json", "binary"):
        for in_flight in (64, 1024, 1):
            count = (20_000 if quick else 120_000) // (1 if in_flight > 1 else 15)
            ours, limit = compare(header, in_flight, count, 1024, 3)
            name = f"{header}_{in_flight}"
            figures[f"{name}_rate"], figures[f"{name}_cpu"] = median(ours)
            if limit:
                limit_rate, limit_cpu = median(limit)
                if in_flight > 1:
                    figures[f"{name}_rate_ratio"] = figures[f"{name}_rate"] / limit_rate
                    figures[f"{name}_cpu_ratio"] = figures[f"{name}_cpu"] / limit_cpu
                else:
                    figures[f"{name}_round_trip"] = limit_rate / figures[f"{name}_rate"]
    return figures


def _send_figures() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for header in ("json", "binary"):
        single = f"{header}, one in flight"
        for in_flight in (64, 1024):
            concurrent = f"{header}, {in_flight} in flight"
            figures |= {
                f"{header}_{in_flight}_rate_ratio": Figure(f"{concurrent}: rate / yardstick's", "x", at_least=0.9),
                f"{header}_{in_flight}_cpu_ratio": Figure(f"{concurrent}: CPU / yardstick's", "x", at_most=1.15),
                f"{header}_{in_flight}_rate": Figure(concurrent, "/s"),
                f"{header}_{in_flight}_cpu": Figure(concurrent, "µs"),
            }
        figures |= {
            f"{header}_1_round_trip": Figure(f"{single}: round trip / yardstick's", "x", at_most=1.3),
            f"{header}_1_rate": Figure(single, "/s"),
            f"{header}_1_cpu": Figure(single, "µs"),
        }
    return figures


def _pull(quick: bool) -> Figures:
    from benchmarks.pull import measure

    rate, pulled = measure(20_000 if quick else 100_000, 1024)
    return {"pull_ratio": pulled.rate / rate, "pull_rate": pulled.rate, "pull_cpu": pulled.cpu_micros}


def _pop(quick: bool) -> Figures:
    from benchmarks.pop import measure

    cost = measure(20_000 if quick else 100_000, 2 if quick else 5)
    return {
        "pop_ratio": cost.pull / cost.pop,
        "pop_ack_ratio": cost.pull / cost.acknowledged,
        "pop_cpu": cost.pop,
        "pop_ack_cpu": cost.acknowledged,
    }


def _sync_flush(quick: bool) -> Figures:
    from benchmarks.sync_flush import measure

    disk, runs = measure(4_000 if quick else 20_000, [1, 8, 64])
    figures = {"disk": disk}
    for in_flight, run in runs.items():
        figures[f"sync_{in_flight}"] = run.rate / disk
        figures[f"sync_{in_flight}_busy"] = run.server_cpu / run.seconds
    return figures


def _batch(quick: bool) -> Figures:
    from benchmarks.batch_cost import measure

    cost = measure(600 if quick else 3000)
    return {"batch": cost.singles, "batch_cpu": cost.batch, "batch_rate": cost.messages_per_second}


def _metrics(quick: bool) -> Figures:
    from benchmarks.metrics_cost import measure

    cost = measure(20_000 if quick else 100_000, 3 if quick else 5)
    return {"metrics_served": cost.served_ratio, "metrics_asked": cost.asked_ratio}


def _access(quick: bool) -> Figures:
    from benchmarks.access_cost import measure

    cost = measure(20_000 if quick else 100_000, 3 if quick else 5)
    return {"access_more": cost.more, "access_cpu": cost.signed}


def _idle(quick: bool) -> Figures:
    from benchmarks.idle_connections import measure

    count = 1000 if quick else 10_000
    _, after = measure(count)
    return {"idle_small" if quick else "idle": after / 1e6}


def _growth(quick: bool) -> Figures:
    from benchmarks.growth import SERIES, all_series

    figures: Figures = {}
    for point in all_series(10_000 if quick else 40_000, SERIES, 10.0, quick=quick):
        name = f"{point.series}={point.at:g}"
        figures[name], figures[f"{name} MB"] = point.rate, point.memory_mb
        if point.series in ("queues", "store_gib"):
            figures[f"{name} ratio"] = point.ratio
    return figures


def _client(quick: bool) -> Figures:
    from benchmarks.client_side import measure

    side = measure(20_000 if quick else 100_000)
    return {
        "client_pipelined": side.pipelined.rate / side.raw,
        "client_one": side.one_thread.rate / side.raw_one,
        "client_consumed": side.consumed.rate / side.pipelined.rate,
        "client_pipelined_cpu": side.pipelined.cpu_micros,
        "client_one_cpu": side.one_thread.cpu_micros,
        "client_consumed_cpu": side.consumed.cpu_micros,
    }


def _latency(quick: bool) -> Figures:
    from benchmarks.latency import measure

    latencies = measure(1000, 3 if quick else 15)
    return {f"latency_{percentile:g}": ms for percentile, ms in latencies.by_percentile.items()} | {
        f"waking_{percentile:g}": ms for percentile, ms in latencies.waking.items() if percentile < 99.9
    }


def _peers(quick: bool) -> Figures:
    from benchmarks.peer_clients.load import LOADS
    from benchmarks.peers import OURS, PEERS, compare, missing

    names = [OURS, *(name for name in PEERS if not missing(name))]
    runs = compare(names, LOADS, 10_000 if quick else 60_000, 1 if quick else 3)
    figures: Figures = {}
    for (load, name), run in runs.items():
        if load == "latency":
            figures |= {f"{name}_{percentile}": run[percentile] for percentile in ("p50", "p99", "p99.9")}
            continue
        figures[f"{name} {load}"], figures[f"{name} {load} cpu"] = run["rate"], run["cpu"]
        if name != OURS:
            figures[f"{load} beside {name}"] = runs[load, OURS]["rate"] / run["rate"]
    return figures


def _peer_figures() -> dict[str, Figure]:
    from benchmarks.peer_clients.load import LOADS

    figures = {f"{OUR_CLIENT}_p50": Figure("send to listener at 500/s, ours, median", "µs", at_most=300)}
    for name, label in PEER_NAMES.items():
        figures |= {f"{name}_{p}": Figure(f"send to listener at 500/s, {label}, {p}", "µs") for p in ("p99", "p99.9")}
        figures.setdefault(f"{name}_p50", Figure(f"send to listener at 500/s, {label}, median", "µs"))
        for load in LOADS[:-1]:
            figures[f"{name} {load}"] = Figure(f"{load}: {label}", "/s")
            figures[f"{name} {load} cpu"] = Figure(f"{load}: {label}, client", "µs")
            if name != OUR_CLIENT:
                bound = None if (load, name) in _MAY_BE_SLOWER else 1.0
                figures[f"{load} beside {name}"] = Figure(f"{load}: ours / {label}", "x", at_least=bound)
    return figures


def _missing_for_peers() -> list[str]:
    from benchmarks.peers import PEERS, missing

    missing_names = {peer: missing(peer) for peer in PEERS}
    return [name for names in missing_names.values() for name in names] if all(missing_names.values()) else []


def _startup(quick: bool) -> Figures:
    from benchmarks.startup import Up
    from benchmarks.support.processes import scratch

    with scratch() as directory:
        up = min(
            (Up("--dir", str(directory / "data")) for _ in range(2 if quick else 5)), key=lambda start: start.ready
        )
    return {"ready": up.ready, "resident": up.resident}


def _java(quick: bool) -> Figures:
    from benchmarks.beside_java import compare, median, possible_loads

    loads = possible_loads()
    runs = {
        name: median(runs_of_load)
        for name, runs_of_load in compare(1 if quick else 3, 8 if quick else 15, loads).items()
    }
    figures: Figures = {}
    for load in loads:
        java, ours = runs[f"{load}/java"], runs[f"{load}/ours"]
        if client := runs.get(f"{load}/our client"):
            figures[f"java_{load}_client_ratio"] = client.client_cpu / ours.client_cpu
        if limit := runs.get(f"{load}/yardstick"):
            figures[f"limit_{load}_rate_ratio"] = ours.rate / limit.rate
            figures[f"limit_{load}_cpu_ratio"] = ours.broker_cpu / limit.broker_cpu
        figures |= {
            f"java_{load}_rate_ratio": ours.rate / java.rate,
            f"java_{load}_cpu_ratio": ours.broker_cpu / java.broker_cpu,
            f"java_{load}_failed": float(ours.failed),
            f"java_{load}_rate": java.rate,
            f"java_{load}_cpu": java.broker_cpu,
            f"ours_{load}_rate": ours.rate,
            f"ours_{load}_cpu": ours.broker_cpu,
            f"java_{load}_their_failed": float(java.failed),
        }
    return figures


def _replication(quick: bool) -> Figures:
    from benchmarks.replication import measured

    return measured(rounds=1 if quick else 3, gigabytes=0.25 if quick else 4.0, count=20_000 if quick else 60_000)


def _replication_figures() -> dict[str, Figure]:
    return {
        "sync_ratio": Figure("SYNC_MASTER, 64 in flight: rate / a Java pair's", "x", at_least=1.0),
        "sync_ours_rate": Figure("SYNC_MASTER: ours", "/s"),
        "sync_java_rate": Figure("SYNC_MASTER: Java's", "/s"),
        "cost_ratio": Figure("ASYNC_MASTER with a slave: CPU / without", "x", at_most=1.1),
        "cost_alone_cpu": Figure("ASYNC_MASTER without a slave", "µs"),
        "cost_followed_cpu": Figure("ASYNC_MASTER with a slave", "µs"),
        "seed_ratio": Figure("a new slave: bytes a second / a Java pair's", "x", at_least=1.0),
        "seed_ours": Figure("a new slave: ours", "B/s"),
        "seed_java": Figure("a new slave: Java's", "B/s"),
        "delay_ours": Figure("slave's delay at half load, median", "ms", at_most=10.0),
        "delay_ours_p99": Figure("slave's delay at half load, 99 of 100", "ms"),
        "delay_java": Figure("Java slave's delay at half load, median", "ms"),
    }


def _java_figures() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    names = {"sync": "64 threads", "async": "4 threads, asynchronous", "unbounded": "-w 4 -y true, unbounded"}
    for load, name in names.items():
        figures |= {
            f"limit_{load}_rate_ratio": Figure(f"{name}: rate / yardstick's", "x", at_least=0.9),
            f"limit_{load}_cpu_ratio": Figure(f"{name}: CPU / yardstick's", "x", at_most=1.15),
            f"java_{load}_rate_ratio": Figure(f"{name}: rate / Java broker's", "x", at_least=1.0),
            f"java_{load}_cpu_ratio": Figure(f"{name}: CPU / Java broker's", "x", at_most=1.0),
            f"java_{load}_failed": Figure(f"{name}: failed sends", at_most=0),
            f"java_{load}_client_ratio": Figure(f"{name}: our client's CPU / Java client's", "x"),
            f"java_{load}_rate": Figure(f"{name}: Java broker", "/s"),
            f"java_{load}_cpu": Figure(f"{name}: Java broker", "µs"),
            f"java_{load}_their_failed": Figure(f"{name}: Java broker, failed sends"),
            f"ours_{load}_rate": Figure(f"{name}: ours", "/s"),
            f"ours_{load}_cpu": Figure(f"{name}: ours", "µs"),
        }
    return figures


def _missing_for_java() -> list[str]:
    from benchmarks.beside_java import missing

    return missing()


CHAPTERS: dict[str, Chapter] = {
    "sends": Chapter("single sends of 1 KiB beside the yardstick", _sends, _send_figures()),
    "pull": Chapter(
        "pulls of 32 messages", _pull,
        {
            "pull_ratio": Figure("pull rate / our own send rate", "x", at_least=3.0),
            "pull_rate": Figure("pulled messages", "/s"),
            "pull_cpu": Figure("pulled messages", "µs"),
        },
    ),
    "pop": Chapter(
        "pop: 32 at a time", _pop,
        {
            "pop_ratio": Figure("pops / pulls, messages for a second of CPU", "x", at_least=0.7),
            "pop_ack_ratio": Figure("pops with a batch ack each / pulls", "x"),
            "pop_cpu": Figure("a message popped", "µs"),
            "pop_ack_cpu": Figure("a message popped and acknowledged", "µs"),
        },
    ),
    "sync_flush": Chapter(
        "SYNC_FLUSH beside the disk", _sync_flush,
        {
            "disk": Figure("fdatasync alone", "/s"),
            **{f"sync_{n}": Figure(f"sync flush, {n} in flight: rate / fdatasync's", "x") for n in (1, 8, 64)},
            **{f"sync_{n}_busy": Figure(f"sync flush, {n} in flight: broker's share of a core") for n in (1, 8, 64)},
        },
    ),
    "batch": Chapter(
        "a batch of 100 messages of 100 bytes", _batch,
        {
            "batch": Figure("batch of 100: CPU of sends served alone", "x", at_most=12.0),
            "batch_cpu": Figure("batch of 100", "µs"),
            "batch_rate": Figure("messages in batches", "/s"),
        },
    ),
    "access": Chapter(
        "access control on the send path", _access,
        {
            "access_more": Figure("CPU of a signed send, more than of one without access control", "µs", at_most=6),
            "access_cpu": Figure("CPU of a signed send", "µs"),
        },
    ),
    "metrics": Chapter(
        "metrics on the send path", _metrics,
        {
            "metrics_served": Figure("CPU of a send, metrics served / without", "x", at_most=1.03),
            "metrics_asked": Figure("CPU of a send, a page every second / without", "x", at_most=1.08),
        },
    ),
    "idle": Chapter(
        "idle connections", _idle,
        {
            "idle": Figure("10,000 idle connections", "MB", at_most=300),
            "idle_small": Figure("1,000 idle connections", "MB"),
        },
    ),
    "client": Chapter(
        "our client beside the raw sender", _client,
        {
            "client_pipelined": Figure("client pipelined / raw sender", "x", at_least=0.5),
            "client_one": Figure("client, one thread / raw round trip", "x", at_least=0.6),
            "client_consumed": Figure("consuming / client pipelined", "x", at_least=1.0),
            "client_pipelined_cpu": Figure("client pipelined", "µs"),
            "client_one_cpu": Figure("client, one thread", "µs"),
            "client_consumed_cpu": Figure("consuming", "µs"),
        },
    ),
    "latency": Chapter(
        "producer to listener at 1,000 a second", _latency,
        {f"latency_{p}": Figure(f"latency, {p} %", "ms") for p in ("50", "90", "99", "99.9", "100")}
        | {f"waking_{p}": Figure(f"how late a thread that waits is woken, {p} %", "ms") for p in ("50", "90", "99")},
    ),
    "peers": Chapter("beside NATS JetStream and Redis streams", _peers, _peer_figures(), _missing_for_peers, once=True),
    "startup": Chapter(
        "rocketlet up", _startup,
        {"ready": Figure("rocketlet up: ready", "s"), "resident": Figure("rocketlet up: resident", "MB")},
    ),
    "growth": Chapter(
        "growth", _growth,
        {
            "queues=10000 ratio": Figure("rate at 10,000 queues / at 8", "x", at_least=0.9),
            "store_gib=10 ratio": Figure("rate into a 10 GiB store / into an empty one", "x", at_least=0.9),
        },
        once=True,
    ),
    "java": Chapter("beside a Java broker and client", _java, _java_figures(), _missing_for_java, once=True),
    "replication": Chapter(
        "a master and a slave beside a Java pair", _replication, _replication_figures(), _missing_for_java, once=True
    ),
}  # fmt: skip
