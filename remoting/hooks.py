"""Hooks around every call that we make: signing, tracing, tests. Those around requests that we serve are in `handler`.

A hook is called in the order of its list, in the task of the call, and must not wait. One that raises fails the call
before anything is sent.

Java: remoting/RPCHook.java
"""

from __future__ import annotations

from typing import Protocol

from rocketlet.remoting.command import Command


class ClientHook(Protocol):
    """Around calls that we make; `before` may add header fields (a signature)."""

    def before(self, address: str, command: Command) -> None:
        """About to be sent to this address."""

    def after(self, address: str, command: Command, answer: Command) -> None:
        """Answered. Not called for a call that failed, nor for one-way requests."""
