"""Hooks around every call: signing and checking access, tracing, tests. Both sides, before and after.

A hook is called in the order of its list, in the task of the call or the turn, and must not wait. One that raises
Refused on the server answers with that code and keeps the handler from running; one that raises on the client fails the
call before anything is sent.

Java: remoting/RPCHook.java
"""

from __future__ import annotations

from typing import Protocol

from remoting.command import Command
from remoting.handler import Request


class ClientHook(Protocol):
    """Around calls that we make; `before` may add header fields (a signature)."""

    def before(self, address: str, command: Command) -> None:
        """About to be sent to this address."""

    def after(self, address: str, command: Command, answer: Command) -> None:
        """Answered. Not called for a call that failed, nor for one-way requests."""


class ServerHook(Protocol):
    """Around requests that we serve."""

    def before(self, request: Request) -> None:
        """About to be handled; may raise Refused."""

    def after(self, request: Request, answer: Command) -> None:
        """About to be answered. Not called for one-way requests."""
