"""Whether a request is admitted: who sends it, and whether that account may do what it requests.

Ours (`strictly`):

1. without AccessKey: the account of the connection's certificate, if it has one; otherwise refused;
2. an unknown account, or a wrong signature: refused;
3. an account with its own addresses, from anywhere else: refused. No address replaces a signature;
4. a request for administrators, i.e. every one not listed as open to others: requires `admin`;
5. every permission in the request's entry in the table of handlers, on every topic and group it names.

RocketMQ's (`as_java_does`), in its order: a global white address passes, even unsigned; the account must exist; its own
white address passes, unsigned, with every permission; the signature; what publishes traces passes; five codes need
`admin`; permissions are checked for nine codes, and all others pass. Codes that RocketMQ 4.9.8 does not serve are
decided by our rule.

Java: acl/plain/PlainAccessValidator.java, PlainPermissionManager.java (validate, checkPerm)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from rocketlet.access.accounts import Account, Rules
from rocketlet.common.errors import RocketletError
from rocketlet.common.topic import RETRY_PREFIX, TRACE_TOPIC
from rocketlet.remoting.access import Access, NotNamed, Permission, Resource
from rocketlet.remoting.claims import Claim
from rocketlet.remoting.errors import FrameError
from rocketlet.remoting.handler import Request
from rocketlet.remoting.protocol.membership import HeartbeatData
from rocketlet.remoting.request_codes import RequestCode, request_name

Ext = Mapping[str, str]
Body = bytes | memoryview
Asked = tuple[Permission, Resource, str]


class Reason(StrEnum):
    """Why a request is refused; a label of the metric that counts them."""

    ANONYMOUS = "anonymous"
    UNKNOWN = "unknown account"
    SIGNATURE = "signature"
    ADDRESS = "address"
    ADMIN = "admin"
    PERMISSION = "permission"
    RATE = "rate"


class Denied(RocketletError):
    """A request is refused. `who` is the account it claims to be from."""

    def __init__(self, reason: Reason, text: str, account: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.who = account


_PERMISSION_WORDS = {Permission.PUBLISH: "publish to", Permission.SUBSCRIBE: "subscribe to"}


def strictly(rules: Rules, access: Access, request: Request, certified: str) -> Account:
    """The permitted account that sent the request; `certified` is its certificate's. Raises Denied, BodyError."""
    claim = _claim_of(request)
    account = _account(rules, claim, certified, request.code)
    _check_signature(account, claim, request)
    host = request.connection.host
    if account.addresses and not rules.comes_from(account, host):
        raise Denied(
            Reason.ADDRESS,
            f"account {account.access_key} may not sign from {host}: its whiteRemoteAddress names where it may",
            account.access_key,
        )
    check_strictly(account, access, request.code, request.header, request.body)
    return account


def check_strictly(account: Account, access: Access, code: int, header: Any, body: Body) -> None:
    """Check the account's permissions. Raises Denied, BodyError."""
    if access.admin:
        _need_admin(account, code)
        return
    if account.is_unbound_admin:
        return
    for need in access.needs:
        try:
            names = need.names(header, body)
        except NotNamed as left_out:
            raise Denied(
                Reason.PERMISSION,
                f"{request_name(code)} without the field {left_out} is for administrators alone",
                account.access_key,
            ) from None
        for name in names:
            if not account.may_strictly(need.permission, need.resource, name):
                raise _lacks(account, need.permission, need.resource, name)


def as_java_does(rules: Rules, access: Access, request: Request, certified: str) -> Account | None:
    """None for a request that a global white address admits unsigned. Raises Denied, BodyError."""
    code, host = request.code, request.connection.host
    if code not in JUDGED_BY_JAVA:
        return strictly(rules, access, request, certified)
    if rules.everywhere and rules.is_white(host):
        return None
    claim = _claim_of(request)
    account = _account(rules, claim, certified, code)
    if account.addresses and rules.comes_from(account, host):
        return account
    _check_signature(account, claim, request)
    required = required_by_java(code, claim.ext, request.body)
    if (Permission.PUBLISH, Resource.TOPIC, TRACE_TOPIC) in required:
        return account
    if code in JAVAS_ADMIN_CODES:
        _need_admin(account, code)
    for permission, resource, name in required:
        if not account.may(permission, resource, name):
            raise _lacks(account, permission, resource, name)
    return account


def _account(rules: Rules, claim: Claim, certified: str, code: int) -> Account:
    key = claim.access_key
    if not key:  # without credentials C++ clients send an empty one
        if not certified:
            raise Denied(
                Reason.ANONYMOUS,
                f"{request_name(code)} is not signed, and this server has access control: give the client an access key"
                " and a secret key",
            )
        key = certified
    account = rules.accounts.get(key)
    if account is None:
        raise Denied(Reason.UNKNOWN, f"there is no account {key[:100]}", key)
    return account


def _claim_of(request: Request) -> Claim:
    """From all fields; the typed header has only some of them, so it may be readable when not all are."""
    try:
        return Claim(request.header_type, request.raw_header)
    except FrameError as error:
        raise Denied(Reason.SIGNATURE, f"the signature cannot be checked: {error}") from None


def _check_signature(account: Account, claim: Claim, request: Request) -> None:
    """A claim without an account has none: a certificate has shown who it is."""
    if claim.access_key and not claim.is_signed_with(account.secret, request.body, request.version):
        raise Denied(
            Reason.SIGNATURE,
            f"the signature is not that of account {account.access_key}: check its secret key",
            account.access_key,
        )


def _need_admin(account: Account, code: int) -> None:
    if not account.admin:
        raise Denied(
            Reason.ADMIN,
            f"{request_name(code)} is for administrators, and account {account.access_key} is none (admin: true)",
            account.access_key,
        )


def _lacks(account: Account, permission: Permission, resource: Resource, name: str) -> Denied:
    if resource is Resource.TOPIC and name.startswith(RETRY_PREFIX):
        resource, name = Resource.GROUP, name.removeprefix(RETRY_PREFIX)
    verb = "consume as" if resource is Resource.GROUP else _PERMISSION_WORDS[permission]
    return Denied(
        Reason.PERMISSION,
        f"account {account.access_key} may not {verb} {resource.value} {name[:255]}: it needs"
        f" {name[:255]}={permission.value} in its {resource.value}Perms",
        account.access_key,
    )


# -- the permissions RocketMQ 4.9.8 requires, read from the raw fields, as it reads them

JAVAS_ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)

# Every code that a 4.9.8 broker serves; those in neither table require only a signature.
JUDGED_BY_JAVA = frozenset(
    {10, 11, 12, 14, 15, 17, 21, 25, 26, *range(28, 39), 41, 42, 43, 45, 46, 50, 51, 52, 53}
    | {*range(200, 205), 207, 208, 215, 222, 223, 300, 301, 303, 305, 306, 307, 308, 309, 310}
    | {314, 315, 316, 317, 320, 321, 323, 324, 325, 328, 329}
)


def _send(topic_field: str, group_field: str) -> Callable[[Ext, Body], Sequence[Asked]]:
    def required(ext: Ext, body: Body) -> Sequence[Asked]:
        topic = ext.get(topic_field, "")
        if topic.startswith(RETRY_PREFIX):
            return _groups(ext.get(group_field))
        return [(Permission.PUBLISH, Resource.TOPIC, topic)]

    return required


def _groups(*names: str | None) -> list[Asked]:
    return [(Permission.SUBSCRIBE, Resource.GROUP, name) for name in names if name is not None]


def _topics(*names: str | None) -> list[Asked]:
    return [(Permission.SUBSCRIBE, Resource.TOPIC, name) for name in names if name is not None]


def _of_heartbeat(ext: Ext, body: Body) -> Sequence[Asked]:
    consumers = HeartbeatData.from_json(body).consumerDataSet
    topics = [subscription.topic for consumer in consumers for subscription in consumer.subscriptionDataSet]
    return _groups(*(consumer.groupName for consumer in consumers)) + _topics(*topics)


_OF_JAVA: Mapping[int, Callable[[Ext, Body], Sequence[Asked]]] = MappingProxyType(
    {
        RequestCode.SEND_MESSAGE: _send("topic", "group"),
        RequestCode.SEND_MESSAGE_V2: _send("b", "a"),
        RequestCode.CONSUMER_SEND_MSG_BACK: lambda ext, _: _groups(ext.get("group")),
        RequestCode.PULL_MESSAGE: lambda ext, _: _topics(ext.get("topic")) + _groups(ext.get("consumerGroup")),
        RequestCode.QUERY_MESSAGE: lambda ext, _: _topics(ext.get("topic")),
        RequestCode.HEART_BEAT: _of_heartbeat,
        RequestCode.UNREGISTER_CLIENT: lambda ext, _: _groups(ext.get("consumerGroup")),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda ext, _: _groups(ext.get("consumerGroup")),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda ext, _: (
            _groups(ext.get("consumerGroup")) + _topics(ext.get("topic"))
        ),
    }
)


def required_by_java(code: int, ext: Ext, body: Body) -> Sequence[Asked]:
    """The permissions that RocketMQ requires for a request."""
    rule = _OF_JAVA.get(code)
    return rule(ext, body) if rule is not None else ()
