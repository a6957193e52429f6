"""Editing an account file: only changed lines are touched, so that comments and order are kept.

An edit is checked before it is used: the new text must mean what was requested, and nothing else may have changed. A
file that cannot be edited by lines (accounts in `{braces}`) is rewritten, without its comments.

Java: acl/plain/PlainPermissionManager.java (updateAccessConfig), which rewrites every file
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from rocketlet.access.account_files import ACCOUNTS, GLOBAL, LOADER, VERSION, FileError, Node, read_accounts
from rocketlet.remoting.protocol.configuration import DataVersion

Value = str | bool | list[str]


class _ByLinesImpossible(Exception):
    """The file cannot be edited by lines."""


def with_account(name: str, text: bytes, access_key: str, values: Mapping[str, Value], version: DataVersion) -> bytes:
    """The file with these values for an account, which is added if it does not exist. Raises FileError.

    Values not in `values` are kept.
    """

    def by_lines(lines: _Lines) -> None:
        entry = lines.account(access_key)
        if entry is None:
            lines.append_account({"accessKey": access_key, **values})
        else:
            lines.set_values(entry, values)

    def by_data(data: dict[str, Any]) -> None:
        accounts = data.setdefault(ACCOUNTS, [])
        for account in accounts:
            if str(account.get("accessKey", "")).strip() == access_key:
                account.update(values)
                break
        else:
            accounts.append({"accessKey": access_key, **values})

    return _edited(name, text, by_lines, by_data, version)


def without_account(name: str, text: bytes, access_key: str, version: DataVersion) -> bytes:
    """The file without an account. Raises FileError."""

    def by_lines(lines: _Lines) -> None:
        entry = lines.account(access_key)
        if entry is not None:
            lines.remove_item(entry)

    def by_data(data: dict[str, Any]) -> None:
        remaining = [
            account for account in data.get(ACCOUNTS) or [] if str(account.get("accessKey", "")).strip() != access_key
        ]
        data[ACCOUNTS] = remaining

    return _edited(name, text, by_lines, by_data, version)


def with_global_addresses(name: str, text: bytes, addresses: Sequence[str], version: DataVersion) -> bytes:
    """The file with these addresses for all accounts. Raises FileError."""
    values: dict[str, Value] = {GLOBAL: list(addresses)}
    return _edited(name, text, lambda lines: lines.set_top(values), lambda data: data.update(values), version)


def _edited(name: str, text: bytes, by_lines: Any, by_data: Any, version: DataVersion) -> bytes:
    read_accounts(name, text)  # a damaged file is not edited
    expected = _plain(text)
    by_data(expected)
    expected[VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
    try:
        lines = _Lines(text)
        by_lines(lines)
        lines = _Lines(lines.encoded())
        lines.set_version(version)
        edited = lines.encoded()
        if _plain(edited) != _texts(expected):
            raise _ByLinesImpossible
    except (_ByLinesImpossible, FileError, yaml.YAMLError):
        edited = yaml.safe_dump(expected, sort_keys=False, allow_unicode=True).encode()
    read_accounts(name, edited)
    return edited


def _plain(text: bytes) -> dict[str, Any]:
    """The file's content with all scalars as text, without empty values."""
    node = yaml.compose(text.decode("utf-8-sig"), Loader=LOADER)
    content = _value(node) if node is not None else {}
    return content if isinstance(content, dict) else {}


def _value(node: Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {_value(key): _value(value) for key, value in node.value if not _is_empty(value)}
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value if not _is_empty(item)]
    return str(node.value).strip()


def _is_empty(node: Node) -> bool:
    return not node.value


def _texts(value: Any) -> Any:
    """Values as they are read back."""
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items() if item not in ("", [], {}, None)}
    if isinstance(value, list):
        return [_texts(item) for item in value if item not in ("", [], {}, None)]
    return _word(value)


def _word(value: Any) -> str:
    return "true" if value is True else "false" if value is False else str(value)


class _Lines:
    """The lines of a file, and the parse tree that locates its values. Valid for one edit."""

    def __init__(self, text: bytes) -> None:
        decoded = text.decode("utf-8-sig")
        self._end = "\r\n" if "\r\n" in decoded else "\n"
        self._lines = decoded.splitlines()
        root = yaml.compose(decoded, Loader=LOADER)
        if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
            raise _ByLinesImpossible
        self._root = root

    def encoded(self) -> bytes:
        return "".join(line + self._end for line in self._lines).encode()

    def account(self, access_key: str) -> Node | None:
        for item in self._accounts():
            for key, value in item.value:
                if key.value == "accessKey" and str(value.value).strip() == access_key:
                    return item
        return None

    def set_values(self, item: Node, values: Mapping[str, Value]) -> None:
        """Requires: `item` is a map of lines. Edits from the last line up, so that line numbers above stay valid."""
        if item.flow_style:
            raise _ByLinesImpossible
        column = item.value[0][0].start_mark.column
        places = {key.value: (key, value) for key, value in item.value}
        new = [line for key in values if key not in places for line in _rendered(key, values[key], column)]
        end = _last_line(item) + 1
        self._lines[end:end] = new
        for key, (key_node, value_node) in sorted(
            places.items(), key=lambda item_places: -item_places[1][0].start_mark.line
        ):
            if key in values:
                self._replace(key_node, value_node, values[key])

    def remove_item(self, item: Node) -> None:
        first, last = item.start_mark.line, _last_line(item)
        indent = self._lines[first][: item.start_mark.column]
        if item.flow_style or indent.strip() != "-":
            raise _ByLinesImpossible
        del self._lines[first : last + 1]

    def append_account(self, values: Mapping[str, Value]) -> None:
        place = self._top(ACCOUNTS)
        if place is None:
            at, column = len(self._lines), 0
            self._lines.append(f"{ACCOUNTS}:")
            at += 1
        else:
            key, value = place
            if isinstance(value, yaml.SequenceNode) and value.flow_style:
                raise _ByLinesImpossible
            items = self._accounts()
            column = _dash_column(self._lines, items[-1]) if items else key.start_mark.column
            at = (_last_line(items[-1]) if items else key.start_mark.line) + 1
        body = [line for key, value in values.items() for line in _rendered(key, value, column + 2)]
        self._lines[at:at] = [" " * column + "- " + body[0].lstrip(), *body[1:]]

    def set_top(self, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            place = self._top(name)
            if place is None:
                self._lines[0:0] = _rendered(name, value, 0)
            else:
                self._replace(*place, value)

    def set_version(self, version: DataVersion) -> None:
        new = [f"{VERSION}:", f"- counter: {version.counter}", f"  timestamp: {version.timestamp}"]
        place = self._top(VERSION)
        if place is None:
            self._lines += new
        else:
            key, value = place
            self._lines[key.start_mark.line : _last_line(value) + 1] = new

    def _replace(self, key: Node, value: Node, new: Value) -> None:
        first, last, column = key.start_mark.line, _last_line(value), key.start_mark.column
        indent = self._lines[first][:column]
        is_scalar = isinstance(value, yaml.ScalarNode) and value.value and value.start_mark.line == value.end_mark.line
        if isinstance(new, list) or not is_scalar:
            rendered = _rendered(key.value, new, column)
            self._lines[first : last + 1] = [indent + rendered[0].lstrip(), *rendered[1:]]
        else:
            line = self._lines[value.start_mark.line]
            changed = line[: value.start_mark.column] + _scalar(new) + line[value.end_mark.column :]
            self._lines[value.start_mark.line] = changed

    def _accounts(self) -> list[Node]:
        place = self._top(ACCOUNTS)
        if place is None or not isinstance(place[1], yaml.SequenceNode):
            return []
        return [item for item in place[1].value if isinstance(item, yaml.MappingNode) and item.value]

    def _top(self, name: str) -> tuple[Node, Node] | None:
        if self._root is None:
            return None
        return next(((key, value) for key, value in self._root.value if key.value == name), None)


def _last_line(node: Node) -> int:
    """The last line of this node: comments after the end of a list or map do not belong to it."""
    if isinstance(node, yaml.ScalarNode):
        end = node.end_mark
        return int(end.line - 1 if end.column == 0 and end.line > node.start_mark.line else end.line)
    if node.flow_style or not node.value:
        return int(node.end_mark.line if node.flow_style else node.start_mark.line)
    last = node.value[-1]
    if isinstance(node, yaml.SequenceNode):
        return _last_line(last)
    key, value = last
    return max(int(key.start_mark.line), _last_line(value) if value.value else 0)


def _dash_column(lines: Sequence[str], item: Node) -> int:
    indent = lines[item.start_mark.line][: item.start_mark.column]
    if indent.strip() != "-":
        raise _ByLinesImpossible
    return int(indent.index("-"))


def _rendered(key: str, value: Value, column: int) -> list[str]:
    indent = " " * column
    if isinstance(value, list):
        return [f"{indent}{key}:", *(f"{indent}- {_scalar(item)}" for item in value)]
    return [f"{indent}{key}: {_scalar(value)}".rstrip()]


def _scalar(value: str | bool) -> str:
    """A value in YAML: quoted if it would otherwise be read as something else."""
    if isinstance(value, bool):
        return _word(value)
    if not value:
        return ""
    dumped: str = yaml.safe_dump(value, default_style=None, width=1_000_000, allow_unicode=True)
    return dumped.removesuffix("...\n").rstrip("\n")
