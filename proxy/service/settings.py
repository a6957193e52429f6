"""The answer to a client's settings: the settings, echoed with the server's own values in them. Pure.

A producer's back-off has to be exponential and a consumer's, for the Python client, customized; `metric` has to be
present and off. Illegal topics are left out rather than refused: a client that has tried one once would send it with
its settings forever.

Java: proxy/grpc/v2/common/GrpcClientSettingsManager.java
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.wire import messages as m
from rocketlet.remoting.protocol.configuration import GroupRetryPolicy, SubscriptionGroupConfig

DEFAULT_BACKOFF = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds before each next delivery: RocketMQ's delay levels, the shortest two left out."""
_MAX_STEPS = 64


def producer_settings(requested: m.Settings, config: ProxyConfig) -> m.Settings:
    """The answer to a producer."""
    answer = m.Settings()
    answer.CopyFrom(requested)
    policy = answer.backoff_policy
    policy.Clear()
    policy.max_attempts = config.grpc_client_producer_max_attempts
    backoff = policy.exponential_backoff
    _set_ms(backoff.initial, config.grpc_client_producer_backoff_initial_millis)
    _set_ms(backoff.max, config.grpc_client_producer_backoff_max_millis)
    backoff.multiplier = config.grpc_client_producer_backoff_multiplier
    answer.publishing.max_body_size = config.max_message_size
    answer.publishing.validate_message_type = config.enable_topic_message_type_check
    answer.metric.CopyFrom(m.Metric())
    return answer


def consumer_settings(requested: m.Settings, config: ProxyConfig, group: SubscriptionGroupConfig) -> m.Settings:
    """The answer to a consumer of a group."""
    answer = m.Settings()
    answer.CopyFrom(requested)
    answer.backoff_policy.CopyFrom(backoff_policy(group))
    subscription = answer.subscription
    subscription.fifo = group.is_orderly
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    _set_ms(subscription.long_polling_timeout, config.grpc_client_consumer_max_long_polling_timeout_millis)
    answer.metric.CopyFrom(m.Metric())
    return answer


def max_attempts(group: SubscriptionGroupConfig) -> int:
    """The maximum number of deliveries of a message."""
    return max(group.retryMaxTimes, 0) + 1


def backoff_policy(group: SubscriptionGroupConfig) -> m.RetryPolicy:
    """When a failed message of the group is redelivered."""
    policy = m.RetryPolicy(max_attempts=max_attempts(group))
    group_policy = group.groupRetryPolicy
    if isinstance(group_policy, GroupRetryPolicy):
        if group_policy.type == "EXPONENTIAL":
            exponential = group_policy.exponentialRetryPolicy or None
            backoff = policy.exponential_backoff
            _set_ms(backoff.initial, exponential.initial if exponential else 5_000)
            _set_ms(backoff.max, exponential.max if exponential else 7_200_000)
            backoff.multiplier = exponential.multiplier if exponential else 2
            return policy
        if group_policy.customizedRetryPolicy and group_policy.customizedRetryPolicy.next:
            _set_steps(policy, group_policy.customizedRetryPolicy.next[:_MAX_STEPS])
            return policy
    _set_steps(policy, [seconds * 1000 for seconds in DEFAULT_BACKOFF])
    return policy


def _set_steps(policy: m.RetryPolicy, steps: Iterable[int]) -> None:
    for step in steps:
        _set_ms(policy.customized_backoff.next.add(), step)


def _set_ms(duration: m.Duration, ms: int) -> None:
    ms = max(ms, 0)
    duration.seconds = ms // 1000
    duration.nanos = ms % 1000 * 1_000_000
