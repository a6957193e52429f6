"""The messages of `apache.rocketmq.v2`: field numbers, names and types, and the descriptors made of them.

A table instead of generated code: that would register these names in protobuf's one pool, where the official Python
client in the same process registers them too, and importing the second would fail. So they live in their own pool.
`messages.py` has the classes, `messages.pyi` their types for mypy (scripts/grpc_stubs.py writes it).

A line is a message and its fields: number, name, type. `1?` is optional (its presence matters), `1*` repeated, `5:x` a
member of the oneof x. The numbers are the protocol: DO NOT CHANGE.

Java: rocketmq-apis, apache/rocketmq/v2/definition.proto and service.proto
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

PACKAGE = "apache.rocketmq.v2"

_ENUMS = """
AddressScheme: 0 ADDRESS_SCHEME_UNSPECIFIED, 1 IPv4, 2 IPv6, 3 DOMAIN_NAME
ClientType: 0 CLIENT_TYPE_UNSPECIFIED, 1 PRODUCER, 2 PUSH_CONSUMER, 3 SIMPLE_CONSUMER, 4 PULL_CONSUMER
Permission: 0 PERMISSION_UNSPECIFIED, 1 NONE, 2 READ, 3 WRITE, 4 READ_WRITE
FilterType: 0 FILTER_TYPE_UNSPECIFIED, 1 TAG, 2 SQL
MessageType: 0 MESSAGE_TYPE_UNSPECIFIED, 1 NORMAL, 2 FIFO, 3 DELAY, 4 TRANSACTION
DigestType: 0 DIGEST_TYPE_UNSPECIFIED, 1 CRC32, 2 MD5, 3 SHA1
Encoding: 0 ENCODING_UNSPECIFIED, 1 IDENTITY, 2 GZIP
TransactionResolution: 0 TRANSACTION_RESOLUTION_UNSPECIFIED, 1 COMMIT, 2 ROLLBACK
TransactionSource: 0 SOURCE_UNSPECIFIED, 1 SOURCE_CLIENT, 2 SOURCE_SERVER_CHECK
Language: 0 LANGUAGE_UNSPECIFIED, 1 JAVA, 2 CPP, 3 DOT_NET, 4 GOLANG, 5 RUST, 6 PYTHON, 7 PHP, 8 NODE_JS
"""

# The status code is an enum in the protocol and an int32 here, with the same encoding: a Python enum (`Code`) names its
# values, and an unknown number is kept.
_MESSAGES = """
Resource: 1 resource_namespace string, 2 name string
Address: 1 host string, 2 port int32
Endpoints: 1 scheme AddressScheme, 2* addresses Address
Broker: 1 name string, 2 id int32, 3 endpoints Endpoints
MessageQueue: 1 topic Resource, 2 id int32, 3 permission Permission, 4 broker Broker,
    5* accept_message_types MessageType
FilterExpression: 1 type FilterType, 2 expression string
SubscriptionEntry: 1 topic Resource, 2 expression FilterExpression
ExponentialBackoff: 1 initial Duration, 2 max Duration, 3 multiplier float
CustomizedBackoff: 1* next Duration
RetryPolicy: 1 max_attempts int32, 2:strategy exponential_backoff ExponentialBackoff,
    3:strategy customized_backoff CustomizedBackoff
Digest: 1 type DigestType, 2 checksum string
DeadLetterQueue: 1 topic string, 2 message_id string
SystemProperties: 1? tag string, 2* keys string, 3 message_id string, 4 body_digest Digest, 5 body_encoding Encoding,
    6 message_type MessageType, 7 born_timestamp Timestamp, 8 born_host string, 9? store_timestamp Timestamp,
    10 store_host string, 11? delivery_timestamp Timestamp, 12? receipt_handle string, 13 queue_id int32,
    14? queue_offset int64, 15? invisible_duration Duration, 16? delivery_attempt int32, 17? message_group string,
    18? trace_context string, 19? orphaned_transaction_recovery_duration Duration,
    20? dead_letter_queue DeadLetterQueue
Message: 1 topic Resource, 2 user_properties map, 3 system_properties SystemProperties, 4 body bytes
Assignment: 1 message_queue MessageQueue
Status: 1 code int32, 2 message string
UA: 1 language Language, 2 version string, 3 platform string, 4 hostname string
Publishing: 1* topics Resource, 2 max_body_size int32, 3 validate_message_type bool
Subscription: 1? group Resource, 2* subscriptions SubscriptionEntry, 3? fifo bool, 4? receive_batch_size int32,
    5? long_polling_timeout Duration
Metric: 1 on bool, 2? endpoints Endpoints
Settings: 1? client_type ClientType, 2? access_point Endpoints, 3? backoff_policy RetryPolicy,
    4? request_timeout Duration, 5:pub_sub publishing Publishing, 6:pub_sub subscription Subscription, 7 user_agent UA,
    8 metric Metric
QueryRouteRequest: 1 topic Resource, 2 endpoints Endpoints
QueryRouteResponse: 1 status Status, 2* message_queues MessageQueue
SendMessageRequest: 1* messages Message
SendResultEntry: 1 status Status, 2 message_id string, 3 transaction_id string, 4 offset int64, 5 recall_handle string
SendMessageResponse: 1 status Status, 2* entries SendResultEntry
QueryAssignmentRequest: 1 topic Resource, 2 group Resource, 3 endpoints Endpoints
QueryAssignmentResponse: 1 status Status, 2* assignments Assignment
ReceiveMessageRequest: 1 group Resource, 2 message_queue MessageQueue, 3 filter_expression FilterExpression,
    4 batch_size int32, 5? invisible_duration Duration, 6 auto_renew bool, 7? long_polling_timeout Duration,
    8? attempt_id string
ReceiveMessageResponse: 1:content status Status, 2:content message Message, 3:content delivery_timestamp Timestamp
AckMessageEntry: 1 message_id string, 2 receipt_handle string
AckMessageRequest: 1 group Resource, 2 topic Resource, 3* entries AckMessageEntry
AckMessageResultEntry: 1 message_id string, 2 receipt_handle string, 3 status Status
AckMessageResponse: 1 status Status, 2* entries AckMessageResultEntry
ForwardMessageToDeadLetterQueueRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle string,
    4 message_id string, 5 delivery_attempt int32, 6 max_delivery_attempts int32
ForwardMessageToDeadLetterQueueResponse: 1 status Status
HeartbeatRequest: 1? group Resource, 2 client_type ClientType
HeartbeatResponse: 1 status Status
EndTransactionRequest: 1 topic Resource, 2 message_id string, 3 transaction_id string,
    4 resolution TransactionResolution, 5 source TransactionSource, 6 trace_context string
EndTransactionResponse: 1 status Status
ChangeInvisibleDurationRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle string,
    4 invisible_duration Duration, 5 message_id string
ChangeInvisibleDurationResponse: 1 status Status, 2 receipt_handle string
NotifyClientTerminationRequest: 1? group Resource
NotifyClientTerminationResponse: 1 status Status
RecallMessageRequest: 1 topic Resource, 2 recall_handle string
RecallMessageResponse: 1 status Status, 2 message_id string
ThreadStackTrace: 1 nonce string, 2? thread_stack_trace string
VerifyMessageResult: 1 nonce string
PrintThreadStackTraceCommand: 1 nonce string
VerifyMessageCommand: 1 nonce string, 2 message Message
RecoverOrphanedTransactionCommand: 1 message Message, 2 transaction_id string
TelemetryCommand: 1? status Status, 2:command settings Settings, 3:command thread_stack_trace ThreadStackTrace,
    4:command verify_message_result VerifyMessageResult,
    5:command recover_orphaned_transaction_command RecoverOrphanedTransactionCommand,
    6:command print_thread_stack_trace_command PrintThreadStackTraceCommand,
    7:command verify_message_command VerifyMessageCommand
"""

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "float": FieldDescriptorProto.TYPE_FLOAT,
}
_WELL_KNOWN = {"Timestamp": timestamp_pb2.DESCRIPTOR, "Duration": duration_pb2.DESCRIPTOR}
_field = re.compile(r"(\d+)([?*]|:\w+)? (\w+) (\w+)").fullmatch


def descriptors() -> DescriptorPool:
    """A pool with only these messages."""
    file = FileDescriptorProto(name="rocketlet/proxy.proto", package=PACKAGE, syntax="proto3")
    pool = DescriptorPool()
    for module in _WELL_KNOWN.values():
        pool.AddSerializedFile(module.serialized_pb)
        file.dependency.append(module.name)
    for name, values in _entries(_ENUMS):
        enum = file.enum_type.add(name=name)
        for value in values:
            number, _, word = value.partition(" ")
            enum.value.add(name=word, number=int(number))
    enums = {enum.name for enum in file.enum_type}
    for name, fields in _entries(_MESSAGES):
        message = file.message_type.add(name=name)
        optional = [_add_field(message, text, enums) for text in fields]
        for field in optional:  # after those of the table, as protobuf requires
            if field is not None:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def message_names() -> list[str]:
    """All messages of the table."""
    return [name for name, _ in _entries(_MESSAGES)]


def enum_names() -> list[str]:
    """All enums of the table."""
    return [name for name, _ in _entries(_ENUMS)]


def _entries(table: str) -> Iterator[tuple[str, list[str]]]:
    for line in table.strip().replace(",\n    ", ", ").splitlines():
        name, _, rest = line.partition(": ")
        yield name, rest.split(", ")


def _add_field(message: DescriptorProto, text: str, enums: set[str]) -> FieldDescriptorProto | None:
    """Add a field; an optional one is returned, to be completed by the caller."""
    match = _field(text)
    assert match is not None, text
    number, mark, name, kind = match.groups()
    label = FieldDescriptorProto.LABEL_REPEATED if mark == "*" or kind == "map" else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=int(number), label=label)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "map":  # from text to text, the only kind there is
        entry = message.nested_type.add(name="UserPropertiesEntry")
        entry.options.map_entry = True
        for part in ("1 key string", "2 value string"):
            _add_field(entry, part, enums)
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{entry.name}"
    else:
        field.type = FieldDescriptorProto.TYPE_ENUM if kind in enums else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".google.protobuf.{kind}" if kind in _WELL_KNOWN else f".{PACKAGE}.{kind}"
    if mark == "?":
        field.proto3_optional = True
        return field
    if mark and mark.startswith(":"):
        names = [oneof.name for oneof in message.oneof_decl]
        if mark[1:] not in names:
            message.oneof_decl.add(name=mark[1:])
            names.append(mark[1:])
        field.oneof_index = names.index(mark[1:])
    return None
