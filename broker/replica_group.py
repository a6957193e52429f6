"""One broker's part in a group of replicas that elect their master: the parts used with `failoverEnable`.

Java: broker/controller/ReplicasManager.java of 5.x
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import trio

from rocketlet.broker.durability import ByWatermark, Shortfall, Then
from rocketlet.broker.identity import Identity
from rocketlet.common.config_file import Loaded
from rocketlet.failover import truncation
from rocketlet.failover.config import REPLICA_PORT_STEP, FailoverConfig, failover_config
from rocketlet.failover.coordinator import Coordinator
from rocketlet.failover.driver import Driver, Stage
from rocketlet.failover.follow import ReplicaParts
from rocketlet.failover.own_state import OwnState, OwnStateFile
from rocketlet.failover.replica_port import GroupName, ReplicaPort
from rocketlet.remoting.config import ServerConfig
from rocketlet.remoting.handler import Answer, Deferred, HandlerTable, PlainFunction, Refused, Request
from rocketlet.remoting.protocol.replication import HAConnectionRuntimeInfo
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.remoting.transport import Network, join_address, split_address
from rocketlet.replication.config import ReplicationConfig
from rocketlet.replication.dial import Dial
from rocketlet.store.config import StoreConfig
from rocketlet.store.disk import Disk
from rocketlet.store.message_store import MessageStore
from rocketlet.store.replica import Replica

if TYPE_CHECKING:
    from rocketlet.remoting.own_context import OwnContext
    from rocketlet.remoting.tls import TlsContexts

log = logging.getLogger("rocketlet.broker.replica_group")

Coordination = Callable[[str, float], Coordinator]
"""Makes the session of a member with that lease time, in seconds."""


class ReplicaGroup:
    """Created with the broker; `open` is called before the store is opened, `start` once the broker's address is
    known."""

    def __init__(
        self,
        loaded: Loaded,
        identity: Identity,
        store: MessageStore,
        disk: Disk,
        network: Network,
        dial: Dial,
        tls: TlsContexts | OwnContext | None,
        rng: random.Random,
        coordination: Coordination | None,
        config: Callable[[], FailoverConfig],
    ) -> None:
        self._identity = identity
        self._store = store
        self._disk = disk
        self._network = network
        self._dial = dial
        self._tls = tls
        self._rng = rng
        self._loaded = loaded
        self._config = config
        self._coordination = coordination or _etcd(loaded, identity, network)
        self._state = OwnState("")
        self.driver: Driver | None = None
        self.confirmed = store.hold_unconfirmed()

    def open(self) -> None:
        """Finish an earlier run's intent. REQUIRES a store that is not open. Raises StateUnreadable, OSError."""
        store_config = self._loaded[StoreConfig]
        file = OwnStateFile(self._disk, store_config)
        state = file.open(f"{self._rng.getrandbits(48):012x}")
        self._state = truncation.finish(self._disk, store_config, file, state)
        self._file = file

    async def start(self, nursery: trio.Nursery, replica: Replica, stage: Stage) -> Driver:
        """Listen for the other replicas, and begin. Returns once the port is bound."""
        loaded, config = self._loaded, self._config()
        server, replication = loaded[ServerConfig], loaded[ReplicationConfig]
        silence = max(config.lease_seconds, 2.0)
        group_name = GroupName(self._identity.cluster, self._identity.name)
        port = ReplicaPort(
            self._network, group_name, self._store, silence,
            allowed=lambda: replication.ha_allowed, tls_mode=server.tls_mode, tls=self._tls,
        )  # fmt: skip
        host, _ = split_address(self._identity.address)
        bind, listen = self._bound()
        address: str = await nursery.start(port.serve, bind, listen)
        member = f"{config.replica_id}/{self._state.store}"
        parts = ReplicaParts(
            group_name,
            member,
            self._identity.address,
            self._store,
            replica,
            self._file,
            self._dial,
            stage.settle,
            silence,
        )
        coordinator = self._coordination(member, config.lease_seconds)
        group = f"{self._rng.getrandbits(48):012x}"
        self.driver = Driver(parts, self._state, coordinator, port, self._config, self._disk, stage, group)
        self.driver.replica_address = config.replica_address or join_address(host, split_address(address)[1])
        log.info("this broker is replica %s of %s", member, self._identity.name)
        nursery.start_soon(self.driver.run)
        return self.driver

    def _bound(self) -> tuple[str, int]:
        from rocketlet.broker.config import BrokerConfig

        broker = self._loaded[BrokerConfig]
        port = self._config().replica_listen_port
        return broker.bind_address, port or (broker.listen_port and broker.listen_port + REPLICA_PORT_STEP)

    def table(self) -> dict[str, str]:
        """The state for display, in runtime info, in `haStatus` and in the console."""
        if self.driver is None:
            return {}
        status = self.driver.status()
        return {
            "failoverState": status.state,
            "replica": status.member,
            "epoch": str(status.epoch),
            "leader": status.leader,
            "inSyncReplicas": ",".join(status.insync),
            "confirmedOffset": str(status.confirmed),
            "elections": str(status.elections),
            "coordinatorTrouble": status.coordinator,
            "failoverTrouble": status.trouble,
            "cutOffFiles": str(status.cut_files),
            "cutOffBytes": str(status.cut_bytes),
        }

    def connections(self) -> list[HAConnectionRuntimeInfo]:
        """A leader's replicas."""
        in_sync = self.driver.in_sync if self.driver is not None else None
        if in_sync is None:
            return []
        end = self._store.log.end
        return [
            HAConnectionRuntimeInfo(
                replica.address or member,
                replica.acked,
                max(end - replica.acked, 0),
                member in in_sync.state.insync,
                0,
                replica.acked,
            )
            for member, replica in in_sync.replicas.items()
        ]

    def wrap(self, table: HandlerTable) -> HandlerTable:
        """The table, in which pulls are refused until everything the log had at the start is known to be confirmed.

        Opening a store dispatches everything it finds, and some of that may still be cut off.
        """
        opened_at: int | None = None

        def guarded(function: PlainFunction) -> PlainFunction:
            def pull(request: Request) -> Answer | Deferred:
                nonlocal opened_at
                if opened_at is None:
                    opened_at = self._store.report.log_end
                if self.confirmed.value < opened_at:
                    raise Refused(ResponseCode.SYSTEM_BUSY, "this replica does not know yet what is confirmed")
                return function(request)

            return pull

        return {
            code: handler.wrapped(guarded(cast(PlainFunction, handler.function)))
            if handler.family == "pull"
            else handler
            for code, handler in table.items()
        }

    def guarantee(self, config: Callable[[], ReplicationConfig], nursery: trio.Nursery) -> ByInSync:
        """The guarantee of a leader's acknowledgement."""
        return ByInSync(self, config, nursery)

    def current_epoch(self) -> int:
        """The epoch of the leader that this broker follows or is; 0 before there was one."""
        return self.driver.epoch if self.driver is not None else self._state.promised

    def may_register(self) -> bool:
        """Whether this broker may be registered with the name servers now."""
        return self.driver is None or self.driver.may_register()


class ByInSync:
    """The guarantee of a leader: every replica in sync has it. It is late after `slaveTimeout` (12); if meanwhile too
    few are in sync, or another one leads, it fails (1), and the sender retries."""

    def __init__(self, group: ReplicaGroup, config: Callable[[], ReplicationConfig], nursery: trio.Nursery) -> None:
        self._group = group
        self._confirmed = ByWatermark(group.confirmed, lambda: config().slave_timeout, _late, nursery)

    def call(self, end: int, then: Then) -> None:
        """See Guarantee."""
        self._confirmed.call(end, lambda shortfall: then(shortfall or self._too_few(end)))

    def _too_few(self, end: int) -> Shortfall | None:
        driver = self._group.driver
        if driver is not None and driver.has_enough():
            return None
        return Shortfall(ResponseCode.SYSTEM_ERROR, "too few replicas are in sync (minInSyncReplicas)", 0)


def _late(timeout_ms: float) -> tuple[ResponseCode, str]:
    return (
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        f"not all replicas in sync confirmed within {timeout_ms:g} ms (slaveTimeout)",
    )


def _etcd(loaded: Loaded, identity: Identity, network: Network) -> Coordination:
    from rocketlet.common.settings import SettingsError

    config = failover_config(loaded)
    if not config.etcd_endpoints:
        raise SettingsError("failoverEnable=true wants etcdEndpoints, as in http://host1:2379,http://host2:2379")
    from rocketlet.failover.etcd_coordinator import etcd_coordination

    return etcd_coordination(config, identity.cluster, identity.name, network)
