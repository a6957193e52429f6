"""Metrics without a name in the other two sets: lag by queue and in seconds, flush, limits, registrations.

In base units, as Prometheus recommends: seconds and bytes.

Java: (none)
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketlet.broker.consumer_offsets import MAX_ENTRIES
from rocketlet.broker.metrics.progress import Progress
from rocketlet.broker.metrics.steps import STEP
from rocketlet.broker.parts import Parts
from rocketlet.broker.subscription_groups import MAX_GROUPS
from rocketlet.broker.topic_table import MAX_TOPICS
from rocketlet.metrics.config import MetricsConfig
from rocketlet.metrics.page import Page, Wait

_BROKER = ("cluster", "broker")
_QUEUE = (*_BROKER, "topic", "group", "queue")


def of_broker(parts: Parts, page: Page) -> Iterator[None]:
    """The broker as a whole."""
    identity, store, numbers = parts.identity, parts.store.statistics(), parts.statistics
    popped, timers = parts.pops.statistics(), parts.timers.statistics()
    this = (identity.cluster, identity.name)
    page.gauge("rocketlet_broker_role", "1, with the role as a label", (*_BROKER, "role", "broker_id")).add(
        (*this, parts.store.config.broker_role.value, str(identity.broker_id)), 1
    )
    for name, help, value in (
        ("puts_total", "Sends that were stored", numbers.put.calls),
        ("puts_failed_total", "Sends that were refused", numbers.put_failed),
        ("pulls_found_total", "Pulls that found messages", numbers.pulls_found),
        ("pulls_missed_total", "Pulls that found none", numbers.pulls_missed),
        ("flush_rounds_total", "Flushes of the log", store.flush_rounds),
        ("popped_total", "Messages that were popped, each delivery counted", popped.popped),
        ("popped_again_total", "Of these, deliveries after the first", popped.again),
        ("pop_acks_total", "Popped messages that were acknowledged", popped.acknowledged),
        ("pop_dead_letters_total", "Popped messages that went to the dead letters", popped.dead),
        ("timers_delivered_total", "Delayed messages that were delivered", timers.delivered),
        ("timers_recalled_total", "Delayed messages that were recalled", timers.recalled),
        ("timers_late_seconds_total", "How late delayed messages were stored, in all", timers.late_ms / 1000),
    ):
        page.counter(f"rocketlet_{name}", help, _BROKER).add(this, value)
    for name, help, value in (
        ("flush_waiting", "Turns whose answers wait for the disk", store.waiting),
        ("pulls_held", "Pulls that wait for messages", parts.long_poll.statistics().parked),
        ("pops_held", "Pops that wait for messages", parts.waiting_pops.statistics().parked),
        ("pops_in_flight", "Messages that were popped and are not acknowledged", popped.in_flight),
        ("timers_pending", "Delayed messages that wait for their moment", timers.pending),
        ("log_files", "Files of the log", store.log_files),
        ("queues", "Queues that have or had messages", store.queues),
        ("index_entries", "Keys that can be found", store.index_entries),
        ("sends_refused", "1 while the store takes no messages: a full disk", 1 if store.refusal else 0),
    ):
        page.gauge(f"rocketlet_{name}", help, _BROKER).add(this, value)
    times = numbers.put_times
    page.histogram("rocketlet_put_seconds", "From the turn that read a send to its answer", _BROKER).add_histogram(
        this, {round(bound / 1000, 6): count for bound, count in times.since_start().items()}, times.total_ms / 1000
    )
    yield
    connections = page.gauge("rocketlet_connections", "Open connections", (*_BROKER, "port"))
    for port, server in parts.servers.items():
        connections.add((*this, port), server.statistics().connections)
    used = page.gauge("rocketlet_limit_used", "How much of a limit is used", (*_BROKER, "limit"))
    limits = page.gauge("rocketlet_limit", "The limit itself", (*_BROKER, "limit"))
    for name, value, limit in (
        ("topics", len(parts.tables.topics), MAX_TOPICS),
        ("groups", len(parts.tables.groups), MAX_GROUPS),
        ("consumer_offsets", len(parts.tables.offsets), MAX_ENTRIES),
        ("held_pulls", parts.long_poll.statistics().parked, parts.settings.now.pull_thread_pool_queue_capacity),
    ):
        used.add((*this, name), value)
        limits.add((*this, name), limit)
    _of_group(parts, page)
    peers = parts.access.peers
    refused = page.counter(
        "rocketlet_peer_refused_total", "What peers wanted beyond a limit, by its setting", (*_BROKER, "setting")
    )
    for setting, count in peers.refused.items():
        refused.add((*this, setting), count)
    for name, help, number in (
        ("peer_unfinished_frame_bytes", "Long frames whose end has not come", peers.unfinished),
        ("peer_unread_answer_bytes", "Answers that wait for peers to read them", peers.unread),
    ):
        page.gauge(f"rocketlet_{name}", help, _BROKER).add(this, number)
    access = parts.access
    page.gauge("rocketlet_access_accounts", "Accounts that are in force", _BROKER).add(
        this, len(access.table.rules.accounts)
    )
    page.gauge("rocketlet_access_files_damaged", "1 while the accounts' files are not used", _BROKER).add(
        this, 1 if access.table.problem else 0
    )
    denied = page.counter("rocketlet_access_denied_total", "Requests that were not let in", (*_BROKER, "reason"))
    for reason, count in access.gate.denied.items():
        denied.add((*this, reason.value), count)
    registered = page.gauge("rocketlet_registered", "1 where the name server has this broker", (*_BROKER, "namesrv"))
    for address, is_known in parts.registration.places():
        registered.add((*this, address), 1 if is_known else 0)
    yield


def _of_group(parts: Parts, page: Page) -> None:
    """For replicas that elect their master."""
    driver = parts.group.driver if parts.group is not None else None
    if driver is None:
        return
    this, status = (parts.identity.cluster, parts.identity.name), driver.status()
    for name, help, value in (
        ("failover_epoch", "Of the leader that this replica is, or follows", status.epoch),
        ("failover_leads", "1 while this replica leads", 1 if status.state == "leading" else 0),
        ("failover_in_sync", "Replicas that an acknowledgement waits for, the leader counted", len(status.insync)),
        ("failover_confirmed_offset", "Up to where all of them have the log", status.confirmed),
        ("failover_coordinator_up", "1 while etcd answers", 0 if status.coordinator else 1),
        ("failover_cut_off_bytes", "Bytes that were cut off the log and are kept aside", status.cut_bytes),
    ):
        page.gauge(f"rocketlet_{name}", help, _BROKER).add(this, value)
    page.counter("rocketlet_failover_elections_total", "Elections that this replica won", _BROKER).add(
        this, status.elections
    )
    if driver.in_sync is not None:
        lag = page.gauge("rocketlet_failover_replica_lag_bytes", "What a replica lacks", (*_BROKER, "replica"))
        end = parts.store.log.end
        for member, replica in driver.in_sync.replicas.items():
            lag.add((*this, member.partition("/")[0]), max(end - replica.acked, 0))


def of_clients(parts: Parts, page: Page) -> Iterator[None]:
    """Groups whose members have different subscriptions, and so lose messages."""
    this = (parts.identity.cluster, parts.identity.name)
    family = page.gauge(
        "rocketlet_differing_subscriptions", "Topics on which the members of a group disagree", (*_BROKER, "group")
    )
    for group in list(parts.clients.consumers.all()):
        differences = group.differences()
        if differences:
            family.add((*this, group.name), len(differences))
        yield


def of_pops(parts: Parts, page: Page) -> Iterator[None]:
    """Popped and unacknowledged messages, by topic and group."""
    this = (parts.identity.cluster, parts.identity.name)
    family = page.gauge(
        "rocketlet_in_flight_messages",
        "Popped messages that are not acknowledged: invisible, due to come again, or held for their message group",
        (*_BROKER, "topic", "group", "state"),
    )
    for group, topic, counts in parts.pops.totals():
        for state, number in (("invisible", counts.invisible), ("due", counts.due), ("held", counts.held)):
            family.add((*this, topic, group, state), number)
        yield


def of_progress(parts: Parts, page: Page, progress: Progress) -> Iterator[Wait]:
    """Lag by queue, or by topic if there are too many queues."""
    this = (parts.identity.cluster, parts.identity.name, progress.topic.name, progress.group)
    if parts.loaded[MetricsConfig].metrics_lag_per_queue:
        messages = page.gauge("rocketlet_consumer_lag_messages", "Messages not consumed", _QUEUE)
        seconds = page.gauge("rocketlet_consumer_lag_seconds", "Age of the first message not consumed", _QUEUE)
        for queue in progress.queues:
            messages.add((*this, str(queue.queue_id)), queue.messages)
            seconds.add((*this, str(queue.queue_id)), queue.milliseconds / 1000)
            if queue.queue_id % STEP == STEP - 1:
                yield None
    else:
        labels = _QUEUE[:-1]
        page.gauge("rocketlet_consumer_lag_messages", "Messages not consumed", labels).add(this, progress.messages)
        page.gauge("rocketlet_consumer_lag_seconds", "Age of the first message not consumed", labels).add(
            this, progress.milliseconds / 1000
        )
