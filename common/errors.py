"""The base class of every error that Rocketlet raises on purpose.

Each package has one small tree below it, by whose fault it is and what to do: the peer's, the disk's, the caller's. An
error's text says what happened, at which setting or address, and what to do about it; a command prints only that text,
since a stack trace helps only with failures that were not foreseen.

Bugs in our own code do not raise a RocketletError: they stay AssertionError, TypeError and the like, and end the task
they happen in, and so the process, loudly.

Java: client/exception/MQClientException.java (and twenty unrelated others)
"""

from __future__ import annotations


class RocketletError(Exception):
    """A foreseen failure; the text says what happened, where, and what to do."""


def leaves(error: BaseException) -> list[BaseException]:
    """The errors inside an exception group, however deep: what a nursery ended with, one by one."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]
