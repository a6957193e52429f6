"""Every request code that the name server answers. Whatever is not here is answered with 3.

Java: namesrv/processor/DefaultRequestProcessor.java (processRequest)
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketlet.namesrv.handlers.cluster_test import ClusterTestHandlers
from rocketlet.namesrv.handlers.configuration import ConfigurationHandlers
from rocketlet.namesrv.handlers.kv import KvHandlers
from rocketlet.namesrv.handlers.registration import RegistrationHandlers
from rocketlet.namesrv.handlers.routes import RouteHandlers
from rocketlet.remoting.handler import Handler, HandlerTable
from rocketlet.remoting.protocol import kv, registration, routing
from rocketlet.remoting.request_codes import RequestCode


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the table is made of. `cluster_test` only in that mode."""

    registration: RegistrationHandlers
    routes: RouteHandlers
    kv: KvHandlers
    configuration: ConfigurationHandlers
    cluster_test: ClusterTestHandlers | None = None


def handler_table(by: Handlers) -> HandlerTable:
    """Code → handler, on one page."""
    code = RequestCode
    route = by.routes.route if by.cluster_test is None else by.cluster_test.route
    return {
        code.PUT_KV_CONFIG: Handler(by.kv.put, kv.PutKVConfigHeader),
        code.GET_KV_CONFIG: Handler(by.kv.get, kv.KVConfigHeader),
        code.DELETE_KV_CONFIG: Handler(by.kv.delete, kv.KVConfigHeader),
        code.GET_KVLIST_BY_NAMESPACE: Handler(by.kv.namespace, kv.KVNamespaceHeader),
        code.QUERY_DATA_VERSION: Handler(by.registration.query_data_version, registration.QueryDataVersionHeader),
        code.REGISTER_BROKER: Handler(by.registration.register, registration.RegisterBrokerHeader),
        code.UNREGISTER_BROKER: Handler(by.registration.unregister, registration.UnregisterBrokerHeader),
        code.GET_ROUTEINFO_BY_TOPIC: Handler(route, routing.GetRouteInfoHeader),
        code.GET_BROKER_CLUSTER_INFO: Handler(by.routes.cluster_info),
        code.GET_BROKER_MEMBER_GROUP: Handler(by.routes.broker_members, routing.GetBrokerMembersHeader),
        code.WIPE_WRITE_PERM_OF_BROKER: Handler(by.routes.wipe_write_permission, routing.WritePermHeader),
        code.ADD_WRITE_PERM_OF_BROKER: Handler(by.routes.add_write_permission, routing.WritePermHeader),
        code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Handler(by.routes.all_topics),
        code.DELETE_TOPIC_IN_NAMESRV: Handler(by.routes.delete_topic, routing.DeleteTopicInNamesrvHeader),
        code.GET_TOPICS_BY_CLUSTER: Handler(by.routes.topics_of_cluster, routing.GetTopicsByClusterHeader),
        code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Handler(by.routes.system_topics),
        code.GET_UNIT_TOPIC_LIST: Handler(by.routes.unit_topics),
        code.GET_HAS_UNIT_SUB_TOPIC_LIST: Handler(by.routes.unit_subscription_topics),
        code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Handler(by.routes.unit_subscription_plain_topics),
        code.UPDATE_NAMESRV_CONFIG: Handler(by.configuration.update),
        code.GET_NAMESRV_CONFIG: Handler(by.configuration.show),
    }
