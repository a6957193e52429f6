"""Requests put to a gate without a server."""

from __future__ import annotations

from typing import Any

from rocketlet.access.account_files import joined, read_accounts
from rocketlet.access.accounts import Rules
from rocketlet.access.gate import Gate
from rocketlet.remoting.command import Command
from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.frame_codec import cut, encode
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Request
from rocketlet.remoting.request_reader import RequestReader


class FakeConnection:
    """A connection as the gate sees it."""

    def __init__(self, host: str = "10.0.0.7", certified: tuple[str, ...] = ()) -> None:
        self.host = host
        self.peer = f"{host}:40000"
        self.certified_names = certified


def rules_of(*texts: str) -> Rules:
    """The rules in these files."""
    return joined([read_accounts(f"{number}.yml", text.encode()) for number, text in enumerate(texts)])[0]


class Desk:
    """A gate with a table of handlers."""

    def __init__(self, rules: Rules, table: HandlerTable, *, strict: bool = True, **gate: Any) -> None:
        self.gate = Gate(lambda: rules, strict=strict, **gate)
        self.table = table
        self._reader = RequestReader({int(code): handler.header for code, handler in table.items()})

    def read(self, frame: bytes, connection: Any = None) -> Request:
        """The request in a frame. Raises FrameError, UnreadableRequest."""
        found = cut(frame)
        if found.error is not None:
            raise found.error
        kind, header, body, end = found.frames[0]
        request = self._reader.read(kind, frame[header:body], frame[body:end], connection or FakeConnection(), 0.0)
        assert isinstance(request, Request)
        return request

    def refusal(self, command: Command | bytes, connection: Any = None) -> str | None:
        """Why a request is refused; None if it is admitted."""
        frame = command if isinstance(command, bytes) else encode(command)
        request = self.read(frame, connection)
        try:
            self.gate.admit(request, self.handler(request.code).access)
        except (Refused, BodyError) as error:
            return str(error)
        return None

    def handler(self, code: int) -> Handler:
        """The entry of a code."""
        return self.table[code]
