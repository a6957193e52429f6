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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.access.folder import RealFolder
from rocketlet.broker.broker import Broker
from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.lives import run_restarting
from rocketlet.common.clock import WallClock, system_clock
from rocketlet.common.config_file import ConfigFile, Loaded, load
from rocketlet.common.errors import RocketletError
from rocketlet.common.settings import settings_of
from rocketlet.failover.config import FailoverConfig
from rocketlet.failover.driver import State
from rocketlet.metrics.config import MetricsConfig
from rocketlet.metrics.endpoint import Endpoint
from rocketlet.metrics.page import Page, Source, Wait
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.proxy.config import ProxyConfig
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.errors import ListenFailed
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.shelter import shelter
from rocketlet.remoting.transport import Network, TcpNetwork
from rocketlet.replication.config import ReplicationConfig
from rocketlet.store.config import StoreConfig
from rocketlet.tools.breakable_network import BreakableNetwork

if TYPE_CHECKING:
    from rocketlet.failover.memory_coordinator import MemoryCoordination
    from rocketlet.proxy.proxy import Proxy
    from rocketlet.store.disk import Disk

LOOPBACK = "127.0.0.1"
ELECTING = 3  # from this number of replicas on they elect their master
ETCD = "etcd"
_LOOK_SECONDS = 0.02
VIP_AND_REPLICATION = 10  # ports between two brokers of one host, so that VIP (-2) and replication (+1) do not meet

# In memory a file's whole length is allocated at once, so files are small; the limit on messages is unchanged.
IN_MEMORY: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "10000",
    "sealEnable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The options. `settings` are the brokers', by RocketMQ's keys; they take precedence over `file`."""

    directory: str | None = None
    host: str = LOOPBACK
    advertise: str = ""
    namesrv_port: int = 9876
    broker_port: int = 10911
    namesrvs: int = 1
    brokers: int = 1
    replicas: int = 1
    """Copies of each broker's messages: a master, SYNC_MASTER unless `settings` say otherwise, and its slaves. Three
    and more elect their master, and so do two with `failoverEnable=true` among the settings."""
    processes: bool = False
    """Each broker in a process of its own, to use more than one core."""
    breakable: bool = False
    """Whether brokers can be killed, paused and parted from each other (`kill`, `pause`, `partition`)."""
    metrics_port: int | None = None
    """One page of metrics for all that runs here; 0 takes a free port, None serves none."""
    grpc_port: int | None = None
    """Of the endpoint for clients of RocketMQ 5; 0 takes a free one, None serves none."""
    metrics_port_may_differ: bool = False
    """Whether a free port will do where that one is taken."""
    settings: Mapping[str, str] = field(default_factory=dict)
    file: ConfigFile | None = None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses that clients connect to; `loopback` for clients on this host, if that is another address."""

    namesrv: str
    namesrvs: tuple[str, ...]
    brokers: Mapping[str, str]
    loopback: Mapping[str, str] = field(default_factory=dict)
    metrics: str = ""
    grpc: str = ""
    recovered: Mapping[str, str] = field(default_factory=dict)
    """What the recovery of a broker reported, if its store had not been closed cleanly."""


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
        self._settings = settings
        self._network = network or TcpNetwork()
        self._breakable = BreakableNetwork(self._network) if settings.breakable else None
        self._clock = clock
        self.faults = Faults(self._settle)
        self.namesrv_faults = Faults()
        self.brokers: dict[str, Broker] = {}
        self.elects = settings.replicas >= ELECTING or settings.settings.get("failoverEnable") == "true"
        self._groups = [self._coordination(number) for number in range(settings.brokers)] if self.elects else []
        self._members = [
            Member(f"{_name(number)}-{replica}" if replica else _name(number), number, replica, self._disk())
            for number in range(settings.brokers)
            for replica in range(settings.replicas)
        ]
        self._namesrvs: list[NameServer] = []
        self._grpc: Proxy | None = None
        self._nursery: trio.Nursery | None = None
        self._namesrv_addresses: tuple[str, ...] = ()
        self._loaded = [self._broker_settings(member, ()) for member in self._members]
        self.warnings = self._loaded[0].warnings if self._loaded else ()

    async def run(self, *, task_status: trio.TaskStatus[Addresses] = trio.TASK_STATUS_IGNORED) -> None:
        """Reports the addresses as started, once clients can use them. Stops brokers before name servers."""
        async with shelter() as sheltered:  # brokers unregister at name servers that still listen
            namesrvs = tuple([await self._start_namesrv(sheltered, n) for n in range(self._settings.namesrvs)])
            async with trio.open_nursery() as nursery:
                self._nursery, self._namesrv_addresses = nursery, namesrvs
                start = self._start_process if self._settings.processes else self._start_member
                addresses = {member.name: await start(member) for member in self._members}
                for number in range(len(self._groups)):
                    await self.elected(_name(number))
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
                port = self._settings.grpc_port
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
            replicas = broker.parts.group if broker is not None and _name(member.number) == name else None
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

        directory = self._settings.directory
        if directory is None:
            return MemoryCoordination()
        disk, path = self._disk(), f"{directory}/{_name(number)}-group.json"
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
            raise RuntimeError("this stack was not made to be broken: use rocketmq_cluster, or breakable=True")
        return self._breakable

    # ---- start

    async def _start_process(self, member: Member) -> str:
        from rocketlet.tools import broker_process

        assert self._nursery is not None
        file = self._settings.file.name if self._settings.file is not None else None
        flags = self._flags(member, self._namesrv_addresses)
        flags.setdefault("logLevel", logging.getLevelName(logging.getLogger("rocketlet").getEffectiveLevel()))
        address: str = await self._nursery.start(broker_process.serve, member.name, flags, file)
        return address

    async def _start_member(self, member: Member) -> str:
        loaded = self._broker_settings(member, self._namesrv_addresses)
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
        settings = self._settings
        flags = {key: text for key, text in settings.settings.items() if key in _grpc_keys()}
        flags |= {
            "namesrvAddr": ";".join(self._namesrv_addresses),
            "bindAddress": settings.host,
            "grpcServerPort": str(port),
        }
        if settings.advertise:
            flags["localServeAddr"] = settings.advertise
        servers = self._loaded[0]
        config = load(ProxyConfig, flags=flags)[ProxyConfig]
        self._grpc = Proxy(
            config,
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
        port = self._settings.metrics_port
        if port is None:
            return ""
        sources: list[Source] = [server.metrics for server in self._namesrvs]
        # Slaves have their masters' names, and the same series cannot be on a page twice.
        sources += [_OfMaster(self, member) for member in self._members if member.replica == 0]
        if self._grpc is not None:
            sources.append(self._grpc.metrics)
        endpoint = Endpoint(self._network, sources, self._loaded[0][MetricsConfig].metrics_max_series)
        try:
            address: str = await nursery.start(endpoint.serve, self._settings.host, port)
        except ListenFailed:
            if not self._settings.metrics_port_may_differ:
                raise
            address = await nursery.start(endpoint.serve, self._settings.host, 0)
        return address

    async def _start_namesrv(self, nursery: trio.Nursery, number: int) -> str:
        settings = self._settings
        flags = {"bindAddress": settings.host, "listenPort": str(_port(settings.namesrv_port, number, 1))}
        files = None
        if settings.directory is None:
            from rocketlet.namesrv.memory_files import MemoryFiles

            files = MemoryFiles()
        else:
            folder = f"{settings.directory}/namesrv" + (f"-{number}" if number else "")
            flags |= {"kvConfigPath": f"{folder}/kvConfig.json", "configStorePath": f"{folder}/namesrv.properties"}
        loaded = load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags)
        network = self._network
        if self._breakable is not None:
            network = self._breakable.of("namesrv" + (f"-{number}" if number else ""))
        server = NameServer(loaded, network, files=files, faults=self.namesrv_faults)
        address: str = await nursery.start(server.run)
        self._namesrvs.append(server)
        host, _, port = address.rpartition(":")
        return f"{LOOPBACK}:{port}" if host in ("0.0.0.0", "[::]") else address

    def _flags(self, member: Member, namesrvs: tuple[str, ...]) -> dict[str, str]:
        """The settings of one broker: those chosen by this stack, and those given for all."""
        settings = self._settings
        flags = {
            "brokerName": _name(member.number),
            "bindAddress": settings.host,
            "listenPort": str(_port(settings.broker_port, self._members.index(member), VIP_AND_REPLICATION)),
            "namesrvAddr": ";".join(namesrvs),
        }
        overrides = {key: text for key, text in settings.settings.items() if key not in _grpc_keys()}
        if self.elects:
            overrides |= {"failoverEnable": "true", "replicaId": str(member.replica + 1), "etcdEndpoints": ""}
        elif member.replica:
            overrides |= {"brokerRole": "SLAVE", "brokerId": str(member.replica)}
        elif settings.replicas > 1:
            overrides.setdefault("brokerRole", "SYNC_MASTER")
        if settings.directory is None:
            flags |= {"storePathRootDir": "store", **IN_MEMORY}
        else:
            flags["storePathRootDir"] = f"{settings.directory}/{member.name}"
        if settings.metrics_port is not None:
            flags["metricsExporterType"] = "DISABLE"  # one page has the metrics of all
        if settings.advertise:
            flags["brokerIP1"] = settings.advertise
        return flags | overrides

    def _broker_settings(self, member: Member, namesrvs: tuple[str, ...]) -> Loaded:
        return load(
            BrokerConfig,
            StoreConfig,
            ReplicationConfig,
            ServerConfig,
            PoolConfig,
            MetricsConfig,
            FailoverConfig,
            AccessConfig,
            file=self._settings.file,
            flags=self._flags(member, namesrvs),
        )

    def _disk(self) -> Disk:
        if self._settings.directory is None:
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
        leads = stack.master(_name(member.number)) if stack.elects else None
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


def _grpc_keys() -> set[str]:
    """The gRPC endpoint's own settings."""
    brokers = {setting.key for kind in (BrokerConfig, ServerConfig, PoolConfig) for setting in settings_of(kind)}
    return {setting.key for setting in settings_of(ProxyConfig)} - brokers


def _name(number: int) -> str:
    """`broker-a` for the first."""
    return f"broker-{chr(ord('a') + number)}"


def _port(first: int, number: int, step: int) -> int:
    """The port of the nth server; if the first takes a free port, all do."""
    return first + number * step if first else 0
