"""A name server, a master and its slaves, in one trio run: network and disks in memory, in virtual time.

async with pair(slaves=2) as cluster:
    answer = await cluster.master.send("T", b"hi")
    await cluster.caught_up()
    cluster.same_log()
    await cluster.kill("slave-1")
    await cluster.start("slave-1")
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import trio

from rocketlet.access.config import AccessConfig
from rocketlet.broker.broker import Broker
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.config_file import Loaded
from rocketlet.common.settings import settings_of
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
    """One broker of the pair, with a client that talks to it. `broker` is None while it is not running."""

    def __init__(self, name: str, number: int, pool: ConnectionPool) -> None:
        super().__init__(pool, f"10.1.0.{number + 10}:10911")
        self.name = name
        self.number = number
        self.broker: Broker | None = None
        self.disk = MemoryDisk(page_size=512)
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.ended.set()

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def ha_address(self) -> str:
        return f"{self.host}:10912"

    @property
    def store(self) -> MessageStore:
        assert self.broker is not None, f"{self.name} is not running"
        return self.broker.store

    def log(self) -> bytes:
        return b"".join(bytes(view) for _, view in self.store.log.file_views())


class Pair:
    """Members by name: `master`, `slave-1`, `slave-2` ..."""

    def __init__(
        self, nursery: trio.Nursery, pool: ConnectionPool, network: MemoryNetwork, settings: dict[str, object]
    ):
        self.network = network
        self.clock = TrioWallClock(START_MS)
        self.random = Random(7)
        self.members: dict[str, Member] = {}
        self.crashes = 0
        self._nursery = nursery
        self._pool = pool
        self._settings = settings

    @property
    def master(self) -> Member:
        return self.members["master"]

    def slave(self, number: int = 1) -> Member:
        return self.members[f"slave-{number}"]

    async def start(self, name: str, **more: object) -> Member:
        """Start a member on the disk that it had; a new name gets an empty one."""
        present = self.members.get(name)
        if present is None:
            present = self.members[name] = Member(name, len(self.members), self._pool)
        member = present
        await member.ended.wait()
        role: dict[str, object] = {} if name == "master" else {"broker_role": "SLAVE", "broker_id": member.number}
        loaded = loaded_settings(
            **{
                "broker_name": NAME,
                "bind_address": member.host,
                "namesrv_addr": (NAMESRV,),
                **role,
                **{key: value for key, value in self._settings.items() if name == "master" or key != "broker_role"},
                **more,
            }
        )
        broker = Broker(
            loaded,
            self.network.of_host(member.host),
            member.disk,
            clock=self.clock,
            rng=Random(self.random.getrandbits(32)),
        )
        member.broker, member.ended = broker, trio.Event()
        ready = trio.Event()
        self._nursery.start_soon(self._host, member, broker, ready)
        await ready.wait()
        return member

    def doom(self, name: str, after: int, *, power_cut: bool) -> None:
        """Make a member die after that many more calls that change its disk: by a kill, or by a power cut."""
        member = self.members[name]
        disk = member.disk

        def die() -> None:
            if member.disk is disk:
                self.network.separate(member.host, "*")
                member.disk = disk.crash(self.random) if power_cut else disk.copy()
                member.broker = None
                self.crashes += 1

        disk.power_cut_in, disk.on_power_cut = after, die

    async def _host(self, member: Member, broker: Broker, ready: trio.Event) -> None:
        """`ready` is set when it serves, or when its disk has ended it before."""
        try:
            async with trio.open_nursery() as nursery:
                member.scope = nursery.cancel_scope
                await nursery.start(broker.run)
                ready.set()
        except* PowerCut:
            self.network.cut_host(member.host)
            self.network.unite(member.host, "*")
        finally:
            ready.set()
            member.ended.set()

    async def stop(self, name: str) -> None:
        """Stop it cleanly."""
        member = self.members[name]
        member.scope.cancel()
        await trio.sleep(5)
        member.broker = None

    async def kill(self, name: str, *, power_cut: bool = False) -> None:
        """As `kill -9`: nothing more is sent. A power cut also loses any part of what was not flushed."""
        member = self.members[name]
        self.network.separate(member.host, "*")
        disk = member.disk
        member.disk = disk.crash(self.random) if power_cut else disk.copy()
        self.network.cut_host(member.host)
        member.scope.cancel()
        member.broker = None
        await trio.sleep(5)
        self.network.unite(member.host, "*")
        self.network.cut_host(member.host)

    async def caught_up(self, seconds: float = 60) -> None:
        """Wait until all running slaves have the master's whole log, dispatched."""
        with trio.fail_after(seconds):
            for member in self.members.values():
                if member is not self.master and member.broker is not None:
                    await member.store.dispatched.reach(self.master.store.dispatched.value)

    def same_log(self) -> None:
        """Assert that the logs of all running members are identical."""
        expected = self.master.log()
        for member in self.members.values():
            if member.broker is not None:
                assert member.log() == expected, f"{member.name}: {len(member.log())} of {len(expected)} bytes"


@asynccontextmanager
async def pair(
    *, slaves: int = 1, client: PoolConfig | None = None, namesrv: ServerConfig | None = None, **settings: object
) -> AsyncIterator[Pair]:
    """A master and that many slaves. `settings` apply to all members, `broker_role` to the master."""
    network = MemoryNetwork(host="10.2.0.1")
    async with trio.open_nursery() as nursery, ConnectionPool(network, client or PoolConfig()) as pool:
        servers = NamesrvConfig(bind_address="10.1.0.1", listen_port=9876)
        configs = (servers, namesrv or ServerConfig(), MetricsConfig(), AccessConfig())
        origins = {setting.key: "default" for config in configs for setting in settings_of(type(config))}
        await nursery.start(NameServer(Loaded(configs, origins), network, files=MemoryFiles()).run)
        cluster = Pair(nursery, pool, network, settings)
        await cluster.start("master")
        for number in range(1, slaves + 1):
            await cluster.start(f"slave-{number}")
        yield cluster
        nursery.cancel_scope.cancel()
