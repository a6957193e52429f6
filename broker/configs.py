"""All kinds of settings that a broker reads, in the order in which they are shown.

Java: broker/BrokerStartup.java (createBrokerController)
"""

from __future__ import annotations

from rocketlet.access.config import AccessConfig
from rocketlet.broker.config import BrokerConfig
from rocketlet.failover.config import FailoverConfig
from rocketlet.metrics.config import MetricsConfig
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.replication.config import ReplicationConfig
from rocketlet.store.config import StoreConfig

BROKER_CONFIGS: tuple[type, ...] = (
    BrokerConfig,
    ServerConfig,
    PoolConfig,
    StoreConfig,
    ReplicationConfig,
    FailoverConfig,
    MetricsConfig,
    AccessConfig,
)
