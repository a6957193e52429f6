"""How a broker's requests are answered: every handler with the parts it needs, and what surrounds a turn of them.

Java: broker/BrokerController.java (registerProcessor)
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from rocketlet.access.account_requests import AccountRequests
from rocketlet.access.audit import Change, audited
from rocketlet.broker.audited_changes import AuditedChanges
from rocketlet.broker.detours import Detours
from rocketlet.broker.durability import BySlave, Durability, Guarantee
from rocketlet.broker.duties import Duties
from rocketlet.broker.handlers.broker_state import BrokerState
from rocketlet.broker.handlers.client_relays import ClientRelays
from rocketlet.broker.handlers.configuration import Configuration
from rocketlet.broker.handlers.connections import Connections
from rocketlet.broker.handlers.consume_progress import ConsumeProgress
from rocketlet.broker.handlers.end_transaction import EndTransaction
from rocketlet.broker.handlers.group_admin import GroupAdmin
from rocketlet.broker.handlers.in_flight import InFlightAdmin
from rocketlet.broker.handlers.lock_queues import LockQueues
from rocketlet.broker.handlers.membership import Membership
from rocketlet.broker.handlers.pop_acks import PopAcks
from rocketlet.broker.handlers.pop_answers import PopAnswers
from rocketlet.broker.handlers.pop_message import PopMessage
from rocketlet.broker.handlers.pull_answers import PullAnswers
from rocketlet.broker.handlers.pull_checks import PullChecks
from rocketlet.broker.handlers.pull_message import PullMessage
from rocketlet.broker.handlers.queries import Queries
from rocketlet.broker.handlers.queue_offsets import QueueOffsets
from rocketlet.broker.handlers.recall_message import RecallMessage
from rocketlet.broker.handlers.replica_group import GroupAdmin as ReplicaGroupAdmin
from rocketlet.broker.handlers.replicas import Replicas
from rocketlet.broker.handlers.reply_message import ReplyMessage
from rocketlet.broker.handlers.request_modes import RequestModesAdmin
from rocketlet.broker.handlers.send_answers import SendAnswers
from rocketlet.broker.handlers.send_back import SendBack
from rocketlet.broker.handlers.send_message import SendMessage
from rocketlet.broker.handlers.send_together import SendTogether
from rocketlet.broker.handlers.store_admin import StoreAdmin
from rocketlet.broker.handlers.topic_admin import TopicAdmin
from rocketlet.broker.offset_moved import OffsetMovedEvents
from rocketlet.broker.parts import Parts, no_bits
from rocketlet.broker.topic_routes import TopicRoutes
from rocketlet.common.clock import monotonic_ms
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.handler import HandlerTable, HasTable, handler_table


class Requests:
    """See the module. `table` has the handler of each request code."""

    def __init__(self, parts: Parts, duties: Duties, faults: Faults | None, nursery: trio.Nursery) -> None:
        """`nursery` runs what outlasts a request."""
        self._parts, self._duties, self._nursery = parts, duties, nursery
        group = parts.group
        replicated: Guarantee = BySlave(duties.feed, parts.replication_config, nursery)
        if group is not None:
            replicated = group.guarantee(parts.replication_config, nursery)
        self._durability = Durability(
            parts.store, parts.tables.topics_file, replicated, nursery, strict=group is not None
        )
        self._answers = SendAnswers(
            parts.identity,
            parts.settings,
            parts.send_terms,
            self._durability,
            parts.tables.topics_file,
            parts.registration.wait_registered_briefly,
            nursery,
            parts.statistics.put_times,
        )
        self._pop_answers = PopAnswers(parts.pops, self._durability)
        self.before_answers = self._pop_answers.write
        """What comes before the answers of a turn are sent."""
        parts.waiting_pops.tried = self._pop_answers.finish
        self._accounts = AccountRequests(
            parts.access.table if parts.access.enabled else None,
            lambda: (parts.identity.name, parts.identity.address, parts.identity.cluster),
        )
        table = handler_table([*self._handlers(), self._accounts])
        table = parts.overload.wrap(audited(table, self._audited_changes()))
        if group is not None:
            table = group.wrap(table)
        self.table: HandlerTable = table if faults is None else faults.wrap(table)

    def after_turn(self) -> None:
        """What follows the requests of a turn."""
        parts, answers, statistics = self._parts, self._answers, self._parts.statistics
        parts.settle()
        statistics.put_times.turn(statistics.put.calls - answers.waits, parts.overload.pass_ms())
        answers.after_turn()

    def _audited_changes(self) -> Mapping[int, Change]:
        parts = self._parts
        changes = AuditedChanges(parts.settings, parts.tables.topics, parts.tables.groups)
        return {**changes.by_code(), **self._accounts.changes()}

    def _handlers(self) -> list[HasTable]:
        parts, nursery = self._parts, self._nursery
        answers, pop_answers, durability = self._answers, self._pop_answers, self._durability
        identity, settings, store, tables = parts.identity, parts.settings, parts.store, parts.tables
        topics, groups, offsets = tables.topics, tables.groups, tables.offsets
        clients, statistics, clock = parts.clients, parts.statistics, parts.clock
        pops, waiting_pops, registration = parts.pops, parts.waiting_pops, parts.registration
        bits = parts.filter_bits()
        detours = Detours(identity, settings, topics, groups, store.config.delay_level_count, clock)
        events = OffsetMovedEvents(identity, store, clock, statistics.put)
        parts.state = BrokerState(
            settings, store, statistics, self._duties.delay_progress, parts.disk.usage, clock, self._group_table
        )
        kept_bits = None if bits is no_bits else bits
        together = SendTogether(parts.targets, answers, store, statistics, keeps_filter_bits=kept_bits is not None)
        checks = PullChecks(identity, settings, parts.overload, tables, clients)
        routes = TopicRoutes(identity, settings, topics, parts.pool)
        return [
            SendMessage(parts.targets, detours, answers, store, statistics, kept_bits, together.serve),
            SendBack(
                identity,
                settings,
                topics,
                groups,
                store,
                durability,
                registration.wait_registered_briefly,
                statistics,
                parts.rng,
                bits,
            ),
            ReplyMessage(identity, settings, parts.targets, clients.producers, store, clock, parts.settle, bits),
            EndTransaction(identity, parts.halves, durability, statistics),
            PullMessage(
                identity,
                checks,
                PullAnswers(identity, settings, store, statistics, parts.recent_bytes, events, nursery),
                offsets,
                store,
                parts.long_poll,
            ),
            PopMessage(checks, pops, waiting_pops, store, statistics, clock, nursery, pop_answers),
            PopAcks(topics, pops, pop_answers),
            InFlightAdmin(pops, waiting_pops, parts.timers),
            RecallMessage(identity, settings, parts.timers, durability, clock),
            RequestModesAdmin(identity, topics, clients, tables.modes, tables.modes_file, routes),
            Queries(store),
            QueueOffsets(offsets, tables.offsets_file, store, parts.recent_bytes, nursery),
            Membership(settings, topics, groups, clients, registration),
            LockQueues(parts.locks, monotonic_ms, tables.changes.notify),
            TopicAdmin(identity, tables, registration, store, statistics),
            GroupAdmin(identity, tables, statistics),
            Configuration(settings, topics, registration),
            Connections(clients),
            ClientRelays(identity, clients, topics, offsets, store),
            ConsumeProgress(
                identity, topics, groups, clients, parts.lag, offsets, tables.offsets_file, store, statistics, clock
            ),
            parts.state,
            StoreAdmin(identity, topics, clients, tables.filters, offsets, store),
            ReplicaGroupAdmin(lambda: parts.group.driver if parts.group is not None else None),
            Replicas(parts, self._duties, nursery),
        ]

    def _group_table(self) -> dict[str, str]:
        return self._parts.group.table() if self._parts.group is not None else {}
