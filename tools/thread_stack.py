"""A local stack in a separate thread, for code that does not run under trio: tests, notebooks, asyncio applications.

    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        print(stack.namesrv)

It counts the connections of clients, so that a test that forgets to close a client can be reported.

Java: (none)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from rocketlet.remoting.faults import Condition, Fault, Faults
from rocketlet.remoting.transport import ByteStream, Listener, Network, TcpNetwork
from rocketlet.tools.local import LocalStack
from rocketlet.tools.local_settings import Addresses, LocalSettings

Result = TypeVar("Result")

START_SECONDS = 30.0


class ThreadStack:
    """Runs between `start` and `stop`, or within a `with` block."""

    def __init__(self, chosen: LocalSettings | None = None) -> None:
        self._network = _WatchedNetwork()
        self._stack = LocalStack(chosen or LocalSettings(namesrv_port=0, broker_port=0), self._network)
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._addresses: Addresses | None = None
        self._failure: BaseException | None = None
        self._endpoints = ""

    # ---- lifetime

    def start(self) -> None:
        """Return when clients can use it. Raises the error of a failed start."""
        self._thread = threading.Thread(target=self._run, name="rocketlet-stack", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise TimeoutError(f"the stack did not start within {START_SECONDS:g} s")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop it in order. If it has failed before, raises that error."""
        if self._thread is None:
            return
        try:
            self._token.run_sync_soon(self._stop.set)
        except trio.RunFinishedError:
            pass  # it has failed; the error is raised below
        self._thread.join()
        self._thread = None
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - start and stop raise it in the caller's thread
            self._failure = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with trio.open_nursery() as nursery:
            self._addresses = await nursery.start(self._stack.run)
            self._ready.set()
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    # ---- use

    @property
    def addresses(self) -> Addresses:
        """All addresses."""
        if self._addresses is None:
            raise RuntimeError("the stack is not running; start() it or use it in a with block")
        return self._addresses

    @property
    def namesrv(self) -> str:
        """The name servers, in clients' format: `host:port;host:port`."""
        return self.addresses.namesrv

    @property
    def endpoints(self) -> str:
        """The endpoint for clients of RocketMQ 5, `host:port`; served from the first use of this property."""
        if not self._endpoints:
            self._endpoints = self.addresses.grpc or trio.from_thread.run(
                self._stack.serve_grpc, 0, trio_token=self._token
            )
        return self._endpoints

    # ---- failures; see LocalStack

    def kill(self, name: str) -> None:
        """As kill -9: `broker-a` is a master as it starts, `broker-a-1` its first slave."""
        self.call(self._stack.kill, name)

    def restart(self, name: str) -> None:
        """Restart a killed broker with its data; clients find it through the name servers."""
        trio.from_thread.run(self._stack.start, name, trio_token=self._token)

    def pause(self, name: str) -> None:
        """As kill -STOP: nothing moves on its connections until `resume`."""
        self.call(self._stack.pause, name)

    def resume(self, name: str) -> None:
        """End a pause."""
        self.call(self._stack.resume, name)

    def partition(self, one: str, other: str) -> None:
        """Partition two brokers, or a broker and a name server (`namesrv`), until `heal`."""
        self.call(self._stack.partition, one, other)

    def heal(self) -> None:
        """End all partitions."""
        self.call(self._stack.heal)

    def master(self, name: str = "broker-a") -> str | None:
        """For electing replicas: the member that leads now."""
        return self.call(self._stack.master, name)

    def kill_master(self, name: str = "broker-a") -> str:
        """`kill` the leader. Returns its name. `elected(but=...)` waits for the next one."""
        return self.call(self._stack.kill_master, name)

    def elected(self, name: str = "broker-a", *, but: str = "") -> str:
        """Wait until a member other than `but` leads. Returns its name."""
        return trio.from_thread.run(partial(self._stack.elected, name, but=but), trio_token=self._token)

    def etcd_down(self) -> None:
        """Make the coordinator of electing replicas silent until `etcd_up`."""
        self.call(self._stack.etcd_down)

    def etcd_up(self) -> None:
        """Make the coordinator answer again."""
        self.call(self._stack.etcd_up)

    def promote(self, name: str, *, force: bool = False) -> None:
        """Make a slave the master; `force` if the master is lost. Raises AdminRefused."""
        trio.from_thread.run(partial(self._stack.promote, name, force=force), trio_token=self._token)

    # ---- faults

    def on(
        self,
        code: int,
        *,
        reply: int | None = None,
        remark: str = "a fault that was asked for",
        delay: float = 0.0,
        drop: bool = False,
        disconnect: bool = False,
        times: int | None = 1,
        when: Condition | None = None,
        at: str = "broker",
    ) -> Fault:
        """Make the next requests of a code fail; see `remoting.faults.Faults.on`. `at` may be "namesrv"."""
        if at not in ("broker", "namesrv"):
            raise ValueError(f"at={at!r}: faults happen at 'broker' or at 'namesrv'")
        faults: Faults = self._stack.faults if at == "broker" else self._stack.namesrv_faults
        return faults.on(
            code, reply=reply, remark=remark, delay=delay, drop=drop, disconnect=disconnect, times=times, when=when
        )

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._stack.faults.clear()
        self._stack.namesrv_faults.clear()

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Run a plain function inside the stack's loop, where its objects may be touched: `stack.call(len, ...)`."""
        return trio.from_thread.run_sync(function, *args, trio_token=self._token)

    def open_connections(self) -> list[str]:
        """The peers of clients' open connections."""
        return self.call(self._network.foreign_peers)


class _WatchedNetwork:
    """TCP that records open connections, except those within the stack."""

    def __init__(self) -> None:
        self._tcp: Network = TcpNetwork()
        self._own: set[str] = set()
        self._accepted: set[ByteStream] = set()

    def foreign_peers(self) -> list[str]:
        return sorted(stream.peer for stream in self._accepted if stream.peer not in self._own)

    async def dial(self, address: str) -> ByteStream:
        stream = await self._tcp.dial(address)
        self._own.add(stream.local)
        return stream

    async def listen(self, host: str, port: int) -> Listener:
        return _WatchedListener(await self._tcp.listen(host, port), self._accepted)


class _WatchedListener:
    def __init__(self, listener: Listener, accepted: set[ByteStream]) -> None:
        self._listener = listener
        self._accepted = accepted
        self.address = listener.address

    async def accept(self) -> ByteStream:
        stream = _WatchedStream(await self._listener.accept(), self._accepted)
        self._accepted.add(stream)
        return stream

    async def aclose(self) -> None:
        await self._listener.aclose()


class _WatchedStream:
    def __init__(self, stream: ByteStream, accepted: set[ByteStream]) -> None:
        self._stream = stream
        self._accepted = accepted
        self.local, self.peer = stream.local, stream.peer
        self.receive_some, self.send_now, self.send_all = stream.receive_some, stream.send_now, stream.send_all

    async def aclose(self) -> None:
        self._accepted.discard(self)
        await self._stream.aclose()
