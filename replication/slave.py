"""What a slave does: it finds its master, follows its log, and makes its tables follow the master's.

The master is the one of `haMasterAddress`, else the one the name servers return. Its ordinary address is assumed to be
one port below `haMasterAddress`, as in RocketMQ's defaults, until a name server returns it.

Java: broker/slave/SlaveSynchronize.java, store/ha/HAService.java (HAClient)
"""

from __future__ import annotations

from collections.abc import Callable

from rocketlet.remoting.transport import join_address, split_address
from rocketlet.replication.config import ReplicationConfig
from rocketlet.replication.follow import Master, MasterPlace


class MasterFinder:
    """Where the master is, from settings and name servers."""

    def __init__(self, config: Callable[[], ReplicationConfig]) -> None:
        self._config = config
        self._reported: Master | None = None
        self.place = MasterPlace()

    def on_master(self, address: str, ha_address: str) -> None:
        """A name server has returned the master."""
        self._reported = Master(ha_address, address)
        self.update()

    def update(self) -> None:
        """The settings may have changed."""
        address = self._config().ha_master_address
        if not address or (self._reported is not None and self._reported.ha_address == address):
            self.place.set(self._reported)
        else:
            host, port = split_address(address)
            self.place.set(Master(address, join_address(host, port - 1)))
