"""Decides whether a request may be served: after the limits, before the handler.

A refusal is code 1 with the name of RocketMQ's exception in front, which makes Java producers try another broker. It is
counted by reason and logged, with the account but never with a secret, a signature or a header.

For servers that do not speak remoting, `may` and `signed_by` make the same checks with the same accounts:

    account = gate.signed_by(access_key, content, signature)       # gRPC: hmac-sha1 of x-mq-date-time, in hex
    gate.may(account, Permission.PUBLISH, Resource.TOPIC, "orders", host)

Java: broker/BrokerController.java (initialAcl), acl/AccessValidator.java
"""

from __future__ import annotations

import binascii
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from rocketlet.access.accounts import Account, Rules
from rocketlet.access.verdicts import Denied, Reason, as_java_does, check_strictly, strictly
from rocketlet.remoting.access import Access, Need, Permission, Resource
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.handler import Refused, Request
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.rates import Rates
from rocketlet.remoting.request_codes import request_name
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.access.gate")

JAVAS_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"


class Gate:
    """`rules` returns the rules in force, `rate` is how many requests a second an account may send, `certificates` are
    the accounts of `tlsAccounts`."""

    def __init__(
        self,
        rules: Callable[[], Rules],
        *,
        strict: bool = True,
        certificates: Mapping[str, str] | None = None,
        rate: int = 0,
        peers: Peers | None = None,
    ) -> None:
        self._rules = rules
        self._judge = strictly if strict else as_java_does
        self._certificates = certificates or {}
        self.rate = rate
        self._rates = Rates()
        self._peers = peers or Peers()
        self.denied: Counter[Reason] = Counter()

    def admit(self, request: Request, access: Access) -> None:
        """Check a request with this entry in the table of handlers. Raises Refused, BodyError."""
        if access.anyone:
            return
        connection = request.connection
        certified = self._certified(connection.certified_names) if connection.certified_names else ""
        try:
            account = self._judge(self._rules(), access, request, certified)
            if account is not None:
                request.account = account.access_key
                if self.rate and not self._rates.take(account.access_key, self.rate, request.received_at):
                    raise _too_fast(account, self.rate)
        except Denied as denied:
            raise self._refused(request, denied) from None

    def admits(self, request: Request, access: Access) -> bool:
        """Whether `admit` would certainly let it pass; nothing is counted, logged or used up."""
        names = request.connection.certified_names
        try:
            self._judge(self._rules(), access, request, self._certified(names) if names else "")
        except (Denied, BodyError):
            return False
        return not self.rate

    def _certified(self, names: tuple[str, ...]) -> str:
        return next((self._certificates[name] for name in names if name in self._certificates), "")

    def _refused(self, request: Request, denied: Denied) -> Refused:
        self.denied[denied.reason] += 1
        if self._peers.may_log(request.connection.host, request.received_at):
            log.warning("%s: %s is refused: %s", request.connection.peer, request_name(request.code), denied)
        if denied.reason is Reason.RATE:
            return Refused(ResponseCode.SYSTEM_BUSY, str(denied))
        return Refused(ResponseCode.SYSTEM_ERROR, f"{JAVAS_EXCEPTION}: {denied}")

    # -- for servers that do not speak remoting

    def signed_by(self, access_key: str, content: bytes, signature: str) -> Account:
        """The account whose HMAC-SHA1 of `content` this is, in hexadecimal. Raises Denied.

        A client of RocketMQ 5 sends `authorization: MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time,
        Signature=HEX`; content is the text of its `x-mq-date-time`. Check its age: it protects only against a very late
        replay.
        """
        account = self._rules().accounts.get(access_key)
        if account is None:
            self.denied[Reason.UNKNOWN] += 1
            raise Denied(Reason.UNKNOWN, f"there is no account {access_key[:100]}", access_key)
        expected = binascii.a2b_base64(account.secret.sign(content)).hex()
        if not hmac.compare_digest(expected, signature.lower().encode("ascii", "replace").decode()):
            self.denied[Reason.SIGNATURE] += 1
            raise Denied(Reason.SIGNATURE, f"the signature is not that of account {access_key}", access_key)
        return account

    def may(self, account: Account, permission: Permission, resource: Resource, name: str, host: str) -> None:
        """Check an account's permission from this host. Raises Denied."""
        if account.addresses and not self._rules().comes_from(account, host):
            self.denied[Reason.ADDRESS] += 1
            raise Denied(Reason.ADDRESS, f"account {account.access_key} may not sign from {host}", account.access_key)
        try:
            check_strictly(account, Access((Need(permission, resource, lambda _: [name]),)), 0, None, b"")
        except Denied as denied:
            self.denied[denied.reason] += 1
            raise


def _too_fast(account: Account, limit: int) -> Denied:
    return Denied(
        Reason.RATE,
        f"[FLOW_CONTROL]account {account.access_key} sends more than requestsPerSecondByAccount={limit} allows",
        account.access_key,
    )
