"""How many requests of each family may be in progress, with RocketMQ's names and numbers.

Java: common/BrokerConfig.java (…ThreadPoolQueueCapacity)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FamilyLimit:
    """How many requests of a family may be in progress, and the name of that setting."""

    most: int
    setting: str


# RocketMQ's queue capacities; a broker passes its own settings.
DEFAULT_LIMITS: Mapping[str, FamilyLimit] = {
    "send": FamilyLimit(10_000, "sendThreadPoolQueueCapacity"),
    "pull": FamilyLimit(100_000, "pullThreadPoolQueueCapacity"),
    "query": FamilyLimit(20_000, "queryThreadPoolQueueCapacity"),
    "client": FamilyLimit(1_000_000, "clientManagerThreadPoolQueueCapacity"),
    "consumer": FamilyLimit(1_000_000, "consumerManagerThreadPoolQueueCapacity"),
    "heartbeat": FamilyLimit(50_000, "heartbeatThreadPoolQueueCapacity"),
    "transaction": FamilyLimit(100_000, "endTransactionPoolQueueCapacity"),
}
OTHER_FAMILIES = FamilyLimit(10_000, "adminBrokerThreadPoolQueueCapacity")
