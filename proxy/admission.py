"""Access control of gRPC calls: whose signature a call carries, and which permissions the request requires.

A client of RocketMQ 5 signs the time of each call (`x-mq-date-time`) with the secret of its account, and nothing else:
the signature shows that it knows the secret, and does not protect the request. TLS does. A time more than a day away is
refused; a day, because clients write it in any time zone.

The accounts are those of brokers and name servers (`rocketlet.access`). Brokers see our account, the one in
`tools.yml`, not the client's, so a client's permissions are checked here.

Java: auth/authentication/builder/DefaultAuthenticationContextBuilder.java,
auth/authorization/builder/DefaultAuthorizationContextBuilder.java
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from rocketlet.access.gate import Gate
from rocketlet.access.verdicts import Denied, Reason
from rocketlet.common.clock import WallClock
from rocketlet.proxy.call import Call, Refusal
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code
from rocketlet.remoting.access import Permission, Resource
from rocketlet.remoting.transport import split_address

Ask = tuple[Resource, str, tuple[Permission, ...]]
"""A topic or group, and the permissions one of which is needed."""

_OLDEST_MS = 24 * 3600 * 1000
_PUBLISH = (Permission.PUBLISH,)
_SUBSCRIBE = (Permission.SUBSCRIBE,)
_EITHER = (Permission.PUBLISH, Permission.SUBSCRIBE)
_signed = re.compile(
    r"MQv2-HMAC-SHA1 Credential=([^,/]{1,256})[^,]*, ?SignedHeaders=x-mq-date-time, ?Signature=(\w{40})"
)


class Admission:
    """Who may call what. Without access control `gate` is None and every call is allowed."""

    def __init__(self, gate: Gate | None, clock: WallClock) -> None:
        self._gate = gate
        self._clock = clock

    def check(self, call: Call, request: Any) -> None:
        """Raises Refusal."""
        if self._gate is None:
            return
        needs = _NEEDS.get(call.method.name)
        try:
            account = self._gate.signed_by(*self._signature(call))
            host = split_address(call.owner.peer)[0]
            for resource, name, permissions in needs(request) if needs is not None else ():
                self._check_one(account, resource, name, permissions, host)
        except Denied as denied:
            code = Code.UNAUTHORIZED if denied.reason in _UNKNOWN else Code.FORBIDDEN
            raise Refusal(code, str(denied)) from None

    def _check_one(
        self, account: Any, resource: Resource, name: str, permissions: tuple[Permission, ...], host: str
    ) -> None:
        assert self._gate is not None
        for permission in permissions[:-1]:
            try:
                return self._gate.may(account, permission, resource, name, host)
            except Denied:
                pass  # the next one may be held
        return self._gate.may(account, permissions[-1], resource, name, host)

    def _signature(self, call: Call) -> tuple[str, bytes, str]:
        match = _signed.match(call.header(b"authorization"))
        if match is None:
            raise Refusal(Code.UNAUTHORIZED, "the call is not signed; give the client an access key and a secret key")
        when = call.header(b"x-mq-date-time")
        try:
            time = datetime.strptime(when, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise Refusal(Code.UNAUTHORIZED, f"x-mq-date-time {when[:40]!r} is no time") from None
        if abs(self._clock() - time.timestamp() * 1000) > _OLDEST_MS:
            raise Refusal(Code.UNAUTHORIZED, f"the signature is of {when}, more than a day from now; set the clock")
        return match.group(1), when.encode(), match.group(2)


_UNKNOWN = frozenset({Reason.ANONYMOUS, Reason.UNKNOWN, Reason.SIGNATURE})


def _topic(request: Any) -> Iterable[Ask]:
    yield Resource.TOPIC, request.topic.name, _PUBLISH


def _consumed(request: Any) -> Iterable[Ask]:
    yield Resource.TOPIC, request.topic.name, _SUBSCRIBE
    yield Resource.GROUP, request.group.name, _SUBSCRIBE


def _sent(request: m.SendMessageRequest) -> Iterable[Ask]:
    for name in {message.topic.name for message in request.messages}:
        yield Resource.TOPIC, name, _PUBLISH


def _received(request: m.ReceiveMessageRequest) -> Iterable[Ask]:
    yield Resource.TOPIC, request.message_queue.topic.name, _SUBSCRIBE
    yield Resource.GROUP, request.group.name, _SUBSCRIBE


def _group(request: Any) -> Iterable[Ask]:
    if request.group.name:
        yield Resource.GROUP, request.group.name, _SUBSCRIBE


def _requests_of(command: m.TelemetryCommand) -> Iterable[Ask]:
    settings = command.settings
    for topic in settings.publishing.topics:
        yield Resource.TOPIC, topic.name, _PUBLISH
    yield from _group(settings.subscription)
    for entry in settings.subscription.subscriptions:
        yield Resource.TOPIC, entry.topic.name, _SUBSCRIBE


_NEEDS: dict[str, Callable[[Any], Iterable[Ask]]] = {
    "QueryRoute": lambda request: [(Resource.TOPIC, request.topic.name, _EITHER)],
    "QueryAssignment": _consumed,
    "SendMessage": _sent,
    "RecallMessage": _topic,
    "EndTransaction": _topic,
    "ReceiveMessage": _received,
    "AckMessage": _consumed,
    "ChangeInvisibleDuration": _consumed,
    "ForwardMessageToDeadLetterQueue": _consumed,
    "Heartbeat": _group,
    "NotifyClientTermination": _group,
    "Telemetry": _requests_of,
}
