"""The broker's throughput: counters on the hot path, and the samples from which rates are computed.

A `Flow` is three numbers that only grow. Each send or pull adds to the flow of one queue and to that of the broker; the
sums of a topic or a group are computed on request. Samples of each flow are taken every 10 s (7 are kept: the
last minute), every 10 minutes (7: the last hour) and every hour (25: the last day), as RocketMQ does, and of the
broker's totals every 10 s (61: ten minutes). Pure: the time is an argument.

Invariants: a Flow never shrinks; samples are in the order of time; the statistics of a deleted topic or group go with
it, the totals stay.

Java: store/stats/BrokerStatsManager.java, common/stats/StatsItem.java, store/StoreStatsService.java
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

from rocketlet.broker.put_times import PutTimes

MINUTE_EVERY, HOUR_EVERY, DAY_EVERY = 10_000, 600_000, 3_600_000
MINUTE_KEPT, HOUR_KEPT, DAY_KEPT = 7, 7, 25
TOTALS_KEPT = 61

Span = Literal["minute", "hour", "day"]
SPANS: tuple[Span, ...] = ("minute", "hour", "day")
Number = Literal["messages", "bytes", "milliseconds"]


class Sample(NamedTuple):
    """A flow at one time."""

    time: int
    calls: int
    messages: int
    bytes: int
    milliseconds: int


class History:
    """Samples of one flow over the last minute, hour and day."""

    __slots__ = ("day", "hour", "minute")

    def __init__(self) -> None:
        self.minute: deque[Sample] = deque(maxlen=MINUTE_KEPT)
        self.hour: deque[Sample] = deque(maxlen=HOUR_KEPT)
        self.day: deque[Sample] = deque(maxlen=DAY_KEPT)

    def add(self, sample: Sample) -> None:
        """Add the sample to the spans that are due; the first goes into all of them."""
        for span, every in ((self.minute, MINUTE_EVERY), (self.hour, HOUR_EVERY), (self.day, DAY_EVERY)):
            # Half a tick of tolerance, because ticks come a little early or late.
            if not span or sample.time - span[-1].time >= every - MINUTE_EVERY // 2:
                span.append(sample)


class Flow:
    """Calls, messages and bytes so far. `extra` is what batches carry beyond one message per call."""

    __slots__ = ("bytes", "calls", "extra", "history", "milliseconds", "pulled_to")

    def __init__(self) -> None:
        self.calls = 0
        self.extra = 0
        self.bytes = 0
        self.milliseconds = 0  # of pulls only
        self.pulled_to = 0  # the offset after the last message pulled
        self.history: History | None = None  # since the first sample: unused queues cost nothing

    @property
    def messages(self) -> int:
        return self.calls + self.extra

    def add(self, messages: int, size: int) -> None:
        self.calls += 1
        self.extra += messages - 1
        self.bytes += size

    def sample(self, now: int) -> Sample:
        return Sample(now, self.calls, self.messages, self.bytes, self.milliseconds)

    def remember(self, now: int) -> None:
        if self.history is None:
            self.history = History()
            self.history.add(
                Sample(now - MINUTE_EVERY, 0, 0, 0, 0)
            )  # what was counted before the first tick counts too
        self.history.add(self.sample(now))

    def __repr__(self) -> str:
        return f"<Flow: {self.messages} messages, {self.bytes} bytes in {self.calls} calls>"


class Rate(NamedTuple):
    """RocketMQ's three numbers of a span: the sum, the sum per second, and the sum per call."""

    sum: int
    tps: float
    avgpt: float


@dataclass(slots=True)
class Today:
    """Messages put and got until the last two midnights."""

    put_yesterday_morning: int = 0
    put_this_morning: int = 0
    get_yesterday_morning: int = 0
    get_this_morning: int = 0
    day: int | None = None


class Totals(NamedTuple):
    """The whole broker at one time."""

    time: int
    put: int
    fetched: int
    fetch_calls: int
    found: int
    missed: int


@dataclass(slots=True)
class Statistics:
    """All counters of one broker. `cluster` is the key of its own totals."""

    cluster: str
    put: Flow = field(default_factory=Flow)
    fetched: Flow = field(default_factory=Flow)
    put_failed: int = 0
    pulls_found: int = 0
    pulls_missed: int = 0
    committed: int = 0
    rolled_back: int = 0
    put_times: PutTimes = field(default_factory=PutTimes)
    today: Today = field(default_factory=Today)
    _put: dict[str, dict[int, Flow]] = field(default_factory=dict)
    pull_flows: dict[tuple[str, str, int], Flow] = field(default_factory=dict)
    """By group, topic and queue; `pull_flow` makes a new one."""
    _got: dict[tuple[str, str], dict[int, Flow]] = field(default_factory=dict)
    _sent_back: dict[tuple[str, str], Flow] = field(default_factory=dict)
    _totals: deque[Totals] = field(default_factory=lambda: deque(maxlen=TOTALS_KEPT))

    def put_flow(self, topic: str, queue_id: int) -> Flow:
        """The flow into a queue. Keep it: looking it up costs more than adding to it."""
        return self._put.setdefault(topic, {}).setdefault(queue_id, Flow())

    def pull_flow(self, group: str, topic: str, queue_id: int) -> Flow:
        flow = self.pull_flows.get((group, topic, queue_id))
        if flow is None:
            flow = self.pull_flows[group, topic, queue_id] = Flow()
            self._got.setdefault((group, topic), {})[queue_id] = flow
        return flow

    def count_sent_back(self, group: str, topic: str) -> None:
        self._sent_back.setdefault((group, topic), Flow()).add(1, 0)

    def forgetting(self, *, group: str = "", topic: str = "") -> Iterator[None]:
        """Forgets what flowed for a group or a topic, a queue at a time."""
        put = self._put.get(topic, {})
        for queue_id in list(put):
            put.pop(queue_id, None)
            yield
        self._put.pop(topic, None)
        for key in [key for key in [*self._got, *self._sent_back] if group in ("", key[0]) and topic in ("", key[1])]:
            flows = self._got.get(key, {})
            for queue_id in list(flows):
                flows.pop(queue_id, None)
                self.pull_flows.pop((*key, queue_id), None)
                yield
            self._got.pop(key, None)
            self._sent_back.pop(key, None)

    def totals(self, now: int) -> Totals:
        return Totals(
            now, self.put.messages, self.fetched.messages, self.fetched.calls, self.pulls_found, self.pulls_missed
        )

    def tick(self, now: int, day: int) -> None:
        """Every 10 s, after the `flows` have been sampled. `day` is the number of the local day; a new one restarts
        today's counts."""
        self._totals.append(self.totals(now))
        self.put_times.tick(now)
        today = self.today
        if day != today.day:
            if today.day is not None:
                today.put_yesterday_morning, today.put_this_morning = today.put_this_morning, self.put.messages
                today.get_yesterday_morning, today.get_this_morning = today.get_this_morning, self.fetched.messages
            today.day = day

    def put_of(self, topic: str) -> tuple[int, int]:
        """Messages and bytes put into a topic since the start."""
        flows = self._put.get(topic, {}).values()
        return sum(flow.messages for flow in flows), sum(flow.bytes for flow in flows)

    def got_of(self, group: str, topic: str) -> tuple[int, int]:
        """Messages and bytes that a group pulled from a topic since the start."""
        flows = self._got.get((group, topic), {}).values()
        return sum(flow.messages for flow in flows), sum(flow.bytes for flow in flows)

    def pulled(self) -> list[tuple[str, str]]:
        """(group, topic) of all pulls."""
        return list(self._got)

    def pulled_to(self, group: str, topic: str, queue_id: int) -> int:
        """The offset after the last message that a group pulled; 0 if it pulled none."""
        flow = self._got.get((group, topic), {}).get(queue_id)
        return flow.pulled_to if flow is not None else 0

    def per_second(self, number: str, seconds: int, now: int) -> float:
        """The rate of one of the totals over that many seconds, or since the start."""
        earlier = next((sample for sample in reversed(self._totals) if now - sample.time >= seconds * 1000), None)
        earlier = earlier or (self._totals[0] if self._totals else None)
        if earlier is None or earlier.time >= now:
            return 0.0
        grown: int = getattr(self.totals(now), number) - getattr(earlier, number)
        return grown * 1000 / (now - earlier.time)

    def rates(self, name: str, key: str) -> dict[Span, Rate] | None:
        """A statistic by RocketMQ's name and key; None if there is none."""
        flows, carried = self.flows_of(name, key), Carried(number_of(name))
        for flow in flows:
            carried.add(flow, *SPANS)
        return {span: carried.rate(span) for span in SPANS} if flows else None

    def flows_of(self, name: str, key: str) -> list[Flow]:
        """What a statistic is the sum of: up to 65,535 queues."""
        return list(self._named(name, key))

    def _named(self, name: str, key: str) -> Iterable[Flow]:
        match name:
            case "TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE":
                return self._put.get(key, {}).values()
            case "QUEUE_PUT_NUMS" | "QUEUE_PUT_SIZE":
                topic, _, queue_id = key.rpartition("@")
                return _of_queue(self._put.get(topic, {}), queue_id)
            case "GROUP_GET_NUMS" | "GROUP_GET_SIZE":
                topic, _, group = key.rpartition("@")
                return self._got.get((group, topic), {}).values()
            case "QUEUE_GET_NUMS" | "QUEUE_GET_SIZE" if key.count("@") == 2:
                topic, queue_id, group = key.split("@")
                return _of_queue(self._got.get((group, topic), {}), queue_id)
            case "GROUP_GET_LATENCY" if key.count("@") == 2:
                queue_id, topic, group = key.split("@")
                return _of_queue(self._got.get((group, topic), {}), queue_id)
            case "SNDBCK_PUT_NUMS":
                topic, _, group = key.rpartition("@")
                return [flow for of, flow in self._sent_back.items() if of == (group, topic)]
            case "BROKER_PUT_NUMS" if key == self.cluster:
                return [self.put]
            case "BROKER_GET_NUMS" if key == self.cluster:
                return [self.fetched]
        return []

    def flows(self) -> list[Flow]:
        """Every flow, for its next sample."""
        result = [self.put, self.fetched, *self._sent_back.values()]
        for flows in chain(self._put.values(), self._got.values()):
            result.extend(flows.values())
        return result


def _of_queue(flows: dict[int, Flow], queue_id: str) -> list[Flow]:
    return [flows[int(queue_id)]] if queue_id.isdecimal() and int(queue_id) in flows else []


def number_of(name: str) -> Number:
    """What a statistic of RocketMQ's counts."""
    return "bytes" if name.endswith("SIZE") else "milliseconds" if name.endswith("LATENCY") else "messages"


class Carried:
    """What flows carried together between the first and the last sample of each span."""

    def __init__(self, number: Number) -> None:
        self._number = number
        self._sums = dict.fromkeys(SPANS, (0, 0, 0))

    def add(self, flow: Flow, *spans: Span) -> None:
        for span in spans:
            samples: deque[Sample] = getattr(flow.history, span, deque())
            if len(samples) >= 2:
                total, calls, elapsed = self._sums[span]
                first, last = samples[0], samples[-1]
                total += getattr(last, self._number) - getattr(first, self._number)
                self._sums[span] = total, calls + last.calls - first.calls, max(elapsed, last.time - first.time)

    def rate(self, span: Span) -> Rate:
        total, calls, elapsed = self._sums[span]
        return Rate(total, total * 1000 / elapsed if elapsed else 0.0, total / calls if calls else 0.0)
