"""Hooks around every outgoing call: signing, tracing, tests. Those around served requests are in `handler`.

Hooks are called in the order of their list, in the task of the call, and must not wait. One that raises fails the call
before anything is sent.

Java: remoting/RPCHook.java
"""

from __future__ import annotations

from typing import Protocol

from rocketlet.remoting.command import Command


class ClientHook(Protocol):
    """Around calls that we make; `before` may add header fields (a signature)."""

    def before(self, address: str, command: Command) -> None:
        """The request is about to be sent to this address."""

    def after(self, address: str, command: Command, answer: Command) -> None:
        """The request was answered. Not called for a failed call or a one-way request."""
