"""50 UPDATE_AND_CREATE_ACL_CONFIG, 51 DELETE_ACL_CONFIG, 52 GET_BROKER_CLUSTER_ACL_INFO, 53
UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: changes and versions of accounts; for administrators.

Failures are 209, 210 or 211. 50 keeps what a request does not name; an empty list clears the permissions. A request
cannot choose the file that is written, except among existing account files. No answer contains a secret or says which
accounts exist: 54, which did, is gone from 4.9.8 too (CVE-2024-23321).

Without access control 50, 51 and 53 have the codes and the texts of RocketMQ, which scripts may know, and 52 has no
answer, as there; the log has the reason. Our mqadmin therefore looks at aclEnable first.

Java: broker/processor/AdminBrokerProcessor.java (updateAndCreateAccessConfig and its neighbours)
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rocketlet.access.account_edits import Value
from rocketlet.access.account_table import AccountsRefused, AccountTable
from rocketlet.access.accounts import DENY, KEY_LENGTH, LONGEST_KEY, PERMISSIONS, PUB, SUB, Account
from rocketlet.access.addresses import AddressError, addresses
from rocketlet.access.audit import Change
from rocketlet.common.settings import REDACTED
from rocketlet.common.topic import RETRY_PREFIX, is_legal_name
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.access import (
    AclInfoAnswerHeader,
    DeleteAclConfigHeader,
    UpdateAclConfigHeader,
    UpdateGlobalWhiteAddrsHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.access.account_requests")

OFF = "this broker has no access control (aclEnable=false), so it has no accounts"
# What RocketMQ answers with on Java 15 and later, the text of a NullPointerException; older ones have no text.
_OFF_IN_JAVA = {
    code: f'Cannot invoke "org.apache.rocketmq.acl.AccessValidator.{method}" because "accessValidator" is null'
    for code, method in {
        ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED: (
            "updateAccessConfig(org.apache.rocketmq.common.PlainAccessConfig)"
        ),
        ResponseCode.DELETE_ACL_CONFIG_FAILED: "deleteAccessConfig(String)",
        ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED: "updateGlobalWhiteAddrsConfig(java.util.List, String)",
    }.items()
}
_is_legal_key = re.compile(rf"[!-~]{{{KEY_LENGTH},{LONGEST_KEY}}}").fullmatch

Names = Callable[[], tuple[str, str, str]]


class AccountRequests:
    """`table` is None without access control; `names` gives the broker's name, address and cluster."""

    def __init__(self, table: AccountTable | None, names: Names) -> None:
        self._table = table
        self._names = names

    def table(self) -> HandlerTable:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: Handler(self.update, UpdateAclConfigHeader),
            RequestCode.DELETE_ACL_CONFIG: Handler(self.delete, DeleteAclConfigHeader),
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: Handler(self.versions),
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Handler(
                self.set_global_addresses, UpdateGlobalWhiteAddrsHeader
            ),
        }

    def changes(self) -> dict[int, Change]:
        """The changes, for the audit log."""
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: Change(_account_about, self._current_account),
            RequestCode.DELETE_ACL_CONFIG: Change(_account_about, self._current_account),
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Change(
                lambda request: "globalWhiteRemoteAddresses", self._current_global_addresses
            ),
        }

    async def update(self, request: Request) -> Reply:
        code = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        header: UpdateAclConfigHeader = request.header
        table = self._require_table(request, code)
        known = header.accessKey in table.rules.accounts
        try:
            await table.set_account(header.accessKey, _values(header, known=known))
        except AccountsRefused as error:
            raise Refused(code, str(error)) from None
        return Reply()

    async def delete(self, request: Request) -> Reply:
        code = ResponseCode.DELETE_ACL_CONFIG_FAILED
        header: DeleteAclConfigHeader = request.header
        try:
            await self._require_table(request, code).delete_account(header.accessKey)
        except AccountsRefused as error:
            raise Refused(code, str(error)) from None
        return Reply()

    def versions(self, request: Request) -> Reply | None:
        table = self._table
        if table is None:
            self._log_that_it_is_off(request)
            return None
        name, address, cluster = self._names()
        versions = ",".join(
            f"{json.dumps(path)}:{version.to_json().decode()}" for path, version in table.versions().items()
        )
        return Reply(
            header=AclInfoAnswerHeader(table.version().to_json().decode(), name, address, cluster, f"{{{versions}}}")
        )

    async def set_global_addresses(self, request: Request) -> Reply:
        code = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        header: UpdateGlobalWhiteAddrsHeader = request.header
        table = self._require_table(request, code)
        try:
            white_list = addresses(header.globalWhiteAddrs)
        except AddressError as error:
            raise Refused(code, str(error)) from None
        pieces = _pieces_of(white_list.text)
        try:
            await table.set_global_addresses(pieces, header.aclFileFullPath or "")
        except AccountsRefused as error:
            raise Refused(code, str(error)) from None
        return Reply()

    def _require_table(self, request: Request, code: ResponseCode) -> AccountTable:
        if self._table is None:
            self._log_that_it_is_off(request)
            raise Refused(code, _OFF_IN_JAVA[code])
        return self._table

    def _log_that_it_is_off(self, request: Request) -> None:
        log.info("%s asks for accounts: %s", request.connection.peer, OFF)

    def _current_account(self, request: Request) -> Any:
        account = self._table.rules.accounts.get(request.header.accessKey) if self._table else None
        if account is None:
            return None
        return described(account) | {"secretKey": _Hidden(account.secret_key)}

    def _current_global_addresses(self, request: Request) -> Any:
        return self._table.rules.everywhere.text if self._table else None


@dataclass(frozen=True, slots=True)
class _Hidden:
    """A secret in an audit line: compared before and after, but not shown."""

    secret: str = field(repr=False)

    def __str__(self) -> str:
        return REDACTED


def described(account: Account) -> dict[str, Any]:
    """An account as anyone may see it."""
    groups = {key: permission for key, permission in account.permissions.items() if key.startswith(RETRY_PREFIX)}
    return {
        "accessKey": account.access_key,
        "whiteRemoteAddress": account.addresses.text,
        "admin": account.admin,
        "defaultTopicPerm": _permission_name(account.default_topic),
        "defaultGroupPerm": _permission_name(account.default_group),
        "topicPerms": [
            f"{key}={_permission_name(permission)}"
            for key, permission in account.permissions.items()
            if key not in groups
        ],
        "groupPerms": [
            f"{key.removeprefix(RETRY_PREFIX)}={_permission_name(permission)}" for key, permission in groups.items()
        ],
    }


def _permission_name(permission: int) -> str:
    return {PUB: "PUB", SUB: "SUB", PUB | SUB: "PUB|SUB", DENY: "DENY"}.get(permission, "DENY")


def _account_about(request: Request) -> str:
    return f"account {str(request.header.accessKey)[:LONGEST_KEY]}"


def _values(header: UpdateAclConfigHeader, *, known: bool) -> dict[str, Value]:
    """The values that the request sets. Raises Refused."""
    problems = []
    if not _is_legal_key(header.accessKey):
        problems.append(f"accessKey must have from {KEY_LENGTH} to {LONGEST_KEY} letters, digits or signs")
    if (header.secretKey or not known) and not _is_legal_key(header.secretKey):
        problems.append(f"secretKey must have from {KEY_LENGTH} to {LONGEST_KEY} letters, digits or signs")
    values: dict[str, Value] = {"secretKey": header.secretKey} if header.secretKey else {}
    if header.whiteRemoteAddress is not None:
        try:
            values["whiteRemoteAddress"] = addresses(header.whiteRemoteAddress).text
        except AddressError as error:
            problems.append(f"whiteRemoteAddress: {error}")
    if header.admin is not None:
        values["admin"] = header.admin
    for name, text in (("defaultTopicPerm", header.defaultTopicPerm), ("defaultGroupPerm", header.defaultGroupPerm)):
        if text is not None:
            values[name] = text.strip()
            if text.strip() not in PERMISSIONS:
                problems.append(f"{name} must be one of {', '.join(PERMISSIONS)}")
    for name, text in (("topicPerms", header.topicPerms), ("groupPerms", header.groupPerms)):
        if text is not None:
            pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
            values[name] = list(pieces)
            problems += [f"{name}: {problem}" for piece in pieces if (problem := _problem_of(piece))]
    if problems:
        raise Refused(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, "; ".join(problems[:10]))
    return values


def _problem_of(entry: str) -> str:
    name, _, permission = entry.partition("=")
    if not is_legal_name(name.strip()) or len(name) > 255:
        return f"{entry[:300]!r} names no topic or group"
    return (
        ""
        if permission.strip() in PERMISSIONS
        else f"{entry[:300]!r} must end in = and one of {', '.join(PERMISSIONS)}"
    )


def _pieces_of(text: str) -> list[str]:
    return [piece.strip() for piece in re.split(r",(?![^{]*})", text) if piece.strip()]
