"""The counters and output of RocketMQ's benchmark programs, so that their lines and ours can be compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

REPORT_SECONDS = 10.0


@dataclass(slots=True)
class Counters:
    """One per thread, so that counting takes no lock; `Load` sums them."""

    sent: int = 0
    failed: int = 0
    refused: int = 0
    took: float = 0.0
    slowest: float = 0.0

    def add(self, seconds: float) -> None:
        self.sent += 1
        self.took += seconds
        if seconds > self.slowest:
            self.slowest = seconds


@dataclass(slots=True)
class Load:
    """Threads that do the same work until stopped, and their report lines."""

    unit: str = "Send TPS"
    counters: list[Counters] = field(default_factory=list)
    start_time: float = 0.0
    messages_each: int = 1
    extra: Callable[[], str] | None = None

    def total(self) -> Counters:
        """All threads' counters together."""
        total = Counters()
        for counters in self.counters:
            total.sent += counters.sent
            total.failed += counters.failed
            total.refused += counters.refused
            total.took += counters.took
            total.slowest = max(total.slowest, counters.slowest)
        return total

    def line(self, before: Counters, seconds: float) -> str:
        """One line of RocketMQ's: rate, slowest and mean round trip, failures."""
        now = self.total()
        sent = now.sent - before.sent
        mean = (now.took - before.took) / sent * 1000 if sent else 0.0
        messages = f" | Send MPS: {sent * self.messages_each / seconds:.0f}" if self.messages_each > 1 else ""
        more = self.extra() if self.extra is not None else ""
        return (
            f"{self.unit}: {sent / seconds:.0f}{messages} | Max RT(ms): {now.slowest * 1000:.0f} | Average RT(ms): "
            f"{mean:7.3f} | Send Failed: {now.failed} | Response Failed: {now.refused}{more}"
        )

    def run(self, work: Callable[[Counters, threading.Event], None], threads: int, seconds: float | None) -> None:
        """Run `work` in threads for that long (None: until Ctrl-C), and print a line every ten seconds and one at the
        end."""
        stop = threading.Event()
        self.counters = [Counters() for _ in range(threads)]
        workers = [threading.Thread(target=work, args=(counters, stop), daemon=True) for counters in self.counters]
        self.start_time = time.perf_counter()
        for thread in workers:
            thread.start()
        try:
            self._report(stop, workers, seconds)
        except KeyboardInterrupt:
            pass
        stop.set()
        for thread in workers:
            thread.join(10)
        took = time.perf_counter() - self.start_time
        print(f"[Complete] Send Total: {self.total().sent} | {self.line(Counters(), took)}", flush=True)

    def _report(self, stop: threading.Event, workers: list[threading.Thread], seconds: float | None) -> None:
        before, at = Counters(), self.start_time
        end = self.start_time + seconds if seconds is not None else float("inf")
        while any(thread.is_alive() for thread in workers):
            wait = min(REPORT_SECONDS, end - time.perf_counter())
            if wait <= 0 or stop.wait(wait):
                return
            now = time.perf_counter()
            if now < end:
                print(f"Current Time: {time.strftime('%H:%M:%S')} | {self.line(before, now - at)}", flush=True)
            before, at = self.total(), now
