"""Account files: reading one, with errors by line.

    globalWhiteRemoteAddresses:
    - 10.1.*.*
    accounts:
    - accessKey: billing1
      secretKey: correct-horse
      whiteRemoteAddress: 10.1.2.*
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms:
      - invoices=PUB|SUB
      groupPerms:
      - biller=SUB
    dataVersion:
    - counter: 3
      timestamp: 1700000000000

Values are read verbatim, so that a secret of digits is not changed. Nonsense (no accessKey, a secret that is too short,
an invalid address, a permission without `=`) is a FileError, and its file is not used; what RocketMQ ignores silently
(an unknown key, a misspelt permission, which is DENY) is a warning.

The only module that uses YAML. Scalars, lists and maps are composed and never constructed: no tag creates an object,
and aliases are refused.

Java: acl/plain/PlainPermissionManager.java (load), acl/common/AclUtils.java
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from rocketlet.access.accounts import (
    DENY,
    KEY_LENGTH,
    LONGEST_KEY,
    MAX_PERMISSIONS,
    PERMISSIONS,
    Account,
    Rules,
    resource_key,
)
from rocketlet.access.addresses import AddressError, Addresses, addresses
from rocketlet.common.errors import RocketletError
from rocketlet.remoting.access import Resource
from rocketlet.remoting.protocol.configuration import DataVersion
from rocketlet.remoting.signing import Secret

LARGEST_FILE = 4 << 20
MAX_ACCOUNTS = 10_000
GLOBAL, ACCOUNTS, VERSION = "globalWhiteRemoteAddresses", "accounts", "dataVersion"
_ACCOUNT_KEYS = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of libyaml, ten times as fast
# Loops of anchors and references would have to be bounded, and are not needed here.
_ALIAS = "an alias (*name), which is not read here; write the value out"

Node = Any  # PyYAML has no types


class FileError(RocketletError):
    """A file cannot be used. The message names the file and the line, but shows none of its values."""


@dataclass(frozen=True, slots=True)
class AccountFile:
    """The content of one file."""

    name: str
    accounts: tuple[Account, ...] = ()
    everywhere: tuple[Addresses, ...] = ()
    version: DataVersion = field(default_factory=lambda: DataVersion(0, 0))
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Credentials:
    """The content of `tools.yml`: the account of a client program."""

    access_key: str
    secret_key: str = field(repr=False)


def read_accounts(name: str, text: bytes) -> AccountFile:
    """Raises FileError."""
    return _Reader(name).file(text)


def read_credentials(name: str, text: bytes) -> Credentials:
    """RocketMQ's `tools.yml`: accessKey and secretKey. Raises FileError."""
    reader = _Reader(name)
    fields = reader.fields(reader.root(text), ("accessKey", "secretKey"))
    keys = [reader.text(fields[key]) if key in fields else "" for key in ("accessKey", "secretKey")]
    if not all(keys):
        raise FileError(f"{name}: accessKey and secretKey are needed")
    return Credentials(*keys)


def joined(files: Sequence[AccountFile]) -> tuple[Rules, list[str]]:
    """All files as one, and warnings. Of two accounts with one name the first wins, as in RocketMQ."""
    accounts: dict[str, Account] = {}
    warnings: list[str] = []
    patterns = tuple(pattern for file in files for everywhere in file.everywhere for pattern in everywhere.patterns)
    texts = ",".join(everywhere.text for file in files for everywhere in file.everywhere)
    for file in files:
        warnings.extend(file.warnings)
        for account in file.accounts:
            first = accounts.setdefault(account.access_key, account)
            if first is not account:
                warnings.append(
                    f"{account.place}: account {account.access_key} exists already, at {first.place}, and that one wins"
                )
    return Rules(accounts, Addresses(texts, patterns)), warnings


class _Reader:
    """Reads one file. Every finding names its line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._warnings: list[str] = []

    def file(self, text: bytes) -> AccountFile:
        fields = self.fields(self.root(text), (GLOBAL, ACCOUNTS, VERSION))
        accounts = tuple(self._account(node) for node in self.items(fields.get(ACCOUNTS)))
        if len(accounts) > MAX_ACCOUNTS:
            raise FileError(f"{self._name}: {len(accounts)} accounts; at most {MAX_ACCOUNTS} are allowed")
        return AccountFile(
            self._name,
            accounts,
            tuple(self._addresses(node) for node in self.items(fields.get(GLOBAL))),
            self._version(fields.get(VERSION)),
            tuple(self._warnings),
        )

    def root(self, text: bytes) -> Node:
        if len(text) > LARGEST_FILE:
            raise FileError(f"{self._name}: {len(text)} bytes; at most {LARGEST_FILE} are allowed")
        try:
            decoded = text.decode("utf-8-sig")
            for event in yaml.parse(decoded, Loader=LOADER):
                if isinstance(event, yaml.AliasEvent):
                    raise FileError(f"{self._name} line {event.start_mark.line + 1}: {_ALIAS}")
            return yaml.compose(decoded, Loader=LOADER)
        except UnicodeDecodeError:
            raise FileError(f"{self._name}: is no text in UTF-8") from None
        except RecursionError:
            raise FileError(f"{self._name}: is nested too deep") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f" line {mark.line + 1}" if mark is not None else ""
            raise FileError(f"{self._name}{place}: {getattr(error, 'problem', None) or 'is no YAML'}") from None

    def fields(self, node: Node, allowed: Sequence[str]) -> dict[str, Node]:
        """A map's values by key, without missing or empty ones."""
        if self._is_empty(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"a map of {', '.join(allowed)} is needed here")
        result: dict[str, Node] = {}
        for key_node, value in node.value:
            key = self.text(key_node)
            if key in result:
                raise self._error(key_node, f"{key} is there twice")
            if key not in allowed:
                close = difflib.get_close_matches(key[:100], allowed, n=1)
                # The key itself is not shown: it may be a secret in the wrong place.
                advice = f"; did you mean {close[0]}?" if close else ""
                self._warn(key_node, f"a key that access control does not know{advice}")
            result[key] = value
        return {key: value for key, value in result.items() if not self._is_empty(value)}

    def items(self, node: Node | None) -> Iterator[Node]:
        if self._is_empty(node):
            return
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, "a list is needed here, each entry after a dash")
        yield from node.value

    def text(self, node: Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "one value is needed here, not a list or map")
        return str(node.value).strip()

    def _account(self, node: Node) -> Account:
        fields = self.fields(node, _ACCOUNT_KEYS)
        key, secret = (self._key(node, fields, name) for name in ("accessKey", "secretKey"))
        permissions = {
            **self._permissions(fields.get("topicPerms"), Resource.TOPIC),
            **self._permissions(fields.get("groupPerms"), Resource.GROUP),
        }
        return Account(
            key,
            Secret(secret.encode()),
            secret,
            self._addresses(fields["whiteRemoteAddress"]) if "whiteRemoteAddress" in fields else Addresses(),
            self._flag(fields.get("admin")),
            self._permission(fields.get("defaultTopicPerm")),
            self._permission(fields.get("defaultGroupPerm")),
            permissions,
            self._place_of(node),
        )

    def _key(self, node: Node, fields: Mapping[str, Node], name: str) -> str:
        if name not in fields:
            raise self._error(node, f"an account without {name}")
        text = self.text(fields[name])
        if not KEY_LENGTH <= len(text) <= LONGEST_KEY:
            # Its length, not the text: it may be the secret.
            raise self._error(
                fields[name], f"{name} has {len(text)} characters, from {KEY_LENGTH} to {LONGEST_KEY} are needed"
            )
        return text

    def _flag(self, node: Node | None) -> bool:
        text = "false" if node is None else self.text(node).lower()
        if text not in ("true", "false", "yes", "no", "on", "off"):
            self._warn(node, "admin is neither true nor false, and counts as false")
        return text in ("true", "yes", "on")

    def _permission(self, node: Node | None) -> int:
        return DENY if node is None else self._permission_of(self.text(node), node)

    def _permission_of(self, text: str, node: Node) -> int:
        permission = PERMISSIONS.get(text.replace(" ", ""))
        if permission is None:
            self._warn(node, f"a permission that is none of {', '.join(PERMISSIONS)} counts as DENY")
            return DENY
        return permission

    def _permissions(self, node: Node | None, resource: Resource) -> dict[str, int]:
        permissions: dict[str, int] = {}
        for item in self.items(node):
            name, equals, permission = self.text(item).partition("=")
            if not equals or not name.strip() or "=" in permission:
                raise self._error(item, f"a permission is written {resource.value}=PUB|SUB")
            permissions[resource_key(resource, name.strip())] = self._permission_of(permission.strip(), item)
            if len(permissions) > MAX_PERMISSIONS:
                raise self._error(item, f"more than {MAX_PERMISSIONS} permissions of one account")
        return permissions

    def _addresses(self, node: Node) -> Addresses:
        try:
            return addresses(self.text(node))
        except AddressError as error:
            raise self._error(node, str(error)) from None

    def _version(self, node: Node | None) -> DataVersion:
        for item in self.items(node):
            fields = self.fields(item, ("counter", "timestamp", "stateVersion"))
            numbers = [self.text(fields[key]) if key in fields else "0" for key in ("counter", "timestamp")]
            if all(number.isdecimal() and len(number) < 19 for number in numbers):
                return DataVersion(int(numbers[0]), int(numbers[1]))
            self._warn(item, "a dataVersion whose numbers are none counts as 0")
        return DataVersion(0, 0)

    def _is_empty(self, node: Node | None) -> bool:
        return node is None or (
            isinstance(node, yaml.ScalarNode) and node.value in ("", "~", "null") and not node.style
        )

    def _place_of(self, node: Node) -> str:
        return f"{self._name} line {node.start_mark.line + 1}"

    def _error(self, node: Node, problem: str) -> FileError:
        return FileError(f"{self._place_of(node)}: {problem}")

    def _warn(self, node: Node, problem: str) -> None:
        self._warnings.append(f"{self._place_of(node)}: {problem}")
