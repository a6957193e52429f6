"""Whether this broker is a master or a slave, and the change from one to the other while it runs.

The settings determine the initial role: `brokerRole` and `brokerId` must be consistent, or the broker does not start.
An administrator may change it later (`mqadmin promoteSlave`, `demoteMaster`); that is saved in `rocketlet/role.json`
beside the log, with the settings that it replaced: once those are changed, the settings apply again.

A role is a task: what only a master does (delays, transaction checks, the port for slaves) or only a slave does
(following). To change it, the task is ended, the new role is saved durably, and the other task is started; they never
run together.

Java: broker/BrokerController.java (changeToSlave, changeToMaster), BrokerStartup.java
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import msgspec
import trio

from rocketlet.broker.config import BrokerConfig
from rocketlet.broker.identity import Identity
from rocketlet.broker.run_time_settings import RunTimeSettings
from rocketlet.common.config_file import Loaded
from rocketlet.common.errors import RocketletError
from rocketlet.common.settings import SettingsError
from rocketlet.replication.config import ReplicationConfig
from rocketlet.store.config import BrokerRole, StoreConfig
from rocketlet.store.disk import Disk

log = logging.getLogger("rocketlet.broker.role")

MASTER_ID = 0
ROLE_FILE = "rocketlet/role.json"


@dataclass(frozen=True, slots=True)
class Standing:
    """A broker's role among those of its name. `master` is the master's port for slaves, if a slave knows it."""

    role: BrokerRole
    broker_id: int
    master: str = ""

    @property
    def is_slave(self) -> bool:
        return self.role is BrokerRole.SLAVE


def configured(loaded: Loaded) -> Standing:
    """The role in the settings. Raises SettingsError if they contradict each other."""
    role, number = loaded[StoreConfig].broker_role, loaded[BrokerConfig].broker_id
    if role is BrokerRole.SLAVE and number == MASTER_ID:
        raise SettingsError(
            "brokerRole=SLAVE with brokerId=0: 0 is the master's; give each slave of a master a brokerId of its own,"
            " from 1 on"
        )
    if role is not BrokerRole.SLAVE and number != MASTER_ID:
        raise SettingsError(
            f"brokerId={number} with brokerRole={role.value}: a master has brokerId=0; for a slave set brokerRole=SLAVE"
        )
    return Standing(role, number, loaded[ReplicationConfig].ha_master_address)


def with_standing(loaded: Loaded, standing: Standing) -> Loaded:
    """The settings with this role."""
    configs: list[Any] = []
    for config in loaded.configs:
        if isinstance(config, StoreConfig):
            config = replace(config, broker_role=standing.role)
        elif isinstance(config, BrokerConfig):
            config = replace(config, broker_id=standing.broker_id)
        elif isinstance(config, ReplicationConfig):
            config = replace(config, ha_master_address=standing.master)
        configs.append(config)
    return Loaded(tuple(configs), loaded.origins, loaded.warnings, loaded.file_name)


class RoleFile:
    """The administrator's last decision, and the settings that it replaced."""

    def __init__(self, disk: Disk, loaded: Loaded) -> None:
        self._disk = disk
        self._path = f"{loaded[StoreConfig].store_path_root_dir}/{ROLE_FILE}"
        self._configured = configured(loaded)

    def read(self) -> Standing:
        """The role to begin with."""
        data = self._disk.read_file(self._path)
        if data is None:
            return self._configured
        try:
            content = msgspec.json.decode(data, type=dict[str, dict[str, Any]])
            if Standing(**content["configured"]) != self._configured:
                log.warning("%s is not followed any more: the settings have changed since", self._path)
                return self._configured
            now = content["now"]
            return Standing(BrokerRole(now["role"]), int(now["broker_id"]), str(now["master"]))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise SettingsError(
                f"{self._path} cannot be read ({error}): delete it to have brokerRole and brokerId of the settings"
            ) from error

    def write(self, standing: Standing) -> None:
        """Durably. Raises OSError."""
        text = msgspec.json.encode({"configured": asdict(self._configured), "now": asdict(standing)})
        self._disk.write_file(self._path, text + b"\n")


class Superseded(RocketletError):
    """Another change of the role came before this one was done."""


class Duty(Protocol):
    """The work of one role, until cancelled; `task_status` reports that it has started."""

    def __call__(self, *, task_status: trio.TaskStatus[None]) -> Awaitable[None]: ...


class Role:
    """Runs the duty of the broker's role. `changed` is called after each change, when the new duty has started."""

    def __init__(
        self,
        identity: Identity,
        settings: RunTimeSettings,
        file: RoleFile | None,
        standing: Standing,
        changed: Callable[[], None],
    ) -> None:
        self._identity = identity
        self._settings = settings
        self._file = file
        self._changed = changed
        self._scope = trio.CancelScope()
        self._settled = trio.lowlevel.ParkingLot()
        self._target = standing
        self._has_begun = False  # the duty of `now`
        self.now = standing

    async def run(
        self, as_master: Duty, as_slave: Duty, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Reports started once the first duty has started."""
        started = False
        while True:
            async with trio.open_nursery() as nursery:
                self._scope, self._has_begun = nursery.cancel_scope, False
                await nursery.start(as_slave if self.now.is_slave else as_master)
                if started:
                    log.warning("this broker is a %s now, with id %d", self.now.role.value, self.now.broker_id)
                    self._changed()
                else:
                    started = True
                    task_status.started()
                self._has_begun = True
                self._settled.unpark_all()
            # A cancellation from outside raises and does not get here.
            self._take(self._target)

    async def become(self, standing: Standing) -> None:
        """Change the role. Returns when the new duty has started; the decision is durable before that.

        Raises OSError, or Superseded if another change came first.
        """
        if standing == self._target == self.now:
            return
        if self._file is not None:  # electing replicas have nothing to remember
            self._file.write(standing)
        self._target = standing
        # From here on the old role is over: a master accepts no more sends, whatever its tasks still do.
        self._identity.slave = True
        self._changed()
        self._scope.cancel()
        self._settled.unpark_all()  # callers whose change this replaces
        while not self._has_begun or self.now != standing:
            if self._target != standing:
                raise Superseded(f"somebody made this broker a {self._target.role.value} meanwhile")
            await self._settled.park()

    def _take(self, standing: Standing) -> None:
        self.now = standing
        self._identity.broker_id, self._identity.slave = standing.broker_id, standing.is_slave
        self._settings.replaced(with_standing(self._settings.loaded, standing))
