"""Replicas that elect their master, in one trio run: network, disks and coordinator in memory, in virtual time.

async with replicas(3) as cluster:
    leader = await cluster.leader()
    answer = await leader.send("T", b"hi")
    await cluster.kill(leader.number)
    await cluster.start(leader.number)
    cluster.same_log()
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.broker.broker import Broker
from rocketlet.broker.lives import run_restarting
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.config_file import Loaded
from rocketlet.common.settings import settings_of
from rocketlet.failover.driver import Driver, State
from rocketlet.failover.memory_coordinator import MemoryCoordination
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.store.memory_disk import MemoryDisk, PowerCut
from rocketlet.store.message_store import MessageStore
from tests.support.memory_broker import Client, loaded_settings
from tests.support.virtual_time import START_MS

NAMESRV = "10.1.0.1:9876"
NAME = "broker-a"


class Member(Client):
    """One replica, with a client that talks to it. `broker` is None while it is not running."""

    def __init__(self, number: int, pool: ConnectionPool) -> None:
        super().__init__(pool, f"10.1.0.{number + 10}:10911")
        self.number = number
        self.broker: Broker | None = None
        self.disk = MemoryDisk()
        self.scope = trio.CancelScope()
        self.ended = trio.Event()  # nothing of it runs any more
        self.ended.set()
        self.lives = 0

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def store(self) -> MessageStore:
        assert self.broker is not None, f"replica {self.number} is not running"
        return self.broker.store

    @property
    def driver(self) -> Driver | None:
        if self.broker is None or self.broker.parts.group is None:
            return None
        return self.broker.parts.group.driver

    @property
    def leads(self) -> bool:
        return self.driver is not None and self.driver.state is State.LEADING

    def log(self) -> bytes:
        return b"".join(bytes(view) for _, view in self.store.log.file_views())


class Replicas:
    """Members by number, from 1 on."""

    def __init__(
        self,
        nursery: trio.Nursery,
        pool: ConnectionPool,
        network: MemoryNetwork,
        seed: int,
        settings: dict[str, object],
    ) -> None:
        self.network = network
        self.clock = TrioWallClock(START_MS)
        self.random = Random(seed)
        self.members: dict[int, Member] = {}
        self.coordination = MemoryCoordination()
        self.crashes = 0  # at a call of the disk
        self._silenced: dict[int, str] = {}
        self._nursery = nursery
        self._pool = pool
        self._settings = settings

    async def start(self, number: int) -> Member:
        """Start a replica on the disk that it had; a new one gets an empty disk."""
        member = self.members.setdefault(number, Member(number, self._pool))
        await member.ended.wait()
        member.ended = trio.Event()
        ready = trio.Event()
        self._nursery.start_soon(self._host, member, ready)
        await ready.wait()
        return member

    async def _host(self, member: Member, ready: trio.Event) -> None:
        """`ready` is set when it serves, or when its disk ended it before."""
        loaded = loaded_settings(
            **{
                "broker_name": NAME,
                "bind_address": member.host,
                "namesrv_addr": (NAMESRV,),
                "failover_enable": True,
                "replica_id": member.number,
                **self._settings,
            }
        )

        def make(bound: str) -> Broker:
            member.lives += 1
            member.broker = Broker(
                loaded,
                self.network.of_host(member.host),
                member.disk,
                clock=self.clock,
                rng=Random(self.random.getrandbits(32)),
                coordination=self.coordination.session,
                bound=bound,
            )
            return member.broker

        try:
            with trio.CancelScope() as member.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(run_restarting, make)
                    ready.set()
        except* PowerCut:
            self._reconnect(member, self._silenced.pop(member.number, ""))
        finally:
            ready.set()
            member.ended.set()

    def doom(self, number: int, after: int, *, power_cut: bool) -> None:
        """Make a replica die after that many more calls that change its disk: by a kill, or by a power cut."""
        member = self.members[number]
        disk = member.disk

        def die() -> None:
            if member.disk is disk:
                self._silenced[number] = self._silence(member)
                member.disk = disk.crash(self.random) if power_cut else disk.copy()
                member.broker = None
                self.crashes += 1

        disk.power_cut_in, disk.on_power_cut = after, die

    async def kill(self, number: int, *, power_cut: bool = False, seconds: float = 5) -> None:
        """As `kill -9`: nothing more is sent. A power cut also loses any part of what was not flushed."""
        member = self.members[number]
        name = self._silence(member)
        disk = member.disk
        member.disk = disk.crash(self.random) if power_cut else disk.copy()
        self.network.cut_host(member.host)
        member.scope.cancel()
        member.broker = None
        await trio.sleep(seconds)
        await member.ended.wait()  # until its last task has ended
        self._reconnect(member, name)

    def _silence(self, member: Member) -> str:
        """Stop all its output. Returns its name at the coordinator, empty if it has none yet."""
        self.network.separate(member.host, "*")
        name = member.driver.status().member if member.driver is not None else ""
        self.coordination.cut_off.add(name)
        return name

    def _reconnect(self, member: Member, name: str) -> None:
        self.network.cut_host(member.host)
        self.network.unite(member.host, "*")
        self.coordination.cut_off.discard(name)

    async def stop(self, number: int) -> None:
        """Stop it cleanly."""
        self.members[number].scope.cancel()
        await trio.sleep(5)
        self.members[number].broker = None

    def leading(self) -> list[Member]:
        """The replicas that consider themselves the leader."""
        return [member for member in self.members.values() if member.leads]

    async def leader(self, seconds: float = 30) -> Member:
        """The leader, once there is one."""
        with trio.fail_after(seconds):
            while True:
                for member in self.leading():
                    if member.driver is not None and member.driver.epoch == self.coordination.state.epoch:
                        return member
                await trio.sleep(0.05)

    async def all_in_sync(self, seconds: float = 60) -> Member:
        """The leader, once every running replica is in sync and has all of its log confirmed."""
        with trio.fail_after(seconds):
            while True:
                leader = await self.leader()
                assert leader.driver is not None
                running = [member for member in self.members.values() if member.broker is not None]
                ends = {
                    (member.store.log.end, member.store.confirmed.value if member.store.confirmed else 0)
                    for member in running
                }
                if len(leader.driver.status().insync) == len(running) and len(ends) == 1 and len({*ends.pop()}) == 1:
                    return leader
                await trio.sleep(0.1)

    def same_log(self) -> None:
        """Assert that the logs of all running replicas are identical."""
        logs = {member.number: member.log() for member in self.members.values() if member.broker is not None}
        assert len(set(logs.values())) == 1, {number: len(log) for number, log in logs.items()}


@asynccontextmanager
async def replicas(size: int = 3, *, seed: int = 7, **settings: object) -> AsyncIterator[Replicas]:
    """A name server and that many replicas, numbered from 1."""
    network = MemoryNetwork(host="10.2.0.1")
    async with trio.open_nursery() as nursery, ConnectionPool(network, PoolConfig()) as pool:
        configs = (
            NamesrvConfig(bind_address="10.1.0.1", listen_port=9876),
            ServerConfig(),
            MetricsConfig(),
            AccessConfig(),
        )
        origins = {setting.key: "default" for config in configs for setting in settings_of(type(config))}
        namesrv = NameServer(Loaded(configs, origins), network, files=MemoryFiles())
        await nursery.start(namesrv.run)
        cluster = Replicas(nursery, pool, network, seed, settings)
        for number in range(1, size + 1):
            await cluster.start(number)
        yield cluster
        nursery.cancel_scope.cancel()
