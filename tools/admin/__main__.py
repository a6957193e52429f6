"""The `mqadmin` command: RocketMQ's administration commands, with its names and options, and --json for machines.

One family a file beside this one, each imported when one of its commands is called. Exit codes as those of
`rocketlet`: 0 done, 1 failed, 2 wrong usage.

Java: tools/command/MQAdminStartup.java
"""

from __future__ import annotations

import sys

import click

from rocketlet.tools.late_group import VERSION, Commands, LateGroup, run

_TOPICS = "rocketlet.tools.admin.topics"
_GROUPS = "rocketlet.tools.admin.groups"
_CLIENTS = "rocketlet.tools.admin.clients"
_OFFSETS = "rocketlet.tools.admin.offsets"
_QUERIES = "rocketlet.tools.admin.queries"
_MESSAGES = "rocketlet.tools.admin.messages"
_BROKERS = "rocketlet.tools.admin.maintenance"
_SETTINGS = "rocketlet.tools.admin.settings"
_TIMES = "rocketlet.tools.admin.round_trips"
_EXPORTS = "rocketlet.tools.admin.exports"
_REPLICAS = "rocketlet.tools.admin.replicas"
_ACCESS = "rocketlet.tools.admin.access"
_POPPING = "rocketlet.tools.admin.popping"

COMMANDS: Commands = {
    "updateTopic": (_TOPICS, "update_topic", "Create a topic, or change one."),
    "deleteTopic": (_TOPICS, "delete_topic", "Delete a topic with its messages."),
    "updateTopicPerm": (_TOPICS, "update_topic_perm", "Change the permissions of a topic."),
    "topicRoute": (_TOPICS, "topic_route", "Which brokers serve a topic."),
    "topicStatus": (_TOPICS, "topic_status", "Show the offsets and times of each queue of a topic."),
    "topicClusterList": (_TOPICS, "topic_cluster_list", "List the clusters that serve a topic."),
    "topicList": (_TOPICS, "topic_list", "All topics."),
    "updateOrderConf": (_TOPICS, "update_order_conf", "Queues by broker of an ordered topic."),
    "allocateMQ": (_TOPICS, "allocate_mq", "Show which consumer would be assigned which queues."),
    "updateSubGroup": (_GROUPS, "update_sub_group", "Create a consumer group, or change one."),
    "deleteSubGroup": (_GROUPS, "delete_sub_group", "Delete a consumer group."),
    "getConsumerConfig": (_GROUPS, "get_consumer_config", "How a consumer group is configured."),
    "consumerProgress": (_GROUPS, "consumer_progress", "Show the lag of consumer groups."),
    "brokerConsumeStats": (_GROUPS, "broker_consume_stats", "How far all groups are at one broker."),
    "setConsumeMode": (_POPPING, "set_consume_mode", "Have a group of 5.x consumers pull or pop a topic."),
    "inFlight": (_POPPING, "in_flight", "Show popped messages that are not acknowledged."),
    "delayedMessages": (_POPPING, "delayed_messages", "Show how many messages wait for their moment."),
    "consumerConnection": (_CLIENTS, "consumer_connection", "Who consumes in a group."),
    "producerConnection": (_CLIENTS, "producer_connection", "Who produces in a group."),
    "producer": (_CLIENTS, "producer", "All producers of a broker."),
    "consumerStatus": (_CLIENTS, "consumer_status", "What consumers do inside."),
    "resetOffsetByTime": (_OFFSETS, "reset_offset_by_time", "Have a group consume from a moment on."),
    "skipAccumulatedMessage": (
        _OFFSETS,
        "skip_accumulated_message",
        "Skip the messages that a group has not consumed.",
    ),
    "cloneGroupOffset": (_OFFSETS, "clone_group_offset", "Have one group begin where another one is."),
    "queryMsgById": (_QUERIES, "query_msg_by_id", "A message by its offset id."),
    "queryMsgByKey": (_QUERIES, "query_msg_by_key", "Messages with a key."),
    "queryMsgByUniqueKey": (_QUERIES, "query_msg_by_unique_key", "A message by its producer's id."),
    "queryMsgByOffset": (_QUERIES, "query_msg_by_offset", "Find the message at an offset of a queue."),
    "queryMsgTraceById": (_QUERIES, "query_msg_trace_by_id", "What tracing clients recorded of a message."),
    "queryCq": (_QUERIES, "query_cq", "Entries of a queue."),
    "printMsg": (_MESSAGES, "print_msg", "Print the messages of a topic."),
    "printMsgByQueue": (_MESSAGES, "print_msg_by_queue", "Print or count the messages of a queue."),
    "consumeMessage": (_MESSAGES, "consume_message", "Print messages of a topic or a queue."),
    "sendMessage": (_MESSAGES, "send_message", "Send a message."),
    "checkMsgSendRT": (_TIMES, "check_msg_send_rt", "How long sends to a topic take."),
    "sendMsgStatus": (_TIMES, "send_msg_status", "Send to a broker."),
    "clusterRT": (_TIMES, "cluster_rt", "How long sends take, cluster by cluster."),
    "clusterList": (_BROKERS, "cluster_list", "All clusters and brokers."),
    "brokerStatus": (_BROKERS, "broker_status", "Show the runtime info of a broker."),
    "statsAll": (_BROKERS, "stats_all", "Messages in and out, by topic and group."),
    "wipeWritePerm": (_BROKERS, "wipe_write_perm", "Stop sends to a broker."),
    "addWritePerm": (_BROKERS, "add_write_perm", "Restore the write permission of a broker."),
    "cleanExpiredCQ": (_BROKERS, "clean_expired_cq", "Delete queue files that point at nothing."),
    "deleteExpiredCommitLog": (_BROKERS, "delete_expired_commit_log", "Delete log files that are too old."),
    "cleanUnusedTopic": (_BROKERS, "clean_unused_topic", "Delete queue files of deleted topics."),
    "haStatus": (_REPLICAS, "ha_status", "Show who follows whom, and how closely."),
    "promoteSlave": (_REPLICAS, "promote_slave", "Make a slave the master of its name."),
    "demoteMaster": (_REPLICAS, "demote_master", "Make a master a slave."),
    "switchMaster": (_REPLICAS, "switch_master", "Have another replica lead."),
    "resignMaster": (_REPLICAS, "resign_master", "Have a master stop leading."),
    "addInSync": (_REPLICAS, "add_in_sync", "Make a replica the only one in sync."),
    "removeInSync": (_REPLICAS, "remove_in_sync", "Wait for a replica no more."),
    "startMonitoring": ("rocketlet.tools.admin.monitoring", "start_monitoring", "Tell of groups that lag."),
    "getBrokerConfig": (_SETTINGS, "get_broker_config", "The settings of brokers."),
    "updateBrokerConfig": (_SETTINGS, "update_broker_config", "Change a setting of running brokers."),
    "getNamesrvConfig": (_SETTINGS, "get_namesrv_config", "The settings of name servers."),
    "updateNamesrvConfig": (_SETTINGS, "update_namesrv_config", "Change a setting of running name servers."),
    "updateKvConfig": (_SETTINGS, "update_kv_config", "Set a key in the name servers' KV configuration."),
    "deleteKvConfig": (_SETTINGS, "delete_kv_config", "Take one out."),
    "exportMetadata": (_EXPORTS, "export_metadata", "Topics and groups, as JSON."),
    "exportConfigs": (_EXPORTS, "export_configs", "Settings of a cluster, as JSON."),
    "exportMetrics": (_EXPORTS, "export_metrics", "What a cluster has to do, as JSON."),
    "updateAclConfig": (_ACCESS, "update_acl_config", "Make an account, or change one."),
    "deleteAclConfig": (_ACCESS, "delete_acl_config", "Delete an account."),
    "clusterAclConfigVersion": (_ACCESS, "cluster_acl_config_version", "Show the version of each file of accounts."),
    "updateGlobalWhiteAddr": (_ACCESS, "update_global_white_addr", "Set the global white addresses."),
    "getAclConfig": (_ACCESS, "get_acl_config", "(not served)"),
}


@click.group(cls=LateGroup, late=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@VERSION
def mqadmin() -> None:
    """Administer a RocketMQ cluster, Rocketlet's or Java's.

    Commands and options are RocketMQ's. -n or NAMESRV_ADDR selects the name servers; --json prints JSON.
    """


def main(arguments: list[str] | None = None) -> None:
    """The command; ends the process."""
    sys.exit(run(mqadmin, "mqadmin", arguments))


if __name__ == "__main__":
    main()
