"""The port for metrics and health, HTTP/1.1 on trio over h11: /metrics, /healthz, /readyz.

/healthz is 200 as long as the process answers at all, since an unrecoverable failure ends it. /readyz is 200 if clients
can be served now, else 503 with the reasons, one per line. Neither reads the disk.

No scraper can slow the broker down: a page is built in slices of a few milliseconds, at most once a second however many
ask; a connection that sends nothing, or reads nothing, is closed; there are at most MAX_CONNECTIONS of them.

Java: (none; RocketMQ 5 serves by OpenTelemetry's PrometheusHttpServer)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from rocketlet.common.clock import stopwatch
from rocketlet.metrics.loop_delay import LoopDelay
from rocketlet.metrics.page import Page, Source
from rocketlet.remoting.accepting import accepted
from rocketlet.remoting.transport import ByteStream, Network

if TYPE_CHECKING:
    import h11

log = logging.getLogger("rocketlet.metrics.endpoint")

MAX_CONNECTIONS = 32
IDLE_SECONDS = 30.0
"""How long a connection may take for its next request, or to take an answer."""
FRESH_SECONDS = 1.0
_SLICE_SECONDS = 0.002
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    content_type: str = _TEXT


class Endpoint:
    """Serves the metrics of its sources. Each object runs once."""

    def __init__(self, network: Network, sources: Sequence[Source], most_series: int) -> None:
        self._network = network
        self._delay = LoopDelay()
        self._sources = (*sources, self._delay)
        self._most_series = most_series
        self._making = trio.Lock()
        self._cached: tuple[float, _Answer] | None = None
        self._connections = 0
        self.address = ""

    async def serve(
        self, host: str, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Until cancelled. Starts with the bound address. Raises ListenFailed."""
        listener = await self._network.listen(host, port)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._delay.run)
                self.address = listener.address
                task_status.started(listener.address)
                while True:
                    stream = await accepted(listener, log)
                    if self._connections >= MAX_CONNECTIONS:
                        await stream.aclose()
                    else:
                        self._connections += 1
                        nursery.start_soon(self._serve_one, stream)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    async def _serve_one(self, stream: ByteStream) -> None:
        import h11  # 6 ms that a process without scrapes saves

        connection = h11.Connection(h11.SERVER)
        try:
            while connection.our_state is h11.IDLE:
                with trio.move_on_after(IDLE_SECONDS) as scope:
                    request = await _next_request(stream, connection)
                if scope.cancelled_caught or request is None:
                    return
                answer = await self._answer(request)
                with trio.move_on_after(IDLE_SECONDS):
                    await _send(stream, connection, request, answer)
                if {connection.our_state, connection.their_state} == {h11.DONE}:
                    connection.start_next_cycle()
        except h11.RemoteProtocolError as error:
            log.debug("%s does not speak HTTP: %s", stream.peer, error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has gone
        finally:
            self._connections -= 1
            with trio.CancelScope(shield=True):
                await stream.aclose()

    async def _answer(self, request: h11.Request) -> _Answer:
        path = request.target.partition(b"?")[0]
        pages: dict[bytes, Callable[[], _Answer]] = {
            b"/healthz": lambda: _Answer(200, b"ok\n"),
            b"/readyz": self._readiness,
        }
        if request.method not in (b"GET", b"HEAD"):
            return _Answer(405, b"GET and HEAD are served here\n")
        if path == b"/metrics":
            return await self._metrics()
        if path in pages:
            return pages[path]()
        return _Answer(404, b"there are /metrics, /healthz and /readyz\n")

    def _readiness(self) -> _Answer:
        reasons = [reason for source in self._sources for reason in source.not_ready()]
        return _Answer(503, "".join(f"{reason}\n" for reason in reasons).encode()) if reasons else _Answer(200, b"ok\n")

    async def _metrics(self) -> _Answer:
        async with self._making:
            if self._cached is not None and trio.current_time() - self._cached[0] < FRESH_SECONDS:
                return self._cached[1]
            try:
                answer = await self._make()
            except Exception:
                log.exception("the page of metrics cannot be made")
                return _Answer(500, b"the page cannot be made; the log has the reason\n")
            self._cached = trio.current_time(), answer
            return answer

    async def _make(self) -> _Answer:
        from rocketlet.metrics import exposition  # prometheus-client: 20 ms and 3 MB, at the first scrape

        pace, began = _Pace(), stopwatch()
        page = Page(self._most_series)
        left_out = page.gauge("rocketlet_metrics_series_left_out", "Series above metricsMaxSeries, left out here.")
        took = page.gauge("rocketlet_metrics_collect_seconds", "How long it took to collect this page.")
        left_out.add((), 0)
        took.add((), 0)
        for source in self._sources:
            for wait in source.fill(page):
                if wait is not None:
                    await wait()
                await pace.breathe()
        left_out.add((), page.left_out)
        took.add((), stopwatch() - began)
        parts = []
        for part in exposition.pieces(page):
            parts.append(part)
            await pace.breathe()
        return _Answer(200, b"".join(parts), exposition.CONTENT_TYPE)


class _Pace:
    """Lets other tasks run after each slice of work."""

    def __init__(self) -> None:
        self._began = stopwatch()

    async def breathe(self) -> None:
        if stopwatch() - self._began > _SLICE_SECONDS:
            await trio.lowlevel.checkpoint()
            self._began = stopwatch()


async def _next_request(stream: ByteStream, connection: h11.Connection) -> h11.Request | None:
    """The next request, its body read and dropped; None if there is none."""
    import h11

    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                return None
            connection.receive_data(await stream.receive_some(65536))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None


async def _send(stream: ByteStream, connection: h11.Connection, request: h11.Request, answer: _Answer) -> None:
    import h11

    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    if answer.status == 405:
        headers.append(("Allow", "GET, HEAD"))
    head = connection.send(h11.Response(status_code=answer.status, headers=headers))
    body = b"" if request.method == b"HEAD" else connection.send(h11.Data(data=answer.body))
    end = connection.send(h11.EndOfMessage())
    await stream.send_all((head or b"") + (body or b"") + (end or b""))
