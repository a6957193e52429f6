"""Namespaces: several tenants on one cluster, each seeing bare names.

A topic or group `x` of namespace `ns` is `ns%x` on the wire, its retry topic `%RETRY%ns%x`. Brokers do not know
namespaces; the client adds the prefix to what it sends and removes it from what it receives. System topics and groups
have none.

Java: common/protocol/NamespaceUtil.java
"""

from __future__ import annotations

from rocketlet.common import topic as topics
from rocketlet.common.message import MessageQueue

SEPARATOR = "%"


def wrap(namespace: str, name: str) -> str:
    """The name on the wire."""
    if not namespace or not name or topics.is_system_topic(name) or topics.is_system_group(name):
        return name
    prefix, bare = _split_prefix(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """The name that the user sees; names of other namespaces stay as they are."""
    if not namespace:
        return name
    prefix, bare = _split_prefix(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def wrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The queue as brokers know it."""
    return MessageQueue(wrap(namespace, queue.topic), queue.broker_name, queue.queue_id) if namespace else queue


def unwrap_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The queue as the user knows it."""
    return MessageQueue(unwrap(namespace, queue.topic), queue.broker_name, queue.queue_id) if namespace else queue


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (topics.RETRY_PREFIX, topics.DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
