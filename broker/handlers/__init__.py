"""Every request code that the broker answers. Whatever is not here is answered with 3.

Families share a limit of requests in progress (`remoting/dispatch.py`). The VIP port serves the same table without
pulls, which wait and would keep sends from their port.

Java: broker/BrokerController.java (registerProcessor)
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.broker.config import Settings
from rocketlet.broker.handlers.broker_state import BrokerState
from rocketlet.broker.handlers.client_relays import ClientRelays
from rocketlet.broker.handlers.configuration import Configuration
from rocketlet.broker.handlers.connections import Connections
from rocketlet.broker.handlers.consume_progress import ConsumeProgress
from rocketlet.broker.handlers.end_transaction import EndTransaction
from rocketlet.broker.handlers.group_admin import GroupAdmin
from rocketlet.broker.handlers.lock_queues import LockQueues
from rocketlet.broker.handlers.membership import Membership
from rocketlet.broker.handlers.pull_message import PullMessage
from rocketlet.broker.handlers.queries import Queries
from rocketlet.broker.handlers.queue_offsets import QueueOffsets
from rocketlet.broker.handlers.reply_message import ReplyMessage
from rocketlet.broker.handlers.send_back import SendBack
from rocketlet.broker.handlers.send_message import SendMessage
from rocketlet.broker.handlers.store_admin import StoreAdmin
from rocketlet.broker.handlers.topic_admin import TopicAdmin
from rocketlet.broker.overload import Overload
from rocketlet.remoting.handler import Handler, HandlerTable
from rocketlet.remoting.protocol import configuration, inspection, membership, offsets, pulling, sending, transactions
from rocketlet.remoting.request_codes import RequestCode


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the table is made of."""

    send: SendMessage
    send_back: SendBack
    reply: ReplyMessage
    end_transaction: EndTransaction
    pull: PullMessage
    queries: Queries
    queue_offsets: QueueOffsets
    membership: Membership
    locks: LockQueues
    topics: TopicAdmin
    groups: GroupAdmin
    configuration: Configuration
    connections: Connections
    relays: ClientRelays
    progress: ConsumeProgress
    state: BrokerState
    store: StoreAdmin


def handler_table(by: Handlers, overload: Overload, settings: Settings) -> HandlerTable:
    """Code → handler, on one page. Sends look themselves, once a turn, whether they waited too long."""
    code = RequestCode
    pull = overload.guarded(by.pull.handle, lambda: settings.now.wait_time_mills_in_pull_queue)
    heartbeat = overload.guarded(by.membership.heartbeat, lambda: settings.now.wait_time_mills_in_heartbeat_queue)
    end = overload.guarded(by.end_transaction.end, lambda: settings.now.wait_time_mills_in_transaction_queue)
    return {
        # Messages
        code.SEND_MESSAGE: Handler(by.send.handle, sending.SendMessageHeader, "send"),
        code.SEND_MESSAGE_V2: Handler(by.send.handle, sending.SendMessageHeaderV2, "send"),
        code.SEND_BATCH_MESSAGE: Handler(by.send.handle, sending.SendMessageHeaderV2, "send"),
        code.CONSUMER_SEND_MSG_BACK: Handler(by.send_back.handle, sending.ConsumerSendMsgBackHeader, "send"),
        code.SEND_REPLY_MESSAGE: Handler(by.reply.handle, sending.SendMessageHeader, "reply"),
        code.SEND_REPLY_MESSAGE_V2: Handler(by.reply.handle, sending.SendMessageHeaderV2, "reply"),
        code.END_TRANSACTION: Handler(end, transactions.EndTransactionHeader, "transaction"),
        code.RESUME_CHECK_HALF_MESSAGE: Handler(by.end_transaction.resume, transactions.ResumeCheckHalfMessageHeader),
        code.PULL_MESSAGE: Handler(pull, pulling.PullMessageHeader, "pull"),
        code.LITE_PULL_MESSAGE: Handler(pull, pulling.PullMessageHeader, "pull"),
        code.QUERY_MESSAGE: Handler(by.queries.by_key, pulling.QueryMessageHeader, "query"),
        code.VIEW_MESSAGE_BY_ID: Handler(by.queries.by_offset, pulling.ViewMessageHeader, "query"),
        # Positions
        code.QUERY_CONSUMER_OFFSET: Handler(by.queue_offsets.query, offsets.QueryConsumerOffsetHeader, "consumer"),
        code.UPDATE_CONSUMER_OFFSET: Handler(by.queue_offsets.update, offsets.UpdateConsumerOffsetHeader, "consumer"),
        code.SEARCH_OFFSET_BY_TIMESTAMP: Handler(by.queue_offsets.by_time, offsets.SearchOffsetHeader),
        code.GET_MAX_OFFSET: Handler(by.queue_offsets.maximum, offsets.QueueHeader),
        code.GET_MIN_OFFSET: Handler(by.queue_offsets.minimum, offsets.QueueHeader),
        code.GET_EARLIEST_MSG_STORETIME: Handler(by.queue_offsets.earliest_time, offsets.QueueHeader),
        # Who is there
        code.HEART_BEAT: Handler(heartbeat, None, "heartbeat"),
        code.UNREGISTER_CLIENT: Handler(by.membership.unregister, membership.UnregisterClientHeader, "client"),
        code.GET_CONSUMER_LIST_BY_GROUP: Handler(
            by.membership.list_group, membership.GetConsumerListHeader, "consumer"
        ),
        code.CHECK_CLIENT_CONFIG: Handler(by.membership.check, None, "client"),
        code.LOCK_BATCH_MQ: Handler(by.locks.lock),
        code.UNLOCK_BATCH_MQ: Handler(by.locks.unlock),
        # Topics, groups, settings
        code.UPDATE_AND_CREATE_TOPIC: Handler(by.topics.create, configuration.CreateTopicHeader),
        code.DELETE_TOPIC_IN_BROKER: Handler(by.topics.delete, configuration.DeleteTopicHeader),
        code.GET_ALL_TOPIC_CONFIG: Handler(by.topics.all),
        code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Handler(by.topics.system_topics),
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Handler(by.groups.update),
        code.DELETE_SUBSCRIPTIONGROUP: Handler(by.groups.delete, configuration.DeleteSubscriptionGroupHeader),
        code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Handler(by.groups.all),
        code.UPDATE_BROKER_CONFIG: Handler(by.configuration.update),
        code.GET_BROKER_CONFIG: Handler(by.configuration.get),
        # Clients, seen by administrators
        code.GET_CONSUMER_CONNECTION_LIST: Handler(by.connections.consumers, inspection.ConsumerGroupHeader),
        code.GET_PRODUCER_CONNECTION_LIST: Handler(by.connections.producers, inspection.ProducerGroupHeader),
        code.GET_ALL_PRODUCER_INFO: Handler(by.connections.all_producers),
        code.INVOKE_BROKER_TO_RESET_OFFSET: Handler(by.relays.reset_offset, offsets.ResetOffsetHeader),
        code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Handler(by.relays.consumer_status, offsets.ConsumerStatusHeader),
        code.GET_CONSUMER_RUNNING_INFO: Handler(by.relays.running_info, inspection.GetConsumerRunningInfoHeader),
        code.CONSUME_MESSAGE_DIRECTLY: Handler(by.relays.consume_directly, inspection.ConsumeMessageDirectlyHeader),
        code.GET_CONSUME_STATS: Handler(by.progress.of_group, inspection.GetConsumeStatsHeader),
        code.GET_BROKER_CONSUME_STATS: Handler(by.progress.of_all_groups, inspection.GetBrokerConsumeStatsHeader),
        code.QUERY_TOPIC_CONSUME_BY_WHO: Handler(by.progress.who_consumes, inspection.TopicHeader),
        code.QUERY_CONSUME_TIME_SPAN: Handler(by.progress.time_spans, inspection.QueryConsumeTimeSpanHeader),
        code.QUERY_CORRECTION_OFFSET: Handler(by.progress.correction, offsets.QueryCorrectionOffsetHeader),
        code.CLONE_GROUP_OFFSET: Handler(by.progress.clone, offsets.CloneGroupOffsetHeader),
        # Broker and store
        code.GET_BROKER_RUNTIME_INFO: Handler(by.state.runtime_info),
        code.VIEW_BROKER_STATS_DATA: Handler(by.state.view_stats, inspection.ViewBrokerStatsHeader),
        code.GET_ALL_DELAY_OFFSET: Handler(by.state.delay_offsets),
        code.GET_ALL_CONSUMER_OFFSET: Handler(by.store.consumer_offsets),
        code.GET_TOPIC_STATS_INFO: Handler(by.store.topic_stats, inspection.TopicHeader),
        code.QUERY_CONSUME_QUEUE: Handler(by.store.queue_entries, inspection.QueryConsumeQueueHeader),
        code.CLEAN_EXPIRED_CONSUMEQUEUE: Handler(by.store.clean_queues),
        code.CLEAN_UNUSED_TOPIC: Handler(by.store.clean_unused_topics),
        code.DELETE_EXPIRED_COMMITLOG: Handler(by.store.delete_expired_log),
    }


def without_pulls(table: HandlerTable) -> HandlerTable:
    """What the VIP port serves."""
    return {code: handler for code, handler in table.items() if handler.family != "pull"}
