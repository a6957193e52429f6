"""Name servers and brokers in one process: run by `rocketlet up` and by the pytest fixtures.

    async with trio.open_nursery() as nursery:
        stack = LocalStack(LocalSettings(directory="./rocketlet-data"))
        addresses = await nursery.start(stack.run)

With a directory, everything is kept there, and a restart continues where the last run ended, even after `kill -9`.
Without one, everything is in memory and no file is touched.

Java: test/base/IntegrationTestBase.java, which starts them for RocketMQ's own tests
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.access.folder import RealFolder
from rocketlet.broker.broker import Broker
from rocketlet.broker.lives import run_restarting
from rocketlet.common.clock import WallClock, system_clock
from rocketlet.common.errors import RocketletError
from rocketlet.failover.driver import State
from rocketlet.metrics.config import MetricsConfig
from rocketlet.metrics.endpoint import Endpoint
from rocketlet.metrics.page import Page, Source, Wait
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.errors import ListenFailed
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.shelter import shelter
from rocketlet.remoting.transport import Network, TcpNetwork
from rocketlet.tools.breakable_network import BreakableNetwork
from rocketlet.tools.local_settings import LOOPBACK, Addresses, LocalSettings, broker_name, member_name, namesrv_name

if TYPE_CHECKING:
    from rocketlet.failover.memory_coordinator import MemoryCoordination
    from rocketlet.proxy.proxy import Proxy
    from rocketlet.store.disk import Disk

ETCD = "etcd"
_LOOK_SECONDS = 0.02


class ExtraMissing(RocketletError):
    """A requested feature needs packages that are not installed."""


@dataclass(slots=True, eq=False)
class Member:
    """One broker of the stack: `broker-a` is a master as it starts, `broker-a-1` its first slave. If replicas elect
    their master, any of them may be it."""

    name: str
    number: int  # among the masters
    replica: int  # 0 for the master
    disk: Disk
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    over: trio.Event = field(default_factory=trio.Event)
    killed: bool = False


class LocalStack:
    """`run` serves until it is cancelled. The constructor raises SettingsError if a setting is wrong.

    With `breakable`, `kill`, `start`, `pause`, `resume`, `partition` and `heal` break and repair brokers, by name.
    `network` and `clock` are replaced for virtual time.
    """

    def __init__(
        self, settings: LocalSettings, network: Network | None = None, clock: WallClock = system_clock
    ) -> None:
        self.settings = settings
        self._network = network or TcpNetwork()
        self._breakable = BreakableNetwork(self._network) if settings.breakable else None
        self._clock = clock
        self.faults = Faults(self._settle)
        self.namesrv_faults = Faults()
        self.brokers: dict[str, Broker] = {}
        self._groups = [self._coordination(number) for number in range(settings.brokers)] if settings.elects else []
        self._members = [
            Member(member_name(number, replica), number, replica, self._disk())
            for number in range(settings.brokers)
            for replica in range(settings.replicas)
        ]
        self._namesrvs: list[NameServer] = []
        self._grpc: Proxy | None = None
        self._nursery: trio.Nursery | None = None
        self._namesrv_addresses: tuple[str, ...] = ()
        self._loaded = [settings.broker(member.number, member.replica, ()) for member in self._members]
        self.warnings = self._loaded[0].warnings if self._loaded else ()

    async def run(self, *, task_status: trio.TaskStatus[Addresses] = trio.TASK_STATUS_IGNORED) -> None:
        """Reports the addresses as started, once clients can use them. Stops brokers before name servers."""
        async with shelter() as sheltered:  # brokers unregister at name servers that still listen
            namesrvs = tuple([await self._start_namesrv(sheltered, n) for n in range(self.settings.namesrvs)])
            async with trio.open_nursery() as nursery:
                self._nursery, self._namesrv_addresses = nursery, namesrvs
                start = self._start_process if self.settings.processes else self._start_member
                addresses = {member.name: await start(member) for member in self._members}
                for number in range(len(self._groups)):
                    await self.elected(broker_name(number))
                loopback = {
                    name: broker.identity.loopback_address
                    for name, broker in self.brokers.items()
                    if broker.identity.loopback_address not in ("", addresses[name])
                }
                recovered = {
                    name: "; ".join(broker.store.report.lines())
                    for name, broker in self.brokers.items()
                    if not broker.store.report.was_clean
                }
                port = self.settings.grpc_port
                grpc = "" if port is None else await self.serve_grpc(port)
                metrics = await self._start_metrics(nursery)
                task_status.started(
                    Addresses(";".join(namesrvs), namesrvs, addresses, loopback, metrics, grpc, recovered)
                )
                await trio.sleep_forever()

    # ---- failures

    async def start(self, name: str) -> str:
        """Restart a killed broker with its data. Returns its address, which may have changed."""
        member = self._member(name)
        if not member.killed and not member.over.is_set():
            raise RuntimeError(f"{name} runs; kill it first")
        await member.over.wait()
        return await self._start_member(member)

    def kill(self, name: str) -> None:
        """As kill -9: nothing more is sent. What it had written is there when it restarts."""
        from rocketlet.store.memory_disk import MemoryDisk

        member, network = self._member(name), self._breakable_network()
        if not isinstance(member.disk, MemoryDisk):
            raise RuntimeError("a broker with a directory can be killed only with its process; keep data in memory")
        if member.killed or name not in self.brokers:
            raise RuntimeError(f"{name} does not run")
        network.kill(name)
        self._cut_off(member)
        member.disk, member.killed = member.disk.copy(), True
        del self.brokers[name]
        member.scope.cancel()

    def pause(self, name: str) -> None:
        """As kill -STOP, seen from outside: nothing moves on its connections until `resume`."""
        self._breakable_network().pause(self._member(name).name)
        self._cut_off(self._member(name))

    def resume(self, name: str) -> None:
        """End a pause; held data moves on."""
        self._breakable_network().resume(self._member(name).name)
        self._cut_off(self._member(name), again=True)

    def partition(self, one: str, other: str) -> None:
        """Partition two brokers, or a broker and a name server (`namesrv`) or the coordinator (`etcd`), until
        `heal`."""
        if other == ETCD:
            self._cut_off(self._member(one))
            return
        names = [name if name.startswith("namesrv") else self._member(name).name for name in (one, other)]
        self._breakable_network().partition(*names)

    def heal(self) -> None:
        """End all partitions."""
        self._breakable_network().heal()
        for group in self._groups:
            group.cut_off.clear()

    def etcd_down(self) -> None:
        """Make the coordinator silent until `etcd_up`: no elections, while sends continue."""
        for group in self._electing_groups():
            group.stop()

    def etcd_up(self) -> None:
        """Make the coordinator answer again."""
        for group in self._electing_groups():
            group.resume()

    def master(self, name: str = "broker-a") -> str | None:
        """Which member leads the replicas of a broker name now: `broker-a`, `broker-a-1` ...; None if none does."""
        self._electing_groups()
        for member in self._members:
            broker = self.brokers.get(member.name)
            replicas = broker.parts.group if broker is not None and broker_name(member.number) == name else None
            if replicas is None or replicas.driver is None:
                continue
            driver, group = replicas.driver, self._groups[member.number]
            if driver.state is State.LEADING and driver.epoch == group.state.epoch:
                return member.name
        return None

    async def elected(self, name: str = "broker-a", *, but: str = "") -> str:
        """Wait until a member other than `but` leads, and the name servers know it. Returns its name."""
        while (master := self.master(name)) in (None, but):
            await trio.sleep(_LOOK_SECONDS)
        assert master is not None
        await self.brokers[master].registration.wait_registered_briefly()
        return master

    def kill_master(self, name: str = "broker-a") -> str:
        """`kill` the leader of the replicas of that name. Returns its name."""
        master = self.master(name)
        if master is None:
            raise RuntimeError(f"no replica of {name} leads now")
        self.kill(master)
        return master

    def _electing_groups(self) -> list[MemoryCoordination]:
        if not self._groups:
            raise RuntimeError("the replicas of this stack do not elect their master: ask for three, replicas=3")
        return self._groups

    def _cut_off(self, member: Member, *, again: bool = False) -> None:
        """Cut a replica off from its coordinator, or (`again`) let it reach it again."""
        if self._groups:
            cut_off = self._groups[member.number].cut_off
            (cut_off.discard if again else cut_off.add)(str(member.replica + 1))

    def _coordination(self, number: int) -> MemoryCoordination:
        """In memory; with a directory its state is kept there, since the brokers' logs are."""
        from rocketlet.failover.memory_coordinator import MemoryCoordination

        directory = self.settings.directory
        if directory is None:
            return MemoryCoordination()
        disk, path = self._disk(), f"{directory}/{broker_name(number)}-group.json"
        return MemoryCoordination(disk.read_file(path) or b"", lambda data: disk.write_file(path, data))

    async def promote(self, name: str, *, force: bool = False) -> None:
        """Make a slave the master of its name; `force` if the master is lost. Raises AdminRefused."""
        from rocketlet.remoting.protocol.replication import PromoteHeader
        from rocketlet.remoting.request_codes import RequestCode
        from rocketlet.tools.admin.calls import admin

        async with admin(self._namesrv_addresses[0], network=self._network) as calls:
            address = self.brokers[name].identity.address
            await calls.ask(address, RequestCode.PROMOTE_SLAVE, PromoteHeader(force), timeout=40.0)

    def _member(self, name: str) -> Member:
        for member in self._members:
            if member.name == name:
                return member
        raise ValueError(f"no broker is called {name}; there are {', '.join(each.name for each in self._members)}")

    def _breakable_network(self) -> BreakableNetwork:
        if self._breakable is None:
            raise RuntimeError(
                "this stack was not made to be broken: use the fixture rocketmq or rocketmq_cluster, or breakable=True"
            )
        return self._breakable

    # ---- start

    async def _start_process(self, member: Member) -> str:
        from rocketlet.tools import broker_process

        assert self._nursery is not None
        file = self.settings.file.name if self.settings.file is not None else None
        flags = self.settings.broker_flags(member.number, member.replica, self._namesrv_addresses)
        flags.setdefault("logLevel", logging.getLevelName(logging.getLogger("rocketlet").getEffectiveLevel()))
        address: str = await self._nursery.start(broker_process.serve, member.name, flags, file)
        return address

    async def _start_member(self, member: Member) -> str:
        loaded = self.settings.broker(member.number, member.replica, self._namesrv_addresses)
        network = self._breakable.of(member.name) if self._breakable is not None else self._network
        coordination = None
        if self._groups:
            self._cut_off(member, again=True)
            coordination = self._groups[member.number].session

        def make(bound: str) -> Broker:
            broker = Broker(
                loaded, network, member.disk, clock=self._clock, faults=self.faults, coordination=coordination,
                bound=bound,
            )  # fmt: skip
            self.brokers[member.name] = broker
            return broker

        member.scope, member.over, member.killed = trio.CancelScope(), trio.Event(), False
        assert self._nursery is not None
        address: str = await self._nursery.start(self._host, member, make)
        return address

    async def _host(
        self,
        member: Member,
        make: Callable[[str], Broker],
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            with member.scope:
                await run_restarting(make, task_status=task_status)
        finally:
            member.over.set()

    async def serve_grpc(self, port: int) -> str:
        """Serve clients of RocketMQ 5 too, until the stack ends. Returns the address. Raises ListenFailed,
        ExtraMissing.

        Requires: the stack runs.
        """
        assert self._nursery is not None
        try:
            from rocketlet.proxy.proxy import Proxy
        except ModuleNotFoundError as error:
            raise ExtraMissing(
                f"gRPC needs the package {error.name}; install it with: pip install 'rocketlet[grpc]'"
            ) from error
        servers = self._loaded[0]
        self._grpc = Proxy(
            self.settings.proxy(port, self._namesrv_addresses),
            servers[ServerConfig],
            servers[PoolConfig],
            self._network,
            access=servers[AccessConfig],
            accounts=RealFolder(servers[AccessConfig].folder(servers.file_name)),
            clock=self._clock,
        )
        address: str = await self._nursery.start(self._grpc.run)
        return address

    async def _start_metrics(self, nursery: trio.Nursery) -> str:
        port = self.settings.metrics_port
        if port is None:
            return ""
        sources: list[Source] = [server.metrics for server in self._namesrvs]
        # Slaves have their masters' names, and the same series cannot be on a page twice.
        sources += [_OfMaster(self, member) for member in self._members if member.replica == 0]
        if self._grpc is not None:
            sources.append(self._grpc.metrics)
        endpoint = Endpoint(self._network, sources, self._loaded[0][MetricsConfig].metrics_max_series)
        try:
            address: str = await nursery.start(endpoint.serve, self.settings.host, port)
        except ListenFailed:
            if not self.settings.metrics_port_may_differ:
                raise
            address = await nursery.start(endpoint.serve, self.settings.host, 0)
        return address

    async def _start_namesrv(self, nursery: trio.Nursery, number: int) -> str:
        files = None
        if self.settings.directory is None:
            from rocketlet.namesrv.memory_files import MemoryFiles

            files = MemoryFiles()
        network = self._breakable.of(namesrv_name(number)) if self._breakable is not None else self._network
        server = NameServer(self.settings.namesrv(number), network, files=files, faults=self.namesrv_faults)
        address: str = await nursery.start(server.run)
        self._namesrvs.append(server)
        host, _, port = address.rpartition(":")
        return f"{LOOPBACK}:{port}" if host in ("0.0.0.0", "[::]") else address

    def _disk(self) -> Disk:
        if self.settings.directory is None:
            from rocketlet.store.memory_disk import MemoryDisk

            return MemoryDisk()
        from rocketlet.store.real_disk import RealDisk

        return RealDisk()

    def _settle(self) -> None:
        for broker in self.brokers.values():
            broker.settle()


class _OfMaster:
    """The metrics of a broker name: those of its master, whichever member that is now."""

    def __init__(self, stack: LocalStack, member: Member) -> None:
        self._stack = stack
        self._member = member

    def _source(self) -> Source:
        stack, member = self._stack, self._member
        leads = stack.master(broker_name(member.number)) if stack.settings.elects else None
        return stack.brokers[leads or member.name].metrics if (leads or member.name) in stack.brokers else _Nothing()

    def fill(self, page: Page) -> Iterator[Wait]:
        """See Source."""
        return self._source().fill(page)

    def not_ready(self) -> Sequence[str]:
        """See Source."""
        return self._source().not_ready()


class _Nothing:
    """The metrics of a broker that was killed."""

    def fill(self, page: Page) -> Iterator[None]:
        """See Source."""
        return iter(())

    def not_ready(self) -> Sequence[str]:
        """See Source."""
        return ["this broker does not run"]
